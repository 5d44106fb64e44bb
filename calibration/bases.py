"""What the difference of two judged models rests on: the calibrated line, ratings, both, or the judge alone.

Which of them is settled by what is at hand, never by what comes out: to take whichever has the shorter
interval is to take what is short by chance.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from calibration.contenders import GOOD, NO_LINE, Ground, How, JudgedModel, line_without
from calibration.contrasts import Contrast
from calibration.intervals import Estimate, Interval
from calibration.paired import Gap, difference
from calibration.powered import NORMAL
from calibration.sufficiency import target_of
from calibration.transport import refusal, transport_difference
from data.records import LABELS

LEAST_RATERS: Final = 4  # of each model: by t, fewer find only what is larger than differences are
TOO_FEW_PROMPTS: Final = "too few prompts to tell how much they differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a difference rests on, and with how many degrees of freedom."""

    how: How
    shares: Mapping[str, Estimate]
    freedom: float
    reason: str | None = None


def basis_of(one: JudgedModel, other: JudgedModel, alone: Mapping[str, Contrast], ground: Ground) -> Basis:
    """The line with what ratings there are; where it does not reach, ratings of both, or the judge alone."""
    few = few_raters(one, other)
    gap = _gap(one, other)
    refused = None
    if ground.between is not None:
        found = _by_line(one, other, gap, alone, ground)
        if found.shares:
            return found
        refused = found.reason
    if gap is not None and few is None:
        return Basis(how="ratings", shares=_estimates(gap), freedom=float(gap.freedom[-1]))
    reason = "; ".join(filter(None, (refused, few)))
    if not reason and not alone[GOOD].is_defined:
        reason = TOO_FEW_PROMPTS
    if reason:
        return Basis(how="refused", shares={}, freedom=math.nan, reason=reason)
    shares = {label: item.estimate() for label, item in alone.items()}
    return Basis(how="judge", shares=shares, freedom=alone[GOOD].freedom)


def few_raters(*models: JudgedModel) -> str | None:
    """Why ratings cannot decide although all these have some, or None."""
    raters = [len(np.unique(item.rated.cluster)) for item in models]
    least = min(raters)
    if not least or least >= LEAST_RATERS:
        return None
    who = "1 rater is" if least == 1 else f"{least} raters are"
    more = f"{LEAST_RATERS - least} more would do"
    return f"{who} too few: how much people differ cannot be seen in so few; {more}"


def _gap(one: JudgedModel, other: JudgedModel) -> Gap | None:
    """What ratings of both say, if they also say how exact they are."""
    if one.powered is None or other.powered is None:
        return None
    found = difference(one.powered, other.powered)
    return found if np.isfinite(found.variance).all() else None


def _estimates(gap: Gap) -> dict[str, Estimate]:
    ends = zip(gap.low.tolist(), gap.high.tolist(), strict=True)
    return {
        label: Estimate(value, Interval(*pair))
        for label, value, pair in zip(LABELS, gap.value.tolist(), ends, strict=True)
    }


def _by_line(
    one: JudgedModel, other: JudgedModel, gap: Gap | None, alone: Mapping[str, Contrast], ground: Ground
) -> Basis:
    """By the calibrated line, with ratings of either where it has some; noise of what both share cancels."""
    freedom = ground.freedom(one.known_as, other.known_as)
    found = {}
    for column, label in enumerate(LABELS):
        line = line_without((ground.between or NO_LINE)[column], one.known_as, other.known_as)
        targets = [target_of(item, column) for item in (one, other)]
        if gap is None and all(target.is_rated for target in targets):  # together they say nothing exact
            targets = [replace(target, crowd=math.nan, noise=math.inf) for target in targets]
        for item, target in zip((one, other), targets, strict=True):
            if reason := refusal(line, target):
                return Basis(
                    how="refused", shares={}, freedom=freedom, reason=f"{item.name}: {label}: {reason}"
                )
        # Half of the difference's noise to each: together they have what pairing leaves of it.
        if alone[label].is_defined:
            targets = [replace(target, judge_noise=alone[label].error ** 2 / 2) for target in targets]
        if gap is not None:
            targets = [replace(target, noise=float(gap.stated_variance[column]) / 2) for target in targets]
        found[label] = transport_difference(line, *targets)
    if gap is not None:
        freedom = _joint(found[GOOD], gap, freedom)
    is_rated = gap is not None or (one.powered is None) != (other.powered is None)
    return Basis(how="both" if is_rated else "line", shares=found, freedom=freedom)


def _joint(found: Estimate, gap: Gap, freedom: float) -> float:
    """Degrees of freedom of line and ratings together: between the two, as each weighs."""
    own = float(gap.stated_variance[-1])
    if found.interval is None or own == 0:
        return freedom
    weight = min(1.0, ((found.interval.high - found.interval.low) / 2 / NORMAL) ** 2 / own)
    return weight * float(gap.freedom[-1]) + (1 - weight) * freedom
