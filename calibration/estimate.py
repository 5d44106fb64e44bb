"""A statistic with its 95% interval, and the difference of two of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
CONFIDENCE = 0.95
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
    """A statistic and its interval; `value` is nan where undefined, `interval` None where there is none."""

    value: float
    interval: Interval | None

    def __neg__(self) -> "Estimate":
        ends = self.interval
        return Estimate(-self.value, ends and Interval(-ends.high, -ends.low))

    def __add__(self, shift: float) -> "Estimate":
        ends = self.interval
        return Estimate(self.value + shift, ends and Interval(ends.low + shift, ends.high + shift))

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

    def hull(self, other: "Estimate") -> "Estimate":
        """Return the value with an interval that holds those of both."""
        ends = other.interval
        return Estimate(self.value, self.at(ends.low).at(ends.high).interval) if ends else self

    def is_within(self, margin: float) -> bool:
        """Return whether a difference is shown to be smaller: two one-sided tests (Schuirmann 1987).

        With a 95% interval each test has an error rate of at most 2.5%, where the usual rule (90%) allows 5%;
        the verdict then agrees with the interval shown.

        >>> Estimate(0.01, Interval(-0.02, 0.04)).is_within(0.05), Estimate(0.01, None).is_within(0.05)
        (True, False)
        """
        return self.interval is not None and -margin < self.interval.low and self.interval.high < margin

    def as_dict(self) -> dict[str, float | None]:
        """Put value and ends side by side; JSON knows no nan, so what is undefined is null.

        >>> Estimate(0.5, Interval(0.4, 0.6)).as_dict()
        {'value': 0.5, 'low': 0.4, 'high': 0.6}
        >>> Estimate(float("nan"), None).as_dict()
        {'value': None, 'low': None, 'high': None}
        """
        low, high = (self.interval.low, self.interval.high) if self.interval else (None, None)
        return {"value": finite_or_none(self.value), "low": low, "high": high}

    @classmethod
    def from_dict(cls, row: Mapping[str, float | None]) -> "Estimate":
        """Read what `as_dict` returned.

        >>> Estimate.from_dict({"value": 0.5, "low": None, "high": None})
        Estimate(value=0.5, interval=None)
        """
        value, low, high = (math.nan if row[key] is None else row[key] for key in ("value", "low", "high"))
        return estimate_of(value, low, high)  # type: ignore[arg-type]


UNDEFINED: Final = Estimate(math.nan, None)


def estimate_of(value: float, low: float, high: float) -> Estimate:
    """Return an estimate of three numbers; undefined ends are no interval."""
    is_known = math.isfinite(low) and math.isfinite(high)
    return Estimate(float(value), Interval(float(low), float(high)) if is_known else None)


def finite_or_none(value: float) -> float | None:
    """Return None for nan and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None
