"""Stacked judges: weights found again from data made with known ones, and honest held-out losses."""

import json

import numpy as np
import pytest

from calibration.probabilities.stacking import (
    RIDGES,
    Stack,
    choose_stack,
    fit_stack,
    mean_probabilities,
    median_probabilities,
)
from data.errors import UserError
from data.records import to_plain


def make(
    weights: list[float], biases: list[float], *, rows: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Judges' probabilities, and ratings drawn from the stack of these weights."""
    tables = rng.dirichlet([1.5, 1.5, 1.5], size=(rows, len(weights)))
    truth = Stack(weights=tuple(weights), biases=tuple(biases), centres=((0.0,) * 3,) * len(weights)).apply(
        tables
    )
    ratings = 1 + (truth.cumsum(axis=1) < rng.random((rows, 1))).sum(axis=1)
    return tables, np.minimum(ratings, 3)


def test_known_weights_are_found_again() -> None:
    tables, ratings = make([1.2, 0.0, 0.4], [0.5, 0.0, -0.5], rows=20_000, rng=np.random.default_rng(0))
    found = fit_stack(tables, ratings, ridge=1.0)
    assert found.weights == pytest.approx([1.2, 0.0, 0.4], abs=0.05)
    assert np.array(found.biases) - found.biases[1] == pytest.approx([0.5, 0.0, -0.5], abs=0.08)


def test_the_ridge_draws_to_the_geometric_mean_of_the_judges() -> None:
    tables, ratings = make([2.0, 0.0], [1.0, 0.0, 0.0], rows=200, rng=np.random.default_rng(1))
    held = fit_stack(tables, ratings, ridge=1e9)
    assert held.weights == pytest.approx([0.5, 0.5], abs=1e-4)
    product = np.sqrt(tables.prod(axis=1))
    assert held.apply(tables) == pytest.approx(product / product.sum(axis=1, keepdims=True), abs=1e-4)


@pytest.mark.slow
def test_stacking_beats_the_mean_where_one_judge_knows_and_costs_little_where_none_does() -> None:
    rng = np.random.default_rng(2)
    clusters = np.repeat(np.arange(60), 10)
    tables, ratings = make([1.0, 0.0, 0.0], [0.0, 0.0, 0.0], rows=600, rng=rng)
    found = choose_stack(tables, ratings, clusters, rng=rng)
    assert found.losses["stacked"] < found.losses["mean"] - 0.02
    assert found.losses["stacked"] < found.losses["1"]
    assert set(found.losses) == {"stacked", "mean", "median", "0", "1", "2"}
    noise = np.ones(600, dtype=int) + rng.integers(3, size=600)
    none = choose_stack(tables, noise, clusters, rng=rng)
    assert none.losses["stacked"] == pytest.approx(np.log(3), abs=0.03)


@pytest.mark.slow
def test_no_cluster_is_on_both_sides_of_a_fold() -> None:
    """Ratings that are the same throughout a cluster cannot be learnt from other clusters."""
    rng = np.random.default_rng(3)
    clusters = np.repeat(np.arange(12), 20)
    tables = np.repeat(rng.dirichlet([1, 1, 1], size=(12, 2)), 20, axis=0)
    ratings = (1 + rng.integers(3, size=12))[clusters]
    assert choose_stack(tables, ratings, clusters, rng=rng).losses["stacked"] > 0.9


def test_a_judge_that_is_missing_says_what_it_says_on_average() -> None:
    rng = np.random.default_rng(4)
    tables, ratings = make([1.0, 1.0], [0.0, 0.0, 0.0], rows=400, rng=rng)
    tables[::4, 1] = np.nan
    found = fit_stack(tables, ratings)
    said = np.log(np.maximum(tables[np.isfinite(tables[:, 1, 0]), 1], 1e-6)).mean(axis=0)
    assert found.centres[1] == pytest.approx(said)
    filled = tables[0].copy()
    filled[1] = np.exp(said)
    assert found.apply(tables[:1])[0] == pytest.approx(found.apply(filled[None])[0])
    assert np.isfinite(found.apply(tables)).all()


def test_few_clusters_no_ratings_and_labels_never_given() -> None:
    rng = np.random.default_rng(5)
    tables, _ = make([1.0, 1.0], [0.0, 0.0, 0.0], rows=30, rng=rng)
    alone = choose_stack(tables, np.full(30, 3), ["a"] * 30, rng=rng)
    assert alone.folds == 0 and not alone.losses and alone.ridge == max(RIDGES)
    assert (alone.stack.apply(tables) > 0).all(), "a label nobody gave is not impossible"
    empty = fit_stack(np.zeros((0, 2, 3)), [])
    assert empty.weights == (0.5, 0.5)
    json.dumps(to_plain(alone), allow_nan=False)
    with pytest.raises(UserError, match="by rating, judge and label"):
        fit_stack([[0.2, 0.8]], [1])


def test_medians_are_probabilities_and_one_stray_judge_does_not_move_them() -> None:
    tables = np.random.default_rng(6).dirichlet([1, 1, 1], size=(200, 5))
    found = median_probabilities(tables)
    assert (found >= 0).all() and found.sum(axis=1) == pytest.approx(np.ones(200))
    stray = np.array([[[0.1, 0.2, 0.7], [0.1, 0.2, 0.7], [1.0, 0.0, 0.0]]])
    assert median_probabilities(stray)[0] == pytest.approx([0.1, 0.2, 0.7])
    assert mean_probabilities(stray)[0] == pytest.approx([0.4, 0.4 / 3, 1.4 / 3])
