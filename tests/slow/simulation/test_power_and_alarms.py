"""How often alarms and audits err, and find what they say they find, over thousands of draws."""

import numpy as np
import pytest
from biased_judges import rates
from simulated_nights import first_alarm, year

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize(
    ("kind", "world", "most"),
    [
        ("normal", {}, 0.05),
        ("bounded", {"baseline_nights": 7}, 0.05),
        ("heavy", {}, 0.05),
        ("collapse", {}, 0.05),
        ("bounded", {"fewest": 40, "baseline_nights": 7}, 0.05),
        ("collapse", {"variation": 0.01}, 0.05),
        ("normal", {"variation": 0.03}, 0.12),
        ("normal", {"variation": 0.01, "memory": 0.8}, 0.25),
    ],
    ids=str,
)
def test_of_years_without_change_few_show_a_drop(kind: str, world: dict[str, float], most: float) -> None:
    rng = np.random.default_rng(2)
    alarms = [first_alarm(year(rng, kind, **world)) for _ in range(300)]  # type: ignore[arg-type]
    assert np.mean(np.isfinite(alarms)) <= most


def test_a_drop_of_five_points_is_mostly_found_within_ten_nights() -> None:
    rng = np.random.default_rng(6)
    alarms = [first_alarm(year(rng, "normal", nights=70, drop_at=60), start=61) for _ in range(400)]
    assert np.mean(np.isfinite(alarms)) >= 0.62


def test_a_bias_as_large_as_stated_is_found_in_four_of_five_draws() -> None:
    alarms, found, planted = rates(1500, seed=1)
    for name in planted:
        assert found[name] / 1500 == pytest.approx(0.8, abs=0.04)
        assert alarms[name] / 1500 == pytest.approx(0.05, abs=0.015)
