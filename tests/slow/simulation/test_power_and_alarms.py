"""How often alarms and audits err, and find what they say they find, over thousands of draws."""

import math

import pytest
from biased_judges import rates
from watched_nights import LIMIT, evidence_by_night, false_alarms, years

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize(
    ("kind", "baseline_nights"),
    [("normal", 1), ("bounded", 1), ("bounded", 7), ("heavy", 1), ("collapse", 1)],
)
def test_of_thousands_of_years_without_change_at_most_one_in_twenty_alarms(
    kind: str, baseline_nights: int
) -> None:
    nights = years(2, kind, histories=2000, baseline_nights=baseline_nights)
    assert false_alarms(nights) <= 0.035
    assert false_alarms(nights, models=20) <= 0.005


@pytest.mark.parametrize(
    ("world", "most"),
    [
        ({"mood": 0.01}, 0.03),
        ({"mood": 0.03}, 0.1),
        ({"asked": 1 / 3}, 0.03),
        ({"mood": 0.01, "memory": 0.5}, 0.1),
        ({"mood": 0.01, "memory": 0.8}, 0.25),
    ],
    ids=str,
)
def test_moods_of_nights_are_seldom_taken_for_changes(world: dict[str, float], most: float) -> None:
    """The table of docs/explanation/nights.md."""
    assert false_alarms(years(15, "normal", histories=300, **world)) <= most  # type: ignore[arg-type]


def test_of_twenty_models_one_alarm_a_year_at_most_or_one_in_twenty_years_by_choice() -> None:
    top = evidence_by_night(years(3, "bounded", histories=2000)).max(axis=1).reshape(100, 20)
    alarms = top >= LIMIT
    assert alarms.sum(axis=1).mean() <= 1  # 20 models at 5 %
    assert (top >= LIMIT + math.log(20)).any(axis=1).mean() <= 0.05


def test_a_bias_as_large_as_stated_is_found_in_four_of_five_draws() -> None:
    alarms, found, planted = rates(1500, seed=1)
    for name in planted:
        assert found[name] / 1500 == pytest.approx(0.8, abs=0.04)
        assert alarms[name] / 1500 == pytest.approx(0.05, abs=0.015)
