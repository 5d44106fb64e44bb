"""Ratings as they came, in handfuls from one person each: tests that count people, not ratings."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.agreement.metrics import icc_one
from calibration.cluster import POWER, contrast, reach
from calibration.estimate import CONFIDENCE, Estimate, Floats, Interval, finite_or_none

# Pearson's chi-square for tables of counts, and the effect sizes that belong beside it.


@dataclass(frozen=True, slots=True, kw_only=True)
class ChiSquare:
    """A test of one table; `effect` is Cramér's V, which for a 2x2 table is phi. All nan where undefined."""

    value: float
    freedom: int
    p: float
    effect: float

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        return {
            "value": finite_or_none(self.value),
            "freedom": self.freedom,
            "p": finite_or_none(self.p),
            "effect": finite_or_none(self.effect),
        }


UNDEFINED: Final = ChiSquare(value=math.nan, freedom=0, p=math.nan, effect=math.nan)


def chi_square(table: ArrayLike, *, has_yates: bool = False) -> ChiSquare:
    """The test of independence of rows and columns; with Yates' correction for 2x2 tables if asked for.

    By hand, since scipy.stats takes seconds to load; the tests hold it to scipy's. Columns nobody used are
    left out. The effect is that of the uncorrected statistic. Undefined with fewer than two rows or columns
    in use, or with an empty row.

    >>> found = chi_square([[1014, 986], [705, 1295]], has_yates=True)
    >>> round(found.value, 2), round(found.effect, 3)
    (96.77, 0.156)
    """
    from scipy.special import chdtrc

    counts = np.asarray(table, dtype=float)
    counts = counts[:, counts.sum(axis=0) > 0]
    rows, columns = counts.shape
    if rows < 2 or columns < 2 or not counts.sum(axis=1).all():
        return UNDEFINED
    total = float(counts.sum())
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / total
    apart = np.abs(counts - expected)
    plain = float((apart**2 / expected).sum())
    value = plain
    if has_yates and (rows, columns) == (2, 2):
        value = float(((apart - np.minimum(0.5, apart)) ** 2 / expected).sum())
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
        """Ready for JSON; null is undefined."""
        return {
            "ratings": self.ratings,
            "raters": self.raters,
            "icc": finite_or_none(self.icc),
            "design_effect": finite_or_none(self.design_effect),
            "worth": finite_or_none(self.worth),
            "all_yes": self.all_yes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterTest:
    """one - other over raters' own shares; `is_shared` where some rated both models. All nan if undefined.

    `d` is Cohen's, in standard deviations of raters' shares. `detectable` is the least difference that is
    found with 80 % power.
    """

    difference: Estimate
    t: float
    freedom: float
    p: float
    d: float
    detectable: float
    is_shared: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        numbers = ("t", "freedom", "p", "d", "detectable")
        return {
            "difference": self.difference.as_dict(),
            **{name: finite_or_none(getattr(self, name)) for name in numbers},
            "is_shared": self.is_shared,
        }


NAN: Final = math.nan


def rater_clustering(rater: NDArray[Any], yes: NDArray[np.bool_]) -> RaterClustering:
    """How one model's ratings cluster; undefined where nobody gave two, or all said the same.

    >>> found = rater_clustering(np.repeat(["a", "b", "c"], 4), np.repeat([True, False, True], 4))
    >>> found.icc, found.design_effect, found.all_yes
    (1.0, 4.0, 2)
    """
    _, owner, sizes = np.unique(rater, return_inverse=True, return_counts=True)
    raters = len(sizes)
    yeses = np.bincount(owner, yes, raters)
    # Of raters with unequal handfuls the larger weigh more.
    typical = float((sizes**2).sum() / sizes.sum()) if raters else NAN
    icc = _icc(yeses, sizes) if raters > 1 else NAN
    return RaterClustering(
        ratings=len(owner),
        raters=raters,
        icc=icc,
        design_effect=1 + (typical - 1) * icc,
        all_yes=int((yeses == sizes).sum()),
    )


def _icc(yeses: NDArray[Any], sizes: NDArray[np.intp]) -> float:
    """From each rater's count of yes: of zeros and ones, the sums and the sums of squares are the same."""
    share = yeses.sum() / sizes.sum()
    total = yeses - sizes * share
    squares = yeses * (1 - share) ** 2 + (sizes - yeses) * share**2
    sums = np.column_stack([np.ones(len(sizes)), sizes, total, squares, total**2 / sizes, sizes**2.0])
    return float(icc_one(sums.sum(axis=0)[None])[0])


def rater_test(
    rater: NDArray[Any], yes: NDArray[np.bool_], other_rater: NDArray[Any], other_yes: NDArray[np.bool_]
) -> RaterTest:
    """Whether the two models' shares differ, with raters as the units.

    Welch's t over raters' own shares where every rater saw one of the two; where some saw both, the
    difference of shares with raters as clusters, so that what is a rater's own cancels.
    """
    names, shares = _shares(rater, yes)
    other_names, others = _shares(other_rater, other_yes)
    if len(shares) < 2 or len(others) < 2:
        return RaterTest(difference=Estimate(NAN, None), t=NAN, freedom=NAN, p=NAN, d=NAN, detectable=NAN)
    gap = float(shares.mean() - others.mean())
    pooled = math.sqrt((float(shares.var(ddof=1)) + float(others.var(ddof=1))) / 2)
    d = gap / pooled if pooled else NAN
    if len(np.intersect1d(names, other_names)):
        return _shared_test(np.concatenate([rater, other_rater]), yes, other_yes, d)
    one, two = float(shares.var(ddof=1)) / len(shares), float(others.var(ddof=1)) / len(others)
    if one + two == 0:
        return RaterTest(difference=Estimate(gap, None), t=NAN, freedom=NAN, p=NAN, d=d, detectable=NAN)
    freedom = (one + two) ** 2 / (one**2 / (len(shares) - 1) + two**2 / (len(others) - 1))
    return _test(gap, math.sqrt(one + two), freedom, d)


def _test(gap: float, error: float, freedom: float, d: float, *, is_shared: bool = False) -> RaterTest:
    from scipy.special import stdtr, stdtrit

    wide = float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * error
    return RaterTest(
        difference=Estimate(gap, Interval(gap - wide, gap + wide)),
        t=gap / error,
        freedom=freedom,
        p=float(2 * stdtr(freedom, -abs(gap / error))),
        d=d,
        detectable=error * reach(freedom, power=POWER),
        is_shared=is_shared,
    )


def _shared_test(
    rater: NDArray[Any], yes: NDArray[np.bool_], other_yes: NDArray[np.bool_], d: float
) -> RaterTest:
    values = np.concatenate([yes, other_yes]).astype(float)
    feature = np.concatenate([np.ones(len(yes)), np.zeros(len(other_yes))])
    owner = np.unique(rater, return_inverse=True)[1]
    found = contrast(values, feature, owner, strata=np.zeros(len(values), dtype=np.intp))
    if not found.is_defined or found.error == 0:
        gap = float(yes.mean() - other_yes.mean())
        return RaterTest(
            difference=Estimate(gap, None), t=NAN, freedom=NAN, p=NAN, d=d, detectable=NAN, is_shared=True
        )
    return _test(found.effect, found.error, found.freedom, d, is_shared=True)


def _shares(rater: NDArray[Any], yes: NDArray[np.bool_]) -> tuple[NDArray[Any], Floats]:
    names, owner, sizes = np.unique(rater, return_inverse=True, return_counts=True)
    return names, np.bincount(owner, yes, len(sizes)) / sizes
