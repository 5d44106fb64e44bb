"""How many ratings a comparison of two models needs, with a judge and without."""

import math
from dataclasses import dataclass

from calibration.cluster import POWER
from calibration.estimate import CONFIDENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingsPlan:
    """Ratings of each of two models; infinite is more than anyone could collect.

    `people_only` needs no judge; `with_judge` lets the judge's scores of unrated responses carry what they
    can (PPI++), and nothing about its level is believed; `with_line` also believes the calibrated line as
    far as it has been found to hold, which a new kind of model may not keep. `line_detects` is the smallest
    difference the line alone would detect, with no rating at all.
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
    between_sd: float = math.inf,
) -> RatingsPlan:
    """Plan the ratings that detect a `difference` of two models with the power `POWER`, at 95 % confidence.

    `spread` is the variance of single ratings, p (1 - p) for a share; `correlation` that of ratings and
    judgments within models; `between_sd` the line's. Many more responses are judged than rated.

    >>> plan = plan_ratings(0.1, spread=0.24, design_effect=1.5, correlation=0.3, between_sd=0.05)
    >>> plan.people_only, plan.with_judge, plan.with_line, round(plan.line_detects, 2)
    (566, 515, 384, 0.2)
    """
    reach = _reach(POWER)
    people_only = with_judge = with_line = math.inf
    if difference and not math.isnan(difference + spread + design_effect + correlation + between_sd):
        wanted = difference**2 / (2 * reach**2)  # the variance each model's level may have
        people = spread * design_effect
        judged = people * (1 - correlation**2)
        line = 1 / between_sd**2 if between_sd else math.inf
        people_only, with_judge = math.ceil(people / wanted), math.ceil(judged / wanted)
        with_line = math.ceil(judged * max(0.0, 1 / wanted - line))
    return RatingsPlan(
        difference=difference,
        power=POWER,
        people_only=people_only,
        with_judge=with_judge,
        with_line=with_line,
        line_detects=math.sqrt(2) * reach * between_sd,
    )


def detectable_difference(variance: float, other: float, *, power: float = POWER) -> float:
    """The smallest difference of two levels with these variances that is found with this `power`.

    >>> round(detectable_difference(0.0008, 0.0008), 3)
    0.112
    """
    return _reach(power) * math.sqrt(variance + other)


def _reach(power: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + CONFIDENCE) / 2) + ndtri(power))
