"""Statistics of robustness checks: the effect of a rewrite on scores, and shares of crossed cases."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from calibration.bootstrap import percentile_interval, ratio, resample_clusters
from calibration.cluster import UNIT, Contrast, contrast, t_intervals
from calibration.estimate import CONFIDENCE, UNDEFINED, Estimate, Floats, Integers, Interval

DRAWS: Final = 2000
Cells = NDArray[np.bool_]  # (perturbations, replies)
Result = Literal["passes", "fails", "inconclusive"]
# Where the mean change must lie, as parts of the limit.
ALLOWED: Final = {
    "up": (1.0, np.inf),
    "not up": (-np.inf, 1.0),
    "same": (-1.0, 1.0),
    "not down": (-1.0, np.inf),
    "down": (-np.inf, -1.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The mean change of score, rewritten - original, and how many labels went to Good and away from it.

    `result`: passes, or fails, if the whole interval lies where it should, or where it should not.
    `detectable` is how far beyond the limit the true change must be to be found with a power of 0.8.
    Flips to Good are a part of the responses that were not Good before, those from it of the ones that were.
    """

    change: Estimate
    detectable: float
    result: Result
    pairs: int
    prompts: int
    to_good: Estimate
    from_good: Estimate
    were_good: int


def mean_change(
    before: Floats,
    after: Floats,
    was_good: NDArray[np.bool_],
    is_good: NDArray[np.bool_],
    prompts: Integers,
    *,
    should: str,
    limit: float,
) -> Change:
    """Return the change of score over pairs, by t over whole prompts; undefined with fewer than two.

    Not by bootstrap: what could have been found needs the standard error anyway, and with a dozen prompts
    percentile t_intervals are too short.
    """
    found = _mean(after - before, prompts)
    return Change(
        change=found.estimate(),
        detectable=found.detectable(),
        result=_conclude(found.estimate(), ALLOWED[should], limit),
        pairs=len(before),
        prompts=len(np.unique(prompts)),
        to_good=_share(is_good[~was_good], prompts[~was_good]),
        from_good=_share(~is_good[was_good], prompts[was_good]),
        were_good=int(was_good.sum()),
    )


def _conclude(change: Estimate, allowed: tuple[float, float], limit: float) -> Result:
    if change.interval is None:
        return "inconclusive"
    least, most = (end * limit if np.isfinite(end) else end for end in allowed)
    if least <= change.interval.low and change.interval.high <= most:
        return "passes"
    return "fails" if change.interval.high < least or change.interval.low > most else "inconclusive"


def _mean(values: Floats, prompts: Integers) -> Contrast:
    return contrast(values, np.ones(len(values)), prompts)


def _share(flips: NDArray[np.bool_], prompts: Integers) -> Estimate:
    """A share with Wilson's interval at the effective number of responses, as for shares of ratings."""
    found = _mean(flips.astype(float), prompts)
    if not found.is_defined:
        return Estimate(float(flips.mean()) if len(flips) else float("nan"), None)
    number = float(len(np.unique(prompts)))
    value = np.array([float(flips.mean())])  # to the last digit: a share of 1 is not a little more
    low, high = t_intervals(value, np.array([found.error**2]), np.array([found.freedom]), UNIT, number)
    return Estimate(float(value[0]), Interval(float(low[0]), float(high[0])))


def exact_share(hits: int, count: int) -> Estimate:
    """A part of independent cases with Clopper and Pearson's interval; undefined without any.

    >>> share = exact_share(0, 20)
    >>> share.value, round(share.interval.high, 3)
    (0.0, 0.168)
    """
    if not count:
        return UNDEFINED
    # Not by scipy's binomtest, which finds the ends by trial, and a p-value too: a report has
    # hundreds of shares, and they took half of its time.
    from scipy.special import betaincinv

    tail = (1 - CONFIDENCE) / 2
    low = float(betaincinv(hits, count - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, count - hits, 1 - tail)) if hits < count else 1.0
    return Estimate(hits / count, Interval(low, high))


def crossed_share(hits: Cells, counted: Cells, *, rng: np.random.Generator, draws: int = DRAWS) -> Estimate:
    """Return the share of hits among the counted cells of (perturbations, replies), resampling both.

    A reply is easy or hard under all perturbations, and a perturbation on all replies, so cells are not
    independent. Where all cells agree a bootstrap has no spread: then every reply counts as one case.
    """
    hit, total = int((hits & counted).sum()), int(counted.sum())
    if not total:
        return UNDEFINED
    if hit in (0, total):
        replies = int(counted.any(axis=0).sum())
        return exact_share(replies if hit else 0, replies)
    perturbations, replies = hits.shape
    rows = resample_clusters(perturbations, rng=rng, draws=draws).astype(float)
    columns = resample_clusters(replies, rng=rng, draws=draws).astype(float)
    tops, bottoms = (
        ((rows @ cells.astype(float)) * columns).sum(axis=1) for cells in (hits & counted, counted)
    )
    return Estimate(hit / total, percentile_interval(ratio(tops, bottoms)))
