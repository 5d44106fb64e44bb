"""The line between models: known answers, then four recorded language-model judges of ten systems."""

import math
from collections import defaultdict

import numpy as np
import pytest
from repository import SHARED

from calibration.shares.transport import (
    CalibratedModels,
    TargetModel,
    fit_line,
    left_out_levels,
    refusal,
    transport,
    transport_difference,
)
from data.importers import import_source

JUDGES = ("gpt-4o", "claude-3.7-sonnet", "gemini-2.5-flash", "o4-mini")
SCALE = (1.0, 5.0)


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


def test_without_noise_it_is_student_t_around_a_shift() -> None:
    """All judged alike: no slope to find, so a new model is one more draw with m - 1 degrees of freedom."""
    crowd = np.array([0.42, 0.47, 0.5, 0.55, 0.51])
    found = transport(models([0.6] * 5, crowd), TargetModel(judge=0.6))
    half = 2.776445 * crowd.std(ddof=1) * math.sqrt(1 + 1 / 5)
    assert found.value == pytest.approx(crowd.mean(), abs=1e-4)
    assert found.interval.low == pytest.approx(crowd.mean() - half, rel=0.01)
    assert found.interval.high == pytest.approx(crowd.mean() + half, rel=0.01)


def test_the_line_is_found_and_a_steep_one_believed_with_enough_models() -> None:
    judge = np.linspace(0.4, 0.7, 12)
    line = fit_line(models(judge, 2 * judge - 0.5 + 0.001 * np.cos(np.arange(12))))
    assert line.slope == pytest.approx(2, abs=0.02) and line.intercept == pytest.approx(-0.5, abs=0.02)
    assert line.between_sd < 0.003 and max(map(abs, line.residuals)) < 0.003


@pytest.mark.parametrize("number", [0, 1, 2])
def test_two_models_tell_nothing_of_a_third(number: int) -> None:
    few = models([0.5, 0.6][:number], [0.44, 0.5][:number])
    assert math.isnan(transport(few, TargetModel(judge=0.55)).value)
    assert math.isnan(fit_line(few).slope) and "at least 3" in (refusal(few, TargetModel(judge=0.5)) or "")


def test_own_ratings_take_over_as_they_come() -> None:
    known = models([0.5, 0.6, 0.55, 0.65, 0.52], [0.44, 0.5, 0.48, 0.6, 0.4])
    previous = transport(known, TargetModel(judge=0.55))
    for ratings in (20, 100, 1000, 100_000):
        found = transport(known, TargetModel(judge=0.55, crowd=0.5, noise=0.24 / ratings))
        assert width(found) < width(previous)
        assert abs(found.value - 0.5) < abs(previous.value - 0.5)
        previous = found
    assert previous.value == pytest.approx(0.5, abs=1e-3)


def test_an_uncertain_judged_mean_widens_the_interval_and_the_range() -> None:
    known = models([0.5, 0.6, 0.55, 0.65, 0.52], [0.44, 0.54, 0.48, 0.6, 0.45])
    sure, unsure = TargetModel(judge=0.70), TargetModel(judge=0.70, judge_noise=0.05**2)
    assert width(transport(known, unsure)) > width(transport(known, sure))
    assert "above the calibrated range, 0.463 to 0.688" in (refusal(known, sure) or "")
    assert refusal(known, unsure) is None
    assert "below" in (refusal(known, TargetModel(judge=0.3)) or "")
    assert "nothing was scored" in (refusal(known, TargetModel(judge=math.nan)) or "")


def test_a_difference_has_both_strays_but_one_line() -> None:
    known = models([0.5, 0.6, 0.55, 0.65, 0.52], [0.44, 0.5, 0.48, 0.6, 0.4])
    same = transport_difference(known, TargetModel(judge=0.55), TargetModel(judge=0.55))
    assert same.value == pytest.approx(0, abs=1e-6)
    assert same.interval.low == pytest.approx(-same.interval.high, abs=1e-6)
    assert width(same) < 2 * width(transport(known, TargetModel(judge=0.55)))
    apart = transport_difference(known, TargetModel(judge=0.65), TargetModel(judge=0.5))
    assert apart.value > 0.05


# --- recorded judges


@pytest.fixture(scope="module")
def recorded() -> dict[tuple[str, str], dict[str, dict[str, float]]]:
    """(attribute, rater) -> system -> response -> score."""
    path = SHARED / "mental-align"
    if not path.exists():
        pytest.skip("public dataset not at hand: set EMPATHY_DATA to a folder with mental-align")
    scores: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for item in import_source("mental-align", path).ratings:
        scores[item.dimension, item.rater][item.extra["model"]][item.id] = item.rating
    return scores


def between_systems(recorded, attribute: str, judge: str) -> CalibratedModels:
    rows = []
    for system, people in sorted(recorded[attribute, "human"].items()):
        scores = recorded[attribute, judge][system]
        both = [name for name in people if name in scores]
        crowd = np.array([people[name] for name in both])
        judged = np.mean([scores[name] for name in both])
        rows.append((system, judged, crowd.mean(), crowd.var(ddof=1) / len(both)))
    names, judge, crowd, noise = zip(*rows, strict=True)
    return CalibratedModels(
        models=names,
        judge=tuple(map(float, judge)),
        crowd=tuple(map(float, crowd)),
        noise=tuple(map(float, noise)),
        bounds=SCALE,
    )


@pytest.mark.slow
def test_transport_intervals_cover_left_out_systems_of_recorded_judges(recorded) -> None:
    attributes = sorted({attribute for attribute, _ in recorded})
    held, offered = [], []
    for attribute in attributes:
        for judge in JUDGES:
            between = between_systems(recorded, attribute, judge)
            for name, judged, crowd, level in zip(
                between.models, between.judge, between.crowd, left_out_levels(between), strict=True
            ):
                held.append(level.interval.low <= crowd <= level.interval.high)
                if refusal(between.without(name), TargetModel(judge=judged)) is None:
                    offered.append(held[-1])
    assert len(held) == 240
    assert 0.90 <= np.mean(held) <= 1.0
    # With systems outside the others' range refused, as they are in use.
    assert 200 <= len(offered) < 240 and 0.90 <= np.mean(offered) <= 1.0
