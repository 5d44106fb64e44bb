"""The verdict on one thing against another: better, probably better, similar, inconclusive, or the reverse.

*Better* and *worse* are significant at the 5% level over all pairs, by human ratings or the calibrated judge.
*Probably better* is significant for the judge on the same prompts, while the human shares of Good and of Bad
each point the same way with 88% probability; by simulation it is wrong for fewer than 20 of 100 pairs that do
not differ. *Similar* means that the whole interval lies within the margin. The judge alone, without a
calibration or ratings, gives at most *probably better*.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from calibration.estimate import CONFIDENCE, Estimate, is_same_within

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a verdict on `one - other` rests on.

    `good` and `p_holm` are of people's share of Good; nan where nothing tells it. `points` is 1 or -1 where
    people's shares of Good and of Bad point to the one or to the other, and `doubt` the chance left that they
    do not. `judge_p` is nan where the judge did not see both.
    """

    good: Estimate
    p_holm: float
    points: int
    doubt: float
    judge: Estimate
    judge_p: float
    is_people: bool  # False where the judge alone was asked
    is_bound: bool = False  # the difference is at least this


def decide(evidence: Evidence, margin: float) -> Verdict:
    """Return the verdict; a difference within the margin is similar, however certain its sign."""
    if not evidence.is_people:
        is_seen = evidence.p_holm < ALPHA and not is_same_within(evidence.judge, margin)
        return _probably(evidence.judge.value) if is_seen else "inconclusive"
    if not evidence.is_bound and is_same_within(evidence.good, margin):
        return "similar"
    if evidence.p_holm < ALPHA:
        return "better" if evidence.good.value > 0 else "worse"
    if math.isnan(evidence.judge_p):  # nothing on the same prompts: people's view alone must be surer
        is_likely = evidence.doubt < LIKELY / 2
    else:
        is_sure = evidence.judge_p < ALPHA and evidence.points * evidence.judge.value > 0
        is_likely = is_sure and evidence.doubt < LIKELY
    return _probably(evidence.points) if is_likely and evidence.points else "inconclusive"


def _probably(value: float) -> Verdict:
    return "probably better" if value > 0 else "probably worse"


def direction(good: Estimate, bad: Estimate, freedom: float) -> tuple[int, float]:
    """Where people's shares point, 1 or -1, and the chance left that one of them goes the other way."""
    if not good.value * bad.value < 0:
        return 0, math.nan
    doubt = max(p_of_interval(item, freedom)[0] for item in (good, bad)) / 2
    return (1 if good.value > 0 else -1), doubt


def p_of_interval(estimate: Estimate, freedom: float) -> tuple[float, float]:
    """The p-value of no difference, and the standard error, that an interval by t implies.

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
