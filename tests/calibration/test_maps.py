"""Maps of probabilities: planted distortions are undone, and sound ones left alone."""

import json
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from calibration.agreement.metrics import calibration_error, log_losses, reliability_curve
from calibration.estimate import Floats
from calibration.label_maps import FROM_PROBABILITIES, LabelMap, MapKind, choose_map, fit_map
from data.records import to_plain


def drawn(seed: int, rows: int = 3000) -> tuple[Floats, Any, Any]:
    """Probabilities that mean what they say, ratings drawn from them, and batches of ten."""
    rng = np.random.default_rng(seed)
    probabilities = softmax(rng.normal([-1, 0, 0.7], 1.0, size=(rows, 3)), axis=1)
    ratings = 1 + (rng.random(rows)[:, None] > probabilities.cumsum(axis=1)[:, :2]).sum(axis=1)
    return probabilities, ratings, np.arange(rows) // 10


def sharpened(probabilities: Floats, temperature: float) -> Floats:
    found: Floats = softmax(np.log(probabilities) * temperature, axis=1)
    return found


def choose(values: Any, ratings: Any, clusters: Any, **options: Any) -> Any:
    return choose_map(values, ratings, clusters, rng=np.random.default_rng(0), **options)


# --- planted truth


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_a_planted_temperature_is_found_and_chosen(temperature: float) -> None:
    probabilities, ratings, batches = drawn(0)
    said = sharpened(probabilities, temperature)
    found = fit_map("temperature", said, ratings)
    assert found.parameters["temperature"] == pytest.approx(temperature, rel=0.08)
    choice = choose(said, ratings, batches)
    assert choice.map.kind == "temperature" and choice.folds == 5
    assert choice.losses["identity"].excess > 3 * choice.losses["identity"].excess_error
    assert choice.map.apply(said) == pytest.approx(probabilities, abs=0.03)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rows", [60, 1500])
def test_sound_probabilities_are_left_alone(seed: int, rows: int) -> None:
    probabilities, ratings, batches = drawn(100 + seed, rows)
    choice = choose(probabilities, ratings, batches)
    assert choice.map.kind == "identity"
    assert np.array_equal(choice.map.apply(probabilities), probabilities)


@pytest.mark.slow
def test_proportional_odds_are_found_from_scores() -> None:
    rng = np.random.default_rng(3)
    scores = rng.uniform(0, 100, 5000)
    above = 1 / (1 + np.exp(-(0.05 * (scores[:, None] - 50) - np.array([-1.5, 0.5]))))
    ratings = 1 + (rng.random(5000)[:, None] < above).sum(axis=1)
    found = fit_map("proportional", scores, ratings)
    assert found.parameters["slope"] == pytest.approx(0.05, rel=0.06)
    truth = np.column_stack([1 - above[:, 0], above[:, 0] - above[:, 1], above[:, 1]])
    assert found.apply(scores) == pytest.approx(truth, abs=0.03)
    assert choose(scores, ratings, np.arange(5000) // 10).map == found
    best = log_losses(ratings, found.apply(scores)).mean()
    for change in ({"slope": 0.06}, {"cuts": [-1.4, 0.5]}, {"cuts": [-1.5, 0.65]}):
        other = LabelMap(kind="proportional", levels=3, parameters={**found.parameters, **change})
        assert log_losses(ratings, other.apply(scores)).mean() > best


# --- every kind


@pytest.mark.parametrize("kind", [*FROM_PROBABILITIES, "proportional"])
@pytest.mark.parametrize("rows", [0, 1, 3, 200])
def test_every_kind_gives_probabilities(kind: MapKind, rows: int) -> None:
    probabilities, ratings, _ = drawn(7, 400)
    values = probabilities if kind in FROM_PROBABILITIES else np.round(probabilities @ [1, 2, 3], 1)
    found = fit_map(kind, values[:rows], ratings[:rows])
    made = found.apply(values)
    assert made.shape == (400, 3) and (made >= 0).all() and made.sum(axis=1) == pytest.approx(np.ones(400))
    assert found.apply(values[:0]).shape == (0, 3)


def test_one_cluster_holds_nothing_out() -> None:
    probabilities, ratings, _ = drawn(8, 40)
    choice = choose(sharpened(probabilities, 3), ratings, ["only"] * 40)
    assert choice.map.kind == "identity" and not choice.losses and choice.folds == 0
    assert choose(np.zeros((0, 3)), [], []).map.kind == "identity"
    assert choose(np.zeros(0), [], []).map.apply([1.0]) == pytest.approx(np.full((1, 3), 1 / 3))
    json.dumps(to_plain(choice), allow_nan=False)


# --- reliability


def test_the_curve_has_the_bins_of_the_calibration_error() -> None:
    probabilities, ratings, batches = drawn(9, 500)
    positive, said = ratings == 3, np.round(probabilities[:, 2], 2)
    curve = reliability_curve(positive, said, clusters=batches)
    assert sum(item.count for item in curve) == 500
    error = sum(item.count * abs(item.predicted - item.observed.value) for item in curve) / 500
    assert error == pytest.approx(calibration_error(positive, said))
    covered = [
        item.observed.interval is not None
        and item.observed.interval.low <= item.predicted <= item.observed.interval.high
        for item in curve
    ]
    assert np.mean(covered) >= 0.8
    assert reliability_curve([], []) == ()
    json.dumps([to_plain(item) for item in curve], allow_nan=False)
