"""A statistic with its 95% interval, and the difference of two of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
CONFIDENCE = 0.95
Bound = Literal["at least", "at most"]
OPPOSITE: Final[Mapping[Bound | None, Bound]] = {"at least": "at most", "at most": "at least"}
Population = Literal["general", "these raters only"]  # whom a figure with its interval is about
LEAST_RATERS: Final = 4  # fewer show nothing of how much people differ
THESE_RATERS_ONLY: Final = (
    "fewer than four raters: the figures describe these raters only, not people in general"
)


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a statistic may lie, with 95% confidence."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic and its interval; `value` is nan where undefined, `interval` None where there is none.

    Where only a `bound` is known there is no value, and the interval's other end is that of the scale. Where
    there is no value, `rank` orders it among others, and is never shown.
    """

    value: float
    interval: Interval | None
    bound: Bound | None = None
    rank: float = math.nan

    @property
    def order(self) -> float:
        """The value, or the rank where there is none."""
        return self.rank if math.isnan(self.value) else self.value

    @property
    def width(self) -> float:
        """The width of the interval; infinite without one."""
        return self.interval.high - self.interval.low if self.interval else math.inf

    def __neg__(self) -> "Estimate":
        ends = self.interval
        turned = ends and Interval(-ends.high, -ends.low)
        return Estimate(-self.value, turned, OPPOSITE.get(self.bound), -self.rank)

    def __add__(self, shift: float) -> "Estimate":
        ends = self.interval
        moved = ends and Interval(ends.low + shift, ends.high + shift)
        return Estimate(self.value + shift, moved, self.bound, self.rank + shift)

    def __sub__(self, other: "Estimate") -> "Estimate":
        """Subtract an independent estimate; the interval comes from both (Zou and Donner 2008).

        >>> difference = Estimate(0.6, Interval(0.56, 0.64)) - Estimate(0.5, Interval(0.47, 0.53))
        >>> round(difference.interval.low, 3), round(difference.interval.high, 3)
        (0.05, 0.15)
        """
        gap = self.value - other.value
        if self.interval is None or other.interval is None:
            return Estimate(gap, None)
        below = math.hypot(self.value - self.interval.low, other.interval.high - other.value)
        above = math.hypot(self.interval.high - self.value, other.value - other.interval.low)
        return Estimate(gap, Interval(gap - below, gap + above))

    def at(self, value: float) -> "Estimate":
        """Return an estimate of this value, with the interval extended to it."""
        ends = self.interval
        return Estimate(value, ends and Interval(min(ends.low, value), max(ends.high, value)))

    def is_within(self, margin: float) -> bool:
        """Return whether a difference is shown to be smaller: two one-sided tests (Schuirmann 1987).

        With a 95% interval each test has an error rate of at most 2.5%, where the usual rule (90%) allows 5%;
        the verdict then agrees with the interval shown.

        >>> Estimate(0.01, Interval(-0.02, 0.04)).is_within(0.05), Estimate(0.01, None).is_within(0.05)
        (True, False)
        """
        return self.interval is not None and -margin < self.interval.low and self.interval.high < margin

    def as_dict(self) -> dict[str, Any]:
        """Put value and ends side by side; JSON knows no nan, so what is undefined is null.

        >>> Estimate(0.5, Interval(0.4, 0.6)).as_dict()
        {'value': 0.5, 'low': 0.4, 'high': 0.6}
        >>> Estimate(float("nan"), Interval(0.0, 0.3), "at most").as_dict()
        {'value': None, 'low': 0.0, 'high': 0.3, 'bound': 'at most'}
        """
        low, high = (self.interval.low, self.interval.high) if self.interval else (None, None)
        row: dict[str, Any] = {"value": finite_or_none(self.value), "low": low, "high": high}
        return row | ({"bound": self.bound} if self.bound else {})

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "Estimate":
        """Read what `as_dict` returned.

        >>> Estimate.from_dict({"value": 0.5, "low": None, "high": None})
        Estimate(value=0.5, interval=None, bound=None, rank=nan)
        """
        value, low, high = (math.nan if row[key] is None else row[key] for key in ("value", "low", "high"))
        bound = row.get("bound")
        rank = low if bound == "at least" else high if bound else math.nan
        return replace(estimate_of(value, low, high), bound=bound, rank=rank)


UNDEFINED: Final = Estimate(math.nan, None)


def estimate_of(value: float, low: float, high: float) -> Estimate:
    """Return an estimate of three numbers; undefined ends are no interval."""
    is_known = math.isfinite(low) and math.isfinite(high)
    return Estimate(float(value), Interval(float(low), float(high)) if is_known else None)


def finite_or_none(value: float) -> float | None:
    """Return None for nan and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None
