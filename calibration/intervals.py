"""Bootstrap intervals for statistics of responses that come in clusters."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Draws = NDArray[np.uint16]  # how often each draw (row) takes each cluster (column)
CONFIDENCE = 0.95
CELLS_AT_ONCE = 1 << 20  # bounds the memory of a step to some 10 MB, however many clusters there are


@dataclass(frozen=True, slots=True)
class Interval:
    """The percentile interval of a resampled statistic."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic and its interval; `value` is nan where undefined, `interval` None where there is none."""

    value: float
    interval: Interval | None

    def as_dict(self) -> dict[str, float | None]:
        """Ready for JSON, which knows no nan: what is undefined is null.

        >>> Estimate(0.5, Interval(0.4, 0.6)).as_dict()
        {'value': 0.5, 'low': 0.4, 'high': 0.6}
        >>> Estimate(float("nan"), None).as_dict()
        {'value': None, 'low': None, 'high': None}
        """
        low, high = (self.interval.low, self.interval.high) if self.interval else (None, None)
        return {"value": finite_or_none(self.value), "low": low, "high": high}


def finite_or_none(value: float) -> float | None:
    """JSON has no word for nan and none for infinity."""
    return value if math.isfinite(value) else None


def percentile_interval(draws: Floats) -> Interval | None:
    """The middle 95 % of a statistic's draws; those in which it is undefined (nan) are left out.

    None when it is undefined in most of them: what is left would not be a fair sample.

    >>> percentile_interval(np.array([3.0, 3.0, 3.0, np.nan]))
    Interval(low=3.0, high=3.0)
    >>> percentile_interval(np.array([1.0, np.nan, np.nan])) is None
    True
    """
    defined = draws[np.isfinite(draws)]
    if not defined.size or 2 * defined.size <= draws.size:
        return None
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Interval(float(low), float(high))


def resample_clusters(clusters: int, *, rng: np.random.Generator, draws: int = 2000) -> Draws:
    """How often each cluster is taken in each draw: (draws, clusters), where each row sums to `clusters`.

    Use the same array for everything that shares the clusters (models that answered the same prompts): what
    is common to them then cancels in their difference, as it should.

    >>> drawn = resample_clusters(4, rng=np.random.default_rng(0), draws=3)
    >>> drawn.shape, drawn.sum(axis=1).tolist()
    ((3, 4), [4, 4, 4])
    """
    drawn = np.empty((draws, clusters), dtype=np.uint16)
    step = max(1, CELLS_AT_ONCE // max(1, clusters))
    for start in range(0, draws, step):
        rows = min(step, draws - start)
        taken = rng.integers(clusters, size=(rows, clusters)) + clusters * np.arange(rows)[:, None]
        counted = np.bincount(taken.ravel(), minlength=rows * clusters)
        drawn[start : start + rows] = counted.reshape(rows, clusters)
    return drawn


def mean_intervals(sums: Floats, counts: Floats, drawn: Draws) -> list[Interval] | None:
    """Intervals of `sums.sum(0) / counts.sum()`, the means of several quantities over all responses.

    `sums` is (clusters, quantities), `counts` (clusters,), `drawn` (draws, clusters) as `resample_clusters`
    gives it. Undefined, hence None, with fewer than two clusters: one cannot tell how much they differ.
    A draw that misses every response has no mean and is left out.
    """
    if len(counts) < 2:
        return None
    both = np.column_stack([sums, counts])
    step = max(1, CELLS_AT_ONCE // len(counts))
    totals = np.vstack(
        [drawn[start : start + step].astype(float) @ both for start in range(0, len(drawn), step)]
    )
    totals = totals[totals[:, -1] > 0]
    means = totals[:, :-1] / totals[:, -1:]
    tail = (1 - CONFIDENCE) / 2
    lows, highs = np.quantile(means, [tail, 1 - tail], axis=0)
    return [Interval(float(low), float(high)) for low, high in zip(lows, highs, strict=True)]
