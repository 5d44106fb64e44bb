"""Shares of cases that cross two samples, such as attacks and replies: intervals, and the best of N tries."""

from math import comb
from typing import Final

import numpy as np
from numpy.typing import NDArray

from calibration.bootstrap import percentile_interval, ratio, resample_clusters
from calibration.estimate import CONFIDENCE, UNDEFINED, Estimate, Interval

DRAWS: Final = 2000
Cells = NDArray[np.bool_]  # (attacks, replies)


def exact_share(hits: int, count: int) -> Estimate:
    """A part of independent cases with Clopper and Pearson's interval; undefined without any.

    >>> share = exact_share(0, 20)
    >>> share.value, round(share.interval.high, 3)
    (0.0, 0.168)
    """
    if not count:
        return UNDEFINED
    # Not by scipy's binomtest, which finds the ends by trial, and a p-value too: a report on attacks has
    # hundreds of shares, and they took half of its time.
    from scipy.special import betaincinv

    tail = (1 - CONFIDENCE) / 2
    low = float(betaincinv(hits, count - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, count - hits, 1 - tail)) if hits < count else 1.0
    return Estimate(hits / count, Interval(low, high))


def crossed_share(hits: Cells, counted: Cells, *, rng: np.random.Generator, draws: int = DRAWS) -> Estimate:
    """The part of hits among the counted cells of (attacks, replies), drawing both attacks and replies anew.

    A reply is easy or hard under all attacks and an attack on all replies, so cells are not independent.
    Where all cells agree a bootstrap sees no chance at all: then every reply counts as a single case.
    """
    hit, total = int((hits & counted).sum()), int(counted.sum())
    if not total:
        return UNDEFINED
    if hit in (0, total):
        replies = int(counted.any(axis=0).sum())
        return exact_share(replies if hit else 0, replies)
    attacks, replies = hits.shape
    rows = resample_clusters(attacks, rng=rng, draws=draws).astype(float)
    columns = resample_clusters(replies, rng=rng, draws=draws).astype(float)
    tops, bottoms = (
        ((rows @ cells.astype(float)) * columns).sum(axis=1) for cells in (hits & counted, counted)
    )
    return Estimate(hit / total, percentile_interval(ratio(tops, bottoms)))


def best_of(
    hits: Cells, counted: Cells, tries: int, *, rng: np.random.Generator, draws: int = DRAWS
) -> Estimate:
    """The part of replies with a hit among `tries` different attacks, taken at random from those counted.

    Exact for each reply: one minus the chance that none of its hits is taken. The interval is over replies.

    >>> hits = np.array([[True, False], [False, False]])
    >>> [best_of(hits, hits | True, tries, rng=np.random.default_rng(0)).value for tries in (1, 2)]
    [0.25, 0.5]
    """
    chances = np.array(
        [
            1 - comb(count - hit, min(tries, count)) / comb(count, min(tries, count))
            for hit, count in zip(
                (hits & counted).sum(axis=0).tolist(), counted.sum(axis=0).tolist(), strict=True
            )
            if count
        ]
    )
    if not chances.size:
        return UNDEFINED
    value = float(chances.mean())
    if value in (0.0, 1.0):
        return exact_share(round(value) * chances.size, chances.size)
    drawn = resample_clusters(chances.size, rng=rng, draws=draws)
    return Estimate(value, percentile_interval(drawn @ chances / chances.size))
