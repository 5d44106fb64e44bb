"""What would tell two judged models apart: ratings or prompts, for several true gaps, since it is unknown."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from calibration.cluster import NORMAL, reach
from calibration.comparison.judged_models import GOOD, ComparisonSettings, How, JudgedModel, Published
from calibration.estimate import Estimate
from calibration.shares.correction import target_of
from calibration.shares.planning import ratings_of_each, ratings_with_line, round_up
from calibration.shares.transport import STRANGERS

STEPS: Final = (4, 2, 1)  # margins: with one of 5 points, gaps of 20, 10 and 5
KNOWN_RATERS: Final = 10  # from which raters tell their own design effect


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """How many more ratings of each model, or prompts, find a true `gap` with 80 % power; None: no number."""

    gap: float
    more: int | None


def needed_ratings(
    one: JudgedModel,
    other: JudgedModel | Published,
    how: How,
    good: Estimate,
    error: float,
    settings: ComparisonSettings,
) -> tuple[Needed, ...]:
    """What would find each gap that the interval of Good does not rule out, the largest first.

    Ratings are each of a new reply. Empty where nothing can be said.
    """
    most = max(abs(good.interval.low), abs(good.interval.high)) if good.interval else math.inf
    gaps = [step * settings.margin for step in STEPS if step == 1 or step * settings.margin <= most]
    judged = [item for item in (one, other) if isinstance(item, JudgedModel)]
    if how == "judge":
        prompts = min(len(item.rated.judged) for item in judged)
        return tuple(Needed(gap=gap, more=_count(_prompts(gap, error, prompts) - prompts)) for gap in gaps)
    if how == "refused" and settings.calibrated is None:
        return ()
    have = min(len(item.rated.item) for item in judged)
    shares = [float(item.rated.judged[:, -1].mean()) for item in judged if len(item.rated.judged)]
    share = float(np.mean(shares)) if shares else 0.5
    variance = share * (1 - share) * _design_effect(judged, settings)
    known = 0.0
    if isinstance(other, Published):
        ends = other.shares[GOOD].interval
        known = ((ends.high - ends.low) / 2 / NORMAL) ** 2 if ends else math.inf
    names = [item.known_as for item in judged]
    line = settings.calibrated[-1].without(*names) if settings.calibrated else None
    targets = [target_of(item.rated, None, -1, line) for item in judged]
    likeness = settings.likeness_of(*judged) if len(judged) == 2 else None
    alike = likeness.weights if likeness else STRANGERS
    seen = abs(good.value) if math.isfinite(good.value) else math.inf
    needed = []
    for gap in gaps:
        if line is None or how == "refused":
            total = ratings_of_each(gap, variance=variance, sides=len(judged), known=known)
        else:
            total = ratings_with_line(
                gap, line, targets, variance=variance, known=known, alike=alike, seen=seen
            )
        needed.append(Needed(gap=gap, more=_count(total - have)))
    return tuple(needed)


def _prompts(gap: float, error: float, prompts: int) -> float:
    """How many prompts find a gap, if so many have this standard error, which falls with their root."""
    total = float(prompts)
    for _ in range(10):  # the more prompts, the smaller their t
        total = prompts * (error * reach(max(1.0, total - 1)) / gap) ** 2
    return total


def _design_effect(judged: Sequence[JudgedModel], settings: ComparisonSettings) -> float:
    """Their own raters', where those are many enough to tell, else the calibration's."""
    known = [item.ppi for item in judged if item.ppi is not None and item.ppi.clusters >= KNOWN_RATERS]
    own = [float(ppi.design_effect[-1]) for ppi in known if math.isfinite(ppi.design_effect[-1])]
    return max(1.0, float(np.mean(own)) if own else settings.design_effect)


def say_needed(needed: Sequence[Needed], what: str) -> str:
    """Say what would tell, in one clause; empty where nothing is known.

    >>> plan = [Needed(gap=0.2, more=24), Needed(gap=0.1, more=395), Needed(gap=0.05, more=None)]
    >>> say_needed(plan, "ratings of each")
    '24 more ratings of each would tell if the gap is 20 points, 400 if it is 10; no number if it is 5'
    """
    counted = [item for item in needed if item.more is not None]
    never = " or ".join(f"{100 * item.gap:g}" for item in needed if item.more is None)
    told: list[str] = []
    for item in counted:
        count = f"{round_up(item.more or 0):,}"
        if not told:
            told.append(f"{count} more {what} would tell if the gap is {100 * item.gap:g} points")
        else:
            told.append(f"{count} if it is {100 * item.gap:g}")
    if never and told:
        return f"{', '.join(told)}; no number if it is {never}"
    return ", ".join(told)


def _count(more: float) -> int | None:
    return max(1, math.ceil(more)) if math.isfinite(more) else None
