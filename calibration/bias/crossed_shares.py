"""Shares of cases that cross two samples, such as perturbations and replies, with their intervals."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration.bootstrap import percentile_interval, ratio, resample_clusters
from calibration.estimate import CONFIDENCE, UNDEFINED, Estimate, Interval

DRAWS: Final = 2000
Cells = NDArray[np.bool_]  # (perturbations, replies)


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
