"""The effect of a rewrite on a judge's scores: the mean change over prompts, and the power to detect one."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from calibration.cluster import UNIT, Contrast, contrast, t_intervals
from calibration.estimate import Estimate, Floats, Integers, Interval

Result = Literal["passes", "fails", "inconclusive"]
# Where the mean change must lie, as parts of the limit.
ALLOWED: Final = {
    "up": (1.0, np.inf),
    "not up": (-np.inf, 1.0),
    "same": (-1.0, 1.0),
    "not down": (-1.0, np.inf),
    "down": (-np.inf, -1.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The mean change of score, rewritten - original, and how many labels went to Good and away from it.

    `result`: passes, or fails, if the whole interval lies where it should, or where it should not.
    `detectable` is how far beyond the limit the true change must be to be found with a power of 0.8.
    Flips to Good are a part of the responses that were not Good before, those from it of the ones that were.
    """

    change: Estimate
    detectable: float
    result: Result
    pairs: int
    prompts: int
    to_good: Estimate
    from_good: Estimate
    were_good: int


def mean_change(
    before: Floats,
    after: Floats,
    was_good: NDArray[np.bool_],
    is_good: NDArray[np.bool_],
    prompts: Integers,
    *,
    should: str,
    limit: float,
) -> Change:
    """Return the change of score over pairs, by t over whole prompts; undefined with fewer than two.

    Not by bootstrap: what could have been found needs the standard error anyway, and with a dozen prompts
    percentile t_intervals are too short.
    """
    found = _mean(after - before, prompts)
    return Change(
        change=found.estimate(),
        detectable=found.detectable(),
        result=_conclude(found.estimate(), ALLOWED[should], limit),
        pairs=len(before),
        prompts=len(np.unique(prompts)),
        to_good=_share(is_good[~was_good], prompts[~was_good]),
        from_good=_share(~is_good[was_good], prompts[was_good]),
        were_good=int(was_good.sum()),
    )


def _conclude(change: Estimate, allowed: tuple[float, float], limit: float) -> Result:
    if change.interval is None:
        return "inconclusive"
    least, most = (end * limit if np.isfinite(end) else end for end in allowed)
    if least <= change.interval.low and change.interval.high <= most:
        return "passes"
    return "fails" if change.interval.high < least or change.interval.low > most else "inconclusive"


def _mean(values: Floats, prompts: Integers) -> Contrast:
    return contrast(values, np.ones(len(values)), prompts)


def _share(flips: NDArray[np.bool_], prompts: Integers) -> Estimate:
    """A share with Wilson's interval at the effective number of responses, as for shares of ratings."""
    found = _mean(flips.astype(float), prompts)
    if not found.is_defined:
        return Estimate(float(flips.mean()) if len(flips) else float("nan"), None)
    number = float(len(np.unique(prompts)))
    value = np.array([float(flips.mean())])  # to the last digit: a share of 1 is not a little more
    low, high = t_intervals(value, np.array([found.error**2]), np.array([found.freedom]), UNIT, number)
    return Estimate(float(value[0]), Interval(float(low[0]), float(high[0])))
