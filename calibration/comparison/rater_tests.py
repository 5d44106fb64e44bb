"""Tests that treat raters, not ratings, as the independent units, and the chi-square that does not."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.agreement.metrics import icc_one
from calibration.cluster import Contrast, contrast
from calibration.estimate import UNDEFINED, Estimate, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ChiSquare:
    """A test of one table; `effect` is Cramér's V, which for a 2x2 table is phi. All nan where undefined."""

    value: float
    freedom: int
    p: float
    effect: float


UNDEFINED_TEST: Final = ChiSquare(value=math.nan, freedom=0, p=math.nan, effect=math.nan)


def chi_square(table: ArrayLike, *, has_yates: bool = False) -> ChiSquare:
    """The test of independence of rows and columns; with Yates' correction for 2x2 tables if asked for.

    By hand: `compare` needs nothing else of scipy.stats, which takes seconds to load; the tests hold it to
    scipy's. Columns nobody used are left out. The effect is that of the uncorrected statistic. Undefined with
    fewer than two rows or columns in use, or with an empty row.

    >>> found = chi_square([[1014, 986], [705, 1295]], has_yates=True)
    >>> round(found.value, 2), round(found.effect, 3)
    (96.77, 0.156)
    """
    from scipy.special import chdtrc

    counts = np.asarray(table, dtype=float)
    counts = counts[:, counts.sum(axis=0) > 0]
    rows, columns = counts.shape
    if rows < 2 or columns < 2 or not counts.sum(axis=1).all():
        return UNDEFINED_TEST
    total = float(counts.sum())
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / total
    residuals = np.abs(counts - expected)
    plain = float((residuals**2 / expected).sum())
    value = plain
    if has_yates and (rows, columns) == (2, 2):
        value = float(((residuals - np.minimum(0.5, residuals)) ** 2 / expected).sum())
    freedom = (rows - 1) * (columns - 1)
    return ChiSquare(
        value=value,
        freedom=freedom,
        p=float(chdtrc(freedom, value)),
        effect=math.sqrt(plain / (total * (min(rows, columns) - 1))),
    )


def cohen_h(one: float, other: float) -> float:
    """The distance of two shares on the arcsine scale, where every share is as exact as another.

    >>> round(cohen_h(0.6475, 0.493), 3)
    0.313
    """
    if not (0 <= one <= 1 and 0 <= other <= 1):
        return math.nan
    return 2 * math.asin(math.sqrt(one)) - 2 * math.asin(math.sqrt(other))


def power_of_shares(h: float, ratings: float, others: float) -> float:
    """How often two groups of independent ratings that differ by Cohen's `h` give p < .05.

    >>> round(power_of_shares(0.3132, 62, 62), 2)
    0.41
    """
    from scipy.special import ndtr, ndtri

    if not (ratings > 0 and others > 0) or math.isnan(h):
        return math.nan
    shift = abs(h) * math.sqrt(ratings * others / (ratings + others))
    least = -float(ndtri(0.05 / 2))
    return float(ndtr(shift - least) + ndtr(-shift - least))


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterClustering:
    """One model's yes-or-no ratings by rater: how far a rater's resemble each other, and what that costs.

    `icc` is ICC(1). With it, `ratings` tell as much as ratings / design_effect independent ones.
    `all_yes` is how many raters said yes to all they saw.
    """

    ratings: int
    raters: int
    icc: float
    design_effect: float
    all_yes: int

    @property
    def worth(self) -> float:
        """How many independent ratings would tell as much."""
        return self.ratings / max(1.0, self.design_effect) if self.ratings else math.nan

    def as_dict(self) -> dict[str, Any]:
        """Put the worth among the fields."""
        names = ("ratings", "raters", "icc", "design_effect", "worth", "all_yes")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterTest:
    """one - other over raters' own shares; `is_shared` where some rated both models. All nan if undefined.

    `d` is Cohen's, in standard deviations of raters' shares. `detectable` is the least difference that is
    found with 80 % power.
    """

    difference: Estimate
    t: float = math.nan
    freedom: float = math.nan
    p: float = math.nan
    d: float = math.nan
    detectable: float = math.nan
    is_shared: bool = False


def rater_clustering(rater: NDArray[Any], yes: NDArray[np.bool_]) -> RaterClustering:
    """Measure how one model's ratings cluster; undefined where nobody gave two, or all said the same.

    >>> found = rater_clustering(np.repeat(["a", "b", "c"], 4), np.repeat([True, False, True], 4))
    >>> found.icc, found.design_effect, found.all_yes
    (1.0, 4.0, 2)
    """
    _, number, sizes = np.unique(rater, return_inverse=True, return_counts=True)
    raters = len(sizes)
    yeses = np.bincount(number, yes, raters)
    # Of raters with unequal numbers of ratings those with many weigh more.
    typical = float((sizes**2).sum() / sizes.sum()) if raters else math.nan
    icc = math.nan
    if raters > 1:
        # Of zeros and ones, sums and sums of squares are the same: counts of yes do.
        share = yeses.sum() / sizes.sum()
        total = yeses - sizes * share
        squares = yeses * (1 - share) ** 2 + (sizes - yeses) * share**2
        sums = np.column_stack([np.ones(raters), sizes, total, squares, total**2 / sizes, sizes**2.0])
        icc = float(icc_one(sums.sum(axis=0)[None])[0])
    return RaterClustering(
        ratings=len(number),
        raters=raters,
        icc=icc,
        design_effect=1 + (typical - 1) * icc,
        all_yes=int((yeses == sizes).sum()),
    )


def rater_test(
    rater: NDArray[Any],
    yes: NDArray[np.bool_],
    other_rater: NDArray[Any],
    other_yes: NDArray[np.bool_],
    *,
    weights: tuple[Floats, Floats] | None = None,
    prompts: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> RaterTest:
    """Test whether the two models' shares differ, with raters as the units.

    Welch's t over raters' own shares where every rater saw one of the two; where some saw both, the
    difference of shares with raters as clusters, so that what is a rater's own cancels; and with prompts too,
    where several raters read the same. `weights` are those of ratings.
    """
    weight, other_weight = weights or (np.ones(len(yes)), np.ones(len(other_yes)))
    names, shares = _shares(rater, yes, weight)
    other_names, others = _shares(other_rater, other_yes, other_weight)
    if len(shares) < 2 or len(others) < 2:
        return RaterTest(difference=UNDEFINED)
    gap = float(shares.mean() - others.mean())
    one, two = float(shares.var(ddof=1)), float(others.var(ddof=1))
    pooled = math.sqrt((one + two) / 2)
    d = gap / pooled if pooled else math.nan
    is_shared = bool(len(np.intersect1d(names, other_names)))
    if is_shared:
        gap = float(np.average(yes, weights=weight) - np.average(other_yes, weights=other_weight))
        values = np.concatenate([yes, other_yes]).astype(float)
        feature = np.repeat([1.0, 0.0], [len(yes), len(other_yes)])
        cluster = np.unique(np.concatenate([rater, other_rater]), return_inverse=True)[1]
        test = contrast(
            values,
            feature,
            cluster,
            strata=np.zeros(len(values), dtype=np.intp),
            items=np.unique(np.concatenate(prompts), return_inverse=True)[1] if prompts else None,
            weights=np.concatenate([weight, other_weight]),
        )
    else:
        one, two = one / len(shares), two / len(others)
        below = one**2 / (len(shares) - 1) + two**2 / (len(others) - 1)
        freedom = (one + two) ** 2 / below if below else math.nan
        test = Contrast(effect=gap, error=math.sqrt(one + two), freedom=freedom)
    if not test.is_defined or test.error == 0:
        return RaterTest(difference=Estimate(gap, None), d=d, is_shared=is_shared)
    return RaterTest(
        difference=test.estimate(),
        t=test.effect / test.error,
        freedom=test.freedom,
        p=test.p_value(),
        d=d,
        detectable=test.detectable(),
        is_shared=is_shared,
    )


def _shares(rater: NDArray[Any], yes: NDArray[np.bool_], weight: Floats) -> tuple[NDArray[Any], Floats]:
    names, number = np.unique(rater, return_inverse=True)
    return names, np.bincount(number, yes * weight, len(names)) / np.bincount(number, weight, len(names))
