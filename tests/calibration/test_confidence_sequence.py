"""Nights without change raise few alarms, and a drop is found within a few nights."""

import json
import math

import numpy as np
import pytest
from watched_nights import (
    LIMIT,
    PROMPTS,
    SPREAD,
    delays,
    evidence_by_night,
    false_alarms,
    watch_of,
    years,
)

from calibration.monitoring.confidence_sequence import (
    Nights,
    Watch,
    alarm,
    changes,
    current,
    interval,
    moods,
    noise,
    update,
)
from data.records import to_plain


@pytest.mark.parametrize("kind", ["bounded", "heavy"])
def test_a_year_without_change_raises_few_alarms(kind: str) -> None:
    assert false_alarms(years(1, kind, histories=40)) <= 0.05


def test_taking_the_baseline_for_exact_would_alarm_in_most_years() -> None:
    """Why the baseline's noise is in the variance: the running mean tends to it, not to 0."""
    nights = years(4, "normal", histories=80)
    count = nights.prompts.cumsum()
    mean = nights.totals.cumsum(axis=1) / count
    known = count / (SPREAD**2)  # as if differences were independent from night to night
    prior = known[29] / (5.99 + math.log(6.99))
    naive = np.sqrt((known + prior) * (np.log((known + prior) / prior) + 5.99)) / known
    assert (np.abs(mean) > naive).any(axis=1).mean() > 0.5
    wrong = 0
    for row in range(80):
        for night in (1, 2, 5, 10, 20, 40, 90, 180, 365):
            found = interval(watch_of(nights, row, night)).interval
            assert found is not None
            wrong += not found.low <= 0 <= found.high
    assert wrong <= 0.05 * 80


@pytest.mark.parametrize("kind", ["normal", "bounded", "heavy"])
def test_a_drop_of_five_points_is_found_within_a_few_nights(kind: str) -> None:
    found = delays(years(5, kind, histories=300, nights=14 + 10, drop_at=14), 14)
    assert np.mean(found <= 3) >= 0.7
    assert np.mean(found <= 6) >= 0.95


def test_an_alarm_names_the_night_and_the_size_and_stays_for_the_history() -> None:
    nights = years(7, "bounded", histories=1, nights=60, drop_at=40, drop=0.08)
    before, after = watch_of(nights, until=40), watch_of(nights)
    assert not alarm(before).is_raised
    found = alarm(after)
    assert found.is_raised and found.since is not None and abs(found.since - 41) <= 1
    assert found.change.interval is not None
    assert found.change.interval.low <= -0.08 <= found.change.interval.high < 0
    first = next(night for night in range(1, 61) if alarm(watch_of(nights, until=night)).is_raised)
    assert 41 <= first <= 43
    assert evidence_by_night(nights)[0, first - 2] < LIMIT <= evidence_by_night(nights)[0, first - 1]
    # All nights together still hide it; what a gate looks at does not.
    assert current(after).value == pytest.approx(found.change.value)
    assert current(before).value == interval(before).value
    json.dumps(to_plain(found))


def test_a_rise_raises_no_alarm_and_is_seen_by_the_interval() -> None:
    nights = years(8, "normal", histories=1, nights=40, drop_at=0, drop=-0.1, baseline_nights=5)
    found = interval(watch_of(nights)).interval
    assert not alarm(watch_of(nights)).is_raised
    assert found is not None and 0 < found.low <= 0.1 <= found.high


def test_nights_are_weighed_by_their_prompts() -> None:
    whole = update(Watch(), [-0.2, 0.1, -0.3, 0.2])
    assert interval(whole).value == pytest.approx(-0.05)
    assert interval(update(whole, [0.2, 0.1])).value == pytest.approx(0.1 / 6)
    # By hand: decoding's share of the variance is half, the baseline having one night.
    nights = Nights(
        prompts=np.array([4.0]), totals=np.array([[-0.2]]), squares=np.array([[0.04 + 0.01 + 0.09 + 0.04]])
    )
    variance = np.var([-0.2, 0.1, -0.3, 0.2], ddof=1) / 2
    assert noise(nights)[0, 0] == pytest.approx(variance)
    found = changes(nights)
    assert found.dispersion[0, 0] == pytest.approx(1 + 0.01**2 * 4 / variance), "until nights have told"
    known = 1 / (variance * found.dispersion[0, 0] * (1 / 4 + 1 / 4))
    assert found.information[0, 0] == pytest.approx(known)


def test_answers_that_never_vary_are_no_evidence_until_they_do() -> None:
    still = Watch()
    for _ in range(30):
        still = update(still, np.zeros(PROMPTS))
    found = interval(still)
    assert not alarm(still).is_raised and found.value == 0
    assert found.interval is not None and found.interval.high < 0.03, "moods of a point are assumed"
    # A new version answers all prompts anew, about as well: no alarm, however sure the nights before were.
    anew = 0.2 * np.random.default_rng(10).standard_normal(PROMPTS)
    assert not alarm(update(still, anew - anew.mean() - 0.01)).is_raised
    assert alarm(update(still, anew - anew.mean() - 0.1)).is_raised


def test_moody_nights_widen_the_watch_and_a_change_does_not() -> None:
    watches = [
        watch_of(years(11, "normal", histories=1, nights=60, **world))
        for world in ({}, {"mood": 0.03}, {"mood": 0.03, "memory": 0.8}, {"drop_at": 30, "drop": 0.1})
    ]
    calm, moody, lasting, fallen = (moods(watch) for watch in watches)
    assert calm.spread < 0.005 and fallen.spread < 0.005, "a change is no mood"
    assert moody.spread == pytest.approx(0.03, rel=0.3)
    assert calm.widening < 1.3 < 2 < moody.widening
    assert lasting.spread > 0.02
    assert math.isnan(moods(Watch()).dispersion)
    narrow, wide = interval(watches[0]).interval, interval(watches[1]).interval
    assert narrow is not None and wide is not None
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


@pytest.mark.parametrize("world", [{"mood": 0.01}, {"asked": 1 / 3}], ids=str)
def test_a_year_of_moods_or_of_changing_prompts_raises_few_alarms(world: dict[str, float]) -> None:
    assert false_alarms(years(14, "normal", histories=25, **world)) <= 0.05  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "watch", [Watch(), update(Watch(), []), update(Watch(), [0.3]), update(update(Watch(), []), [])]
)
def test_too_little_is_undefined(watch: Watch) -> None:
    found = alarm(watch)
    assert not found.is_raised and math.isnan(found.evidence)
    assert interval(watch).interval is None and current(watch).interval is None
    assert to_plain(found)["evidence"] is None


def test_a_night_without_prompts_changes_nothing_but_the_count() -> None:
    some = update(Watch(), 0.1 * np.random.default_rng(12).standard_normal(50))
    more = update(some, [])
    assert interval(more) == interval(some)
    assert alarm(more).evidence >= alarm(some).evidence


def test_a_thousand_nights_are_weighed_at_once() -> None:
    nights = years(13, "normal", histories=1, nights=1000, prompts=40)
    assert math.isfinite(alarm(watch_of(nights)).evidence)


def test_what_is_no_night_is_refused() -> None:
    for bad in ([math.nan], [[0.1]]):
        with pytest.raises(ValueError):
            update(Watch(), bad)
    with pytest.raises(ValueError):
        Watch(prompts=(1,))
    with pytest.raises(ValueError):
        Watch(baseline_nights=0)
