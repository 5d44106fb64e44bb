"""Statistics of robustness checks: the effect of a rewrite on scores, and shares of crossed cases."""

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from empathy_judge.calibration.bootstrap import percentile_interval, ratio, resample_clusters
from empathy_judge.calibration.cluster import contrast
from empathy_judge.calibration.estimate import CONFIDENCE, UNDEFINED, Estimate, Floats, Integers, Interval

DRAWS: Final = 2000
Cells = NDArray[np.bool_]  # (perturbations, replies)
Result = Literal["passes", "fails", "inconclusive"]


def mean_change(before: Floats, after: Floats, prompts: Integers) -> Estimate:
    """Return the change of score over pairs, by t over whole prompts; undefined with fewer than two.

    Not by bootstrap: with a dozen prompts percentile intervals are too short.
    """
    return contrast(after - before, np.ones(len(before)), prompts).estimate()


def conclude(estimate: Estimate, least: float, most: float) -> Result:
    """Return whether the whole interval is between two bounds, or the whole of it outside of them."""
    ends = estimate.interval
    if ends is None:
        return "inconclusive"
    if least <= ends.low and ends.high <= most:
        return "passes"
    return "fails" if ends.high < least or ends.low > most else "inconclusive"


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
