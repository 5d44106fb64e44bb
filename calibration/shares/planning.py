"""How many ratings a comparison of two models needs, with a judge and without."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from calibration.cluster import POWER as POWER_sufficiency
from calibration.cluster import reach
from calibration.comparison.judged_models import (
    GOOD,
    ComparisonSettings,
    How,
    JudgedModel,
    Published,
    line_without,
)
from calibration.estimate import CONFIDENCE, Estimate, Interval, finite_or_none
from calibration.shares.ppi import judge_means
from calibration.shares.transport import CalibratedModels, Target, transport, transport_difference

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


# How many more ratings, or prompts, would tell two judged models apart.

MANY: Final = 1e5  # degrees of freedom from which t is normal


def missing(
    one: JudgedModel, other: JudgedModel | Published, how: How, error: float, settings: ComparisonSettings
) -> int | None:
    """How many more ratings of each, or prompts, make a difference as large as the margin detectable.

    None where that cannot be said, or where no number would do: a published model's own error stays.
    """
    judged = [item for item in (one, other) if isinstance(item, JudgedModel)]
    if how == "judge":
        # The error falls with the root of the number of prompts.
        have = min(len(item.rated.judged) for item in judged)
        return _count(have * ((error * reach(MANY, power=POWER_sufficiency) / settings.margin) ** 2 - 1))
    if how == "refused" and settings.calibrated is None:
        return None
    have = min(len(item.rated.item) for item in judged)
    wanted = _ratings_wanted(one, other, how, settings)
    return None if wanted is None else _count(wanted - have)


def _ratings_wanted(
    one: JudgedModel, other: JudgedModel | Published, how: How, settings: ComparisonSettings
) -> int | None:
    """Ratings of each in all: the fewest with which the interval is short enough, by line and ratings."""
    judged = [item for item in (one, other) if isinstance(item, JudgedModel)]
    shares = [float(item.rated.judged[:, -1].mean()) for item in judged if len(item.rated.judged)]
    share = float(np.mean(shares)) if shares else 0.5
    effects = [float(item.ppi.design_effect[-1]) for item in judged if item.ppi is not None]
    effect = max(1.0, float(np.mean(effects)) if effects else settings.design_effect)
    plan = plan_ratings(settings.margin, spread=share * (1 - share), design_effect=effect)
    most = plan.people_only
    # An interval this long still finds the margin with 80 % power.
    longest = 2 * settings.margin * _normal_share()
    if isinstance(other, Published):
        own = other.shares[GOOD].interval
        left = (longest / 2) ** 2 - ((own.high - own.low) / 2) ** 2 if own else 0.0
        if left <= 0:
            return None
        longest = 2 * math.sqrt(left)
        most = plan.people_only / 2 * (settings.margin * _normal_share()) ** 2 / left
    if settings.calibrated is None or how == "refused" or not math.isfinite(most):
        return int(most) if math.isfinite(most) else None
    line = line_without(settings.calibrated[-1], *(item.known_as for item in judged))
    # As if ratings were to find what the line says already; their spread is what counts.
    targets = [
        replace(target, crowd=transport(line, target).value)
        for target in (target_of(item, -1) for item in judged)
    ]
    spread = share * (1 - share) * effect
    return _fewest(lambda number: _length(line, targets, spread / number) <= longest, math.ceil(most))


def _normal_share() -> float:
    """The half-length of a 95 % interval as a part of the difference it finds with 80 % power."""
    from scipy.special import ndtri

    return float(ndtri((1 + CONFIDENCE) / 2)) / reach(MANY, power=POWER_sufficiency)


def _length(line: CalibratedModels, targets: Sequence[Target], noise: float) -> float:
    """How long the interval would be were the ratings of each as exact as this."""
    rated = [replace(target, noise=noise) for target in targets]
    found = transport_difference(line, *rated) if len(rated) > 1 else transport(line, rated[0])
    return found.interval.high - found.interval.low if found.interval else math.inf


def _fewest(is_enough: Callable[[int], bool], most: int) -> int:
    """The least number that is enough, to a twentieth; `most` is taken to be."""
    low, high = 1, max(1, most)
    while high - low > high / 20:
        middle = math.isqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return high


def _count(more: float) -> int | None:
    return max(1, math.ceil(more)) if math.isfinite(more) else None


def target_of(item: JudgedModel, column: int) -> Target:
    """A model as the line takes it, with its own ratings if they say how exact they are."""
    mean, noise = judge_means(item.rated)
    judge = Target(judge=float(mean[column]), judge_noise=float(np.nan_to_num(noise[column])))
    if item.ppi is None:
        return judge
    own = item.ppi
    return replace(judge, crowd=float(own.value[column]), noise=float(own.stated_variance[column]))


def apart(one: Estimate, other: Estimate) -> Estimate:
    """The difference of two independent estimates; its interval from theirs (Zou and Donner 2008).

    >>> found = apart(Estimate(0.6, Interval(0.56, 0.64)), Estimate(0.5, Interval(0.47, 0.53)))
    >>> round(found.interval.low, 3), round(found.interval.high, 3)
    (0.05, 0.15)
    """
    gap = one.value - other.value
    if one.interval is None or other.interval is None:
        return Estimate(gap, None)
    below = math.hypot(one.value - one.interval.low, other.interval.high - other.value)
    above = math.hypot(one.interval.high - one.value, other.value - other.interval.low)
    return Estimate(gap, Interval(gap - below, gap + above))
