"""Differences of judged models: corrected where possible, paired by prompt, with what is missing to tell.

A difference rests on the two models' own ratings where both have some; else on the calibrated line, with
each model's stray from it; else on the judge alone, which says nothing about people. Prompts both models
answered move both alike and cancel.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from calibration.contenders import (
    GOOD,
    NO_LINE,
    Ground,
    How,
    JudgedModel,
    Level,
    Published,
    judge_contrast,
    level_of,
    line_without,
    shared_prompts,
)
from calibration.contrasts import POWER, UNDEFINED, Contrast, reach
from calibration.correction import correct_difference
from calibration.intervals import CONFIDENCE, Estimate, Interval, finite_or_none
from calibration.multiplicity import holm
from calibration.sufficiency import apart, missing, target_of
from calibration.transport import refusal, transport_difference
from data.records import LABELS

Verdict = Literal["better", "worse", "no difference", "too few", "refused"]
Unit = Literal["ratings", "prompts"]
ALPHA: Final = 0.05
SAME: Final = 1e-9  # shares no further apart are equal
NOT_PEOPLE: Final = "the judge's own share is not a crowd's; a calibration or ratings would make it one"
TOO_FEW_PROMPTS: Final = "too few prompts to tell how much they differ"


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
    shares: Mapping[str, Estimate]
    judge: Estimate
    shared_prompts: int
    p: float
    error: float  # the standard error of Good that the interval implies
    detects: float
    unit: Unit
    more: int | None = None
    p_holm: float = math.nan
    extremes: Interval | None = None
    verdict: Verdict = "refused"
    is_robust: bool = True  # the verdict holds whatever the unscored responses were

    @property
    def good(self) -> Estimate:
        return self.shares.get(GOOD, Estimate(math.nan, None))

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        plain = ("one", "other", "how", "reason", "shared_prompts", "more", "unit", "verdict", "is_robust")
        numbers = ("p", "p_holm", "error", "detects")
        return {
            **{name: getattr(self, name) for name in plain},
            **{name: finite_or_none(getattr(self, name)) for name in numbers},
            "shares": {label: share.as_dict() for label, share in self.shares.items()},
            "judge": self.judge.as_dict(),
            "extremes": [self.extremes.low, self.extremes.high] if self.extremes else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """What a difference rests on, and with how many degrees of freedom."""

    how: How
    shares: Mapping[str, Estimate]
    freedom: float
    reason: str | None = None


def differences(
    pairs: Sequence[tuple[JudgedModel, JudgedModel | Published]], ground: Ground, *, is_planning: bool = True
) -> tuple[Difference, ...]:
    """Every pair's difference, with Holm over all of them and a verdict each.

    Where a pair is not told apart, `is_planning` finds how much more would do.
    """
    judged = {item.name: item for pair in pairs for item in pair if isinstance(item, JudgedModel)}
    levels = {name: level_of(item, ground) for name, item in judged.items()}
    found = [
        _from_study(one, levels[one.name], other, ground)
        if isinstance(other, Published)
        else _of_judged(one, other, ground)
        for one, other in pairs
    ]
    adjusted = holm([item.p for item in found])
    decided = []
    for (one, other), item, p in zip(pairs, found, adjusted, strict=True):
        item = replace(item, p_holm=float(p), extremes=_extremes(item, levels))
        item = _with_verdict(item, ground.margin)
        if is_planning and item.verdict in ("too few", "refused"):
            item = replace(item, more=missing(one, other, item.how, item.error, ground))
        decided.append(item)
    return tuple(decided)


def p_of_interval(estimate: Estimate, freedom: float) -> tuple[float, float]:
    """The p-value of no difference, and the standard error, that an interval by t implies.

    The reach towards 0 counts, so that p is below .05 just where the interval leaves 0 out.

    >>> p, error = p_of_interval(Estimate(0.1, Interval(0.0, 0.2)), 1e6)
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


def _of_judged(one: JudgedModel, other: JudgedModel, ground: Ground) -> Difference:
    alone = judge_contrast(one.rated, other.rated)
    shared = shared_prompts(one.rated, other.rated)
    return _difference(one, other, _basis(one, other, alone, ground), alone, shared)


def _basis(one: JudgedModel, other: JudgedModel, alone: Mapping[str, Contrast], ground: Ground) -> _Basis:
    """The best that is at hand: ratings of both, the line, both together, or the judge alone.

    Of ratings and line the one with the shorter interval counts, which says nothing of where it lies.
    """
    found = []
    if one.powered is not None and other.powered is not None:
        both = {one.name: one.rated, other.name: other.rated}
        shares, _ = correct_difference(one.name, other.name, both, between=NO_LINE)
        freedom = min(float(item.freedom[-1]) for item in (one.powered, other.powered))
        found.append(_Basis(how="ratings", shares=shares, freedom=freedom))
    if ground.between is not None:
        found.append(_by_line(one, other, alone, ground))
    if known := [basis for basis in found if basis.shares]:
        return min(known, key=lambda basis: _width(basis.shares[GOOD]))
    if found:
        return found[-1]
    if not alone[GOOD].is_defined:
        return _Basis(how="refused", shares={}, freedom=math.nan, reason=TOO_FEW_PROMPTS)
    shares = {label: item.estimate() for label, item in alone.items()}
    return _Basis(how="judge", shares=shares, freedom=alone[GOOD].freedom)


def _width(estimate: Estimate) -> float:
    return estimate.interval.high - estimate.interval.low if estimate.interval else math.inf


def _by_line(one: JudgedModel, other: JudgedModel, alone: Mapping[str, Contrast], ground: Ground) -> _Basis:
    """By the calibrated line, with ratings of either where it has some; noise of shared prompts cancels."""
    freedom = ground.freedom(one.known_as, other.known_as)
    found = {}
    for column, label in enumerate(LABELS):
        line = line_without((ground.between or NO_LINE)[column], one.known_as, other.known_as)
        targets = [target_of(item, column) for item in (one, other)]
        for item, target in zip((one, other), targets, strict=True):
            if reason := refusal(line, target):
                return _Basis(
                    how="refused", shares={}, freedom=freedom, reason=f"{item.name}: {label}: {reason}"
                )
        if alone[label].is_defined:
            # Half of the difference's noise to each: together they have what pairing leaves of it.
            targets = [replace(target, judge_noise=alone[label].error ** 2 / 2) for target in targets]
        found[label] = transport_difference(line, *targets)
    is_rated = one.powered is not None or other.powered is not None
    return _Basis(how="both" if is_rated else "line", shares=found, freedom=freedom)


def _from_study(one: JudgedModel, level: Level, other: Published, ground: Ground) -> Difference:
    """A judged model against people's ratings of a published one: other raters, other prompts, no pairing."""
    basis = _Basis(how="refused", shares={}, freedom=math.nan, reason=level.reason or NOT_PEOPLE)
    if level.how in ("ratings", "line", "both"):
        own = one.powered if level.how == "ratings" else None
        basis = _Basis(
            how=level.how,
            shares={label: apart(level.shares[label], other.shares[label]) for label in LABELS},
            freedom=float(own.freedom[-1]) if own else ground.freedom(one.known_as),
        )
    return _difference(one, other, basis, dict.fromkeys(LABELS, UNDEFINED), 0)


def _difference(
    one: JudgedModel,
    other: JudgedModel | Published,
    basis: _Basis,
    alone: Mapping[str, Contrast],
    shared: int,
) -> Difference:
    p, error = p_of_interval(basis.shares.get(GOOD, Estimate(math.nan, None)), basis.freedom)
    detects = error * reach(basis.freedom, power=POWER) if math.isfinite(error) else math.nan
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
        detects=detects,
        unit="prompts" if basis.how == "judge" else "ratings",
    )


def _extremes(item: Difference, levels: Mapping[str, Level]) -> Interval | None:
    """The interval of Good, widened at either end by the most that unscored responses could change."""
    ends = item.good.interval
    if ends is None:
        return None
    down, up = _room(levels.get(item.one))
    other_down, other_up = _room(levels.get(item.other))
    return Interval(max(-1.0, ends.low - down - other_up), min(1.0, ends.high + up + other_down))


def _room(level: Level | None) -> tuple[float, float]:
    """How far a share of Good could fall and rise were its unscored responses counted."""
    total = level.judged + level.unscored if level else 0
    if level is None or not total:
        return 0.0, 0.0
    missing = level.unscored / total
    return level.good * missing, (1 - level.good) * missing


def _with_verdict(item: Difference, margin: float) -> Difference:
    if not math.isfinite(item.p_holm):
        return item
    if item.p_holm >= ALPHA:
        return replace(item, verdict="no difference" if item.detects <= margin else "too few")
    is_up = item.good.value > 0
    ends = item.extremes
    holds = ends is None or (ends.low > 0 if is_up else ends.high < 0)
    return replace(item, verdict="better" if is_up else "worse", is_robust=holds)
