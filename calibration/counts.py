"""Statistics of agreement from count tables, over many bootstrap draws at once.

Two parties give a table of how often the one said a while the other said b, (draws, k, k); a draw is a sum of
its clusters' tables, so thousands of draws are one matrix product. Whatever is undefined is nan. By hand,
since the libraries take one data set at a time; `calibration.interrater` has their values, and the tests
hold the two together.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from calibration.intervals import CELLS_AT_ONCE, Draws, Floats
from calibration.resampling import Integers, Statistic, Weights, ratio

Scaling = Literal["nominal", "ordinal", "interval"]
TableStatistic = Callable[[Floats], Floats]  # (draws, k, k) -> (draws,)


def sum_clusters(values: Floats, clusters: Integers, size: int) -> Floats:
    """Rows summed by cluster, (rows, columns) -> (size, columns)."""
    columns = [np.bincount(clusters, values[:, column], size) for column in range(values.shape[1])]
    return np.column_stack(columns).astype(float)


def sum_draws(sums: Floats, drawn: Draws) -> Floats:
    """What each draw adds up to, (clusters, columns) -> (draws, columns)."""
    step = max(1, CELLS_AT_ONCE // max(1, drawn.shape[1]))
    parts = [drawn[start : start + step].astype(float) @ sums for start in range(0, len(drawn), step)]
    return np.vstack(parts) if parts else np.zeros((0, sums.shape[1]))


def tables_of(
    first: NDArray[Any], second: NDArray[Any], levels: int, clusters: Integers, drawn: Draws
) -> Floats:
    """The table of two columns of positions 1..k in each draw, (draws, k, k)."""
    cells = levels * (np.asarray(first, dtype=np.intp) - 1) + np.asarray(second, dtype=np.intp) - 1
    kinds = drawn.shape[1]
    counted = np.bincount(clusters * levels**2 + cells, minlength=kinds * levels**2)
    return sum_draws(counted.reshape(kinds, levels**2).astype(float), drawn).reshape(-1, levels, levels)


def table_of(first: NDArray[Any], second: NDArray[Any], levels: int) -> Floats:
    """The same of all rows, (k, k): the first's positions down, the second's across.

    >>> table_of(np.array([1, 2, 2]), np.array([1, 1, 2]), 2).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    rows = np.zeros(len(first), dtype=np.intp)
    table: Floats = tables_of(first, second, levels, rows, np.ones((1, 1), dtype=np.uint16))[0]
    return table


def exact(tables: Floats) -> Floats:
    """The part of rows in which both say the same."""
    return ratio(np.trace(tables, axis1=1, axis2=2), tables.sum(axis=(1, 2)))


def balanced_accuracy(tables: Floats) -> Floats:
    """The mean over levels the first gave of the part of them the second hit; nan with one such level."""
    recalls = ratio(_diagonal(tables), tables.sum(axis=2))
    kinds = np.isfinite(recalls).sum(axis=1).astype(float)
    return ratio(np.nansum(recalls, axis=1), np.where(kinds > 1, kinds, 0.0))


def macro_f1(tables: Floats) -> Floats:
    """The mean over levels either gave of 2 hits / (given by the one + given by the other)."""
    scores = ratio(2 * _diagonal(tables), tables.sum(axis=2) + tables.sum(axis=1))
    return ratio(np.nansum(scores, axis=1), np.isfinite(scores).sum(axis=1).astype(float))


def kappa(tables: Floats, weights: Weights) -> Floats:
    """Cohen's kappa over the whole scale: neighbouring levels are one apart, whether or not they occur."""
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


def kendall_of(ratings: NDArray[Any], scores: Floats) -> Statistic:
    """Tau-b of ratings on a few levels with scores of any kind."""
    levels = np.unique(ratings)
    order = np.argsort(scores, kind="stable")
    _, starts = np.unique(scores[order], return_index=True)

    def by_score(counts: Floats) -> Floats:
        sums: Floats = np.add.reduceat(counts[:, order], starts, axis=1)
        return sums

    def kendall(counts: Floats) -> Floats:
        total = counts.sum(axis=1)
        surplus = np.zeros(len(counts))  # concordant - discordant
        tied = np.zeros(len(counts))
        for level in levels:
            here = by_score(counts * (ratings == level))
            lower = by_score(counts * (ratings < level))
            under = lower.cumsum(axis=1) - lower
            size = lower.sum(axis=1)
            surplus += (here * (2 * under + lower)).sum(axis=1) - here.sum(axis=1) * size
            tied += here.sum(axis=1) ** 2
        same = (by_score(counts) ** 2).sum(axis=1)
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


def _diagonal(tables: Floats) -> Floats:
    return np.diagonal(tables, axis1=1, axis2=2)


def _alpha_of_two(scaling: Scaling) -> TableStatistic:
    return lambda tables: alpha(tables + tables.transpose(0, 2, 1), scaling)


TABLE_STATISTICS: Final[dict[str, TableStatistic]] = {
    "exact": exact,
    "balanced_accuracy": balanced_accuracy,
    "macro_f1": macro_f1,
    "kappa": lambda tables: kappa(tables, None),
    "kappa_linear": lambda tables: kappa(tables, "linear"),
    "qwk": lambda tables: kappa(tables, "quadratic"),
    "alpha_nominal": _alpha_of_two("nominal"),
    "alpha_ordinal": _alpha_of_two("ordinal"),
    "alpha_interval": _alpha_of_two("interval"),
    "ac1": lambda tables: gwet(tables, None),
    "ac2": lambda tables: gwet(tables, "quadratic"),
}
