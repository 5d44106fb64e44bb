"""Statistics of agreement: of a judge with people, and of people among themselves.

Two parties give a table of how often the one gave a while the other gave b, (draws, k, k); a draw is a sum of
its clusters' tables, so thousands of draws are one matrix product. By hand, since libraries take one data set
at a time; the tests compare the values with scikit-learn, krippendorff and scipy. Of `*_error` smaller is
better; of all else, more. Undefined values are nan; nothing raises or warns on degenerate ratings.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from empathy_judge.calibration.bootstrap import Draws, Statistic, ratio, sum_draws
from empathy_judge.calibration.cluster import MIN_COUNT, clustered_share
from empathy_judge.calibration.estimate import UNDEFINED, Estimate, Floats, Integers

TableStatistic = Callable[[Floats], Floats]  # (draws, k, k) -> (draws,)
LEAST_PROBABILITY: Final = 1e-6  # judgments are written to six digits, so a 0 can be anything below this
BINS: Final = 10
LEAST_MINORITY: Final = 10  # labels other than the commonest; with fewer a kappa is decided by a handful


def tables_of(
    first: NDArray[Any], second: NDArray[Any], levels: int, clusters: Integers, drawn: Draws
) -> Floats:
    """The table of two columns of positions 1..k in each draw, (draws, k, k)."""
    cells = _cells(first, second, levels)
    kinds = drawn.shape[1]
    counted = np.bincount(clusters * levels**2 + cells, minlength=kinds * levels**2)
    return sum_draws(counted.reshape(kinds, levels**2).astype(float), drawn).reshape(-1, levels, levels)


def table_of(first: NDArray[Any], second: NDArray[Any], levels: int) -> Floats:
    """The table of all rows, (k, k): the first's positions down, the second's across.

    >>> table_of(np.array([1, 2, 2]), np.array([1, 1, 2]), 2).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    rows = np.zeros(len(first), dtype=np.intp)
    table: Floats = tables_of(first, second, levels, rows, np.ones((1, 1), dtype=np.uint16))[0]
    return table


def from_table(
    statistic: TableStatistic, first: NDArray[Any], second: NDArray[Any], levels: int
) -> Statistic:
    """A statistic of tables as one of rows, for draws that take rows of other statistics too."""
    inside = (_cells(first, second, levels)[:, None] == np.arange(levels**2)).astype(float)
    return lambda counts: statistic((counts @ inside).reshape(-1, levels, levels))


def _cells(first: NDArray[Any], second: NDArray[Any], levels: int) -> Integers:
    """Which cell of the table each row falls in."""
    return levels * (np.asarray(first, dtype=np.intp) - 1) + np.asarray(second, dtype=np.intp) - 1


def exact(tables: Floats) -> Floats:
    """The part of rows in which both say the same."""
    return ratio(np.trace(tables, axis1=1, axis2=2), tables.sum(axis=(1, 2)))


def balanced_accuracy(tables: Floats) -> Floats:
    """Return the mean, over levels the first gave, of the part of them the second hit.

    Undefined where either gave one level only: then it is 1 / k by definition, whatever the judge is like.

    >>> always_good = table_of(np.array([1, 2, 3]), np.array([3, 3, 3]), 3)
    >>> balanced_accuracy(always_good[None]).tolist()
    [nan]
    """
    recalls = ratio(np.diagonal(tables, axis1=1, axis2=2), tables.sum(axis=2))
    given, said = ((tables.sum(axis=axis) > 0).sum(axis=1).astype(float) for axis in (2, 1))
    return ratio(np.nansum(recalls, axis=1), np.where((given > 1) & (said > 1), given, 0.0))


def unseen_variance(table: Floats) -> float:
    """Return the variance of `balanced_accuracy` that levels never hit, (k, k), do not show.

    Whichever cluster is left out, the recall of such a level stays 0, as if it were known. It is taken to
    have the variance of half a hit.
    """
    rated = table.sum(axis=1)
    unseen = rated[(np.diagonal(table) < MIN_COUNT) & (rated > 0)]
    return float((MIN_COUNT / unseen**2).sum() / (rated > 0).sum() ** 2)


def qwk(tables: Floats) -> Floats:
    """Return Cohen's kappa with quadratic weights, 1 - observed / expected disagreement; 0 is chance.

    Neighboring levels are one apart, whether or not they occur. "Expected" is over all pairs of one's ratings
    with the other's. Undefined when both gave one level throughout.

    >>> qwk(table_of(np.array([1, 2, 5, 5]), np.array([1, 5, 5, 5]), 5)[None]).round(3).tolist()
    [0.667]
    """
    steps = np.arange(tables.shape[1])
    distance = np.subtract.outer(steps, steps).astype(float) ** 2
    observed = (tables * distance).sum(axis=(1, 2)) * tables.sum(axis=(1, 2))
    expected = ((tables.sum(axis=2) @ distance) * tables.sum(axis=1)).sum(axis=1)
    return 1 - ratio(observed, expected)


def ordinal_alpha(coincidences: Floats) -> Floats:
    """Return Krippendorff's ordinal alpha from coincidence matrices, (draws, k, k); see `coincidences_of`.

    Undefined when no item has two ratings, or when all that have show one level.
    """
    margins = coincidences.sum(axis=2)
    # A level has the mean rank of its values, so the levels' distances differ from draw to draw.
    ranks = margins.cumsum(axis=1) - margins / 2
    distance = (ranks[:, :, None] - ranks[:, None, :]) ** 2
    observed = (coincidences * distance).sum(axis=(1, 2)) * (margins.sum(axis=1) - 1)
    expected = (margins[:, :, None] * margins[:, None, :] * distance).sum(axis=(1, 2))
    return 1 - ratio(observed, expected)


def coincidences_of(counts: Floats) -> Floats:
    """Each item's part of the coincidence matrix, (items, k) level counts -> (items, k, k).

    An item with m ratings has m (m - 1) ordered pairs, each of weight 1 / (m - 1); with one it has none.
    """
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(counts.shape[1])
    others = np.maximum(counts.sum(axis=1) - 1, 1)
    shared: Floats = pairs / others[:, None, None]
    return shared


def level_counts(table: Floats, levels: int) -> Floats:
    """Count how often each item was given each level, (raters, items) -> (items, k)."""
    return np.stack([(table == level).sum(axis=0) for level in range(1, levels + 1)], axis=1).astype(float)


TABLE_STATISTICS: Final[dict[str, TableStatistic]] = {
    "exact": exact,
    "balanced_accuracy": balanced_accuracy,
    "qwk": qwk,
    "alpha_ordinal": lambda tables: ordinal_alpha(tables + tables.transpose(0, 2, 1)),
}
CHANCE_CORRECTED: Final = {"qwk", "qwk_matched", "alpha_ordinal"}
FEW_MINORITY: Final = "fewer than ten labels, human or by the judge, differ from the most common one"
# Why a metric is undefined, where it is.
REASONS: Final[dict[str, str]] = {
    **dict.fromkeys(sorted(CHANCE_CORRECTED), FEW_MINORITY),
    "balanced_accuracy": "the judge, or people, gave one label only",
    "spearman": "the judge's scores, or the ratings, are all equal",
    "exact": "there are no ratings",
}


def auc_of(positive: NDArray[np.bool_], scores: Floats) -> Statistic:
    """How often a positive scores above a negative, a tie counting half (Mann-Whitney); from 0 to 1.

    0.5 is chance. Undefined when all or none are positive.
    """
    ties = _Ties(scores)

    def auc(counts: Floats) -> Floats:
        above = ties.sums(counts * positive)
        below = ties.sums(counts * ~positive)
        wins = (above * (below.cumsum(axis=1) - below / 2)).sum(axis=1)
        return ratio(wins, above.sum(axis=1) * below.sum(axis=1))

    return auc


def spearman_of(first: Floats, second: Floats) -> Statistic:
    """Pearson's correlation of the ranks, where equal values share their average rank."""
    one, two = _Ties(first), _Ties(second)
    return lambda counts: correlation(one.ranks(counts), two.ranks(counts), counts)


def correlation(first: Floats, second: Floats, counts: Floats) -> Floats:
    """Pearson's r over the last axis, each pair taken `counts` times."""
    total = counts.sum(axis=1)
    one = first - ratio((counts * first).sum(axis=1), total)[:, None]
    two = second - ratio((counts * second).sum(axis=1), total)[:, None]
    squares = (counts * one**2).sum(axis=1) * (counts * two**2).sum(axis=1)
    return ratio((counts * one * two).sum(axis=1), np.sqrt(squares))


def positions(values: Floats) -> Floats:
    """Return the relative rank of each value, strictly between 0 and 1; equal values have the same rank.

    >>> positions(np.array([5.0, 1.0, 5.0, 9.0])).tolist()
    [0.5, 0.125, 0.5, 0.875]
    """
    ranks: Floats = _Ties(values).ranks(np.ones((1, len(values))))[0]
    return (ranks - 0.5) / max(1, len(values))


def matched_labels(ratings: NDArray[Any], scores: Floats, levels: int) -> Integers:
    """Labels 1..k cut from the scores, as frequent as the ratings; equal scores get the same label.

    >>> matched_labels(np.array([1, 3, 3, 3]), np.array([2.2, 2.1, 2.9, 2.6]), 3).tolist()
    [3, 1, 3, 3]
    """
    cuts = [np.mean(ratings <= level) for level in range(1, levels)]
    return 1 + np.searchsorted(cuts, positions(scores), side="left")


class _Ties:
    """Rows in groups of equal value, the groups in ascending order."""

    def __init__(self, values: Floats) -> None:
        _, self.group, sizes = np.unique(values, return_inverse=True, return_counts=True)
        self.order = np.argsort(self.group, kind="stable")
        self.starts = np.cumsum(sizes) - sizes  # where each group begins in `order`

    def sums(self, counts: Floats) -> Floats:
        ordered, has_ties = counts[:, self.order], len(self.starts) < len(self.order)
        return np.add.reduceat(ordered, self.starts, axis=1) if has_ties else ordered

    def ranks(self, counts: Floats) -> Floats:
        """Each row's average rank, (draws, rows), among rows that are there `counts` times."""
        sums = self.sums(counts)
        return (sums.cumsum(axis=1) - (sums - 1) / 2)[:, self.group]


def calibration_error(positive: ArrayLike, probabilities: ArrayLike) -> float:
    """Return the mean over responses of |mean probability - positive part| in the response's bin; 0 to 1.

    The responses are sorted by probability and cut into bins of equal count; equal probabilities stay
    together, in the bin of their middle, so bins may differ in size or be empty. Chance alone keeps a
    perfect judge above 0, by about 0.8 sqrt(bins p (1 - p) / n): compare judges on the same responses only.
    Undefined without responses.

    >>> round(calibration_error([True, False, True, True], [0.2, 0.2, 0.9, 0.9]), 3)
    0.2
    """
    outcome, predicted = np.asarray(positive, dtype=bool), np.asarray(probabilities, dtype=float)
    if not len(outcome):
        return np.nan
    number = (positions(predicted) * BINS).astype(np.intp)
    return float(np.abs(np.bincount(number, predicted - outcome)).sum() / len(outcome))


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Responses of similar probability: the mean predicted probability and the observed frequency."""

    count: int
    predicted: float
    observed: Estimate

    def as_dict(self) -> dict[str, float | None]:
        """Return count, prediction, and the observed frequency with its interval."""
        return {"count": self.count, "predicted": self.predicted, **self.observed.as_dict()}


def reliability_curve(
    positive: ArrayLike, probabilities: ArrayLike, *, clusters: ArrayLike | None = None
) -> tuple[ReliabilityBin, ...]:
    """Return bins of equal count, the lowest probability first; equal probabilities share a bin.

    With `clusters` (batches, raters) the intervals allow for correlated responses within a cluster.

    >>> curve = reliability_curve([0, 0, 1, 1], [0.1, 0.1, 0.9, 0.9])
    >>> [(item.count, item.observed.value) for item in curve]
    [(2, 0.0), (2, 1.0)]
    """
    outcome, predicted = np.asarray(positive, dtype=bool), np.asarray(probabilities, dtype=float)
    groups = np.arange(len(outcome)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    number = (positions(predicted) * BINS).astype(np.intp)
    return tuple(
        ReliabilityBin(
            int(inside.sum()),
            float(predicted[inside].mean()),
            clustered_share(outcome[inside], groups[inside]),
        )
        for inside in (number == index for index in np.unique(number))
    )


def log_losses(ratings: NDArray[Any], probabilities: Floats) -> Floats:
    """The log-loss of each response, (rows,)."""
    if not probabilities.size:
        return np.zeros(0)
    given = np.take_along_axis(probabilities, ratings[:, None].astype(np.intp) - 1, axis=1)[:, 0]
    return -np.log(np.maximum(given, LEAST_PROBABILITY))


def refused_by_rarity(estimates: Mapping[str, Estimate], *parties: NDArray[Any]) -> dict[str, Estimate]:
    """Estimates without those that allow for chance, where a party nearly always gave one level.

    A handful of labels decides such a coefficient, and no interval shows that. Of a party that always says
    the same, as a baseline may, its value is what it is by definition, and has no interval.
    """
    rare = [minority(party) for party in parties]
    if min(rare) >= LEAST_MINORITY:
        return dict(estimates)
    is_constant = (
        all(count == 0 or count >= LEAST_MINORITY for count in rare[1:]) and rare[0] >= LEAST_MINORITY
    )
    return {
        name: (Estimate(item.value, None) if is_constant else UNDEFINED) if name in CHANCE_CORRECTED else item
        for name, item in estimates.items()
    }


def minority(levels: NDArray[Any]) -> int:
    """How many are not of the commonest level; missing ones (nan) are not counted.

    >>> minority(np.array([3.0, 3.0, 1.0, np.nan]))
    1
    """
    counts = np.unique(levels[np.isfinite(levels)], return_counts=True)[1]
    return int(counts.sum() - counts.max()) if counts.size else 0
