"""How many ratings of each model detect a difference between two models.

Every rating is of a new reply: rating the same replies again does not average out how replies differ. Raters
give about `RATINGS_EACH` ratings of a model, as many as the design effect was measured with. Few raters leave
few degrees of freedom, which the plan counts.
"""

import math
from bisect import bisect_left
from typing import Final

from empathy_judge.calibration.cluster import reach
from empathy_judge.calibration.estimate import LEAST_RATERS

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
