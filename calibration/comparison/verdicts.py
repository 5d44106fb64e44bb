"""The verdict on one thing against another: better, probably better, similar, inconclusive, or the reverse.

*Better* and *worse* are significant at the 5% level over all pairs, by human ratings or the calibrated judge.
*Probably better* is significant for the judge on the same prompts, while the human shares of Good and of Bad
each point the same way with 88% probability; by simulation it is wrong for fewer than 20 of 100 pairs that do
not differ. *Similar* means that the whole interval lies within the margin. The judge alone, without a
calibration or ratings, gives at most *probably better*.
"""

import math
from collections.abc import Mapping
from typing import Final, Literal

from calibration.estimate import CONFIDENCE, Estimate

Verdict = Literal["better", "probably better", "similar", "inconclusive", "probably worse", "worse"]
SETTLED: Final[frozenset[Verdict]] = frozenset({"better", "similar", "worse"})
REVERSED: Final[Mapping[Verdict, Verdict]] = {
    "better": "worse",
    "probably better": "probably worse",
    "similar": "similar",
    "inconclusive": "inconclusive",
    "probably worse": "probably better",
    "worse": "better",
}
ALPHA: Final = 0.05
LIKELY: Final = 0.12  # most probability left that the human shares point the other way
SAME: Final = 1e-9  # shares no further apart are equal


def direction(good: Estimate, bad: Estimate, freedom: float) -> tuple[int, float]:
    """Return where the human shares of Good and Bad point, 1 or -1, and the probability that they do not."""
    if not good.value * bad.value < 0:
        return 0, math.nan
    doubt = max(p_of_interval(item, freedom)[0] for item in (good, bad)) / 2
    return (1 if good.value > 0 else -1), doubt


def p_of_interval(estimate: Estimate, freedom: float) -> tuple[float, float]:
    """Return the p-value of no difference and the standard error that an interval by t implies.

    The reach towards 0 counts, so that p is below .05 just where the interval leaves 0 out.

    >>> from calibration.estimate import estimate_of
    >>> p, error = p_of_interval(estimate_of(0.1, 0.0, 0.2), 1e6)
    >>> round(p, 3), round(error, 3)
    (0.05, 0.051)
    """
    from scipy.special import stdtr, stdtrit

    if estimate.interval is None or not math.isfinite(estimate.value) or not freedom > 0:
        return math.nan, math.nan
    ends = estimate.interval
    wide = estimate.value - ends.low if estimate.value > 0 else ends.high - estimate.value
    error = wide / float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
    if error < -SAME:
        return math.nan, math.nan
    if error < SAME:  # every prompt says the same, but for rounding
        return float(abs(estimate.value) < SAME), 0.0
    return float(2 * stdtr(freedom, -abs(estimate.value) / error)), error
