"""Maps of probabilities: planted distortions are undone, sound ones left alone, and JSON loses nothing."""

import json
import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.isotonic import IsotonicRegression

from calibration.agreement.metrics import brier_error, calibration_error, log_losses
from calibration.cluster import clustered_share
from calibration.estimate import Floats
from calibration.probabilities.maps import (
    FROM_PROBABILITIES,
    FROM_SCORES,
    KINDS,
    LabelMap,
    choose_map,
    fit_map,
    folds_of,
    map_from_dict,
)
from calibration.probabilities.reliability import brier_parts, reliability_curve
from data.errors import UserError
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


def test_a_planted_bias_towards_a_label_takes_vector_scaling() -> None:
    probabilities, ratings, batches = drawn(1, 6000)
    said = softmax(
        np.log(probabilities) + np.array([0.0, 1.5, 0.0]), axis=1
    )  # no shift of the order can undo it
    choice = choose(said, ratings, batches)
    assert choice.map.kind == "vector"
    weights, biases = choice.map.parameters["weights"], choice.map.parameters["biases"]
    assert weights == pytest.approx([1, 1, 1], abs=0.12)
    assert biases[1] - biases[0] == pytest.approx(-1.5, abs=0.2)
    assert biases[1] - biases[2] == pytest.approx(-1.5, abs=0.2)


@pytest.mark.parametrize(
    ("kind", "names"), [("vector", ("weights", "biases")), ("ordinal", ("slope", "cuts"))]
)
def test_a_fitted_map_is_the_likeliest(kind: str, names: tuple[str, ...]) -> None:
    """Its loss is lower than that of any neighbour."""
    probabilities, ratings, _ = drawn(2, 800)
    said = sharpened(probabilities, 1.7)
    found = fit_map(kind, said, ratings)
    best = log_losses(ratings, found.apply(said)).mean()
    for name in names:
        for index, sign in product(range(np.size(found.parameters[name])), (-1, 1)):
            moved = np.array(found.parameters[name], dtype=float)
            moved.flat[index] += 0.05 * sign
            other = LabelMap(kind=kind, levels=3, parameters={**found.parameters, name: moved.tolist()})
            assert log_losses(ratings, other.apply(said)).mean() > best, (name, index, sign)


@pytest.mark.slow
def test_proportional_odds_are_found_from_scores_and_from_probabilities() -> None:
    rng = np.random.default_rng(3)
    scores = rng.uniform(0, 100, 5000)
    above = 1 / (1 + np.exp(-(0.05 * (scores[:, None] - 50) - np.array([-1.5, 0.5]))))
    ratings = 1 + (rng.random(5000)[:, None] < above).sum(axis=1)
    found = fit_map("proportional", scores, ratings)
    assert found.parameters["slope"] == pytest.approx(0.05, rel=0.06)
    truth = np.column_stack([1 - above[:, 0], above[:, 0] - above[:, 1], above[:, 1]])
    assert found.apply(scores) == pytest.approx(truth, abs=0.03)
    assert choose(scores, ratings, np.arange(5000) // 10).map.kind == "proportional"
    # The same judge, speaking in probabilities: nothing is lost on the way through its location.
    assert fit_map("ordinal", truth, ratings).apply(truth) == pytest.approx(truth, abs=0.03)


@pytest.mark.parametrize("seed", range(4))
def test_isotonic_is_scikit_learns_on_two_labels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    said = np.round(rng.random(300), 2 if seed % 2 else 9)
    ratings = 1 + (rng.random(300) < said**2).astype(int)
    found = fit_map("isotonic", np.column_stack([1 - said, said]), ratings, levels=2)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(said, ratings == 2)
    asked = rng.random(500)
    ours = found.apply(np.column_stack([1 - asked, asked]))[:, 1]
    # Ours is drawn in by one rating of each label, so that no label is impossible.
    assert ours == pytest.approx((300 * theirs.predict(asked) + 1) / 302, abs=1e-9)


def test_isotonic_undoes_a_bend_that_no_line_undoes() -> None:
    rng = np.random.default_rng(4)
    said = np.sort(rng.random(8000))
    true = np.where(said < 0.5, 0.15, 0.85)
    ratings = 1 + 2 * (rng.random(8000) < true)
    said_of_three = np.column_stack([1 - said, np.zeros(8000), said])
    choice = choose(said_of_three, ratings, rng.integers(0, 400, 8000))
    assert choice.map.kind == "isotonic"
    good = choice.map.apply(said_of_three)[:, 2]
    assert np.abs(good - true).mean() < 0.03 and (np.diff(good) >= 0).all()


# --- labels and scores only


def test_a_judge_of_labels_gets_the_frequencies_of_its_labels() -> None:
    labels = np.repeat(["warm", "cold"], 1000)
    ratings = np.concatenate([np.repeat([1, 2, 3], [100, 300, 600]), np.repeat([1, 2, 3], [600, 300, 100])])
    found = fit_map("table", labels, ratings)
    assert found.apply(["warm", "cold", "never seen"]) == pytest.approx(
        np.array([[0.1, 0.3, 0.6], [0.6, 0.3, 0.1], [0.35, 0.3, 0.35]]), abs=0.002
    )
    order = np.random.default_rng(0).permutation(2000)
    assert choose(labels[order], ratings[order], np.arange(2000) // 10).map.kind == "table"


def test_a_judge_that_says_nothing_gets_the_overall_shares() -> None:
    rng = np.random.default_rng(5)
    ratings = rng.choice([1, 2, 3], 400, p=[0.2, 0.3, 0.5])
    choice = choose(rng.integers(1, 6, 400), ratings, np.arange(400) // 10)
    assert choice.map.kind == "constant"
    assert choice.map.apply([1, 5]).sum(axis=1) == pytest.approx([1, 1])


def test_two_and_two_point_nought_are_one_label() -> None:
    found = fit_map("table", [1, 2, 2, 5], [1, 2, 2, 3])
    assert np.array_equal(found.apply([2]), found.apply([2.0]))


def test_a_table_is_not_made_of_a_thousand_values() -> None:
    probabilities, ratings, batches = drawn(6, 500)
    assert set(choose(probabilities @ [1, 2, 3], ratings, batches).losses) == {"constant", "proportional"}


# --- every kind


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [0, 1, 3, 200])
def test_every_kind_gives_probabilities_and_survives_json(kind: str, rows: int) -> None:
    probabilities, ratings, _ = drawn(7, 400)
    values = probabilities if kind in FROM_PROBABILITIES else np.round(probabilities @ [1, 2, 3], 1)
    found = fit_map(kind, values[:rows], ratings[:rows])
    made = found.apply(values)
    assert made.shape == (400, 3) and (made >= 0).all() and made.sum(axis=1) == pytest.approx(np.ones(400))
    again = map_from_dict(json.loads(json.dumps(to_plain(found), allow_nan=False)))
    assert again == found and np.array_equal(again.apply(values), made)
    assert found.apply(values[:0]).shape == (0, 3)


@pytest.mark.parametrize("kind", FROM_PROBABILITIES)
def test_certain_and_wrong_is_no_disaster(kind: str) -> None:
    certain = np.eye(3)[[0, 1, 2, 2, 2, 0]]
    found = fit_map(kind, certain, [1, 2, 3, 3, 1, 3])
    assert np.isfinite(log_losses(np.array([3]), found.apply([[1.0, 0.0, 0.0]]))).all()
    same = np.full((8, 3), 1 / 3)
    assert np.isfinite(fit_map(kind, same, [3] * 8).apply(same)).all()


def test_one_cluster_holds_nothing_out() -> None:
    probabilities, ratings, _ = drawn(8, 40)
    choice = choose(sharpened(probabilities, 3), ratings, ["only"] * 40)
    assert choice.map.kind == "identity" and not choice.losses and choice.folds == 0
    assert choose(np.zeros((0, 3)), [], []).map.kind == "identity"
    assert choose(np.zeros(0), [], []).map.apply([1.0]) == pytest.approx(np.full((1, 3), 1 / 3))
    json.dumps(to_plain(choice), allow_nan=False)


def test_clusters_stay_together_and_folds_are_even() -> None:
    clusters = np.repeat(np.arange(23), 4)
    folds = folds_of(clusters, rng=np.random.default_rng(1))
    assert all(len(set(fold[clusters == cluster])) == 1 for fold in folds for cluster in range(23))
    assert sorted(int(fold.sum()) for fold in folds) == [16, 16, 20, 20, 20]
    assert set(np.sum(folds, axis=0).tolist()) == {1}


@pytest.mark.parametrize(
    "found",
    [
        {"kind": "magic", "levels": 3, "parameters": {}},
        {"kind": "temperature", "levels": 3, "parameters": {}},
        {"kind": "temperature", "levels": 3},
        {},
    ],
)
def test_a_broken_map_is_refused(found: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="calibration map"):
        map_from_dict(found)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(UserError, match="known: identity"):
        fit_map("magic", [[1.0, 0.0]], [1])
    assert set(FROM_PROBABILITIES) | set(FROM_SCORES) == set(KINDS)


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


def test_the_parts_of_the_brier_error_add_up() -> None:
    probabilities, ratings, _ = drawn(10, 2000)
    parts = brier_parts(ratings, probabilities)
    assert parts.brier == brier_error(ratings, probabilities)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within_bins
    assert total == pytest.approx(parts.brier)
    assert abs(parts.within_bins) < 0.01 and parts.reliability < 0.01 < parts.resolution
    worse = brier_parts(ratings, sharpened(probabilities, 4))
    assert worse.reliability > 3 * parts.reliability
    grouped = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])[[0, 1] * 50]
    exact = brier_parts(np.tile([3, 1, 2, 1], 25), grouped)
    assert exact.within_bins == pytest.approx(0, abs=1e-12)  # within a bin all is equal: Murphy's own case
    assert math.isnan(brier_parts([], np.zeros((0, 3))).brier)


def test_clustered_shares_allow_for_clusters() -> None:
    hits, alone, together = np.repeat([True, False] * 20, 5), np.arange(200), np.repeat(np.arange(40), 5)
    one, two = clustered_share(hits, alone).interval, clustered_share(hits, together).interval
    assert one is not None and two is not None
    assert two.high - two.low > 2 * (one.high - one.low)  # the design effect is 5
    sure = clustered_share(np.ones(30, dtype=bool), np.arange(30))
    assert sure.value == 1 and sure.interval is not None and 0.8 < sure.interval.low < 0.95
    assert clustered_share(np.ones(3, dtype=bool), np.zeros(3, dtype=np.intp)).interval is None
    assert math.isnan(clustered_share(np.zeros(0, dtype=bool), np.zeros(0, dtype=np.intp)).value)


@pytest.mark.parametrize("seed", range(3))
def test_a_random_loss_is_what_scipy_says(seed: int) -> None:
    probabilities, ratings, _ = drawn(seed, 50)
    logits = np.log(probabilities) / 1.3
    made = LabelMap(kind="temperature", levels=3, parameters={"temperature": 1.3}).apply(probabilities)
    theirs = -log_softmax(logits, axis=1)[np.arange(50), ratings - 1].mean()
    assert log_losses(ratings, made).mean() == pytest.approx(theirs)
