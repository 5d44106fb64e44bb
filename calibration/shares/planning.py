"""How many ratings settle a comparison of two models, for several true gaps at once, since nobody knows it.

Every rating is of a new reply: ratings of the same replies never average out what tells one reply from
another. Ratings come from people of whom each gives about `RATINGS_EACH` of a model, as many as the design
effect was measured with; few people know badly how much people differ, and their t is in the plan.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from calibration.cluster import NORMAL, POWER, reach, t_quantile
from calibration.estimate import Estimate, Interval
from calibration.pairing import LEAST_RATERS
from calibration.shares.transport import STRANGERS, CalibratedModels, Target, transport, transport_difference

RATINGS_EACH: Final = 10  # of one model by one person
Alike = Sequence[tuple[float, float]]  # correlations of two models' strays, each with its weight
LIKELY: Final = 0.8416  # standard errors that a normal falls short of with the power of 80 %
MANY: Final = 1e5  # degrees of freedom from which t is normal


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingsPlan:
    """Ratings of each of two models that find a `difference`; infinite is more than anyone could collect.

    `people_only` needs no judge; `with_judge` lets the judge's scores of unrated responses carry what they
    can (PPI++), and nothing about its level is believed; `with_line` also believes the calibrated line as
    far as it has been found to hold, which a new kind of model may not keep. `line_detects` is the smallest
    difference the line alone would detect, with no rating at all. Each rating is of a new reply.
    """

    difference: float
    power: float
    people_only: float
    with_judge: float
    with_line: float
    line_detects: float


def plan_ratings(
    difference: float,
    *,
    spread: float,
    design_effect: float = 1.0,
    correlation: float = 0.0,
    line: CalibratedModels | None = None,
) -> RatingsPlan:
    """Plan the ratings that detect a `difference` of two models with the power `POWER`, at 95 % confidence.

    `spread` is the variance of single ratings, p (1 - p) for a share; `correlation` that of ratings and
    judgments within models. Many more responses are judged than rated.

    >>> plan = plan_ratings(0.1, spread=0.24, design_effect=1.5, correlation=0.3)
    >>> plan.people_only, plan.with_judge, plan.with_line
    (575, 525, 525)
    """
    people_only = with_judge = with_line = line_detects = math.inf
    if difference and not math.isnan(difference + spread + design_effect + correlation):
        people = spread * design_effect
        judged = people * (1 - correlation**2)
        people_only, with_judge = (ratings_of_each(difference, variance=each) for each in (people, judged))
        with_line = with_judge
        if line is not None and line.judge:
            typical = Target(judge=sum(line.judge) / len(line.judge))
            if ends := transport_difference(line, typical, typical).interval:
                line_detects = math.sqrt(_variance(ends)) * reach(MANY)
            with_line = 0
            if line_detects > difference:
                with_line = ratings_with_line(difference, line, (typical, typical), variance=judged)
    return RatingsPlan(
        difference=difference,
        power=POWER,
        people_only=people_only,
        with_judge=with_judge,
        with_line=with_line,
        line_detects=line_detects,
    )


def ratings_of_each(gap: float, *, variance: float, sides: int = 2, known: float = 0.0) -> float:
    """How many ratings of each of `sides` models find a `gap`, by ratings alone.

    `variance` is that of one rating, design effect and all; `known` is the variance of a side that nobody
    will rate again. Infinite where that alone hides the gap.

    >>> ratings_of_each(0.1, variance=0.25), ratings_of_each(0.05, variance=0.25, sides=1, known=0.0004)
    (403, inf)
    """

    def do(count: int) -> bool:  # the more ratings, the more raters, the smaller their t
        left = (gap / reach(_freedom(count, sides))) ** 2 - known
        return count * left >= sides * variance

    low, high = 0, 2**30
    if not do(high):
        return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if do(middle) else (middle, high)
    return high


def ratings_with_line(
    gap: float,
    line: CalibratedModels,
    targets: Sequence[Target],
    *,
    variance: float,
    known: float = 0.0,
    alike: Alike = STRANGERS,
    seen: float = math.inf,
) -> float:
    """How many ratings of each target find a `gap`, with what the calibrated line knows; to a twentieth.

    The ratings are taken to miss the line by as much as they may be expected to: where they agree with it the
    line looks better than it is, and the plan too short. `alike` is as in `transport_difference`. `seen` is
    the gap the line shows now: where that is less than the true one, ratings must outweigh it.
    """

    def estimate(of: Sequence[Target]) -> Estimate:
        return transport_difference(line, *of, alike=alike) if len(of) > 1 else transport(line, of[0])

    sides = len(targets)
    most = ratings_of_each(gap, variance=variance, sides=sides, known=known)
    allowed = (gap / reach(MANY)) ** 2 - known  # variance that the estimate may have
    ends = estimate(targets).interval
    if not math.isfinite(most) or allowed <= 0 or ends is None:
        return most
    levels = [transport(line, target).value for target in targets]
    low, high = min(2 * LEAST_RATERS, int(most)), int(most)
    while high - low > high / 20:
        middle = math.isqrt(low * high)
        noise = variance / middle * float(t_quantile(_freedom(middle, sides)) / NORMAL) ** 2
        apart = gap - seen if math.isfinite(seen) else 0.0
        miss = math.sqrt((apart**2 if apart else _variance(ends)) + sides * noise) / sides
        rated = [
            replace(target, crowd=level + sign * miss, noise=noise)
            for target, level, sign in zip(targets, levels, (1, -1), strict=False)
        ]
        found = estimate(rated).interval
        is_enough = found is not None and _variance(found) <= allowed
        if found is not None and apart:
            trust = min(1.0, _variance(found) / (sides * noise))
            expected = gap - (1 - trust) * apart
            stray = math.sqrt(trust**2 * sides * variance / middle + known)
            least = NORMAL * math.sqrt(_variance(found) + known)
            is_enough = expected - least >= LIKELY * stray
        low, high = (low, middle) if is_enough else (middle + 1, high)
    return high


def _variance(ends: Interval) -> float:
    """The variance of a normal error with this interval."""
    return ((ends.high - ends.low) / 2 / NORMAL) ** 2


def _freedom(ratings: float, sides: int) -> float:
    """The degrees of freedom of as many people as give so many ratings of each model."""
    return sides * (max(LEAST_RATERS, ratings / RATINGS_EACH) - 1.0)


def detectable_difference(variance: float, other: float, *, power: float = POWER) -> float:
    """The smallest difference of two levels with these variances that is found with this `power`.

    >>> round(detectable_difference(0.0008, 0.0008), 3)
    0.112
    """
    return reach(MANY, power=power) * math.sqrt(variance + other)


def round_up(count: float) -> int:
    """Round a number up to two digits: a plan is no more exact than that.

    >>> round_up(1302), round_up(47), round_up(100)
    (1400, 47, 100)
    """
    whole = math.ceil(count)
    step = int(10 ** max(0, len(str(whole)) - 2))
    return -(-whole // step) * step
