"""Who moved, the judge or the model, in worlds where it is known."""

import numpy as np
import pytest

from empathy_judge.calibration.monitoring import drift
from empathy_judge.calibration.monitoring.confidence_sequence import NIGHTS
from empathy_judge.calibration.monitoring.drift import emotion_changes, split_change
from empathy_judge.data.records import EMOTIONS, to_plain

ANCHORS, PROMPTS = 60, 160


def world(rng: np.random.Generator, *, judge: float = 0.0, model: float = 0.0) -> drift.Drift:
    """A night after which the judge and the model moved by so much, the judge unevenly."""
    before = rng.beta(3, 2, size=ANCHORS)
    uneven = 0.08 if judge else 0.0
    after = before + judge + uneven * rng.standard_normal(ANCHORS)
    apart = 0.2 * rng.standard_normal(PROMPTS) + model + judge + uneven * rng.standard_normal(PROMPTS)
    return split_change(apart, anchors_before=before, anchors_after=after)


@pytest.mark.parametrize(
    ("judge", "model", "verdict"),
    [
        (0.0, 0.0, "neither shown"),
        (-0.1, 0.0, "the judge moved"),
        (0.0, -0.1, "the model moved"),
        (0.1, -0.1, "both"),
        (-0.1, -0.1, "both"),
    ],
)
def test_the_one_that_moved_is_named(judge: float, model: float, verdict: drift.DriftSource) -> None:
    rng = np.random.default_rng(1)
    found = [world(rng, judge=judge, model=model).verdict for _ in range(200)]
    assert found.count(verdict) >= 0.93 * 200


def test_a_judge_that_did_not_change_has_a_shift_of_exactly_zero() -> None:
    found = world(np.random.default_rng(3), model=-0.1)
    assert to_plain(found.judge) == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert found.model == found.total


def test_what_does_not_matter_need_not_be_said() -> None:
    before = np.linspace(0.1, 0.9, ANCHORS)
    given = {"anchors_before": before, "anchors_after": before + 0.001}
    calm = 0.01 * np.random.default_rng(6).standard_normal(PROMPTS)
    assert split_change(calm, **given).verdict == "the judge moved"
    assert split_change(calm, **given, min_drift=0.01).verdict == "neither shown"


@pytest.mark.parametrize("anchors", [0, 1])
def test_without_anchors_nobody_is_blamed(anchors: int) -> None:
    found = split_change([-0.3] * 20, anchors_before=[0.5] * anchors, anchors_after=[0.5] * anchors)
    assert (found.verdict, found.model.interval) == ("not separable", None)
    assert found.total.value == pytest.approx(-0.3) and "two anchors" in found.sentence


def test_looks_on_many_nights_widen_a_nights_interval() -> None:
    rng, alarms = np.random.default_rng(8), {1: 0, NIGHTS: 0}
    for _ in range(20):
        nights = 0.2 * rng.standard_normal((NIGHTS, PROMPTS))
        for looks in alarms:
            found = (drift.paired_change(night, looks=looks).interval for night in nights)
            alarms[looks] += any(not ends.low <= 0 <= ends.high for ends in found)
    assert alarms[1] == 20 and alarms[NIGHTS] <= 3


@pytest.mark.parametrize("worse", ["down", "up"])
def test_the_emotions_that_changed_are_named_and_few_others(worse: str) -> None:
    rng, struck, sign = np.random.default_rng(9), ("lonely", "sad"), 1 if worse == "up" else -1
    emotions = [EMOTIONS[16 + index % 16] for index in range(PROMPTS)]
    found, false = 0, []
    for _ in range(200):
        apart = 0.2 * rng.standard_normal(PROMPTS) + sign * 0.45 * np.isin(emotions, struck)
        shown = [item.emotion for item in emotion_changes(apart, emotions, worse=worse) if item.is_shown]
        found += sum(emotion in struck for emotion in shown)
        false.append(np.mean([emotion not in struck for emotion in shown]) if shown else 0.0)
    assert found >= 0.9 * 2 * 200
    assert np.mean(false) <= 0.07  # the rate of false discoveries, nominally 5 %


def test_without_a_change_emotions_are_named_in_few_nights() -> None:
    rng = np.random.default_rng(10)
    emotions = [EMOTIONS[16 + index % 16] for index in range(PROMPTS)]
    nights = [emotion_changes(0.2 * rng.standard_normal(PROMPTS), emotions) for _ in range(300)]
    assert sum(any(item.is_shown for item in night) for night in nights) <= 0.08 * 300


def test_emotions_with_little_or_nothing_to_say() -> None:
    assert emotion_changes([], []) == ()
    assert emotion_changes([0.1, 0.2], [None, None]) == ()
    assert emotion_changes([-0.5] * 9, ["sad"] * 9) == (), "fewer than ten prompts"
    exact = emotion_changes([-0.5] * 10 + [0.0] * 10, ["sad"] * 10 + ["proud"] * 10)
    assert [(item.emotion, item.is_shown) for item in exact] == [("sad", True), ("proud", False)]
