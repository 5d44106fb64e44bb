"""How reliable ratings are, between two parties or among any number of people.

Values come from scikit-learn and krippendorff where they have them. A table of ratings is (raters, items), of
positions 1..k, with nan where somebody did not rate. Whatever is undefined is nan; nothing raises or warns on
degenerate ratings.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.counts import (
    TABLE_STATISTICS,
    Scaling,
    coincidences_of,
    gwet_many,
    gwet_sums,
    icc_one,
    one_way_sums,
    table_of,
)
from calibration.counts import alpha as alpha_from
from calibration.intervals import Floats
from calibration.resampling import Weights, ratio

IccKind = Literal["1", "A1", "C1"]


def point_value(name: str, ratings: NDArray[Any], labels: NDArray[Any], levels: int) -> float:
    """A metric of two columns of positions 1..k as its library gives it; nan where it is undefined."""
    own = float(TABLE_STATISTICS[name](table_of(ratings, labels, levels)[None])[0])
    library = _LIBRARY.get(name)
    # Asked only where there is an answer: libraries warn or raise where there is none.
    return library(ratings, labels, levels) if library and np.isfinite(own) else own


def cohen_kappa(
    first: ArrayLike, second: ArrayLike, weights: Weights = "quadratic", *, levels: int | None = None
) -> float:
    """Cohen's kappa by scikit-learn, over a scale of 1 to `levels`, or without it over the levels that occur.

    The second way is what scikit-learn does by itself, and many papers with it: levels that nobody used are
    taken out, so 3 and 5 become neighbours where there is no 4. Only the first keeps the scale.

    >>> first, second = [1, 2, 5, 5], [1, 5, 5, 5]
    >>> round(cohen_kappa(first, second, levels=5), 3), round(cohen_kappa(first, second), 3)
    (0.667, 0.833)
    """
    one, two = np.asarray(first), np.asarray(second)
    if not one.size or len(np.unique(np.concatenate([one, two]))) < 2:
        return float("nan")
    from sklearn.metrics import cohen_kappa_score

    scale = np.arange(1, levels + 1) if levels is not None else None
    return float(cohen_kappa_score(one, two, weights=weights, labels=scale))


def krippendorff_alpha(table: ArrayLike, scaling: Scaling = "ordinal", *, levels: int | None = None) -> float:
    """Krippendorff's alpha of a table with gaps, by the library of that name.

    Undefined when no item has two ratings, or when all that have show one and the same level.

    >>> round(krippendorff_alpha([[1, 2, 3, 3], [1, 2, 2, np.nan]], "nominal"), 3)
    0.545
    """
    rated = np.asarray(table, dtype=float)
    counts = level_counts(rated, levels)
    if not np.isfinite(alpha_from(coincidences_of(counts).sum(axis=0)[None], scaling)[0]):
        return float("nan")
    import krippendorff

    domain = list(range(1, counts.shape[1] + 1))
    return float(krippendorff.alpha(rated, value_domain=domain, level_of_measurement=scaling))


def gwet_ac(table: ArrayLike, weights: Weights = None, *, levels: int | None = None) -> float:
    """Gwet's AC1, or with `weights` AC2, of a table with gaps; for want of a library by hand.

    Undefined when no item has two ratings.

    >>> round(gwet_ac([[1] * 118 + [1] * 5 + [2] * 2, [1] * 118 + [2] * 5 + [1] * 2]), 4)
    0.9408
    """
    counts = level_counts(np.asarray(table, dtype=float), levels)
    return float(gwet_many(gwet_sums(counts, weights).sum(axis=0)[None], weights)[0])


def icc(table: ArrayLike, kind: IccKind = "A1") -> float:
    """The intraclass correlation of a single rating (McGraw and Wong); by hand, for want of a library.

    "1": one-way, each item rated by people of its own, gaps welcome. "A1": two-way, the same people rated
    all items, and their levels count. "C1": two-way, and they do not. The last two leave out items with gaps.
    Undefined with fewer than two items or raters, and when all ratings are alike.

    >>> round(icc([[1, 2, 3, 3], [2, 3, 4, 4]], "C1"), 3), round(icc([[1, 2, 3, 3], [2, 3, 4, 4]], "A1"), 3)
    (1.0, 0.647)
    """
    rated = np.asarray(table, dtype=float)
    if kind == "1":
        return float(icc_one(one_way_sums(rated).sum(axis=0)[None])[0])
    whole = rated[:, np.isfinite(rated).all(axis=0)]
    raters, items = whole.shape
    if raters < 2 or items < 2 or np.ptp(whole) == 0:
        return float("nan")
    centred = whole - whole.mean()
    between = raters * (centred.mean(axis=0) ** 2).sum() / (items - 1)
    parties = items * (centred.mean(axis=1) ** 2).sum() / (raters - 1)
    apart = centred - centred.mean(axis=0) - centred.mean(axis=1)[:, None]
    within = (apart**2).sum() / ((items - 1) * (raters - 1))
    shift = raters * (parties - within) / items if kind == "A1" else 0.0
    return float(ratio(np.array(between - within), np.array(between + (raters - 1) * within + shift)))


def level_counts(table: Floats, levels: int | None = None) -> Floats:
    """How often each item was given each level, (raters, items) -> (items, k)."""
    top = levels or (int(np.nanmax(table)) if np.isfinite(table).any() else 2)
    # Two at least: with a single level nothing could ever disagree.
    columns = [(table == level).sum(axis=0) for level in range(1, max(top, 2) + 1)]
    return np.stack(columns, axis=1).astype(float)


_Library = Callable[[NDArray[Any], NDArray[Any], int], float]


def _sklearn(name: str, **options: Any) -> _Library:
    def value(ratings: NDArray[Any], labels: NDArray[Any], levels: int) -> float:
        from sklearn import metrics

        return float(getattr(metrics, name)(ratings, labels, **options))

    return value


def _alpha_of(scaling: Scaling) -> _Library:
    return lambda ratings, labels, levels: krippendorff_alpha([ratings, labels], scaling, levels=levels)


def _kappa_of(weights: Weights) -> _Library:
    return lambda ratings, labels, levels: cohen_kappa(ratings, labels, weights, levels=levels)


# No `balanced_accuracy`: scikit-learn's warns of labels that are in no rating, as a judge's may well be.
_LIBRARY: Final[dict[str, _Library]] = {
    "exact": _sklearn("accuracy_score"),
    "macro_f1": _sklearn("f1_score", average="macro", zero_division=0.0),
    "kappa": _kappa_of(None),
    "kappa_linear": _kappa_of("linear"),
    "qwk": _kappa_of("quadratic"),
    "alpha_nominal": _alpha_of("nominal"),
    "alpha_ordinal": _alpha_of("ordinal"),
    "alpha_interval": _alpha_of("interval"),
}
