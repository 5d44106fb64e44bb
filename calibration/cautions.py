"""What makes a change of feelings hard to read: defaults at the end of a scale, marks that are missing."""

from collections.abc import Mapping, Sequence
from math import isfinite

from calibration.measures import Scored, measure_level
from data.questionnaires import Questionnaire

NEAR_END = 0.05  # of a scale's range: a default this near its end can hardly move further


def warn_of_sheets(
    default: Sequence[Scored], scored: Sequence[Scored], questionnaire: Questionnaire
) -> list[str]:
    """What makes changes hard to read."""
    levels = {scale: measure_level(default, scale)[0] for scale in questionnaire.scales}
    said = warn_of_ends({scale: level.mean for scale, level in levels.items()}, questionnaire)
    fewest = min((level.n for level in levels.values()), default=0)
    if fewest < 2:
        said.append(f"{fewest} default sheets are complete: no change can be tested; ask for at least 2")
    elif all(level.sd == 0 for level in levels.values()):
        said.append("the default never varies: its SD of 0 makes any change look certain")
    straight = sum(len(set(i.sheet.marks.values())) == 1 and len(i.sheet.marks) > 1 for i in scored)
    if scored and straight > NEAR_END * len(scored):
        said.append(f"{straight:,} of {len(scored):,} sheets bear the same mark throughout")
    lacking = sum(bool(item.sheet.missing) for item in scored)
    if lacking:
        said.append(f"{lacking:,} of {len(scored):,} sheets lack marks: see the bounds of each change")
    return said


def warn_of_ends(default: Mapping[str, float], questionnaire: Questionnaire) -> list[str]:
    """Defaults at the end of a scale: they cannot move further that way."""
    ends = {}
    for scale, mean in default.items():
        low, high = questionnaire.span(scale)
        if isfinite(mean) and mean <= low + NEAR_END * (high - low):
            ends[scale] = "floor"
        elif isfinite(mean) and mean >= high - NEAR_END * (high - low):
            ends[scale] = "ceiling"
    if len(ends) == len(default) > 1 and set(ends.values()) == {"floor"}:
        return ["denies all feeling by default: changes from there mean nothing, look at the evoked levels"]
    return [
        f"default {scale} {default[scale]:.1f} is at the {end} of its scale" for scale, end in ends.items()
    ]
