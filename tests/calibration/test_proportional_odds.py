"""Proportional odds find planted parameters; the reliability of probabilities, and clustered shares."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from empathy_judge.calibration.agreement.metrics import calibration_error, log_losses, reliability_curve
from empathy_judge.calibration.cluster import clustered_share
from empathy_judge.calibration.estimate import Floats
from empathy_judge.calibration.proportional_odds import fit_proportional_odds, folds_of, held_out
from empathy_judge.data.records import to_plain


def drawn(seed: int, rows: int = 3000) -> tuple[Floats, Any, Any]:
    """Probabilities that mean what they say, ratings drawn from them, and batches of ten."""
    rng = np.random.default_rng(seed)
    probabilities = softmax(rng.normal([-1, 0, 0.7], 1.0, size=(rows, 3)), axis=1)
    ratings = 1 + (rng.random(rows)[:, None] > probabilities.cumsum(axis=1)[:, :2]).sum(axis=1)
    return probabilities, ratings, np.arange(rows) // 10


def test_proportional_odds_are_found_from_scores() -> None:
    rng = np.random.default_rng(3)
    scores = rng.uniform(0, 100, 5000)
    above = 1 / (1 + np.exp(-(0.05 * (scores[:, None] - 50) - np.array([-1.5, 0.5]))))
    ratings = 1 + (rng.random(5000)[:, None] < above).sum(axis=1)
    found = fit_proportional_odds(scores, ratings)
    assert found.slope == pytest.approx(0.05, rel=0.06)
    truth = np.column_stack([1 - above[:, 0], above[:, 0] - above[:, 1], above[:, 1]])
    assert found.apply(scores) == pytest.approx(truth, abs=0.03)
    best = log_losses(ratings, found.apply(scores)).mean()
    for change in ({"slope": 0.06}, {"cuts": (-1.4, 0.5)}, {"cuts": (-1.5, 0.65)}):
        assert log_losses(ratings, replace(found, **change).apply(scores)).mean() > best


@pytest.mark.parametrize("rows", [0, 1, 3, 200])
def test_any_number_of_ratings_gives_probabilities(rows: int) -> None:
    probabilities, ratings, batches = drawn(7, 400)
    scores = np.round(probabilities @ [1, 2, 3], 1)
    found = fit_proportional_odds(scores[:rows], ratings[:rows])
    by_others = held_out(scores, ratings, folds_of(batches, rng=np.random.default_rng(0)), levels=3)
    for made in (found.apply(scores), by_others):
        assert made.shape == (400, 3) and (made >= 0).all()
        assert made.sum(axis=1) == pytest.approx(np.ones(400))
    assert found.apply(scores[:0]).shape == (0, 3)
    assert folds_of(["only"] * 40, rng=np.random.default_rng(0)) == []


def test_the_curve_has_the_bins_of_the_calibration_error() -> None:
    probabilities, ratings, batches = drawn(9, 500)
    positive, said = ratings == 3, np.round(probabilities[:, 2], 2)
    curve = reliability_curve(positive, said, clusters=batches)
    assert sum(item.count for item in curve) == 500
    expected = [
        abs((said - positive)[part].mean()) * len(part) for part in np.array_split(np.argsort(said), 10)
    ]
    assert calibration_error(curve) == pytest.approx(sum(expected) / 500, abs=0.01)
    ends = [(item.observed.interval, item.predicted) for item in curve]
    assert np.mean([interval.low <= predicted <= interval.high for interval, predicted in ends]) >= 0.8
    assert reliability_curve([], []) == ()
    json.dumps([to_plain(item) for item in curve], allow_nan=False)


def test_clustered_shares_allow_for_clusters() -> None:
    hits, alone, together = np.repeat([True, False] * 20, 5), np.arange(200), np.repeat(np.arange(40), 5)
    one, two = (clustered_share(hits, clusters).interval for clusters in (alone, together))
    assert two.high - two.low > 2 * (one.high - one.low)  # the design effect is 5
    sure = clustered_share(np.ones(30, dtype=bool), np.arange(30))
    assert sure.value == 1 and 0.8 < sure.interval.low < 0.95
    assert clustered_share(np.ones(3, dtype=bool), np.zeros(3, dtype=np.intp)).interval is None
    assert math.isnan(clustered_share(np.zeros(0, dtype=bool), np.zeros(0, dtype=np.intp)).value)
