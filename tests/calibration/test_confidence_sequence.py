"""Nights without change fail seldom, and a drop is found within a few nights."""

import math

import numpy as np
import pytest
from simulated_nights import PROMPTS, first_alarm, year

from empathy_judge.calibration.monitoring import confidence_sequence
from empathy_judge.calibration.monitoring.confidence_sequence import RECENT, recent_change, sum_night


@pytest.mark.parametrize(
    ("kind", "world"), [("bounded", {}), ("heavy", {}), ("normal", {"variation": 0.01})], ids=str
)
def test_nights_without_change_show_few_drops(kind: str, world: dict[str, float]) -> None:
    rng = np.random.default_rng(1)
    alarms = [first_alarm(year(rng, kind, nights=120, **world)) for _ in range(20)]
    assert sum(map(math.isfinite, alarms)) <= 2


@pytest.mark.parametrize("before", [2, 60])
def test_a_drop_of_ten_points_is_found_within_days_however_long_it_was_quiet(before: int) -> None:
    rng = np.random.default_rng(2)
    years = [year(rng, "bounded", nights=before + RECENT, drop_at=before, drop=0.1) for _ in range(40)]
    delays = np.array([first_alarm(nights, start=before + 1) for nights in years]) - before
    assert np.mean(delays <= 4) >= 0.6 and np.mean(delays <= RECENT) >= 0.9


def test_the_mean_is_of_the_newest_nights_weighed_by_their_prompts() -> None:
    nights = [sum_night([-0.2, 0.1, -0.3, 0.2]), sum_night([0.2, 0.1])]
    assert recent_change(nights).value == pytest.approx(0.1 / 6)
    nights += [sum_night([0.5, 0.4])] * RECENT
    assert recent_change(nights).value == pytest.approx(0.45)
    assert recent_change([*nights, sum_night([])]) == recent_change(nights), "a night without prompts"


def test_a_rise_is_seen_and_several_models_widen_the_interval() -> None:
    nights = year(np.random.default_rng(8), "normal", nights=40, drop_at=0, drop=-0.1, baseline_nights=5)
    one, many = recent_change(nights).interval, recent_change(nights, models=20).interval
    assert 0 < one.low <= 0.1 <= one.high
    assert many.low < one.low and one.high < many.high


def test_answers_that_never_vary_are_no_evidence_until_they_do() -> None:
    still = [sum_night(np.zeros(PROMPTS))] * 30
    found = recent_change(still)
    assert found.value == 0 < found.interval.high < 0.03, "variation of a point is assumed"
    # A new version answers all prompts anew, about as well: that is no change.
    fresh = 0.2 * np.random.default_rng(10).standard_normal(PROMPTS)
    assert recent_change([*still, sum_night(fresh - fresh.mean() - 0.01)]).interval.high > 0


def test_overdispersed_nights_widen_intervals_and_a_change_does_not() -> None:
    def variance(**world: float) -> tuple[confidence_sequence.NightVariance, float]:
        nights = year(np.random.default_rng(11), "normal", nights=60, **world)
        ends = recent_change(nights).interval
        return confidence_sequence.night_variance(nights), ends.high - ends.low

    worlds = {}, {"variation": 0.03}, {"drop_at": 30, "drop": 0.1}
    (calm, narrow), (varied, wide), (fallen, _) = (variance(**world) for world in worlds)
    assert calm.spread < 0.006 and fallen.spread < 0.006, "a change is no variation"
    assert not calm.is_shown and varied.is_shown and not fallen.is_shown
    assert varied.spread == pytest.approx(0.03, rel=0.35)
    assert calm.widening < 1.3 < 1.8 < varied.widening
    assert wide > 1.5 * narrow
    assert math.isnan(confidence_sequence.night_variance(()).overdispersion)


def test_a_regression_of_one_night_changes_later_intervals_little() -> None:
    rng = np.random.default_rng(12)
    for _ in range(10):
        calm = year(rng, "bounded", nights=20)
        curt = 0.2 * rng.standard_normal(PROMPTS) - 0.45 * (rng.random(PROMPTS) < 0.6)
        struck = [*calm[:3], sum_night(curt), *calm[4:]]
        for night in (5, 7, 20):
            (one, ends), (other, others) = (
                (item.value, item.interval) for item in map(recent_change, (calm[:night], struck[:night]))
            )
            assert others.high - others.low <= 1.2 * (ends.high - ends.low)
            assert abs(other - one) < 0.02
        widening = [confidence_sequence.night_variance(nights).widening for nights in (calm, struck)]
        assert widening[1] <= 1.2 * widening[0]


@pytest.mark.parametrize("nights", [[], [sum_night([])], [sum_night([0.3])], [sum_night([])] * 2])
def test_too_little_is_undefined(nights: list[confidence_sequence.NightSums]) -> None:
    assert recent_change(nights).interval is None
    assert confidence_sequence.night_variance(nights).widening == 1.0
