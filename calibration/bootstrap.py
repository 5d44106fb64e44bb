"""The cluster bootstrap: draws of whole clusters, statistics over all draws at once, percentile intervals.

Everything slow (sorting, tabulating) happens once, when a statistic is made for its rows. What comes back is
a function from counts, how often each draw takes each row, to the statistic in each draw. The plain value is
the one draw that takes every row once, so a statistic and its interval can never follow two formulas.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from empathy_judge.calibration.cluster import joint_freedom, t_quantile
from empathy_judge.calibration.estimate import CONFIDENCE, Estimate, Floats, Integers, Interval

Draws = NDArray[np.uint16]  # how often each draw (row) takes each cluster (column)
Statistic = Callable[[Floats], Floats]  # counts (draws, rows) -> the statistic in each draw, (draws,)
Scale = Literal["own", "z", "logit"]  # where an interval is even: the statistic's own, Fisher's z, log odds
FEW_CLUSTERS = 100
NEARLY_ONE = 1 - 1e-9  # the most that Fisher's z is taken of
CELLS_AT_ONCE = 1 << 20  # bounds the memory of a step to some 10 MB, however many clusters there are


def percentile_interval(draws: Floats) -> Interval | None:
    """Return the middle 95% of a statistic's draws; None where it is undefined (nan) in most of them.

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
    """Return how often each draw takes each cluster: (draws, clusters); each row sums to `clusters`.

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


def sum_draws(sums: Floats, drawn: Draws) -> Floats:
    """Add up the clusters of each draw, (clusters, columns) -> (draws, columns)."""
    step = max(1, CELLS_AT_ONCE // max(1, drawn.shape[1]))
    parts = [drawn[start : start + step].astype(float) @ sums for start in range(0, len(drawn), step)]
    return np.vstack(parts) if parts else np.zeros((0, sums.shape[1]))


def mean_intervals(sums: Floats, counts: Floats, drawn: Draws) -> list[Interval] | None:
    """Return intervals of `sums.sum(0) / counts.sum()`, the means of several quantities over all responses.

    `sums` is (clusters, quantities), `counts` (clusters,), `drawn` (draws, clusters). None with fewer than
    two clusters. A draw that misses every response has no mean and is left out.
    """
    if len(counts) < 2:
        return None
    totals = sum_draws(np.column_stack([sums, counts]), drawn)
    totals = totals[totals[:, -1] > 0]
    means = totals[:, :-1] / totals[:, -1:]
    return [interval for column in means.T if (interval := percentile_interval(column)) is not None]


def replicate_clusters(clusters: int, *, rng: np.random.Generator, draws: int = 2000) -> Draws:
    """Return draws of clusters, as `resample_clusters` does; of few, each left out once instead.

    Percentiles of draws from few clusters are too close together.

    >>> replicate_clusters(3, rng=np.random.default_rng(0)).tolist()
    [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    """
    if clusters > FEW_CLUSTERS:
        return resample_clusters(clusters, rng=rng, draws=draws)
    return (1 - np.eye(clusters)).astype(np.uint16) if clusters > 1 else np.empty((0, clusters), np.uint16)


def leaves_one_out(drawn: Draws) -> bool:
    """Return whether each of these draws is all clusters but one."""
    return len(drawn) > 0 and int(drawn[0].sum()) == drawn.shape[1] - 1


def jackknife_interval(
    value: float, left_out: Floats, *, scale: Scale = "own", unseen: float = 0.0
) -> Interval | None:
    """Return Student's interval from a statistic's values without each cluster (Efron and Stein 1981).

    Return None if fewer than two clusters influence the statistic. `unseen` is variance that no cluster can
    show. Near the ends of its scale a statistic of few raters is skewed: a coefficient of agreement gets its
    interval on Fisher's z, a share of hits on the logit.

    >>> ends = jackknife_interval(3.0, np.array([4.0, 3.5, 1.5]))  # the mean of 1, 2 and 6
    >>> round(ends.low, 2), round(ends.high, 2)
    (-3.57, 9.57)
    """
    moved = left_out[np.isnan(left_out) | (np.abs(left_out - value) > 1e-12)]
    if len(left_out) > 1 and not len(moved) and not unseen:
        return Interval(value, value)
    if len(moved) < 2 or not np.isfinite(moved).all():
        return None
    on_z = scale == "z" and min(value, *moved) > -1
    if on_z:
        value, moved = float(np.arctanh(min(value, NEARLY_ONE))), np.arctanh(np.minimum(moved, NEARLY_ONE))
    shown, freedom = np.array([(len(moved) - 1) * moved.var()]), np.array([len(moved) - 1.0])
    if unseen:  # it is not estimated from the clusters, and takes none of their degrees of freedom
        freedom = joint_freedom(shown + unseen, (shown, freedom), (np.array([unseen]), np.array([np.inf])))
    (wide,) = t_quantile(freedom) * np.sqrt(shown + unseen)
    if scale == "logit" and 0 < value < 1:
        # By the delta method: a value of 0 or 1 without one cluster has no logit, but moves no further.
        away, odds = wide / (value * (1 - value)), np.log(value / (1 - value))
        low, high = (1 + np.tanh(np.array([odds - away, odds + away]) / 2)) / 2
    else:
        ends = np.array([value - wide, value + wide])
        low, high = np.tanh(ends) if on_z else ends
    return Interval(float(low), float(high))


@dataclass(frozen=True, slots=True)
class Sampled:
    """A statistic's value and what it was in each draw; two with the same draws can be subtracted."""

    value: float
    draws: Floats
    is_left_out: bool = False  # each draw is all clusters but one

    def __sub__(self, other: "Sampled") -> "Sampled":
        return Sampled(self.value - other.value, self.draws - other.draws, self.is_left_out)

    def estimate(
        self, *, low: float = -np.inf, high: float = np.inf, scale: Scale = "own", unseen: float = 0.0
    ) -> Estimate:
        """Return the value with its interval, clipped to the scale; none for an undefined value."""
        if not np.isfinite(self.value):
            return Estimate(self.value, None)
        if not self.is_left_out:
            return Estimate(self.value, percentile_interval(self.draws))
        ends = jackknife_interval(self.value, self.draws, scale=scale, unseen=unseen)
        return Estimate(self.value, ends and Interval(max(low, ends.low), min(high, ends.high)))


def value_of(statistic: Statistic, rows: int) -> float:
    """Return the statistic itself, every row taken once; undefined without rows."""
    return float(statistic(np.ones((1, rows)))[0]) if rows else float("nan")


def sample(statistics: Mapping[str, Statistic], clusters: Integers, drawn: Draws) -> dict[str, Sampled]:
    """Compute every statistic and its draws; `clusters` is each row's column in `drawn`."""
    draws = {name: np.empty(len(drawn)) for name in statistics}
    step = max(1, CELLS_AT_ONCE // max(1, len(clusters)))
    for start in range(0, len(drawn), step):
        counts = drawn[start : start + step][:, clusters].astype(float)
        for name, statistic in statistics.items():
            draws[name][start : start + step] = statistic(counts)
    return {
        name: Sampled(value_of(statistic, len(clusters)), draws[name], leaves_one_out(drawn))
        for name, statistic in statistics.items()
    }


def ratio(above: Floats, below: Floats) -> Floats:
    """`above / below`, nan where that is undefined, and silent about it."""
    shape = np.broadcast_shapes(above.shape, below.shape)
    out: Floats = np.divide(above, below, out=np.full(shape, np.nan), where=below != 0)
    return out


def mean_of(values: Floats) -> Statistic:
    """Return the mean of a column as a statistic."""
    return lambda counts: ratio(counts @ values, counts.sum(axis=1))
