"""A model tonight against an earlier night: the change, and the judge's and the model's part in it.

Responses are paired by prompt, and changes are of the judge's own probabilities, because the level of a
calibration cancels between two nights. If the judge moved on the anchors, its part is subtracted from the
change, and no gate may pass by what is left: the calibration and the baseline are of another judge.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import numpy as np

from empathy_judge.calibration.estimate import Estimate, Floats
from empathy_judge.calibration.monitoring import confidence_sequence, drift
from empathy_judge.calibration.monitoring.confidence_sequence import NIGHTS, NightSums
from empathy_judge.data.text import listed, points
from empathy_judge.nightly import schema
from empathy_judge.nightly.history import storable
from empathy_judge.nightly.schema import AnchorResult, ChangeResult, JudgedResponse, Label

# A drop is for the worse: sums of Bad are of its negative.
SIDES: Final[tuple[tuple[Label, float, Literal["down", "up"]], ...]] = (
    ("good", 1.0, "down"),
    ("bad", -1.0, "up"),
)
LISTED: Final = 3  # nights of a baseline that are named one by one
REPORTED_NIGHTS: Final = 7  # nights from which on night-to-night variation is reported
REPORTED_SPREAD: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFigure:
    """The change of a share (tonight - then), as a fraction.

    The interval of `tonight` holds for tonight; `sustained` is the mean of so many `nights`, with an interval
    that holds on all nights at once. Without it, `tonight` stands for both. It rests on so many `prompts`;
    they do not reduce the `lasting` part of its variance.
    """

    tonight: Estimate
    sustained: Estimate | None = None
    prompts: int = 0
    nights: int = 1
    lasting: float = 0.0

    @property
    def sure(self) -> Estimate:
        """The estimate by which a gate fails."""
        return self.sustained or self.tonight


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChange:
    """A model's change since one night, by label, and its `record` in the history.

    `moved` describes how the judge moved, `suspected` how it may have. `unscored` is the share of unscored
    responses then.
    """

    record: ChangeResult
    figures: Mapping[Label, GateFigure]
    emotions: Mapping[Label, Sequence[drift.EmotionChange]] = field(default_factory=dict)
    moved: str | None = None
    suspected: str | None = None
    unscored: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedResponses:
    """Differences (tonight - then) of each label's probability, by prompt.

    `baseline` is the variance of each prompt's mean then, as a multiple of tonight's.
    """

    differences: Mapping[Label, Floats]
    baseline: Floats
    emotions: tuple[str | None, ...]

    @property
    def sums(self) -> dict[Label, NightSums]:
        """The sums of the night by label; a drop is for the worse."""
        return {
            label: confidence_sequence.sum_night(sign * self.differences[label], self.baseline)
            for label, sign, _ in SIDES
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgeShift:
    """The judge's own shift since a night: its anchors then and now, by label; see `ModelChange`."""

    before: Mapping[Label, Floats]
    after: Mapping[Label, Floats]
    min_drift: float
    moved: str | None = None
    suspected: str | None = None


def pair(tonight: Sequence[JudgedResponse], then: Sequence[JudgedResponse]) -> PairedResponses:
    """Pair responses by prompt; several responses to one prompt are averaged first."""
    now, old = _by_prompt(tonight), _by_prompt(then)
    both = [key for key in now if key in old]
    means = [
        [np.array([[item.good, item.bad] for item in night[key]], dtype=float).mean(axis=0) for key in both]
        for night in (now, old)
    ]
    good, bad = (np.array(means[0]) - np.array(means[1])).reshape(-1, 2).T
    return PairedResponses(
        differences={"good": good, "bad": bad},
        baseline=np.array([len(now[key]) / len(old[key]) for key in both]),
        emotions=tuple(now[key][0].emotion for key in both),
    )


def judge_shift(
    tonight: Sequence[AnchorResult], *, before: schema.NightRecord, min_drift: float
) -> JudgeShift:
    """Compare anchors: an interval for all nights shows that the judge moved, tonight's that it may have."""
    old, new = (
        {(item.anchors, item.item): item for item in anchors if item.good is not None}
        for anchors in (before.anchors, tonight)
    )
    both = [key for key in new if key in old]
    shift = JudgeShift(
        before={label: np.array([getattr(old[key], label) for key in both]) for label, _, _ in SIDES},
        after={label: np.array([getattr(new[key], label) for key in both]) for label, _, _ in SIDES},
        min_drift=min_drift,
    )
    if len(both) < 2:
        return shift
    for looks in (NIGHTS, 1):
        changes = {
            label: drift.paired_change(shift.after[label] - shift.before[label], looks=looks)
            for label, _, _ in SIDES
        }
        if any(drift.is_beyond(change.interval, min_drift) for change in changes.values()):
            by = " and ".join(f"{points(change)} points {label}" for label, change in changes.items())
            verb = "shifted" if looks > 1 else "may have shifted"
            text = f"the judge {verb} by {by} on {len(both):,} anchors since {before.night}"
            return replace(shift, moved=text) if looks > 1 else replace(shift, suspected=text)
    return shift


def change_since(
    model: str,
    against: schema.Against,
    nights: Sequence[str],
    paired: PairedResponses,
    shift: JudgeShift,
    *,
    earlier: Mapping[Label, Sequence[NightSums]],
    models: int,
    unscored: float = 0.0,
) -> ModelChange | None:
    """Return a model's change since these nights, or None where no prompt is shared.

    `earlier` has the sums of the nights between. The error rate is shared among `models`.
    """
    if not paired.emotions:
        return None
    drifts, figures, emotions, variances = {}, {}, {}, {}
    uses_nights = against == "baseline" and not shift.moved
    for label, sign, worse in SIDES:
        differences = paired.differences[label]
        sums = [*earlier[label], *([paired.sums[label]] if uses_nights else [])]
        variances[label] = variance = confidence_sequence.night_variance(sums)
        tonight, always = (
            drift.split_change(
                differences,
                anchors_before=shift.before[label],
                anchors_after=shift.after[label],
                min_drift=shift.min_drift,
                looks=looks,
                widening=variance.widening,
            )
            for looks in (1, NIGHTS * models)
        )
        drifts[label] = tonight
        own, sustained, averaged, lasting = tonight.total, always.total, 1, 0.0
        if shift.moved:
            own, sustained = tonight.model, always.model
            judge = tonight.judge.value
            differences = differences - (judge if math.isfinite(judge) else 0.0)
        elif uses_nights:
            # A small drop shows in the mean of several nights, a large one on its first.
            recent = confidence_sequence.recent_change(sums, models=models)
            recent = recent if sign > 0 else -recent
            if _harm(recent, sign) >= _harm(sustained, sign):
                sustained, averaged = recent, min(confidence_sequence.RECENT, variance.nights)
                lasting = 1 - 1 / variance.overdispersion
        figures[label] = GateFigure(
            tonight=own,
            sustained=sustained if math.isfinite(sustained.value) else None,
            prompts=len(differences),
            nights=averaged,
            lasting=lasting,
        )
        emotions[label] = drift.emotion_changes(differences, paired.emotions, worse=worse)
    good, variance = drifts["good"], variances["good"]
    record = ChangeResult(
        model=model,
        against=against,
        nights=tuple(nights),
        prompts=good.prompts,
        total=good.total,
        judge=good.judge,
        own=good.model,
        bad=drifts["bad"].total,
        verdict=good.verdict,
        sentence=good.sentence,
        judge_moved=shift.moved is not None,
        night_sums=paired.sums,
        nights_used=variance.nights if uses_nights else 0,
        spread=variance.spread,
        widening=variance.widening,
        is_overdispersed=variance.is_shown,
    )
    return ModelChange(
        record=record,
        figures=figures,
        emotions=emotions,
        moved=shift.moved,
        suspected=shift.suspected,
        unscored=unscored,
    )


def name_nights(nights: Sequence[str]) -> str:
    """Name nights, all of them where they are few."""
    if len(nights) <= LISTED:
        return listed(nights)
    return f"the {len(nights)} nights from {nights[0]} to {nights[-1]}"


def describe_variation(change: ChangeResult | None) -> str | None:
    """Return a sentence on nights that differ by more than sampling noise; None where they do not."""
    if change is None or change.nights_used < REPORTED_NIGHTS or not change.is_overdispersed:
        return None
    if change.spread < REPORTED_SPREAD:
        return None
    return (
        f"Night-to-night variation exceeds sampling noise by {100 * change.spread:.1f} points, so intervals "
        f"are {change.widening:.1f}x wider."
    )


def _by_prompt(judged: Sequence[JudgedResponse]) -> dict[str, list[JudgedResponse]]:
    prompts: dict[str, list[JudgedResponse]] = {}
    for item in judged:
        if item.good is not None and item.bad is not None:
            prompts.setdefault(storable(item.prompt), []).append(item)  # as the history returns it
    return prompts


def _harm(estimate: Estimate, sign: float) -> float:
    """Return the least harm that an interval leaves possible."""
    ends = estimate.interval
    return -math.inf if ends is None else min(-sign * ends.low, -sign * ends.high)
