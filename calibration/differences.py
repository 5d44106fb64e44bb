"""Differences of judged models: corrected where possible, paired by prompt, with what is missing to tell.

A difference rests on the calibrated line, with each model's stray from it, and on ratings of the two as far
as they are exact; where the line does not reach, on ratings of both alone; without either, on the judge
alone, which says nothing about people. Which it is never depends on what comes out. Prompts and raters that
both models have in common move both alike and cancel.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from calibration.bases import Basis, basis_of, few_raters
from calibration.contenders import (
    GOOD,
    Ground,
    How,
    JudgedModel,
    Level,
    Published,
    judge_contrast,
    level_of,
    shared_prompts,
)
from calibration.contrasts import POWER, UNDEFINED, Contrast, reach
from calibration.intervals import CONFIDENCE, Estimate, Interval, finite_or_none
from calibration.multiplicity import holm
from calibration.sufficiency import apart, missing
from data.records import LABELS

Verdict = Literal["better", "worse", "no difference", "too few", "refused"]
Unit = Literal["ratings", "prompts"]
ALPHA: Final = 0.05
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
    return _difference(one, other, basis_of(one, other, alone, ground), alone, shared)


def _from_study(one: JudgedModel, level: Level, other: Published, ground: Ground) -> Difference:
    """A judged model against people's ratings of a published one: other raters, other prompts, no pairing."""
    few = few_raters(one) if level.how == "ratings" else None
    reason = "; ".join(filter(None, (level.reason, few))) or NOT_PEOPLE
    basis = Basis(how="refused", shares={}, freedom=math.nan, reason=reason)
    if level.how in ("ratings", "line", "both") and few is None:
        own = one.powered if level.how == "ratings" else None
        basis = Basis(
            how=level.how,
            shares={label: apart(level.shares[label], other.shares[label]) for label in LABELS},
            freedom=float(own.freedom[-1]) if own else ground.freedom(one.known_as),
        )
    return _difference(one, other, basis, dict.fromkeys(LABELS, UNDEFINED), 0)


def _difference(
    one: JudgedModel,
    other: JudgedModel | Published,
    basis: Basis,
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
