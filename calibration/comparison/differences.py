"""Differences of judged models: corrected where possible, paired by prompt, with what is missing to tell.

A difference rests on the calibrated line, with each model's stray from it, and on ratings of the two as far
as they are exact; where the line does not reach, on ratings of both alone; without either, on the judge
alone, which says nothing about people. Which it is never depends on what comes out. Prompts and raters that
both models have in common move both alike and cancel.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from calibration.cluster import (
    NORMAL,
    UNDEFINED_CONTRAST,
    Contrast,
    contrast,
    joint_freedom,
    reach,
    shared_covariance,
    sum_variance,
    t_intervals,
    t_quantile,
)
from calibration.comparison.judged_models import (
    GOOD,
    UNCALIBRATED,
    ComparisonSettings,
    How,
    JudgedLevel,
    JudgedModel,
    Published,
    judge_contrast,
    judged_level,
    prompt_numbers,
)
from calibration.estimate import CONFIDENCE, UNDEFINED, Estimate, Floats, estimate_of, independent_difference
from calibration.multiple_testing import holm
from calibration.shares.correction import target_of
from calibration.shares.planning import plan_ratings
from calibration.shares.ppi import PpiEstimate
from calibration.shares.transport import refusal, transport, transport_difference
from data.records import LABELS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatedDifference:
    """one - other by column, with its interval, its variance and the degrees of freedom of that.

    The error is that of the difference itself, not of the two levels: two people who rated both models leave
    one degree of freedom between them, however many replies each of them read. All but the value are nan
    where the raters cannot tell how much they differ.
    """

    value: Floats
    low: Floats
    high: Floats
    variance: Floats
    freedom: Floats

    @property
    def stated_variance(self) -> Floats:
        """The variance of a normal error whose interval is as wide as this one."""
        variance: Floats = ((self.high - self.low) / 2 / NORMAL) ** 2
        return variance


def rated_difference(one: PpiEstimate, other: PpiEstimate) -> RatedDifference:
    """one - other with its interval: Newcombe's, from the two t_intervals and what they share.

    It never reaches less far than t times the standard error, since with few raters either level's own
    interval may be short by chance.
    """
    rated, rated_freedom = _rated_variance(one, other)
    unrated, unrated_freedom = _unrated_variance(one, other)
    variance = rated + unrated
    freedom = joint_freedom(variance, (rated, rated_freedom), (unrated, unrated_freedom))
    gap = one.value - other.value
    product = np.sqrt(one.variance * other.variance)
    common = (one.variance + other.variance - variance) / 2
    # Ratings that happen to be the same for both do not make their difference exact.
    varies = (product > 0) & (variance > 0)
    alike = np.clip(np.divide(common, product, out=np.zeros_like(gap), where=varies), -1, 1)
    (down, up), (other_down, other_up) = (_reach(item, freedom) for item in (one, other))
    least = t_quantile(freedom) * np.sqrt(variance)
    below = np.sqrt(np.maximum(down**2 + other_up**2 - 2 * alike * down * other_up, 0))
    above = np.sqrt(np.maximum(up**2 + other_down**2 - 2 * alike * up * other_down, 0))
    most = one.bounds[1] - one.bounds[0]
    return RatedDifference(
        value=gap,
        low=np.maximum(gap - np.maximum(below, least), -most),
        high=np.minimum(gap + np.maximum(above, least), most),
        variance=variance,
        freedom=freedom,
    )


def _rated_variance(one: PpiEstimate, other: PpiEstimate) -> tuple[Floats, Floats]:
    """The variance of the difference through raters and prompts, and its degrees of freedom, by column.

    Prompts' is the least: a few raters look by chance as if they were of one mind. For the same reason the
    degrees of freedom are those of raters or of prompts, whichever are fewer.
    """
    influence = [item.influence * len(item.influence) for item in (one, other)]
    sizes = [len(item) for item in influence]
    feature = np.repeat([1.0, 0.0], sizes)
    strata = np.zeros(sum(sizes), dtype=np.intp)
    raters = np.unique(np.concatenate([one.raters, other.raters]), return_inverse=True)[1]
    prompts = prompt_numbers(*((item.rated_prompts, item.rows) for item in (one, other)))
    columns = []
    for values in np.concatenate(influence).T:
        by_rater = contrast(values, feature, raters, strata=strata)
        by_prompt = contrast(values, feature, prompts, strata=strata)
        crossed = contrast(values, feature, raters, strata=strata, items=prompts)
        error = np.maximum(crossed.error, by_prompt.error)  # nan where either is undefined
        columns.append((error**2, np.minimum(by_rater.freedom, by_prompt.freedom)))
    variance, freedom = np.array(columns).T
    return variance, freedom


def _unrated_variance(one: PpiEstimate, other: PpiEstimate) -> tuple[Floats, Floats]:
    """The variance through the responses nobody rated, which the judge stands in for, and its degrees."""
    total = sum_variance(one.prompt_influence) + sum_variance(other.prompt_influence)
    if one.prompts is not None and other.prompts is not None:
        both = shared_covariance(one.prompts, one.prompt_influence, other.prompts, other.prompt_influence)
        total = np.maximum(total - 2 * both, 0)
    prompts = min(
        (len(item.prompt_influence) for item in (one, other) if len(item.prompt_influence)), default=1
    )
    return total, np.full(total.shape, max(1.0, prompts - 1.0))


def _reach(item: PpiEstimate, freedom: Floats) -> tuple[Floats, Floats]:
    """How far the interval goes down and up with another number of degrees of freedom."""
    low, high = t_intervals(item.value, item.variance, freedom, item.bounds, item.stand_in)
    return item.value - low, high - item.value


LEAST_RATERS: Final = 4  # of each model: by t, fewer find only what is larger than differences are
TOO_FEW_PROMPTS: Final = "too few prompts to tell how much they differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceEstimate:
    """What a difference rests on, with how many degrees of freedom; if refused, why."""

    how: How = "refused"
    shares: Mapping[str, Estimate] = field(default_factory=dict)
    freedom: float = math.nan
    reason: str | None = None


def estimate_difference(
    one: JudgedModel, other: JudgedModel, alone: Mapping[str, Contrast], settings: ComparisonSettings
) -> DifferenceEstimate:
    """Estimate by the line with what ratings there are; where it does not reach, by ratings or the judge.

    Which of them is settled by what is at hand, never by what comes out: to take whichever has the shorter
    interval is to take what is short by chance.
    """
    few = few_raters(one, other)
    gap = rated_difference(one.ppi, other.ppi) if one.ppi is not None and other.ppi is not None else None
    if gap is not None and not np.isfinite(gap.variance).all():  # the ratings do not say how exact they are
        gap = None
    refused = None
    if settings.calibrated is not None:
        by_line = _by_line(one, other, gap, alone, settings)
        if by_line.shares:
            return by_line
        refused = by_line.reason
    if gap is not None and few is None:
        shares = dict(zip(LABELS, map(estimate_of, gap.value, gap.low, gap.high), strict=True))
        return DifferenceEstimate(how="ratings", shares=shares, freedom=float(gap.freedom[-1]))
    reason = "; ".join(filter(None, (refused, few)))
    if not reason and not alone[GOOD].is_defined:
        reason = TOO_FEW_PROMPTS
    if reason:
        return DifferenceEstimate(reason=reason)
    return DifferenceEstimate(
        how="judge",
        shares={label: item.estimate() for label, item in alone.items()},
        freedom=alone[GOOD].freedom,
    )


def few_raters(*models: JudgedModel) -> str | None:
    """Say why ratings cannot decide although all these have some; None where they can."""
    raters = [len(np.unique(item.rated.cluster)) for item in models]
    least = min(raters)
    if not least or least >= LEAST_RATERS:
        return None
    who = "1 rater is" if least == 1 else f"{least} raters are"
    more = f"{LEAST_RATERS - least} more would do"
    return f"{who} too few: how much people differ cannot be seen in so few; {more}"


def _by_line(
    one: JudgedModel,
    other: JudgedModel,
    gap: RatedDifference | None,
    alone: Mapping[str, Contrast],
    settings: ComparisonSettings,
) -> DifferenceEstimate:
    """Estimate by the calibrated line, with ratings of either where it has some; shared noise cancels."""
    shares = {}
    for column, label in enumerate(LABELS):
        line = (settings.calibrated or UNCALIBRATED)[column].without(one.known_as, other.known_as)
        targets = [target_of(item.rated, item.ppi, column) for item in (one, other)]
        if gap is None and all(target.is_rated for target in targets):  # together they say nothing exact
            targets = [replace(target, crowd=math.nan, noise=math.inf) for target in targets]
        for item, target in zip((one, other), targets, strict=True):
            if reason := refusal(line, target):
                return DifferenceEstimate(reason=f"{item.name}: {label}: {reason}")
        # Half of the difference's noise to each: together they have what pairing leaves of it.
        if alone[label].is_defined:
            targets = [replace(target, judge_noise=alone[label].error ** 2 / 2) for target in targets]
        if gap is not None:
            targets = [replace(target, noise=float(gap.stated_variance[column]) / 2) for target in targets]
        shares[label] = transport_difference(line, *targets)
    freedom = settings.freedom(one.known_as, other.known_as)
    ends = shares[GOOD].interval
    if gap is not None and ends is not None and (variance := float(gap.stated_variance[-1])):
        # Those of line and ratings together lie between the two, as each weighs.
        weight = min(1.0, ((ends.high - ends.low) / 2 / NORMAL) ** 2 / variance)
        freedom = weight * float(gap.freedom[-1]) + (1 - weight) * freedom
    is_rated = gap is not None or (one.ppi is None) != (other.ppi is None)
    return DifferenceEstimate(how="both" if is_rated else "line", shares=shares, freedom=freedom)


Verdict = Literal["better", "worse", "no difference", "too few", "refused"]
Unit = Literal["ratings", "prompts"]
ALPHA: Final = 0.05
MANY: Final = 1e5  # degrees of freedom from which t is normal
SAME: Final = 1e-9  # shares no further apart are equal
NOT_PEOPLE: Final = "the judge's own share is not a crowd's; a calibration or ratings would make it one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """one - other in every label's share; p and verdict are about Good.

    `judge` is what the judge alone makes of it. `extremes` is where the interval of Good could end were all
    unscored responses of the one Bad and of the other Good, or the other way round. `detects` is the least
    difference that would be found with 80 % power; `more` is how many ratings of each model, or prompts,
    would bring it down to the margin.
    """

    one: str
    other: str
    how: How
    reason: str | None
    shared_prompts: int
    more: int | None = None
    unit: Unit
    verdict: Verdict = "refused"
    is_robust: bool = True  # the verdict holds whatever the unscored responses were
    p: float
    p_holm: float = math.nan
    error: float  # the standard error of Good that the interval implies
    detects: float
    shares: Mapping[str, Estimate]
    judge: Estimate
    extremes: tuple[float, float] | None = None

    @property
    def good(self) -> Estimate:
        return self.shares.get(GOOD, UNDEFINED)


def differences(
    pairs: Sequence[tuple[JudgedModel, JudgedModel | Published]],
    settings: ComparisonSettings,
    *,
    is_planning: bool = True,
) -> tuple[Difference, ...]:
    """Every pair's difference, with Holm over all of them and a verdict each.

    Where a pair is not told apart, `is_planning` finds how much more would do.
    """
    judged = {item.name: item for pair in pairs for item in pair if isinstance(item, JudgedModel)}
    levels = {name: judged_level(item, settings) for name, item in judged.items()}
    plain = [_difference(one, other, levels[one.name], settings) for one, other in pairs]
    decided = []
    for (one, other), item, p in zip(pairs, plain, holm([item.p for item in plain]), strict=True):
        item = replace(item, p_holm=float(p), extremes=_extremes(item, levels))
        if item.p_holm < ALPHA:
            is_up = item.good.value > 0
            ends = item.extremes
            holds = ends is None or (ends[0] > 0 if is_up else ends[1] < 0)
            item = replace(item, verdict="better" if is_up else "worse", is_robust=holds)
        elif math.isfinite(item.p_holm):
            item = replace(item, verdict="no difference" if item.detects <= settings.margin else "too few")
        if is_planning and item.verdict in ("too few", "refused"):
            item = replace(item, more=missing_ratings(one, other, item.how, item.error, settings))
        decided.append(item)
    return tuple(decided)


def p_of_interval(estimate: Estimate, freedom: float) -> tuple[float, float]:
    """The p-value of no difference, and the standard error, that an interval by t implies.

    The reach towards 0 counts, so that p is below .05 just where the interval leaves 0 out.

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


def _difference(
    one: JudgedModel, other: JudgedModel | Published, level: JudgedLevel, settings: ComparisonSettings
) -> Difference:
    shared = 0
    if isinstance(other, Published):
        alone = dict.fromkeys(LABELS, UNDEFINED_CONTRAST)
        basis = _from_study(one, level, other, settings)
    else:
        alone = judge_contrast(one.rated, other.rated)
        basis = estimate_difference(one, other, alone, settings)
        if one.rated.prompt is not None and other.rated.prompt is not None:
            shared = len(np.intersect1d(one.rated.prompt, other.rated.prompt))
    p, error = p_of_interval(basis.shares.get(GOOD, UNDEFINED), basis.freedom)
    return Difference(
        one=one.name,
        other=other.name,
        how=basis.how,
        reason=basis.reason,
        shares=basis.shares,
        judge=alone[GOOD].estimate(),
        shared_prompts=shared,
        p=p,
        error=error,
        detects=error * reach(basis.freedom) if math.isfinite(error) else math.nan,
        unit="prompts" if basis.how == "judge" else "ratings",
    )


def _from_study(
    one: JudgedModel, level: JudgedLevel, other: Published, settings: ComparisonSettings
) -> DifferenceEstimate:
    """A judged model against people's ratings of a published one: other raters, other prompts, no pairing."""
    few = few_raters(one) if level.how == "ratings" else None
    if level.how in ("judge", "refused") or few:
        return DifferenceEstimate(reason="; ".join(filter(None, (level.reason, few))) or NOT_PEOPLE)
    return DifferenceEstimate(
        how=level.how,
        shares={label: independent_difference(level.shares[label], other.shares[label]) for label in LABELS},
        freedom=float(one.ppi.freedom[-1])
        if level.how == "ratings" and one.ppi
        else settings.freedom(one.known_as),
    )


def _extremes(item: Difference, levels: Mapping[str, JudgedLevel]) -> tuple[float, float] | None:
    """The interval of Good, widened at either end by the most that unscored responses could change."""
    ends = item.good.interval
    if ends is None:
        return None
    low, high = ends.low, ends.high
    # A share of Good could fall by its part of the unscored responses, or rise by the rest of them.
    if level := levels.get(item.one):
        low, high = low - level.good * level.missing, high + (1 - level.good) * level.missing
    if level := levels.get(item.other):
        low, high = low - (1 - level.good) * level.missing, high + level.good * level.missing
    return max(-1.0, low), min(1.0, high)


def missing_ratings(
    one: JudgedModel, other: JudgedModel | Published, how: How, error: float, settings: ComparisonSettings
) -> int | None:
    """How many more ratings of each, or prompts, make a difference as large as the margin detectable.

    None where that cannot be said, or where no number would do: a published model's own error stays.
    """
    from scipy.special import ndtri

    judged = [item for item in (one, other) if isinstance(item, JudgedModel)]
    if how == "judge":
        # The error falls with the root of the number of prompts.
        prompts = min(len(item.rated.judged) for item in judged)
        return _count(prompts * ((error * reach(MANY) / settings.margin) ** 2 - 1))
    if how == "refused" and settings.calibrated is None:
        return None
    have = min(len(item.rated.item) for item in judged)
    # Of each model in all: the fewest with which the interval is short enough, by line and ratings.
    shares = [float(item.rated.judged[:, -1].mean()) for item in judged if len(item.rated.judged)]
    share = float(np.mean(shares)) if shares else 0.5
    effects = [float(item.ppi.design_effect[-1]) for item in judged if item.ppi is not None]
    effect = max(1.0, float(np.mean(effects)) if effects else settings.design_effect)
    most = plan_ratings(settings.margin, spread=share * (1 - share), design_effect=effect).people_only
    # An interval that reaches this far to either side still finds the margin with 80 % power.
    half = settings.margin * (float(ndtri((1 + CONFIDENCE) / 2)) / reach(MANY))
    if isinstance(other, Published):
        published = other.shares[GOOD].interval
        left = half**2 - ((published.high - published.low) / 2) ** 2 if published else 0.0
        if left <= 0:
            return None
        most = most / 2 * half**2 / left
        half = math.sqrt(left)
    if settings.calibrated is None or how == "refused" or not math.isfinite(most):
        return _count(int(most) - have) if math.isfinite(most) else None
    line = settings.calibrated[-1].without(*(item.known_as for item in judged))
    # As if ratings were to find what the line says already; their spread is what counts.
    targets = [
        replace(target, crowd=transport(line, target).value)
        for target in (target_of(item.rated, item.ppi, -1) for item in judged)
    ]
    # The fewest that do, to a twentieth; the ratings wanted without a line are taken to do.
    low, high = 1, max(1, math.ceil(most))
    while high - low > high / 20:
        middle = math.isqrt(low * high)
        rated = [replace(target, noise=share * (1 - share) * effect / middle) for target in targets]
        ends = (transport_difference(line, *rated) if len(rated) > 1 else transport(line, rated[0])).interval
        is_enough = ends is not None and ends.high - ends.low <= 2 * half
        low, high = (low, middle) if is_enough else (middle + 1, high)
    return _count(high - have)


def _count(more: float) -> int | None:
    return max(1, math.ceil(more)) if math.isfinite(more) else None
