"""The line between models: known answers."""

import math

import numpy as np
import pytest

from empathy_judge.calibration.estimate import Estimate, Interval
from empathy_judge.calibration.shares.transport import (
    CalibratedModels,
    TargetModel,
    bound_beyond,
    fit_line,
    refusal,
    sign_probability,
    transport,
    transport_difference,
)
from empathy_judge.data.records import to_plain

# The study by an earlier judge, for which an independent implementation computed the figures below.
REVIEWED = CalibratedModels(
    models=("gemini-1.0-pro", "gpt-4", "gpt-4-plain", "human", "llama-2-70b-chat"),
    judge=(0.59914, 0.61577, 0.59045, 0.49579, 0.6081),
    crowd=(0.5375, 0.6375, 0.625625, 0.485625, 0.595625),
    noise=(0.000392, 0.000264, 0.000313, 0.000184, 0.00034),
    bounds=(0.0, 1.0),
    prompt_variance=0.00811,
)


def models(judge, crowd, noise=0.0, bounds=(0.0, 1.0)) -> CalibratedModels:
    return CalibratedModels(
        models=tuple(f"m{index}" for index in range(len(judge))),
        judge=tuple(map(float, judge)),
        crowd=tuple(map(float, crowd)),
        noise=(noise,) * len(judge),
        bounds=bounds,
    )


def width(estimate) -> float:
    return estimate.interval.high - estimate.interval.low


def test_levels_of_the_samples_are_those_of_the_review() -> None:
    """Inside the rated range an interval, beyond it a bound; figures of an independent implementation."""
    known = REVIEWED
    warm, plain, curt = (
        transport(known, known.judged(mean, 0.01 / 64, 64)) for mean in (0.682, 0.465, 0.282)
    )
    assert (warm.bound, warm.interval.high) == ("at least", 1.0) and math.isnan(warm.value)
    assert warm.interval.low == pytest.approx(0.58, abs=0.015)
    found = (plain.value, plain.interval.low, plain.interval.high)
    assert found == pytest.approx((0.46, 0.33, 0.59), abs=0.015)
    assert (curt.bound, curt.interval.low) == ("at most", 0.0) and math.isnan(curt.value)
    assert curt.interval.high == pytest.approx(0.47, abs=0.02)


def test_the_sign_of_a_difference_has_the_probability_of_the_review() -> None:
    known = REVIEWED
    gaps = {0.05: 0.77, 0.07: 0.85, 0.10: 0.92, 0.12: 0.95, 0.15: 0.977, 0.20: 0.994}
    for gap, expected in gaps.items():
        one, other = TargetModel(judge=0.58 + gap / 2), TargetModel(judge=0.58 - gap / 2)
        found = sign_probability(known, one, other, 0.05)
        assert found == pytest.approx(expected, abs=0.007)
        assert sign_probability(known, other, one, 0.05) == pytest.approx(1 - found)
        assert sign_probability(known, one, other, 0.05, correlation=0.5) > found, "variants"


def test_a_model_is_at_least_as_good_where_a_loss_of_the_drop_is_unlikely() -> None:
    """With slope 1 a loss of ten points of 0.55 is 0.4 logits, which the probability of the sign has, too."""
    judge = np.linspace(0.35, 0.75, 40)
    known = models(judge, judge, noise=1e-6)
    same, lower = TargetModel(judge=0.55), TargetModel(judge=0.45)
    found = sign_probability(known, same, same, 0.05, drop=0.1)
    assert found == pytest.approx(sign_probability(known, same, lower, 0.05), abs=0.01)
    assert sign_probability(known, lower, same, 0.05, drop=0.1) == pytest.approx(0.5, abs=0.02)
    assert math.isnan(sign_probability(known, same, same, 0.05, drop=0.51)), "nothing to lose"


def test_a_steep_line_is_believed_with_enough_models() -> None:
    judge = np.linspace(0.4, 0.7, 12)
    logits = 2 * np.log(judge / (1 - judge)) - 0.5
    line = fit_line(models(judge, 1 / (1 + np.exp(-logits)), noise=1e-6))
    assert line.slope == pytest.approx(2, abs=0.25)
    assert line.model_sd < 0.19 / 4


@pytest.mark.parametrize("number", [0, 1, 2])
def test_two_models_tell_nothing_of_a_third(number: int) -> None:
    few = models([0.5, 0.6][:number], [0.44, 0.5][:number])
    assert math.isnan(transport(few, TargetModel(judge=0.55)).value)
    assert math.isnan(fit_line(few).slope) and "at least 3" in (refusal(few, TargetModel(judge=0.5)) or "")


def test_own_ratings_take_over_as_they_come() -> None:
    known = models([0.5, 0.6, 0.55, 0.65, 0.52], [0.44, 0.5, 0.48, 0.6, 0.4])
    previous = transport(known, TargetModel(judge=0.55))
    for ratings in (20, 100, 1000, 100_000):  # few show little but that the judge may be wrong
        found = transport(known, TargetModel(judge=0.55, crowd=0.5, noise=0.24 / ratings))
        assert width(found) < width(previous) or ratings == 20
        assert abs(found.value - 0.5) < abs(previous.value - 0.5)
        previous = found
    assert previous.value == pytest.approx(0.5, abs=1e-3)


def test_an_uncertain_judged_mean_widens_the_interval_and_the_range() -> None:
    known = models([0.5, 0.6, 0.55, 0.65, 0.52], [0.44, 0.54, 0.48, 0.6, 0.45])
    sure, unsure = TargetModel(judge=0.70), TargetModel(judge=0.70, judge_noise=0.05**2)
    assert (bound_beyond(known, sure), bound_beyond(known, unsure)) == ("at least", None)
    assert transport(known, sure).interval.low > transport(known, unsure).interval.low
    assert bound_beyond(known, TargetModel(judge=0.3)) == "at most"
    assert "nothing was scored" in (refusal(known, TargetModel(judge=math.nan)) or "")
    assert refusal(known, TargetModel(judge=0.6, prompts=9)) is not None


def test_a_difference_has_both_deviations_but_one_line() -> None:
    known = models([0.5, 0.6, 0.55, 0.65, 0.52], [0.44, 0.5, 0.48, 0.6, 0.4])
    middle = TargetModel(judge=0.55)
    same = transport_difference(known, middle, middle)
    assert (same.estimate.value, same.exceeds(0)) == pytest.approx((0, 0.5), abs=2e-3)
    assert same.estimate.interval.low == pytest.approx(-same.estimate.interval.high, abs=5e-3)
    assert width(same.estimate) < 2 * width(transport(known, middle))
    variants = transport_difference(known, middle, middle, correlation=0.5)
    assert width(variants.estimate) == pytest.approx(width(same.estimate) / math.sqrt(2), rel=0.05)
    apart = transport_difference(known, TargetModel(judge=0.65), TargetModel(judge=0.5))
    assert apart.estimate.value > 0.05 and apart.exceeds(0) > 0.9
    elsewhere = transport_difference(known, middle, Estimate(0.3, Interval(0.28, 0.32)))
    assert elsewhere.estimate.value == pytest.approx(transport(known, middle).value - 0.3, abs=5e-3)
    assert elsewhere.exceeds(0) > 0.95


@pytest.mark.parametrize(("ratings", "least"), [(50, 0.75), (100, 0.75), (1000, 0.88)])
def test_a_model_far_from_the_line_is_mostly_covered_once_it_is_rated(ratings: int, least: float) -> None:
    """15 points off the line; six calibrated models with deviations of 0.16."""
    rng = np.random.default_rng(5)
    judge = np.linspace(0.5, 0.65, 6)
    noise, held = 0.24 * 2.3 / ratings, []
    for _ in range(200):
        logits = np.log(judge / (1 - judge)) + rng.normal(0, 0.16, 6)
        known = models(judge, 1 / (1 + np.exp(-logits)), noise=0.24 * 2.2 / 1600)
        crowd = 0.73 + rng.normal(0, math.sqrt(noise))
        found = transport(known, TargetModel(judge=0.58, crowd=crowd, noise=noise))
        held.append(found.interval.low <= 0.73 <= found.interval.high)
    assert np.mean(held) >= least


@pytest.mark.parametrize(("bias", "is_trusted"), [(0.0, True), (0.2, False)])
def test_the_judges_own_levels_stand_only_where_the_calibration_shows_them_right(
    bias: float, is_trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = np.array([0.40, 0.42, 0.44, 0.60, 0.62])
    known = models(judge, judge + bias + np.array([0.01, -0.01, 0.0, 0.01, -0.01]))
    assert known.trusts_levels is is_trusted
    level = transport(known, TargetModel(judge=0.5))
    assert level.value == pytest.approx(0.5 + bias, abs=0.002 if is_trusted else 0.02)
    monkeypatch.setattr(CalibratedModels, "trusts_levels", False)
    assert width(level) == pytest.approx(width(transport(known, TargetModel(judge=0.5))), abs=0.002)


def test_the_line_of_a_language_model_expects_deviations_between_recorded_and_usual_ones() -> None:
    names, levels = tuple("abcdefg"), (0.5, 0.55, 0.6, 0.6, 0.6, 0.65, 0.7)
    line = CalibratedModels(
        models=names, judge=levels, crowd=levels, noise=(0.004,) * 7, prompt_variance=0.04
    )
    wide = line.expecting(0.45)
    assert wide.deviation == pytest.approx(math.sqrt((0.19**2 + (0.45 * 0.2 / 0.24) ** 2) / 2), rel=1e-6)
    usual, new = (transport(item, item.judged(0.6, 0.001, 60)) for item in (line, wide))
    assert usual.width < new.width < 0.4, "still within 20 points"
    assert "prior" not in to_plain(line) and to_plain(wide)["prior"] == wide.prior
