"""Conformal sets: each label is covered at the wanted rate, whatever the judge, and never by an empty set."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from calibration.estimate import Floats
from calibration.probabilities.conformal import (
    Thresholds,
    ask_first,
    cross_assess_sets,
    fit_thresholds,
    prediction_sets,
    thresholds_from_dict,
)
from data.errors import UserError
from data.records import LABELS, to_plain


def drawn(rng: np.random.Generator, rows: int, skill: float = 1.0) -> tuple[Floats, Any]:
    """A judge of some skill that is far too sure, and ratings of which few are Bad."""
    logits = rng.normal([-1.2, 0, 0.7], 1.0, size=(rows, 3))
    true = softmax(skill * logits, axis=1)
    ratings = 1 + (rng.random(rows)[:, None] > true.cumsum(axis=1)[:, :2]).sum(axis=1)
    said: Floats = softmax(3 * logits, axis=1)
    return said, ratings


def covered(probabilities: Floats, ratings: Any, thresholds: Thresholds) -> tuple[dict[str, float], float]:
    """How often the sets hold each rating, and how many labels they have, on ratings that are not theirs."""
    sets = prediction_sets(probabilities, thresholds)
    hits = np.array([LABELS[rating - 1] in labels for rating, labels in zip(ratings, sets, strict=True)])
    by_label = {label: float(hits[ratings == level].mean()) for level, label in enumerate(LABELS, start=1)}
    return by_label, float(np.mean([len(labels) for labels in sets]))


@pytest.mark.parametrize("coverage", [0.8, 0.9])
@pytest.mark.parametrize("skill", [0.0, 1.0, 3.0])
def test_every_label_is_covered_at_the_wanted_rate(coverage: float, skill: float) -> None:
    """Over 60 calibration sets; never less than the rate, and for Bad hardly more."""
    rng = np.random.default_rng(0)
    hits, rows = np.zeros(3), np.zeros(3)
    for _ in range(60):
        thresholds = fit_thresholds(*drawn(rng, 600, skill), coverage=coverage)
        said, ratings = drawn(rng, 600, skill)
        by_label, _ = covered(said, ratings, thresholds)
        counts = np.bincount(ratings, minlength=4)[1:]
        hits += [by_label[label] * count for label, count in zip(LABELS, counts, strict=True)]
        rows += counts
    # Calibration and test both vary: twice the binomial variance, and three standard errors of it.
    slack = 3 * np.sqrt(2 * coverage * (1 - coverage) / rows)
    assert (hits / rows >= coverage - slack).all()
    # Okay is also there to fill gaps, and Good, mostly the likeliest, in the place of empty sets.
    assert hits[0] / rows[0] <= coverage + slack[0] + 0.01


def test_one_threshold_for_all_would_have_failed_the_rare_label() -> None:
    """What class-conditional sets are for; the same judge, thresholds as if all labels were one."""
    rng = np.random.default_rng(1)
    said, ratings = drawn(rng, 6000)
    own = 1 - said[np.arange(6000), ratings - 1]
    pooled = Thresholds(
        coverage=0.8, labels=LABELS, thresholds=(float(np.quantile(own, 0.8)),) * 3, ratings=(6000,) * 3
    )
    fresh = drawn(rng, 6000)
    assert covered(*fresh, pooled)[0]["Bad"] < 0.6
    assert covered(*fresh, fit_thresholds(said, ratings, coverage=0.8))[0]["Bad"] > 0.74


def test_the_threshold_is_the_finite_sample_quantile() -> None:
    probability = np.arange(1, 20) / 100  # 19 responses rated Bad
    said = np.column_stack([probability, 1 - probability, 0 * probability])
    found = fit_thresholds(said, np.ones(19, dtype=int), coverage=0.9)
    assert found.thresholds == (0.98, 1.0, 1.0)  # the 18th smallest of 1 - probability: ceil(20 * 0.9)
    assert found.ratings == (19, 0, 0)
    few = fit_thresholds(said[:8], np.ones(8, dtype=int), coverage=0.9)
    assert few.thresholds == (1.0, 1.0, 1.0)  # eight ratings cannot promise 90 %
    assert prediction_sets([[0.0, 0.0, 1.0]], few) == (LABELS,)


def test_a_better_judge_has_smaller_sets() -> None:
    sizes = []
    for skill in (0.0, 1.0, 3.0):
        rng = np.random.default_rng(2)
        thresholds = fit_thresholds(*drawn(rng, 2000, skill))
        sizes.append(covered(*drawn(rng, 2000, skill), thresholds)[1])
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 2.5 and sizes[2] < 2


def test_cross_assessment_says_what_fresh_ratings_say() -> None:
    rng = np.random.default_rng(3)
    said, ratings = drawn(rng, 3000)
    batches = np.arange(3000) // 10
    crossed = cross_assess_sets(said, ratings, batches, rng=np.random.default_rng(0))
    by_label, mean_size = covered(*drawn(rng, 3000), fit_thresholds(said, ratings))
    assert crossed.mean_size == pytest.approx(mean_size, abs=0.08)
    for label in LABELS:
        assert crossed.by_label[label].interval is not None
        assert crossed.by_label[label].value == pytest.approx(by_label[label], abs=0.05)
    assert sum(crossed.sizes) == pytest.approx(1)
    json.dumps(to_plain(crossed), allow_nan=False)


@given(st.lists(st.lists(st.floats(0.001, 1), min_size=3, max_size=3), max_size=8), st.integers(0, 50))
def test_sets_are_never_empty_and_have_no_gaps(rows: list[list[float]], seed: int) -> None:
    table = np.array(rows).reshape(-1, 3)
    table = table / table.sum(axis=1, keepdims=True)
    thresholds = Thresholds(
        coverage=0.9,
        labels=LABELS,
        thresholds=tuple(np.random.default_rng(seed).random(3).tolist()),
        ratings=(1, 1, 1),
    )
    sets = prediction_sets(table, thresholds)
    assert len(sets) == len(rows)
    for row, labels in zip(table, sets, strict=True):
        assert labels and "".join(labels) in "BadOkayGood"
        wanted = {
            label for label, p, t in zip(LABELS, row, thresholds.thresholds, strict=True) if 1 - p < t - 1e-9
        }
        assert wanted <= set(labels)
        if (1 - row > np.array(thresholds.thresholds) + 1e-9).all():
            assert labels == (LABELS[int(row.argmax())],)


def test_people_are_asked_about_the_least_certain_first() -> None:
    thresholds = Thresholds(coverage=0.9, labels=LABELS, thresholds=(0.9, 0.7, 0.6), ratings=(50, 50, 50))
    said = [[0.02, 0.08, 0.9], [0.3, 0.3, 0.4], [0.05, 0.35, 0.6], [0.05, 0.35, 0.6], [0.06, 0.4, 0.54]]
    sizes = [len(labels) for labels in prediction_sets(said, thresholds)]
    assert sizes == [1, 3, 2, 2, 2]
    assert ask_first(said, thresholds).tolist() == [1, 4, 2, 3, 0]
    assert ask_first(np.zeros((0, 3)), thresholds).tolist() == []


def test_thresholds_survive_json() -> None:
    found = fit_thresholds(*drawn(np.random.default_rng(5), 333))
    assert thresholds_from_dict(json.loads(json.dumps(to_plain(found), allow_nan=False))) == found
    for broken in ({}, to_plain(found) | {"thresholds": [0.5]}, to_plain(found) | {"coverage": "much"}):
        with pytest.raises(UserError, match="fit the calibration again"):
            thresholds_from_dict(broken)


def test_nothing_to_calibrate_on_is_undefined_not_a_crash() -> None:
    nothing = fit_thresholds(np.zeros((0, 3)), np.zeros(0, dtype=int))
    assert nothing.thresholds == (1.0, 1.0, 1.0)
    one = cross_assess_sets([[0.1, 0.2, 0.7]] * 2, [3, 3], ["a", "a"], rng=np.random.default_rng(0))
    assert math.isnan(one.by_label["Good"].value)
    json.dumps(to_plain(one), allow_nan=False)
    with pytest.raises(UserError, match="between 0 and 1"):
        fit_thresholds([[0.1, 0.2, 0.7]], [3], coverage=90)


def test_any_scale_will_do() -> None:
    labels = tuple("12345")
    found = fit_thresholds(np.full((40, 5), 0.2), np.tile([1, 2, 3, 4, 5], 8), labels=labels, coverage=0.8)
    assert prediction_sets([[0.1, 0.3, 0.1, 0.3, 0.2]], found) == (("2", "3", "4", "5"),)
