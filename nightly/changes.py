"""A model tonight against an earlier night: what changed, whose change it is, and how far that is known.

Responses are paired by prompt, and changes are of the judge's own probabilities: of a model's two nights the
calibrated line's level cancels, and its slope is near 1 where a calibration is any good.

Where the judge moved on the anchors, its part is taken off the model's change, and no gate may pass by what
is left: the calibration and the baseline are of another judge.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np

from calibration.estimate import Estimate, Floats, Interval
from calibration.monitoring.confidence_sequence import NIGHTS, Watch, alarm, current, moods, update
from calibration.monitoring.drift import Drift, EmotionChange, emotion_changes, paired_change, split_change
from data.records import to_plain
from data.text import listed
from nightly.history import storable
from nightly.schema import AnchorResult, JudgedResponse, NightRecord

Label = Literal["good", "bad"]
SIDES: Final[tuple[tuple[Label, float, Literal["down", "up"]], ...]] = (
    ("good", 1.0, "down"),
    ("bad", -1.0, "up"),
)
LISTED: Final = 3  # nights of a baseline that are named one by one
# How far nights lie apart is told from so many nights on, and in a sentence from this spread on.
TOLD_NIGHTS: Final = 7
MOODY: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A share, or the change of one (tonight - then), as a part of 1.

    `interval` holds for tonight, `uniform` on all nights at once; without it `interval` stands for both. To
    say what would tell: how many `prompts` it rests on, and, of a change that all nights are watched for, the
    `watch` after tonight, in which a drop is for the worse, with how many `models` are watched.
    """

    value: float
    interval: Interval | None
    uniform: Interval | None = None
    prompts: float = 0
    watch: Watch | None = None
    models: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A model's change since one night, by label: what gates look at, and whose change it is.

    `moved` says in words that the judge moved, `suspected` that it may have. The split between judge and
    model `is_rough` where the judge's shift depends on how good it found a response. `sums` are what a night
    leaves for the watches of later ones.
    """

    readings: Mapping[Label, Reading]
    emotions: Mapping[Label, Sequence[EmotionChange]] = field(default_factory=dict)
    night: str = ""
    prompts: int = 0
    drifts: Mapping[Label, Drift] = field(default_factory=dict)
    sums: Mapping[str, Sequence[float]] = field(default_factory=dict)
    moved: str | None = None
    suspected: str | None = None
    is_rough: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedResponses:
    """Differences (tonight - then) of each label's probability, by prompt."""

    differences: Mapping[Label, Floats]
    emotions: tuple[str | None, ...]

    @property
    def sums(self) -> dict[str, list[float]]:
        """How many prompts, the total and the squares of their differences; a drop is for the worse."""
        nights = {label: update(Watch(), sign * self.differences[label]) for label, sign, _ in SIDES}
        return {label: [one.prompts[0], one.totals[0], one.squares[0]] for label, one in nights.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgeShift:
    """The judge's own move since a night: its anchors then and now, by label; see `Change`."""

    night: str
    before: Mapping[Label, Floats]
    after: Mapping[Label, Floats]
    matters: float
    moved: str | None = None
    suspected: str | None = None

    @property
    def is_tilted(self) -> bool:
        """Whether the shift depends on how good the judge found a response."""
        slopes = [self.split(np.zeros(2), label).slope for label, _, _ in SIDES]
        return any(_is_beyond(slope.interval, 0.0) for slope in slopes)

    def split(self, differences: Floats, label: Label, *, looks: int = 1, widening: float = 1.0) -> Drift:
        """A model's change, as the judge's part and its own."""
        return split_change(
            differences,
            anchors_before=self.before[label],
            anchors_after=self.after[label],
            matters=self.matters,
            looks=looks,
            widening=widening,
        )


def pair(tonight: Sequence[JudgedResponse], then: Sequence[JudgedResponse]) -> PairedResponses:
    """Pair by prompt; several responses to one prompt are averaged first, since they are not independent."""
    now, old = _by_prompt(tonight), _by_prompt(then)
    both = [key for key in now if key in old]
    means = [
        [np.array([[item.good, item.bad] for item in night[key]], dtype=float).mean(axis=0) for key in both]
        for night in (now, old)
    ]
    rows = (np.array(means[0]) - np.array(means[1])).reshape(-1, 2)
    return PairedResponses(
        differences={"good": rows[:, 0], "bad": rows[:, 1]},
        emotions=tuple(now[key][0].emotion for key in both),
    )


def judge_shift(
    tonight: Sequence[AnchorResult], *, now: tuple[str, str], before: NightRecord, matters: float
) -> JudgeShift:
    """Whether the judge moved since a night, by its anchors; `now` is tonight's judge and its version.

    The same judge moved where an interval that holds on all nights says so, and may have where tonight's
    does. Another judge moved unless its anchors show that it did not.
    """
    old = {(item.anchors, item.item): item for item in before.anchors if item.good is not None}
    both = [
        (item, old[item.anchors, item.item])
        for item in tonight
        if item.good is not None and (item.anchors, item.item) in old
    ]
    shift = JudgeShift(
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
        changes = {
            label: paired_change(shift.after[label] - shift.before[label], looks=looks)
            for label, _, _ in SIDES
        }
        by = " and ".join(f"{_points(change)} of {label.title()}" for label, change in changes.items())
        if any(_is_beyond(change.interval, matters) for change in changes.values()):
            is_sure = looks > 1 or is_another
            told = f"the judge {'moved' if is_sure else 'may have moved'} by {by} {since}"
            return replace(shift, moved=told if is_sure else None, suspected=None if is_sure else told)
    ends = [change.interval for change in changes.values()]
    is_calm = all(end is not None and -matters <= end.low and end.high <= matters for end in ends)
    is_moved = is_another and not (is_calm and not shift.is_tilted)
    return replace(shift, moved=f"the judge moved by {by} {since}" if is_moved else None)


def change_since(
    against: str,
    paired: PairedResponses,
    shift: JudgeShift,
    *,
    watches: Mapping[Label, Watch],
    models: int,
) -> Change | None:
    """The change, or None where no prompt is shared. `watches` are of the nights before tonight.

    Error is shared out among `models`.
    """
    if not paired.emotions:
        return None
    drifts, readings, emotions = {}, {}, {}
    looks = NIGHTS * models
    for label, sign, worse in SIDES:
        differences, watch = paired.differences[label], watches[label]
        if against == "baseline" and not shift.moved:
            watch = update(watch, sign * differences)
        widening = moods(watch, models=models).widening
        drifts[label] = tonight = shift.split(differences, label, widening=widening)
        always = shift.split(differences, label, looks=looks, widening=widening)
        own, uniform = tonight.total, always.total
        if shift.moved:
            own, uniform = tonight.model, always.model
            judge = tonight.judge.value
            differences = differences - (judge if math.isfinite(judge) else 0.0)
        elif against == "baseline":
            watched = current(watch, models=models)
            ends = watched.interval
            turned = Interval(*sorted((sign * ends.low, sign * ends.high))) if ends else None
            uniform = Estimate(sign * watched.value, turned)
        readings[label] = Reading(
            value=uniform.value if math.isfinite(uniform.value) else own.value,
            interval=own.interval,
            uniform=uniform.interval,
            prompts=len(differences),
            watch=watch if against == "baseline" and not shift.moved else None,
            models=models,
        )
        is_named = any(name is not None for name in paired.emotions)
        emotions[label] = emotion_changes(differences, paired.emotions, worse=worse) if is_named else ()
    return Change(
        night=shift.night,
        prompts=len(paired.emotions),
        drifts=drifts,
        readings=readings,
        emotions=emotions,
        sums=paired.sums,
        moved=shift.moved,
        suspected=shift.suspected,
        is_rough=shift.is_tilted,
    )


def make_watch(sums: Sequence[Sequence[float]], *, baseline_nights: int = 1) -> Watch:
    """A watch of nights in order, each given by its prompts, total and squares."""
    return Watch(
        baseline_nights=baseline_nights,
        prompts=tuple(int(count) for count, _, _ in sums),
        totals=tuple(total for _, total, _ in sums),
        squares=tuple(square for _, _, square in sums),
    )


def change_details(
    changes: Mapping[str, Change], watches: Mapping[Label, Watch], averaged: Sequence[str], *, models: int
) -> dict[str, Any]:
    """What the history keeps of a model's changes, and how the watch of Good is after tonight."""
    details: dict[str, Any] = {
        "changes": {
            name: {"night": item.night, "prompts": item.prompts, **to_plain(item.drifts)}
            for name, item in changes.items()
        }
    }
    if change := changes.get("baseline"):
        before = watches["good"]
        nights = zip(before.prompts, before.totals, before.squares, strict=True)
        watch = make_watch([*nights, change.sums["good"]], baseline_nights=before.baseline_nights)
        details["watch"] = {
            **to_plain(moods(watch, models=models)),
            "alarm": to_plain(alarm(watch, models=models)),
        }
        details["since_baseline"] = {
            "night": change.night,
            "averaged": list(averaged),
            "judge_moved": change.moved is not None,
            "sums": change.sums,
        }
    return details


def baseline_nights(details: Mapping[str, Any]) -> tuple[str, ...]:
    """The nights a model's change since the baseline is held against, as its history kept it."""
    averaged = details.get("since_baseline", {}).get("averaged")
    return tuple(averaged or [details["changes"]["baseline"]["night"]])


def say_nights(nights: Sequence[str]) -> str:
    """Name nights, all of them where they are few.

    >>> say_nights(["05-01", "05-02"]), say_nights(["05-01", "05-02", "05-03", "05-04"])
    ('05-01 and 05-02', 'the 4 nights from 05-01 to 05-04')
    """
    return (
        listed(nights)
        if len(nights) <= LISTED
        else f"the {len(nights)} nights from {nights[0]} to {nights[-1]}"
    )


def say_moods(watch: Mapping[str, Any] | None) -> str | None:
    """What is said of nights that differ by more than chance in single answers, as a model's watch found it.

    >>> say_moods({"nights": 12, "is_shown": True, "spread": 0.012, "widening": 1.4})
    'its nights lie about 1.2 points further apart than chance explains: intervals are 1.4 times as wide.'
    """
    if watch is None or watch["nights"] < TOLD_NIGHTS or not watch.get("is_shown") or watch["spread"] < MOODY:
        return None
    return (
        f"its nights lie about {100 * watch['spread']:.1f} points further apart than chance explains: "
        f"intervals are {watch['widening']:.1f} times as wide."
    )


def _by_prompt(judged: Sequence[JudgedResponse]) -> dict[str, list[JudgedResponse]]:
    prompts: dict[str, list[JudgedResponse]] = {}
    for item in judged:
        if item.good is not None and item.bad is not None:
            prompts.setdefault(storable(item.prompt), []).append(item)  # as the history gives it back
    return prompts


def _is_beyond(interval: Interval | None, matters: float) -> bool:
    least = max(matters, 1e-9)
    return interval is not None and (interval.low > least or interval.high < -least)


def _points(estimate: Estimate) -> str:
    assert estimate.interval is not None
    low, high = estimate.interval.low, estimate.interval.high
    return f"{100 * estimate.value:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"
