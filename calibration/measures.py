"""Filled-in questionnaires with their scores, put together by factor, emotion and overall."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np

from calibration.intervals import finite_or_none
from calibration.shifts import Spread, spread
from data.questionnaires import Score
from data.sheets import PEOPLE, Sheet
from data.situations import FACTOR_NAMES, emotion_of

OVERALL = "Overall"


@dataclass(frozen=True, slots=True)
class Scored:
    """A sheet with its scores."""

    sheet: Sheet
    scores: Mapping[str, Score]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The evoked sheets of a factor, an emotion or of all, and the default ones they are held against."""

    level: str
    name: str
    evoked: Sequence[Scored]
    default: Sequence[Scored]


def make_parts(scored: Sequence[Scored]) -> list[Part]:
    """Overall, then each emotion, then each factor, in the benchmark's order and then as they come.

    A person's default is their own; a model's is the same for every situation.
    """
    evoked = [item for item in scored if item.sheet.factor is not None]
    default = [item for item in scored if item.sheet.factor is None]
    named = {item.sheet.factor or "" for item in evoked}
    factors = [key for key in FACTOR_NAMES if key in named] + sorted(named - set(FACTOR_NAMES))

    def part(level: str, name: str, held: list[Scored]) -> Part:
        theirs = {item.sheet.pair for item in held}
        is_people = bool(held) and held[0].sheet.model == PEOPLE
        own = [item for item in default if item.sheet.pair in theirs] if is_people else default
        return Part(level=level, name=name, evoked=held, default=own)

    parts = [part("overall", OVERALL, evoked)] if evoked else []
    for emotion in dict.fromkeys(map(emotion_of, factors)):
        parts.append(
            part("emotion", emotion, [i for i in evoked if emotion_of(i.sheet.factor or "") == emotion])
        )
    parts += [part("factor", key, [item for item in evoked if item.sheet.factor == key]) for key in factors]
    return parts


def measure_level(held: Sequence[Scored], scale: str) -> tuple[Spread, dict[str, Any]]:
    """Of the sheets whose score is known; and how far those that lack marks could move the mean."""
    scores = [item.scores[scale] for item in held]
    known = spread([score.value for score in scores if score.value is not None])
    ends = [
        float(np.mean([getattr(score, end) for score in scores])) if scores else nan
        for end in ("low", "high")
    ]
    about = {
        "incomplete": len(scores) - known.n,
        "low": finite_or_none(ends[0]),
        "high": finite_or_none(ends[1]),
    }
    return known, {**known.as_dict(), **about}


def pair_changes(part: Part, scale: str) -> dict[str, float]:
    """For each pair both of whose measures are known, evoked less default; means where it has several."""
    sides: list[dict[str, list[float]]] = [{}, {}]
    for side, held in zip(sides, (part.default, part.evoked), strict=True):
        for item in held:
            value = item.scores[scale].value
            if value is not None and item.sheet.pair is not None:
                side.setdefault(item.sheet.pair, []).append(value)
    before, after = sides
    return {pair: float(np.mean(after[pair]) - np.mean(before[pair])) for pair in after if pair in before}


def count_missing(held: Sequence[Scored]) -> dict[str, int]:
    """Sheets that lack marks, by the reason: what stands before the colon."""
    reasons = Counter((item.sheet.missing or "").partition(":")[0] for item in held)
    return {reason: count for reason, count in sorted(reasons.items()) if reason}
