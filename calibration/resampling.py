"""Statistics of agreement over many bootstrap draws at once.

Everything slow (sorting, tabulating) happens once, when a statistic is made for its rows. What comes back is
a function from counts, how often each draw takes each row, to the statistic in each draw. The plain value is
the one draw that takes every row once, so a statistic and its interval can never follow two formulas.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibration.intervals import CELLS_AT_ONCE, Draws, Estimate, Floats, percentile_interval

Integers = NDArray[np.intp]
Statistic = Callable[[Floats], Floats]  # counts (draws, rows) -> the statistic in each draw, (draws,)
Weights = Literal["quadratic", "linear"] | None


@dataclass(frozen=True, slots=True)
class Sampled:
    """A statistic's value and what it was in each draw; two with the same draws can be subtracted."""

    value: float
    draws: Floats

    def __sub__(self, other: "Sampled") -> "Sampled":
        return Sampled(self.value - other.value, self.draws - other.draws)

    def estimate(self) -> Estimate:
        """The value with its percentile interval; no interval for a value that is itself undefined."""
        return Estimate(self.value, percentile_interval(self.draws) if np.isfinite(self.value) else None)


def value_of(statistic: Statistic, rows: int) -> float:
    """The statistic itself, every row taken once; undefined without rows."""
    return float(statistic(np.ones((1, rows)))[0]) if rows else float("nan")


def sample(statistics: Mapping[str, Statistic], clusters: Integers, drawn: Draws) -> dict[str, Sampled]:
    """Every statistic and its draws; `clusters` is each row's column in `drawn`, (draws, clusters)."""
    found = {name: np.empty(len(drawn)) for name in statistics}
    step = max(1, CELLS_AT_ONCE // max(1, len(clusters)))
    for start in range(0, len(drawn), step):
        counts = drawn[start : start + step][:, clusters].astype(float)
        for name, statistic in statistics.items():
            found[name][start : start + step] = statistic(counts)
    rows = len(clusters)
    return {name: Sampled(value_of(statistics[name], rows), draws) for name, draws in found.items()}


def ratio(above: Floats, below: Floats) -> Floats:
    """`above / below`, nan where that is undefined, and silent about it."""
    shape = np.broadcast_shapes(above.shape, below.shape)
    out: Floats = np.divide(above, below, out=np.full(shape, np.nan), where=below != 0)
    return out


def kappa_of(ratings: NDArray[Any], labels: NDArray[Any], weights: Weights) -> Statistic:
    """Cohen's kappa: 1 - observed / expected disagreement; from -1 to 1, where 0 is chance.

    A pair x, y disagrees by (x - y)^2 with quadratic `weights`, by |x - y| with linear ones, and by 1, if it
    differs at all, with None. "Expected" is over all pairs of one's ratings with the other's labels.
    Undefined when both gave one and the same value throughout.
    """
    values, cells = _cells(ratings, labels)
    gaps = np.abs(values[:, None] - values[None, :])
    distance = {"quadratic": gaps**2, "linear": gaps, None: (gaps > 0).astype(float)}[weights]

    def kappa(counts: Floats) -> Floats:
        table = (counts @ cells).reshape(-1, len(values), len(values))
        observed = (table * distance).sum(axis=(1, 2)) * table.sum(axis=(1, 2))
        expected = ((table.sum(axis=2) @ distance) * table.sum(axis=1)).sum(axis=1)
        return 1 - ratio(observed, expected)

    return kappa


def balanced_accuracy_of(ratings: NDArray[Any], labels: NDArray[Any]) -> Statistic:
    """The mean over ratings that occur of the part of them the label hits; from 0 to 1.

    With k ratings chance is 1 / k. Undefined when only one rating occurs: there is nothing to balance.
    """
    values, cells = _cells(ratings, labels)

    def balanced_accuracy(counts: Floats) -> Floats:
        table = (counts @ cells).reshape(-1, len(values), len(values))
        recalls = ratio(np.diagonal(table, axis1=1, axis2=2), table.sum(axis=2))
        rated = ~np.isnan(recalls)
        total, kinds = np.where(rated, recalls, 0).sum(axis=1), rated.sum(axis=1).astype(float)
        return ratio(total, np.where(kinds > 1, kinds, 0.0))

    return balanced_accuracy


def auc_of(positive: NDArray[np.bool_], scores: Floats) -> Statistic:
    """How often a positive scores above a negative, a tie counting half (Mann-Whitney); from 0 to 1.

    0.5 is chance. Undefined when all or none are positive.
    """
    ties = _ties(scores)

    def auc(counts: Floats) -> Floats:
        above = ties.sums(counts * positive)
        below = ties.sums(counts * ~positive)
        wins = (above * (below.cumsum(axis=1) - below / 2)).sum(axis=1)
        return ratio(wins, above.sum(axis=1) * below.sum(axis=1))

    return auc


def spearman_of(first: Floats, second: Floats) -> Statistic:
    one, two = _ties(first), _ties(second)
    return lambda counts: correlation(one.ranks(counts), two.ranks(counts), counts)


def mean_of(values: Floats) -> Statistic:
    return lambda counts: ratio(counts @ values, counts.sum(axis=1))


def calibration_error_of(positive: NDArray[np.bool_], probabilities: Floats, bins: int) -> Statistic:
    # Bins are cut once, over all rows; a draw that cut its own would also measure how the cuts jump.
    number = (positions(probabilities) * bins).astype(np.intp)
    excess = (probabilities - positive)[:, None] * (number[:, None] == np.arange(bins))
    return lambda counts: ratio(np.abs(counts @ excess).sum(axis=1), counts.sum(axis=1))


def correlation(first: Floats, second: Floats, counts: Floats) -> Floats:
    """Pearson's r over the last axis, each pair taken `counts` times."""
    total = counts.sum(axis=1)
    one = first - ratio((counts * first).sum(axis=1), total)[:, None]
    two = second - ratio((counts * second).sum(axis=1), total)[:, None]
    squares = (counts * one**2).sum(axis=1) * (counts * two**2).sum(axis=1)
    return ratio((counts * one * two).sum(axis=1), np.sqrt(squares))


def kendall(first: Floats, second: Floats) -> Floats:
    """Kendall's tau-b over the last axis, (draws, rows) -> (draws,); takes all pairs, so tens of rows."""
    one = np.sign(first[:, :, None] - first[:, None, :])
    two = np.sign(second[:, :, None] - second[:, None, :])
    untied = (one**2).sum(axis=(1, 2)) * (two**2).sum(axis=(1, 2))
    return ratio((one * two).sum(axis=(1, 2)), np.sqrt(untied))


def positions(values: Floats) -> Floats:
    """Where each value stands among all, strictly between 0 and 1; equal values stand at the same place.

    >>> positions(np.array([5.0, 1.0, 5.0, 9.0])).tolist()
    [0.5, 0.125, 0.5, 0.875]
    """
    ranks: Floats = _ties(values).ranks(np.ones((1, len(values))))[0]
    return (ranks - 0.5) / max(1, len(values))


@dataclass(frozen=True, slots=True)
class _Ties:
    """Rows in groups of equal value, the groups in ascending order."""

    order: Integers  # rows, sorted
    starts: Integers  # where each group begins in `order`
    group: Integers  # each row's group

    def sums(self, counts: Floats) -> Floats:
        ordered = counts[:, self.order]
        return (
            ordered if len(self.starts) == len(self.order) else np.add.reduceat(ordered, self.starts, axis=1)
        )

    def ranks(self, counts: Floats) -> Floats:
        """Each row's average rank, (draws, rows), among rows that are there `counts` times."""
        sums = self.sums(counts)
        ranks: Floats = (sums.cumsum(axis=1) - (sums - 1) / 2)[:, self.group]
        return ranks


def _ties(values: Floats) -> _Ties:
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return _Ties(np.argsort(group, kind="stable"), np.cumsum(sizes) - sizes, group)


def _cells(ratings: NDArray[Any], labels: NDArray[Any]) -> tuple[Floats, Floats]:
    """The values in use, and which cell of the table rating by label each row falls in, (rows, cells)."""
    values, codes = np.unique(np.concatenate([ratings, labels]), return_inverse=True)
    cell = codes[: len(ratings)] * len(values) + codes[len(ratings) :]
    return values.astype(float), (cell[:, None] == np.arange(len(values) ** 2)).astype(float)
