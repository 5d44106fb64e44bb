"""Pearson's chi-square for tables of counts, and the effect sizes that belong beside it."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from calibration.intervals import finite_or_none


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
