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
    """The mean change of score, rewritten - original, and the share of replies that became Good.

    `result`: passes, or fails, if the whole interval lies where it should, or where it should not. `to_good`
    is a share of the replies that were not Good before.
    """

    change: Estimate
    result: Result
    pairs: int
    to_good: Estimate


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

    Not by bootstrap: with a dozen prompts percentile intervals are too short.
    """
    change = _mean(after - before, prompts).estimate()
    least, most = (end * limit if np.isfinite(end) else end for end in ALLOWED[should])
    return Change(
        change=change,
        result=conclude(change, least, most),
        pairs=len(before),
        to_good=_share(is_good[~was_good], prompts[~was_good]),
    )


def conclude(estimate: Estimate, least: float, most: float) -> Result:
    """Return whether the whole interval lies between two bounds, or the whole of it outside of them."""
    ends = estimate.interval
    if ends is None:
        return "inconclusive"
    if least <= ends.low and ends.high <= most:
        return "passes"
    return "fails" if ends.high < least or ends.low > most else "inconclusive"


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
