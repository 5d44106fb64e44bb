"""Bootstrap intervals for statistics of responses that come in clusters."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """The percentile interval of a resampled statistic."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic and its interval; `value` is nan where undefined, `interval` None where there is none."""

    value: float
    interval: Interval | None

    def as_dict(self) -> dict[str, float | None]:
        """Ready for JSON, which knows no nan: what is undefined is null.

        >>> Estimate(0.5, Interval(0.4, 0.6)).as_dict()
        {'value': 0.5, 'low': 0.4, 'high': 0.6}
        >>> Estimate(float("nan"), None).as_dict()
        {'value': None, 'low': None, 'high': None}
        """
        low, high = (self.interval.low, self.interval.high) if self.interval else (None, None)
        return {"value": finite_or_none(self.value), "low": low, "high": high}


def finite_or_none(value: float) -> float | None:
    """JSON has no word for nan and none for infinity."""
    return value if math.isfinite(value) else None
