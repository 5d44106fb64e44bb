"""Statistics of agreement: of a judge with people, and of people among themselves.

Libraries give the values (`library_value`). Intervals need a statistic in thousands of draws: numpy computes
all draws at once from counts, how often each draw takes each row, and a doctest shows that both agree. Of two
columns of levels 1..k the statistics take tables, (draws, k, k), of how often the one was given while the
other was that. Undefined values are nan; nothing raises or warns on degenerate ratings.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from empathy_judge.calibration.bootstrap import Statistic, ratio
from empathy_judge.calibration.cluster import MIN_COUNT, clustered_share
from empathy_judge.calibration.estimate import UNDEFINED, Estimate, Floats, Integers
from empathy_judge.data.records import LEAST_PROBABILITY

TableStatistic = Callable[[Floats], Floats]  # (draws, k, k) -> (draws,)
BINS: Final = 10
LEAST_MINORITY: Final = 10  # labels other than the commonest; with fewer a kappa is decided by a handful
CHANCE_CORRECTED: Final = {"qwk", "qwk_matched", "alpha_ordinal"}
FEW_MINORITY: Final = "fewer than ten labels, human or by the judge, differ from the most common one"
# Why a metric is undefined, where it is.
REASONS: Final[dict[str, str]] = {
    **dict.fromkeys(sorted(CHANCE_CORRECTED), FEW_MINORITY),
    "balanced_accuracy": "the judge, or people, gave one label only",
    "spearman": "the judge's scores, or the ratings, are all equal",
    "exact": "there are no ratings",
}


def library_value(name: str, ratings: NDArray[Any], given: NDArray[Any], levels: int) -> float:
    """Return a metric of ratings 1..k and a judge's labels or scores, by the field's libraries.

    `exact`, `balanced_accuracy` and `qwk` (Cohen's kappa with quadratic weights) are scikit-learn's,
    `alpha_ordinal` is krippendorff's and `spearman` scipy's. Balanced accuracy is undefined where either gave
    one level only: then it is 1 / k by definition, whatever the judge is like.

    >>> from empathy_judge.calibration.bootstrap import value_of
    >>> rated, label = np.array([1, 2, 5, 5, 3]), np.array([1, 5, 5, 5, 2])
    >>> ours = {name: from_table(each, rated, label, 5) for name, each in TABLE_STATISTICS.items()}
    >>> ours |= {"spearman": spearman_of(rated, label)}
    >>> [abs(value_of(ours[name], 5) - library_value(name, rated, label, 5)) < 1e-12 for name in ours]
    [True, True, True, True, True]
    """
    from scipy.stats import spearmanr
    from sklearn import metrics

    rated, has_one_level = np.unique(ratings), min(len(np.unique(one)) for one in (ratings, given)) < 2
    value = np.nan
    if name == "alpha_ordinal":
        value = alpha_of(np.eye(levels)[ratings - 1] + np.eye(levels)[given - 1])
    elif name == "exact" and len(rated):
        value = metrics.accuracy_score(ratings, given)
    elif name == "qwk" and len(np.union1d(rated, given)) > 1:
        scale = np.arange(1, levels + 1)
        value = metrics.cohen_kappa_score(ratings, given, labels=scale, weights="quadratic")
    elif name == "spearman" and not has_one_level:
        value = spearmanr(ratings, given).statistic
    elif name == "balanced_accuracy" and not has_one_level:
        value = metrics.recall_score(ratings, given, labels=rated, average="macro", zero_division=0.0)
    return float(value)


def alpha_of(value_counts: Floats) -> float:
    """Return Krippendorff's ordinal alpha of how often each item was given each level, (items, k).

    Undefined where no item has two ratings, or all items that have were given one level.

    >>> round(alpha_of(np.array([[2, 0, 0], [1, 1, 0], [0, 1, 1]])), 3)
    0.528
    """
    from krippendorff import alpha

    shared = value_counts[value_counts.sum(axis=1) > 1]
    if (shared.sum(axis=0) > 0).sum() < 2:
        return np.nan
    return float(alpha(value_counts=shared, level_of_measurement="ordinal"))


def from_table(
    statistic: TableStatistic, first: NDArray[Any], second: NDArray[Any], levels: int
) -> Statistic:
    """Return a statistic of tables as one of counts, for two columns of levels 1..k."""
    cells = levels * (np.asarray(first, dtype=np.intp) - 1) + np.asarray(second, dtype=np.intp) - 1
    inside = (cells[:, None] == np.arange(levels**2)).astype(float)
    return lambda counts: statistic((counts @ inside).reshape(-1, levels, levels))


def _exact(tables: Floats) -> Floats:
    return ratio(np.trace(tables, axis1=1, axis2=2), tables.sum(axis=(1, 2)))


def _balanced_accuracy(tables: Floats) -> Floats:
    recalls = ratio(np.diagonal(tables, axis1=1, axis2=2), tables.sum(axis=2))
    given, used = ((tables.sum(axis=axis) > 0).sum(axis=1).astype(float) for axis in (2, 1))
    return ratio(np.nansum(recalls, axis=1), np.where((given > 1) & (used > 1), given, 0.0))


def _qwk(tables: Floats) -> Floats:
    distance = np.subtract.outer(*2 * [np.arange(tables.shape[1])]).astype(float) ** 2
    observed = (tables * distance).sum(axis=(1, 2)) * tables.sum(axis=(1, 2))
    expected = ((tables.sum(axis=2) @ distance) * tables.sum(axis=1)).sum(axis=1)
    return 1 - ratio(observed, expected)


def _alpha(tables: Floats) -> Floats:
    coincidences = tables + tables.transpose(0, 2, 1)
    margins = coincidences.sum(axis=2)
    # A level has the mean rank of its values, so the levels' distances differ from draw to draw.
    ranks = margins.cumsum(axis=1) - margins / 2
    distance = (ranks[:, :, None] - ranks[:, None, :]) ** 2
    observed = (coincidences * distance).sum(axis=(1, 2)) * (margins.sum(axis=1) - 1)
    return 1 - ratio(observed, (margins[:, :, None] * margins[:, None, :] * distance).sum(axis=(1, 2)))


TABLE_STATISTICS: Final[dict[str, TableStatistic]] = {
    "exact": _exact,
    "balanced_accuracy": _balanced_accuracy,
    "qwk": _qwk,
    "alpha_ordinal": _alpha,
}


def unseen_variance(table: Floats) -> float:
    """Return the variance of balanced accuracy that levels never hit, (k, k), do not show.

    Whichever cluster is left out, the recall of such a level stays 0, as if it were known. It is taken to
    have the variance of half a hit.
    """
    rated = table.sum(axis=1)
    unseen = rated[(np.diagonal(table) < MIN_COUNT) & (rated > 0)]
    return float((MIN_COUNT / unseen**2).sum() / (rated > 0).sum() ** 2)


def auc_of(positive: NDArray[np.bool_], scores: Floats) -> Statistic:
    """Return how often a positive scores above a negative, a tie counting half; 0.5 is chance.

    Undefined when all or none are positive.
    """
    ranks_of = _ranks_of(scores)

    def auc(counts: Floats) -> Floats:
        above, total = (counts * positive).sum(axis=1), counts.sum(axis=1)
        ranks = (counts * positive * ranks_of(counts)).sum(axis=1)
        return ratio(ranks - above * (above + 1) / 2, above * (total - above))

    return auc


def spearman_of(first: Floats, second: Floats) -> Statistic:
    """Return Pearson's correlation of the ranks, where equal values share their average rank."""
    ranks = _ranks_of(first), _ranks_of(second)

    def spearman(counts: Floats) -> Floats:
        total = counts.sum(axis=1)
        one, two = (
            column - ratio((counts * column).sum(axis=1), total)[:, None]
            for column in (ranks_of(counts) for ranks_of in ranks)
        )
        squares = (counts * one**2).sum(axis=1) * (counts * two**2).sum(axis=1)
        return ratio((counts * one * two).sum(axis=1), np.sqrt(squares))

    return spearman


def kendall(people: Floats, judge: Floats) -> Floats:
    """Return Kendall's tau-b of levels, (draws, models) -> (draws,); nan where a model has no level."""
    # Rounded: a judge that gives all models one level ties them, though its sums differ in the last bit.
    first, second = np.round(people, 12), np.round(judge, 12)
    # Which of each two models is the higher, (draws, models, models).
    one, two = (np.sign(values[:, :, None] - values[:, None, :]) for values in (first, second))
    untied = (one**2).sum(axis=(1, 2)) * (two**2).sum(axis=(1, 2))
    return ratio((one * two).sum(axis=(1, 2)), np.sqrt(untied))


def positions(values: Floats) -> Floats:
    """Return the relative rank of each value, strictly between 0 and 1; equal values have the same rank.

    >>> positions(np.array([5.0, 1.0, 5.0, 9.0])).tolist()
    [0.5, 0.125, 0.5, 0.875]
    """
    ranks: Floats = _ranks_of(values)(np.ones((1, len(values))))[0]
    return (ranks - 0.5) / max(1, len(values))


def matched_labels(ratings: NDArray[Any], scores: Floats, levels: int) -> Integers:
    """Return labels 1..k cut from the scores, as frequent as the ratings; equal scores get the same label.

    >>> matched_labels(np.array([1, 3, 3, 3]), np.array([2.2, 2.1, 2.9, 2.6]), 3).tolist()
    [3, 1, 3, 3]
    """
    cuts = [np.mean(ratings <= level) for level in range(1, levels)]
    return 1 + np.searchsorted(cuts, positions(scores), side="left")


def _ranks_of(values: Floats) -> Statistic:
    """Return the rows' average ranks, (draws, rows), as a function of how often each draw takes each row."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    order, starts = np.argsort(group, kind="stable"), np.cumsum(sizes) - sizes

    def ranks(counts: Floats) -> Floats:
        sums = np.add.reduceat(counts[:, order], starts, axis=1)  # of each group of equal values
        return (sums.cumsum(axis=1) - (sums - 1) / 2)[:, group]

    return ranks


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Responses of similar probability: the mean predicted probability and the observed frequency."""

    count: int
    predicted: float
    observed: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Return count, prediction, and the observed frequency with its interval."""
        return {"count": self.count, "predicted": self.predicted, **self.observed.as_dict()}


def reliability_curve(
    positive: ArrayLike, probabilities: ArrayLike, *, clusters: ArrayLike | None = None
) -> tuple[ReliabilityBin, ...]:
    """Return bins of equal count, the lowest probability first; equal probabilities share a bin.

    >>> curve = reliability_curve([0, 0, 1, 1], [0.1, 0.1, 0.9, 0.9])
    >>> [(item.count, item.observed.value) for item in curve]
    [(2, 0.0), (2, 1.0)]
    """
    outcome, predicted = np.asarray(positive, dtype=bool), np.asarray(probabilities, dtype=float)
    groups = np.arange(len(outcome)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    number = (positions(predicted) * BINS).astype(np.intp)
    return tuple(
        ReliabilityBin(
            int(rows.sum()), float(predicted[rows].mean()), clustered_share(outcome[rows], groups[rows])
        )
        for rows in (number == index for index in np.unique(number))
    )


def calibration_error(curve: Sequence[ReliabilityBin]) -> float:
    """Return the mean over replies of |mean probability - observed frequency| in the reply's bin; 0 to 1.

    Chance alone keeps a perfect judge above 0, by about 0.8 sqrt(bins p (1 - p) / n): compare judges on the
    same replies only. Undefined without replies.

    >>> round(calibration_error(reliability_curve([True, False, True, True], [0.2, 0.2, 0.9, 0.9])), 3)
    0.2
    """
    if not curve:
        return np.nan
    errors = [item.count * abs(item.predicted - item.observed.value) for item in curve]
    return sum(errors) / sum(item.count for item in curve)


def log_losses(ratings: NDArray[Any], probabilities: Floats) -> Floats:
    """Return the log-loss of each reply, (rows,)."""
    given = np.take_along_axis(probabilities, ratings[:, None].astype(np.intp) - 1, axis=1)[:, 0]
    return -np.log(np.maximum(given, LEAST_PROBABILITY))


def refused_by_rarity(estimates: Mapping[str, Estimate], *parties: NDArray[Any]) -> dict[str, Estimate]:
    """Return the estimates without those that allow for chance, where a party nearly always gave one level.

    A handful of labels decides such a coefficient, and no interval shows that. The value of a party that
    always gives the same level, as a baseline may, follows from the definition, and has no interval.
    """
    people, *others = (_count_minority(party) for party in parties)
    if min(people, *others, LEAST_MINORITY) == LEAST_MINORITY:
        return dict(estimates)
    is_constant = people >= LEAST_MINORITY and not any(0 < count < LEAST_MINORITY for count in others)
    return {
        name: (Estimate(item.value, None) if is_constant else UNDEFINED) if name in CHANCE_CORRECTED else item
        for name, item in estimates.items()
    }


def _count_minority(levels: NDArray[Any]) -> int:
    """Return how many are not of the commonest level; missing ones (nan) are not counted."""
    counts = np.unique(levels[np.isfinite(levels)], return_counts=True)[1]
    return int(counts.sum() - counts.max()) if counts.size else 0
