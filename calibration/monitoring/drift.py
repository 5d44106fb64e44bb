"""A change from one night to another: the judge's part, the model's part, and the emotions it comes from.

Anchors are responses that never change, judged every night: where their judgments move, the judge did. The
model's own change is what is left when the judge's shift is taken off. That assumes the judge moved on the
model's responses as it did on the anchors, so anchors should be of the same kind.

Anchors and prompts are both samples, and independent of each other: the variances of the two means add.
Where a deterministic judge is unchanged every anchor is judged as before, and the shift is exactly 0.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from empathy_judge.calibration.cluster import NORMAL, POWER, Contrast, joint_freedom
from empathy_judge.calibration.comparison.verdicts import benjamini_hochberg
from empathy_judge.calibration.estimate import CONFIDENCE, Estimate, Interval
from empathy_judge.data.text import points

DriftSource = Literal["the judge moved", "the model moved", "both", "neither shown", "not separable"]
ROUNDING: Final = 1e-9
LEAST_PROMPTS: Final = 10  # of an emotion, for a statement about it
LEVEL: Final = 1 - CONFIDENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A change (after - before) of a model's mean, split into `judge` and `model`, which add up to `total`.

    `verdict` is "not separable" without anchors judged both times.
    """

    total: Estimate
    judge: Estimate
    model: Estimate
    prompts: int
    verdict: DriftSource
    sentence: str


@dataclass(frozen=True, slots=True)
class EmotionChange:
    """One emotion's mean change, and whether it is shown to be for the worse: one-sided, adjusted (BH)."""

    emotion: str
    change: float
    is_shown: bool


def paired_change(differences: ArrayLike, *, looks: int = 1) -> Estimate:
    """Return the mean of paired differences by prompt, with its t interval.

    With `looks` nights the intervals of all of them hold at once (Bonferroni). Average several responses to
    a prompt first: they are not independent.

    >>> paired_change([0.25, 0.5, 0.75]).value, paired_change([0.1]).interval
    (0.5, None)
    """
    return _mean(differences).estimate(1 - (1 - CONFIDENCE) / looks)


def split_change(
    differences: ArrayLike,
    *,
    anchors_before: ArrayLike,
    anchors_after: ArrayLike,
    min_drift: float = 0.0,
    looks: int = 1,
    widening: float = 1.0,
) -> Drift:
    """Split a change into the judge's part and the model's.

    `differences` are the model's by prompt, anchors are in one order before and after. A part moved where its
    interval lies wholly beyond `min_drift` on one side. `looks` is as in `paired_change`. The model's error
    is `widening` times that from its prompts: nights may differ by more than chance in answers.
    """
    old, new = np.asarray(anchors_before, dtype=float), np.asarray(anchors_after, dtype=float)
    if old.shape != new.shape:
        raise ValueError("anchors: the same ones before and after, in one order")
    change, shift = _mean(differences), _mean(new - old)
    change = replace(change, error=widening * change.error)
    parts = (change, shift, _subtract(change, shift))
    total, judge, model = (part.estimate(1 - (1 - CONFIDENCE) / looks) for part in parts)
    verdict = _verdict(judge, model, min_drift)
    return Drift(
        total=total,
        judge=judge,
        model=model,
        prompts=int(change.freedom) + 1,
        verdict=verdict,
        sentence=_say(verdict, total, judge, model),
    )


def emotion_changes(
    differences: ArrayLike, emotions: Sequence[str | None], *, worse: Literal["down", "up"] = "down"
) -> tuple[EmotionChange, ...]:
    """Return the change of every emotion with `LEAST_PROMPTS`, the worst first; its spread is that of all."""
    from scipy.special import stdtr

    sign = 1.0 if worse == "up" else -1.0
    values = sign * np.asarray(differences, dtype=float)
    counts = Counter(emotion for emotion in emotions if emotion is not None)
    kinds = sorted(emotion for emotion, count in counts.items() if count >= LEAST_PROMPTS)
    groups = [values[np.array([emotion == kind for emotion in emotions], dtype=bool)] for kind in kinds]
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    spread = math.sqrt(squares / freedom) if freedom else math.nan
    p_values = []
    for group in groups:
        mean, error = float(group.mean()), spread / math.sqrt(len(group))
        varies = error > ROUNDING or math.isnan(error)
        p_values.append(float(stdtr(freedom, -mean / error)) if varies else float(mean <= ROUNDING))
    changes = [
        EmotionChange(kind, sign * float(group.mean()), adjusted < LEVEL)
        for kind, group, adjusted in zip(kinds, groups, benjamini_hochberg(p_values).tolist(), strict=True)
    ]
    return tuple(sorted(changes, key=lambda item: (-sign * item.change, item.emotion)))


def _mean(values: ArrayLike) -> Contrast:
    array = np.asarray(values, dtype=float)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError("one difference per prompt or anchor; leave out those unscored on either side")
    count = len(array)
    error = math.sqrt(float(array.var(ddof=1)) / count) if count > 1 else math.nan
    return Contrast(effect=float(array.mean()) if count else math.nan, error=error, freedom=count - 1.0)


def _subtract(one: Contrast, other: Contrast) -> Contrast:
    """Return the difference of two independent means."""
    variances = np.array([[one.error**2], [other.error**2]])
    total = variances.sum(axis=0)
    parts = zip(variances, np.array([[one.freedom], [other.freedom]]), strict=True)
    freedom = float(joint_freedom(total, *parts)[0]) if np.isfinite(total).all() else math.nan
    return Contrast(effect=one.effect - other.effect, error=math.sqrt(total[0]), freedom=freedom)


def _verdict(judge: Estimate, model: Estimate, min_drift: float) -> DriftSource:
    if judge.interval is None or model.interval is None:
        return "not separable"
    moved = (is_beyond(judge.interval, min_drift), is_beyond(model.interval, min_drift))
    if all(moved):
        return "both"
    return "the judge moved" if moved[0] else "the model moved" if moved[1] else "neither shown"


def is_beyond(interval: Interval | None, min_drift: float) -> bool:
    """Return whether an interval lies wholly beyond `min_drift` on one side of 0."""
    least = max(min_drift, ROUNDING)
    return interval is not None and (interval.low > least or interval.high < -least)


def _say(verdict: DriftSource, total: Estimate, judge: Estimate, model: Estimate) -> str:
    if verdict == "not separable":
        missing = "two anchors" if judge.interval is None else "two prompts"
        return (
            f"The mean changed by {points(total)} points; at least {missing} scored on both nights are "
            "needed to separate the judge's part from the model's."
        )
    change, by_judge, by_model = (points(item, glue=" points ") for item in (total, judge, model))
    if verdict == "both":
        return f"The model changed by {by_model}, and the judge by {by_judge} on the anchors."
    if verdict == "the judge moved":
        return f"The judge changed by {by_judge} on the anchors. The model did not: {by_model}."
    if verdict == "the model moved":
        return f"The model changed by {by_model}. The judge did not: {by_judge} on the anchors."
    return f"No significant change: {change}."


MOST_PROMPTS: Final = 20.0  # times tonight's: more is no advice


def prompts_needed(
    beyond: float, tonight: Interval, sure: Interval, prompts: float, *, lasting: float = 0.0
) -> int | None:
    """Return the prompts a night with which a gate decides with a power of 80%; None for too many.

    `beyond` is how far the measured harm lies beyond the limit, negative for less; its true value may lie
    anywhere about that. A gate passes by tonight's interval and fails by the `sure` one, which holds on all
    nights. Both shrink with the root of the number of prompts, but for the `lasting` part of the variance of
    the `sure` one: night-to-night variation, which no prompts reduce.

    >>> prompts_needed(-0.04, Interval(-0.05, 0.05), Interval(-0.08, 0.08), 100)
    810
    >>> prompts_needed(0.0, Interval(-0.05, 0.05), Interval(-0.08, 0.08), 100) is None
    True
    """
    from scipy.special import ndtr

    error = (tonight.high - tonight.low) / 2 / NORMAL
    if not error > 0 or not prompts > 0 or not math.isfinite(beyond):
        return None
    # In standard errors of tonight: where the truth may lie, and how likely.
    truth = beyond / error + np.linspace(-4, 4, 161)
    weight = np.exp(-((truth - beyond / error) ** 2) / 2)
    reach = (sure.high - sure.low) / 2 / error
    for factor in np.geomspace(1.0, MOST_PROMPTS, 64):
        needed = np.where(truth > 0, reach * math.sqrt(1 - lasting + lasting * factor), NORMAL)
        power = ndtr(math.sqrt(factor) * np.abs(truth) - needed)
        if float(weight @ power) / float(weight.sum()) >= POWER:
            return round(prompts * float(factor))
    return None
