"""Statistics of agreement: of a judge with people, and of people among themselves.

Two parties give a table of how often the one said a while the other said b, (draws, k, k); a draw is a sum of
its clusters' tables, so thousands of draws are one matrix product. The draws are by hand, since the libraries
take one data set at a time; single values come from scikit-learn, krippendorff and scipy where they have
them, and the tests hold the two together. `*_error`: smaller is better; of all else, more. Whatever is
undefined is nan; nothing raises or warns on degenerate ratings.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.bootstrap import Draws, Statistic, ratio, sum_draws, value_of
from calibration.cluster import LITTLE
from calibration.estimate import UNDEFINED, Estimate, Floats, Integers

Weights = Literal["quadratic", "linear"] | None
Scaling = Literal["nominal", "ordinal", "interval"]
TableStatistic = Callable[[Floats], Floats]  # (draws, k, k) -> (draws,)
LEAST_PROBABILITY: Final = 1e-6  # judgments are written to six digits: a 0 may stand for anything below this
BINS: Final = 10


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
    cells: Integers = levels * (np.asarray(first, dtype=np.intp) - 1) + np.asarray(second, dtype=np.intp) - 1
    return cells


def exact(tables: Floats) -> Floats:
    """The part of rows in which both say the same."""
    return ratio(np.trace(tables, axis1=1, axis2=2), tables.sum(axis=(1, 2)))


def balanced_accuracy(tables: Floats) -> Floats:
    """The mean over levels the first gave of the part of them the second hit; nan with one such level."""
    recalls = ratio(np.diagonal(tables, axis1=1, axis2=2), tables.sum(axis=2))
    kinds = np.isfinite(recalls).sum(axis=1).astype(float)
    return ratio(np.nansum(recalls, axis=1), np.where(kinds > 1, kinds, 0.0))


def macro_f1(tables: Floats) -> Floats:
    """The mean over levels either gave of 2 hits / (given by the one + given by the other)."""
    scores = ratio(2 * np.diagonal(tables, axis1=1, axis2=2), tables.sum(axis=2) + tables.sum(axis=1))
    return ratio(np.nansum(scores, axis=1), np.isfinite(scores).sum(axis=1).astype(float))


def unseen_variance(name: str, table: Floats) -> float:
    """The variance of `balanced_accuracy` or `macro_f1` that levels never hit, (k, k), do not show.

    Whichever cluster is left out such a level's part stays 0, as if it were known. It is taken to have the
    variance of half a hit, as a share of nothing is. One who always says the same can hit no other level.
    """
    given, said = table.sum(axis=1), table.sum(axis=0)
    most = {"balanced_accuracy": given, "macro_f1": (given + said) / 2}.get(name)
    if most is None or (said > 0).sum() < 2:
        return 0.0
    unseen = most[(np.diagonal(table) < LITTLE) & (most > 0)]
    return float((LITTLE / unseen**2).sum() / (most > 0).sum() ** 2)


def kappa(tables: Floats, weights: Weights) -> Floats:
    """Cohen's kappa: 1 - observed / expected disagreement; from -1 to 1, where 0 is chance.

    Levels x and y disagree by (x - y)^2 with quadratic `weights`, by |x - y| with linear ones, and by 1, if
    they differ at all, with None; neighbouring levels are one apart, whether or not they occur. "Expected" is
    over all pairs of one's ratings with the other's. Undefined when both gave one level throughout.
    """
    distance = distances(tables.shape[1], weights)
    observed = (tables * distance).sum(axis=(1, 2)) * tables.sum(axis=(1, 2))
    expected = ((tables.sum(axis=2) @ distance) * tables.sum(axis=1)).sum(axis=1)
    return 1 - ratio(observed, expected)


def alpha(coincidences: Floats, scaling: Scaling) -> Floats:
    """Krippendorff's alpha from coincidence matrices, (draws, k, k); see `coincidences_of`."""
    margins = coincidences.sum(axis=2)
    if scaling == "ordinal":
        # A level stands at the mean rank of its values, so the levels' distances differ from draw to draw.
        ranks = margins.cumsum(axis=1) - margins / 2
        distance = (ranks[:, :, None] - ranks[:, None, :]) ** 2
    else:
        kind: Weights = None if scaling == "nominal" else "quadratic"
        distance = np.broadcast_to(distances(margins.shape[1], kind), coincidences.shape)
    observed = (coincidences * distance).sum(axis=(1, 2)) * (margins.sum(axis=1) - 1)
    expected = (margins[:, :, None] * margins[:, None, :] * distance).sum(axis=(1, 2))
    return 1 - ratio(observed, expected)


def gwet(tables: Floats, weights: Weights) -> Floats:
    """Gwet's coefficient of two parties: AC1 without weights, AC2 with them, which can go below -1."""
    total = tables.sum(axis=(1, 2))
    similar = similarities(tables.shape[1], weights)
    agreed = ratio((tables * similar).sum(axis=(1, 2)), total)
    margins = ratio(tables.sum(axis=1) + tables.sum(axis=2), 2 * total[:, None])
    return _gwet_coefficient(agreed, margins, similar)


def gwet_sums(counts: Floats, weights: Weights) -> Floats:
    """What `gwet_many` needs of each item, from its level counts, (items, k) -> (items, k + 3).

    How often levels are used is a mean over rated items, agreement one over items with two ratings or more.
    """
    size = counts.sum(axis=1)
    is_shared = size > 1
    others = counts @ similarities(counts.shape[1], weights) - 1
    agreed = (counts * others).sum(axis=1) / np.where(is_shared, size * (size - 1), 1.0)
    used = counts / np.maximum(size, 1.0)[:, None]
    return np.column_stack([np.where(is_shared, agreed, 0.0), is_shared, size > 0, used])


def gwet_many(sums: Floats, weights: Weights) -> Floats:
    """Gwet's coefficient of any number of people, (draws, k + 3) -> (draws,)."""
    margins = ratio(sums[:, 3:], sums[:, 2:3])
    agreed = ratio(sums[:, 0], sums[:, 1])
    return _gwet_coefficient(agreed, margins, similarities(margins.shape[1], weights))


def _gwet_coefficient(agreed: Floats, margins: Floats, similar: Floats) -> Floats:
    """(agreed - chance) / (1 - chance), where chance follows from how often each level is used."""
    levels = len(similar)
    chance = similar.sum() / (levels * (levels - 1)) * (margins * (1 - margins)).sum(axis=1)
    return ratio(agreed - chance, 1 - chance)


def distances(levels: int, weights: Weights) -> Floats:
    """How far apart two levels are, (k, k): their steps squared, their steps, or 1."""
    steps = np.abs(np.subtract.outer(np.arange(levels), np.arange(levels))).astype(float)
    return {"quadratic": steps**2, "linear": steps, None: (steps > 0).astype(float)}[weights]


def similarities(levels: int, weights: Weights) -> Floats:
    """1 on the diagonal, falling to 0 for the ends of the scale; without weights, 0 beside the diagonal."""
    distance = distances(levels, weights)
    similar: Floats = 1 - distance / distance.max()
    return similar


def coincidences_of(counts: Floats) -> Floats:
    """Each item's part of the coincidence matrix, (items, k) level counts -> (items, k, k).

    An item with m ratings has m (m - 1) ordered pairs, each of weight 1 / (m - 1); with one it has none.
    """
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(counts.shape[1])
    others = np.maximum(counts.sum(axis=1) - 1, 1)
    shared: Floats = pairs / others[:, None, None]
    return shared


def _alpha_of_two(tables: Floats, scaling: Scaling) -> Floats:
    return alpha(tables + tables.transpose(0, 2, 1), scaling)


KAPPAS: Final[dict[str, Weights]] = {"kappa": None, "kappa_linear": "linear", "qwk": "quadratic"}
ALPHAS: Final[dict[str, Scaling]] = {
    "alpha_nominal": "nominal",
    "alpha_ordinal": "ordinal",
    "alpha_interval": "interval",
}
COEFFICIENTS: Final[dict[str, Weights]] = {"ac1": None, "ac2": "quadratic"}
CHANCE_CORRECTED: Final = {*KAPPAS, *ALPHAS, *COEFFICIENTS, "qwk_matched", "pairwise_qwk"}
LEAST_MINORITY: Final = 5  # labels other than the commonest; with fewer a kappa is decided by a handful
TABLE_STATISTICS: Final[dict[str, TableStatistic]] = {
    "exact": exact,
    "balanced_accuracy": balanced_accuracy,
    "macro_f1": macro_f1,
    **{name: partial(kappa, weights=weights) for name, weights in KAPPAS.items()},
    **{name: partial(_alpha_of_two, scaling=scaling) for name, scaling in ALPHAS.items()},
    **{name: partial(gwet, weights=weights) for name, weights in COEFFICIENTS.items()},
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


def calibration_error_of(positive: NDArray[np.bool_], probabilities: Floats, bins: int) -> Statistic:
    """The mean over rows of |mean probability - positive part| in the row's bin; see `calibration_error`."""
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


def kendall_of(ratings: NDArray[Any], scores: Floats) -> Statistic:
    """Tau-b of ratings on a few levels with scores of any kind."""
    levels, ties = np.unique(ratings), _Ties(scores)

    def kendall(counts: Floats) -> Floats:
        total = counts.sum(axis=1)
        surplus = np.zeros(len(counts))  # concordant - discordant
        tied = np.zeros(len(counts))
        for level in levels:
            here = ties.sums(counts * (ratings == level))
            lower = ties.sums(counts * (ratings < level))
            under = lower.cumsum(axis=1) - lower
            size = lower.sum(axis=1)
            surplus += (here * (2 * under + lower)).sum(axis=1) - here.sum(axis=1) * size
            tied += here.sum(axis=1) ** 2
        same = (ties.sums(counts) ** 2).sum(axis=1)
        # total^2 - ... counts every untied pair twice.
        return ratio(2 * surplus, np.sqrt((total**2 - tied) * (total**2 - same)))

    return kendall


def icc_sums(first: Floats, second: Floats, centre: float) -> Floats:
    """What `icc_two` needs of each row, (rows, 6)."""
    x, y = first - centre, second - centre  # small numbers, or their squares would drown the differences
    return np.column_stack([np.ones(len(x)), x, y, x * x, y * y, x * y])


def icc_two(sums: Floats) -> Floats:
    """ICC(A,1) of two parties: two-way, absolute agreement, single rating; (draws, 6) -> (draws,)."""
    count, x, y, xx, yy, xy = sums.T
    mean_square = ratio((x + y) ** 2, 2 * count)
    total = xx + yy - mean_square
    rows = (xx + yy + 2 * xy) / 2 - mean_square
    parties = ratio((x - y) ** 2, 2 * count)
    left = np.maximum(total - rows - parties, 0.0)
    between, within = ratio(rows, count - 1), ratio(left, count - 1)
    below = between + within + ratio(2 * (parties - within), count)
    # All values alike: what is left of the sums is rounding.
    return ratio(between - within, np.where(total > 1e-12 * (xx + yy + 1), below, 0.0))


def one_way_sums(table: Floats) -> Floats:
    """What `icc_one` needs of each item of a (raters, items) table with gaps, (items, 6)."""
    here = np.isfinite(table)
    centre = table[here].mean() if here.any() else 0.0
    values = np.where(here, table - centre, 0.0)
    size, total = here.sum(axis=0).astype(float), values.sum(axis=0)
    squares = (values**2).sum(axis=0)
    return np.column_stack([size > 0, size, total, squares, total**2 / np.maximum(size, 1.0), size**2])


def icc_one(sums: Floats) -> Floats:
    """ICC(1): one-way, single rating, each item rated by people of its own; (draws, 6) -> (draws,)."""
    items, count, total, squares, groups, sizes = sums.T
    between = ratio(groups - ratio(total**2, count), items - 1)
    within = ratio(np.maximum(squares - groups, 0.0), count - items)
    each = ratio(count - ratio(sizes, count), items - 1)  # ratings an item, where they differ in number
    below = between + (each - 1) * within
    return ratio(between - within, np.where(squares - ratio(total**2, count) > 1e-12 * squares, below, 0.0))


def positions(values: Floats) -> Floats:
    """Where each value stands among all, strictly between 0 and 1; equal values stand at the same place.

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
        ordered = counts[:, self.order]
        return (
            ordered if len(self.starts) == len(self.order) else np.add.reduceat(ordered, self.starts, axis=1)
        )

    def ranks(self, counts: Floats) -> Floats:
        """Each row's average rank, (draws, rows), among rows that are there `counts` times."""
        sums = self.sums(counts)
        ranks: Floats = (sums.cumsum(axis=1) - (sums - 1) / 2)[:, self.group]
        return ranks


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Pearson's correlation of the ranks, where equal values share their average rank; from -1 to 1.

    Undefined when either is constant.

    >>> spearman([1, 2, 3, 3], [0.1, 0.4, 0.5, 0.5])
    1.0
    >>> spearman([1, 2, 3], [7, 7, 7])
    nan
    """
    one, two = _floats(first), _floats(second)
    return value_of(spearman_of(one, two), len(one))


def calibration_error(positive: ArrayLike, probabilities: ArrayLike, bins: int = BINS) -> float:
    """The mean over responses of |mean probability - positive part| in the response's bin; from 0 to 1.

    The responses are sorted by probability and cut into `bins` bins of equal count; equal probabilities stay
    together, in the bin of their middle, so bins may differ in size or stand empty. Chance alone keeps a
    perfect judge above 0, by about 0.8 sqrt(bins p (1 - p) / n): compare judges on the same responses only.
    Undefined without responses.

    >>> round(calibration_error([True, False, True, True], [0.2, 0.2, 0.9, 0.9], bins=2), 3)
    0.2
    """
    outcome = np.asarray(positive, dtype=bool)
    return value_of(calibration_error_of(outcome, _floats(probabilities), bins), len(outcome))


def log_losses(ratings: NDArray[Any], probabilities: Floats) -> Floats:
    """The log-loss of each response, (rows,)."""
    if not probabilities.size:
        return np.zeros(0)
    given = np.take_along_axis(probabilities, ratings[:, None].astype(np.intp) - 1, axis=1)[:, 0]
    return -np.log(np.maximum(given, LEAST_PROBABILITY))


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=float)


def refused_by_rarity(estimates: Mapping[str, Estimate], *parties: NDArray[Any]) -> dict[str, Estimate]:
    """Estimates without those that allow for chance, where a party hardly ever gave but one level.

    A handful of labels decides such a coefficient, and no interval tells how far. Of a party that always says
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


def point_value(name: str, ratings: NDArray[Any], labels: NDArray[Any], levels: int) -> float:
    """A metric of two columns of positions 1..k as its library gives it; nan where it is undefined."""
    value = float(TABLE_STATISTICS[name](table_of(ratings, labels, levels)[None])[0])
    if not np.isfinite(value):  # libraries warn or raise where there is no answer
        return value
    if name in KAPPAS:
        return cohen_kappa(ratings, labels, KAPPAS[name], levels=levels)
    if name in ALPHAS:
        return krippendorff_alpha([ratings, labels], ALPHAS[name], levels=levels)
    from sklearn import metrics

    if name == "exact":
        return float(metrics.accuracy_score(ratings, labels))
    if name == "macro_f1":
        return float(metrics.f1_score(ratings, labels, average="macro", zero_division=0.0))
    # Not `balanced_accuracy`: scikit-learn's warns of labels that are in no rating, as a judge's may well be.
    return value


def cohen_kappa(first: ArrayLike, second: ArrayLike, weights: Weights, *, levels: int) -> float:
    """Cohen's kappa by scikit-learn, over the whole scale from 1 to `levels`.

    Left to itself scikit-learn, and many papers with it, takes levels out that nobody used, so that 3 and 5
    become neighbours where there is no 4.

    >>> round(cohen_kappa([1, 2, 5, 5], [1, 5, 5, 5], "quadratic", levels=5), 3)
    0.667
    """
    one, two = np.asarray(first), np.asarray(second)
    if not one.size or len(np.unique(np.concatenate([one, two]))) < 2:
        return float("nan")
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(one, two, weights=weights, labels=np.arange(1, levels + 1)))


def krippendorff_alpha(table: ArrayLike, scaling: Scaling, *, levels: int) -> float:
    """Krippendorff's alpha of a (raters, items) table of positions, nan where somebody did not rate.

    By the library of that name. Undefined when no item has two ratings, or when all that have show one level.

    >>> round(krippendorff_alpha([[1, 2, 3, 3], [1, 2, 2, np.nan]], "nominal", levels=3), 3)
    0.545
    """
    rated = np.asarray(table, dtype=float)
    counts = level_counts(rated, levels)
    if not np.isfinite(alpha(coincidences_of(counts).sum(axis=0)[None], scaling)[0]):
        return float("nan")
    import krippendorff

    domain = list(range(1, levels + 1))
    return float(krippendorff.alpha(rated, value_domain=domain, level_of_measurement=scaling))


def gwet_ac(table: ArrayLike, weights: Weights, *, levels: int) -> float:
    """Gwet's AC1, or with `weights` AC2, of a (raters, items) table with gaps.

    By hand: irrCAC, which has it, wants a numpy below 2. Undefined when no item has two ratings.

    >>> round(gwet_ac([[1] * 118 + [1] * 5 + [2] * 2, [1] * 118 + [2] * 5 + [1] * 2], None, levels=2), 4)
    0.9408
    """
    counts = level_counts(np.asarray(table, dtype=float), levels)
    return float(gwet_many(gwet_sums(counts, weights).sum(axis=0)[None], weights)[0])


def level_counts(table: Floats, levels: int) -> Floats:
    """How often each item was given each level, (raters, items) -> (items, k)."""
    return np.stack([(table == level).sum(axis=0) for level in range(1, levels + 1)], axis=1).astype(float)
