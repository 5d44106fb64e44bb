"""The verdict on one model against another: better, probably better, similar, at least as good, inconclusive.

It follows from the probability that the model's Good share is higher: *better* from 97.5%, *probably better*
from 88%. *Similar* means that the whole interval of the difference lies within the margin, *at least as good*
that the share is lower by no more than the allowed drop, with a probability of 95%. Verdicts by ratings alone
are significant at the 5% level over all pairs. The judge alone, without a calibration or ratings, gives at
most *probably better*. Where many replies are unscored, a verdict must also hold with all of them counted as
Bad.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from empathy_judge.calibration.cluster import reach
from empathy_judge.calibration.estimate import CONFIDENCE, LEAST_RATERS, Estimate, Floats, Integers

Verdict = Literal[
    "better", "probably better", "similar", "at least as good", "inconclusive", "probably worse", "worse"
]
SETTLED: Final[frozenset[Verdict]] = frozenset({"better", "similar", "worse"})
REVERSED: Final[Mapping[Verdict, Verdict]] = {
    "better": "worse",
    "probably better": "probably worse",
    "similar": "similar",
    "at least as good": "inconclusive",  # where the reverse does not hold as well
    "inconclusive": "inconclusive",
    "probably worse": "probably better",
    "worse": "better",
}
MOST_UNSCORED: Final = 0.10  # share of a model's replies
MOST_MORE_UNSCORED: Final = 0.05  # than the other model's share
ALPHA: Final = 0.05
SURE: Final = 0.975  # that one share is higher: better
LIKELY: Final = 0.88  # probably better
SURE_AT_LEAST: Final = 0.95  # that it is lower by no more than the allowed drop: at least as good
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


def chance_above(estimate: Estimate, threshold: float, freedom: float) -> float:
    """Return the probability that what an interval by t is of exceeds a threshold.

    >>> from empathy_judge.calibration.estimate import estimate_of
    >>> round(chance_above(estimate_of(0.0, -0.1, 0.1), -0.1, 1e6), 3)
    0.975
    """
    p, _ = p_of_interval(estimate + -threshold, freedom)
    return p / 2 if estimate.value < threshold else 1 - p / 2


def turned(verdict: Verdict, at_least: float) -> Verdict:
    """Return the verdict on the other model; `at_least` is the probability that it is at least as good."""
    reverse = REVERSED[verdict]
    return "at least as good" if reverse == "inconclusive" and at_least >= SURE_AT_LEAST else reverse


def holm(p_values: ArrayLike) -> Floats:
    """Adjust p-values so that the chance of any false finding below .05 is 5%; scipy has no such function.

    An undefined one (nan) stays so and is not counted as a test.

    >>> holm([0.01, 0.04, np.nan, 0.03]).round(2).tolist()
    [0.03, 0.06, nan, 0.06]
    """
    return _adjust(p_values, lambda ordered, ranks: np.maximum.accumulate(ordered * ranks[::-1]))


def benjamini_hochberg(p_values: ArrayLike) -> Floats:
    """Adjust p-values so that of those below .05 at most one in twenty is expected to be false.

    Not by scipy.stats, which takes a second to load; a test compares both.

    >>> benjamini_hochberg([0.01, 0.04, np.nan, 0.03]).round(2).tolist()
    [0.03, 0.04, nan, 0.04]
    """
    return _adjust(
        p_values,
        lambda ordered, ranks: np.minimum.accumulate((ordered * len(ranks) / ranks)[::-1])[::-1],
    )


def _adjust(p_values: ArrayLike, rule: Callable[[Floats, Integers], Floats]) -> Floats:
    """Adjust the defined ones; `rule` takes them in ascending order, with their ranks from 1."""
    values = np.asarray(p_values, dtype=float)
    adjusted: Floats = np.full(values.shape, np.nan)
    order = np.argsort(values, kind="stable")[: np.isfinite(values).sum()]  # nan sorts last
    adjusted[order] = np.minimum(rule(values[order], np.arange(1, len(order) + 1)), 1.0)
    return adjusted


RATINGS_EACH: Final = 10  # of one model by one person


def ratings_of_each(difference: float, *, variance: float, sides: int = 2, known: float = 0.0) -> float:
    """Return how many ratings of each of `sides` models detect a `difference`.

    `variance` is that of one rating times the design effect; `known` is the variance of a side that nobody
    will rate again. Infinite where that alone hides the difference.

    >>> ratings_of_each(0.1, variance=0.25), ratings_of_each(0.05, variance=0.25, sides=1, known=0.0004)
    (403, inf)
    """

    def is_enough(count: int) -> bool:  # the more ratings, the more raters, the smaller their t
        raters = max(LEAST_RATERS, count / RATINGS_EACH)
        allowed = (difference / reach(sides * (raters - 1.0))) ** 2 - known
        return count * allowed >= sides * variance

    counts = range(1, 2**30)
    first = bisect_left(counts, True, key=is_enough)
    return counts[first] if first < len(counts) else math.inf


def round_up(count: float) -> int:
    """Round a number up to two digits: a plan is no more exact than that.

    >>> round_up(1302), round_up(47), round_up(100)
    (1400, 47, 100)
    """
    whole = math.ceil(count)
    step = int(10 ** max(0, len(str(whole)) - 2))
    return -(-whole // step) * step
