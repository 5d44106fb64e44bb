"""Tonight since an earlier night: what changed, whose change it is, and how far it is known on all nights.

Responses are paired by prompt, and changes are of the judge's own probabilities: of a model's two nights the
calibrated line's level cancels, and its slope is near 1 where a calibration is any good.

Where the judge moved on the anchors, its part is taken off the model's change, and no gate may pass by what
is left: the calibration and the baseline are of another judge.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from calibration.estimate import Estimate, Floats, Interval
from calibration.monitoring.confidence_sequence import (
    ALPHA,
    NIGHTS,
    Watch,
    alarm,
    current,
    dispersion,
    update,
)
from calibration.monitoring.drift import Drift, EmotionChange, emotion_changes, paired_change, split_change
from nightly.gates import Against, Reading
from nightly.history import storable
from nightly.schema import AnchorResult, JudgedResponse, Night

Label = Literal["good", "bad"]
SIDES: Final[tuple[tuple[Label, float, Literal["down", "up"]], ...]] = (
    ("good", 1.0, "down"),
    ("bad", -1.0, "up"),
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Paired:
    """Differences (tonight - then) of each label's probability, by prompt."""

    good: Floats
    bad: Floats
    emotions: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shift:
    """The judge's own move since a night: its anchors then and now, by label.

    `moved` says in words that it moved, `suspected` that it may have.
    """

    night: str
    before: Mapping[Label, Floats]
    after: Mapping[Label, Floats]
    matters: float
    moved: str | None = None
    suspected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Change:
    """A model's change since one night, split into the judge's part and its own."""

    against: Against
    night: str
    paired: Paired
    drifts: Mapping[Label, Drift]
    readings: Mapping[Label, Reading]
    emotions: Mapping[Label, tuple[EmotionChange, ...]]
    shift: Shift

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        return {
            "night": self.night,
            "prompts": len(self.paired.good),
            **{label: drift.as_dict() for label, drift in self.drifts.items()},
        }


def pair(tonight: Sequence[JudgedResponse], then: Sequence[JudgedResponse]) -> Paired:
    """By prompt; several responses to one prompt are averaged first, since they are not independent."""
    now, old = _by_prompt(tonight), _by_prompt(then)
    both = [key for key in now if key in old]
    pairs = [(_means(now[key]), _means(old[key])) for key in both]
    found = np.array([new - earlier for new, earlier in pairs]).reshape(-1, 2)
    return Paired(good=found[:, 0], bad=found[:, 1], emotions=tuple(now[key][0].emotion for key in both))


def judge_shift(
    tonight: Sequence[AnchorResult],
    then: Sequence[AnchorResult],
    *,
    now: tuple[str, str],
    before: Night,
    matters: float,
) -> Shift:
    """Whether the judge moved since a night, by its anchors; `now` is tonight's judge and its version.

    The same judge moved where an interval that holds on all nights says so, and may have where tonight's
    does. Another judge moved unless its anchors show that it did not.
    """
    old = {(item.anchors, item.item): item for item in then if item.good is not None}
    both = [
        (item, old[item.anchors, item.item])
        for item in tonight
        if item.good is not None and (item.anchors, item.item) in old
    ]
    shift = Shift(
        night=before.night,
        before={label: np.array([getattr(was, label) for _, was in both]) for label, _, _ in SIDES},
        after={label: np.array([getattr(new, label) for new, _ in both]) for label, _, _ in SIDES},
        matters=matters,
    )
    is_another = now != (before.judge, before.judge_version)
    who = f"{before.judge} {before.judge_version} judged then and {' '.join(now)} tonight"
    if len(both) < 2:
        told = f"the judge is another than on {before.night} ({who}), and no anchors tell how far it moved"
        return replace(shift, moved=told if is_another else None)
    whose = f"({who})" if is_another else "under the same name and version"
    since = f"on {len(both):,} anchors since {before.night}, {whose}"
    for looks in (NIGHTS, 1):
        found = [
            paired_change(shift.after[label] - shift.before[label], looks=looks) for label, _, _ in SIDES
        ]
        by = " and ".join(
            f"{_points(item)} of {label.title()}" for item, (label, _, _) in zip(found, SIDES, strict=True)
        )
        if any(_is_beyond(item.interval, matters) for item in found):
            is_sure = looks > 1 or is_another
            told = f"the judge {'moved' if is_sure else 'may have moved'} by {by} {since}"
            return replace(shift, moved=told if is_sure else None, suspected=None if is_sure else told)
    is_calm = all(_is_within(item.interval, matters) for item in found) and not _is_tilted(shift)
    return replace(shift, moved=f"the judge moved by {by} {since}" if is_another and not is_calm else None)


def change_since(
    against: Against,
    paired: Paired,
    shift: Shift,
    *,
    watches: Mapping[Label, Watch],
    models: int,
    level: float,
) -> Change | None:
    """The change, or None where no prompt is shared. `watches` are of the nights before tonight.

    Error is shared out among `models`; `level` is the judge's Good share, for planning.
    """
    if not len(paired.good):
        return None
    drifts, readings, emotions = {}, {}, {}
    for label, sign, worse in SIDES:
        differences: Floats = getattr(paired, label)
        drifts[label] = _split(differences, label, shift)
        if shift.moved:
            uniform = _split(differences, label, shift, confidence=1 - ALPHA / (NIGHTS * models)).model
            found = (drifts[label].model, uniform)
            differences = differences - _finite(drifts[label].judge.value)
        elif against == "baseline":
            seen = current(update(watches[label], sign * differences), models=models)
            found = (paired_change(differences), _times(seen, sign))
        else:
            found = (paired_change(differences), paired_change(differences, looks=NIGHTS * models))
        readings[label] = _reading(*found, spread=level * (1 - level))
        is_named = any(name is not None for name in paired.emotions)
        emotions[label] = emotion_changes(differences, paired.emotions, worse=worse) if is_named else ()
    return Change(
        against=against,
        night=shift.night,
        paired=paired,
        drifts=drifts,
        readings=readings,
        emotions=emotions,
        shift=shift,
    )


def sums_of(paired: Paired) -> dict[str, list[float]]:
    """What a night leaves for the watches of later ones."""
    found: dict[str, list[float]] = {}
    for label, sign, _ in SIDES:
        kept = update(Watch(), sign * getattr(paired, label))
        found[label] = [kept.prompts[0], kept.totals[0], kept.squares[0]]
    return found


def watch_of(sums: Sequence[Sequence[float]]) -> Watch:
    """A watch of these nights, in order."""
    return Watch(
        prompts=tuple(int(count) for count, _, _ in sums),
        totals=tuple(total for _, total, _ in sums),
        squares=tuple(square for _, _, square in sums),
    )


def watched(change: Change, watches: Mapping[Label, Watch], *, models: int) -> dict[str, Any]:
    """How the watch of Good stands after tonight, for the record."""
    seen = update(watches["good"], change.paired.good)
    spread = dispersion(seen)
    return {
        "nights": seen.nights,
        "alarm": alarm(seen, models=models).as_dict(),
        "dispersion": round(spread, 3) if math.isfinite(spread) else None,
    }


def is_rough(change: Change) -> bool:
    """Does the judge's shift depend on how good it found a response? Then the split is a guess."""
    return _is_tilted(change.shift)


def _is_tilted(shift: Shift) -> bool:
    slopes = [_split(np.zeros(2), label, shift).slope for label, _, _ in SIDES]
    return any(_is_beyond(slope.interval, 0.0) for slope in slopes)


def _split(differences: Floats, label: Label, shift: Shift, **options: float) -> Drift:
    return split_change(
        differences,
        anchors_before=shift.before[label],
        anchors_after=shift.after[label],
        matters=shift.matters,
        **options,
    )


def _reading(tonight: Estimate, uniform: Estimate, *, spread: float) -> Reading:
    value = uniform.value if math.isfinite(uniform.value) else tonight.value
    return Reading(value=value, interval=tonight.interval, uniform=uniform.interval, spread=max(spread, 0.01))


def _by_prompt(judged: Sequence[JudgedResponse]) -> dict[str, list[JudgedResponse]]:
    found: dict[str, list[JudgedResponse]] = {}
    for item in judged:
        if item.good is not None and item.bad is not None:
            found.setdefault(storable(item.prompt), []).append(item)  # as the history gives it back
    return found


def _means(items: Sequence[JudgedResponse]) -> Floats:
    found: Floats = np.array([[item.good, item.bad] for item in items], dtype=float).mean(axis=0)
    return found


def _times(estimate: Estimate, sign: float) -> Estimate:
    if estimate.interval is None:
        return Estimate(sign * estimate.value, None)
    low, high = sorted((sign * estimate.interval.low, sign * estimate.interval.high))
    return Estimate(sign * estimate.value, Interval(low, high))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _is_beyond(interval: Interval | None, matters: float) -> bool:
    least = max(matters, 1e-9)
    return interval is not None and (interval.low > least or interval.high < -least)


def _is_within(interval: Interval | None, matters: float) -> bool:
    return interval is not None and -matters <= interval.low and interval.high <= matters


def _points(estimate: Estimate) -> str:
    assert estimate.interval is not None
    low, high = estimate.interval.low, estimate.interval.high
    return f"{100 * estimate.value:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"
