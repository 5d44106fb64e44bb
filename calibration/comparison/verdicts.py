"""The verdict on one model against another: better, probably better, similar, inconclusive, or the reverse.

*Better* and *worse* are significant at the 5% level over all pairs, by human ratings or the calibrated judge.
*Probably better* means that people prefer the model with a probability of at least 88%. *Similar* means that
the whole interval lies within the margin. The judge alone, without a calibration or ratings, gives at most
*probably better*. Where many replies are unscored, a verdict must also hold with all of them counted as Bad.
"""

import math
from collections.abc import Mapping
from typing import Final, Literal

from empathy_judge.calibration.estimate import CONFIDENCE, Estimate

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
MOST_UNSCORED: Final = 0.10  # share of a model's replies
MOST_MORE_UNSCORED: Final = 0.05  # than the other model's share
ALPHA: Final = 0.05
LIKELY: Final = 0.88
SAME: Final = 1e-9  # shares no further apart are equal


def is_much_unscored(one: float, other: float = 0.0) -> bool:
    """Return whether these shares of unscored replies are too large, or too far apart, for a plain verdict.

    >>> is_much_unscored(0.1, 0.1), is_much_unscored(0.11, 0.1), is_much_unscored(0.06)
    (False, True, True)
    """
    return max(one, other) > MOST_UNSCORED or abs(one - other) > MOST_MORE_UNSCORED


def p_of_interval(estimate: Estimate, freedom: float) -> tuple[float, float]:
    """Return the p-value of no difference and the standard error that an interval by t implies.

    The reach towards 0 counts, so that p is below .05 just where the interval leaves 0 out.

    >>> from empathy_judge.calibration.estimate import estimate_of
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
