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
    """Make an estimate of three numbers; ends that are no numbers are no interval."""
    is_known = math.isfinite(low) and math.isfinite(high)
    return Estimate(float(value), Interval(float(low), float(high)) if is_known else None)


def independent_difference(one: Estimate, other: Estimate) -> Estimate:
    """Subtract two independent estimates; the interval comes from theirs (Zou and Donner 2008).

    >>> one, other = Estimate(0.6, Interval(0.56, 0.64)), Estimate(0.5, Interval(0.47, 0.53))
    >>> found = independent_difference(one, other)
    >>> round(found.interval.low, 3), round(found.interval.high, 3)
    (0.05, 0.15)
    """
    gap = one.value - other.value
    if one.interval is None or other.interval is None:
        return Estimate(gap, None)
    below = math.hypot(one.value - one.interval.low, other.interval.high - other.value)
    above = math.hypot(one.interval.high - one.value, other.value - other.interval.low)
    return Estimate(gap, Interval(gap - below, gap + above))


def hull(one: Estimate, other: Estimate) -> Estimate:
    """Return the first estimate with an interval that holds those of both."""
    ends = [item.interval for item in (one, other) if item.interval]
    if len(ends) < 2:
        return one
    return Estimate(one.value, Interval(min(item.low for item in ends), max(item.high for item in ends)))


def is_same_within(difference: Estimate, margin: float) -> bool:
    """Whether a difference is shown to be smaller than `margin`: two one-sided tests (Schuirmann 1987).

    The whole interval lies within the margin. With a 95% interval each test has an error rate of at most
    2.5%, where the usual rule (90%) allows 5%; the verdict then agrees with the interval shown.

    >>> is_same_within(Estimate(0.01, Interval(-0.02, 0.04)), 0.05)
    True
    >>> is_same_within(Estimate(0.0, Interval(-0.06, 0.06)), 0.05), is_same_within(Estimate(0.0, None), 0.05)
    (False, False)
    """
    ends = difference.interval
    return ends is not None and -margin < ends.low and ends.high < margin


def finite_or_none(value: float) -> float | None:
    """Make null of what JSON has no word for: nan and infinity."""
    return value if math.isfinite(value) else None
