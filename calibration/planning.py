"""How many ratings a comparison of two models needs, with a judge and without."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

from calibration.intervals import CONFIDENCE, finite_or_none

POWER: Final = 0.8


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

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is infinite or undefined."""
        return {name: finite_or_none(value) for name, value in asdict(self).items()}


def plan_ratings(
    difference: float,
    *,
    spread: float,
    design_effect: float = 1.0,
    correlation: float = 0.0,
    between_sd: float = math.inf,
) -> RatingsPlan:
    """What it takes to detect a `difference` between two models with the power `POWER`, at 95 % confidence.

    `spread` is the variance of single ratings, p (1 - p) for a share; `correlation` that of ratings and
    judgments within models; `between_sd` the line's. Many more responses are judged than rated.

    >>> plan = plan_ratings(0.1, spread=0.24, design_effect=1.5, correlation=0.3, between_sd=0.05)
    >>> plan.people_only, plan.with_judge, plan.with_line, round(plan.line_detects, 2)
    (566, 515, 384, 0.2)
    """
    reach = _reach(POWER)
    if not difference or math.isnan(difference + spread + design_effect + correlation + between_sd):
        return RatingsPlan(
            difference=difference,
            power=POWER,
            people_only=math.inf,
            with_judge=math.inf,
            with_line=math.inf,
            line_detects=math.sqrt(2) * reach * between_sd,
        )
    wanted = difference**2 / (2 * reach**2)  # the variance each model's level may have
    people = spread * design_effect
    judged = people * (1 - correlation**2)
    known = 1 / between_sd**2 if between_sd else math.inf
    return RatingsPlan(
        difference=difference,
        power=POWER,
        people_only=math.ceil(people / wanted),
        with_judge=math.ceil(judged / wanted),
        with_line=math.ceil(judged * max(0.0, 1 / wanted - known)),
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
