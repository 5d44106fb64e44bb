"""Agreement, against scikit-learn and scipy, against cases worked out by hand, and where it is undefined."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats
from sklearn import metrics

from calibration.agreement.metrics import (
    LEAST_PROBABILITY,
    auc_of,
    balanced_accuracy_of,
    brier_error,
    calibration_error,
    calibration_error_of,
    kappa_of,
    kendall,
    log_losses,
    spearman,
    spearman_of,
)
from calibration.bootstrap import Statistic, Weights, mean_of, percentile_interval, value_of

SEEDS = range(6)


def kappa(ratings: ArrayLike, labels: ArrayLike, weights: Weights = "quadratic") -> float:
    first = np.asarray(ratings)
    return value_of(kappa_of(first, np.asarray(labels), weights), len(first))


def balanced_accuracy(ratings: ArrayLike, labels: ArrayLike) -> float:
    first = np.asarray(ratings)
    return value_of(balanced_accuracy_of(first, np.asarray(labels)), len(first))


def auc(positive: ArrayLike, scores: ArrayLike) -> float:
    outcome = np.asarray(positive, dtype=bool)
    return value_of(auc_of(outcome, np.asarray(scores, dtype=float)), len(outcome))


def tau(first: ArrayLike, second: ArrayLike) -> float:
    return float(kendall(np.asarray(first, dtype=float)[None], np.asarray(second, dtype=float)[None])[0])


def log_loss(ratings: ArrayLike, probabilities: ArrayLike) -> float:
    losses = log_losses(np.asarray(ratings), np.asarray(probabilities, dtype=float))
    return value_of(mean_of(losses), len(losses))


# What each takes of `some_rows`, and its range.
METRICS: dict[str, tuple[Callable[..., float], str, str, float, float]] = {
    "kappa": (kappa, "ratings", "labels", -1, 1),
    "balanced_accuracy": (balanced_accuracy, "ratings", "labels", 0, 1),
    "spearman": (spearman, "ratings", "scores", -1, 1),
    "tau": (tau, "ratings", "scores", -1, 1),
    "auc": (auc, "positive", "scores", 0, 1),
    "log_loss": (log_loss, "ratings", "probabilities", 0, -np.log(LEAST_PROBABILITY)),
    "brier_error": (brier_error, "ratings", "probabilities", 0, 2),
    "calibration_error": (calibration_error, "positive", "probability", 0, 1),
}


def some_rows(seed: int, rows: int = 60) -> dict[str, Any]:
    """Ratings and what a middling judge makes of them; every other seed has many ties."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet([1, 2, 4], size=rows)
    if seed % 2:
        probabilities = np.round(probabilities, 1)
        probabilities[:, 1] = 1 - probabilities[:, 0] - probabilities[:, 2]
        probabilities = np.clip(probabilities, 0, 1)
    ratings = 1 + (rng.random(rows)[:, None] > probabilities.cumsum(axis=1)[:, :2]).sum(axis=1)
    return {
        "ratings": ratings,
        "labels": np.where(rng.random(rows) < 0.5, ratings, rng.integers(1, 4, rows)),
        "scores": np.round(probabilities @ [1, 2, 3], 9),
        "probabilities": probabilities,
        "positive": ratings == 3,
        "probability": probabilities[:, 2],
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_kappa_and_balanced_accuracy_are_scikit_learn_s(seed: int) -> None:
    rows = some_rows(seed)
    ratings, labels = rows["ratings"], rows["labels"]
    for weights in ("quadratic", "linear", None):
        theirs = metrics.cohen_kappa_score(ratings, labels, weights=weights, labels=[1, 2, 3])
        assert kappa(ratings, labels, weights) == pytest.approx(theirs)
    theirs = metrics.balanced_accuracy_score(ratings, labels)
    assert balanced_accuracy(ratings, labels) == pytest.approx(theirs)


@pytest.mark.parametrize("seed", SEEDS)
def test_rank_statistics_are_scipy_s(seed: int) -> None:
    rows = some_rows(seed)
    ratings, scores = rows["ratings"], rows["scores"]
    assert spearman(ratings, scores) == pytest.approx(stats.spearmanr(ratings, scores).statistic)
    assert tau(ratings, scores) == pytest.approx(stats.kendalltau(ratings, scores).statistic)
    assert auc(ratings == 1, -scores) == pytest.approx(metrics.roc_auc_score(ratings == 1, -scores))


@pytest.mark.parametrize("seed", SEEDS)
def test_errors_of_probabilities_are_scikit_learn_s(seed: int) -> None:
    rows = some_rows(seed)
    ratings, probabilities = rows["ratings"], rows["probabilities"]
    brier = metrics.brier_score_loss(ratings, probabilities, labels=[1, 2, 3], scale_by_half=False)
    assert brier_error(ratings, probabilities) == pytest.approx(brier)
    floored = np.maximum(probabilities, LEAST_PROBABILITY)
    given = floored[np.arange(len(ratings)), ratings - 1]
    assert log_loss(ratings, probabilities) == pytest.approx(-np.log(given).mean())
    if not seed % 2:  # no zeros: scikit-learn has its own floor
        theirs = metrics.log_loss(ratings, probabilities, labels=[1, 2, 3])
        assert log_loss(ratings, probabilities) == pytest.approx(theirs)


def test_calibration_error_by_hand() -> None:
    """Two bins of two: |.15 - 0| and |.8 - .5|. With ties, three .5s go to the bin of their middle."""
    assert calibration_error([0, 0, 1, 0], [0.1, 0.2, 0.7, 0.9], bins=2) == pytest.approx((0.15 + 0.3) / 2)
    tied = calibration_error([0, 1, 1, 1], [0.1, 0.5, 0.5, 0.5], bins=2)
    assert tied == pytest.approx((0.1 + 3 * 0.5) / 4)
    assert calibration_error([1, 1, 0, 0], [0.7] * 4) == pytest.approx(0.2), "a constant judge has one bin"


def test_calibration_error_of_distinct_probabilities_has_bins_of_equal_count() -> None:
    rng = np.random.default_rng(3)
    probability = rng.permutation(np.linspace(0.01, 0.99, 200))
    positive = rng.random(200) < probability**2
    order = np.argsort(probability)
    gaps = [abs(probability[part].mean() - positive[part].mean()) for part in np.split(order, 10)]
    assert calibration_error(positive, probability) == pytest.approx(np.mean(gaps))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: kappa([3, 3], [3, 3]), math.nan),
        (lambda: kappa([3, 3, 1], [3, 3, 3]), 0.0),
        (lambda: kappa([3, 3], [2, 2]), 0.0),
        (lambda: kappa([1, 3], [3, 1]), -1.0),
        (lambda: kappa([1, 3, 2, 2], [1, 3, 2, 2]), 1.0),
        (lambda: balanced_accuracy([3, 3], [3, 3]), math.nan),
        (lambda: balanced_accuracy([1, 2, 3], [3, 3, 3]), 1 / 3),
        (lambda: balanced_accuracy([1, 3], [2, 3]), 0.5),
        (lambda: auc([True, True], [0.2, 0.4]), math.nan),
        (lambda: auc([False, False], [0.2, 0.4]), math.nan),
        (lambda: auc([False, True], [0.2, 0.2]), 0.5),
        (lambda: spearman([1, 2, 3], [0.3, 0.3, 0.3]), math.nan),
        (lambda: spearman([3, 3, 3], [0.1, 0.2, 0.3]), math.nan),
        (lambda: tau([1, 2, 3], [5, 5, 5]), math.nan),
        (lambda: tau([1], [1]), math.nan),
        (lambda: log_loss([1], [[0.0, 0.0, 1.0]]), -math.log(LEAST_PROBABILITY)),
        (lambda: log_loss([3], [[0.0, 0.0, 1.0]]), 0.0),
        (lambda: brier_error([1], [[0.0, 0.0, 1.0]]), 2.0),
        (lambda: calibration_error([True], [1.0]), 0.0),
    ],
)
def test_degenerate_cases(found: Callable[[], float], expected: float) -> None:
    assert found() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("name", METRICS)
def test_without_rows_every_metric_is_undefined(name: str) -> None:
    empty = {**some_rows(0, rows=0), "probabilities": np.zeros((0, 3))}
    compute, first, second, _, _ = METRICS[name]
    assert math.isnan(compute(empty[first], empty[second]))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", METRICS)
def test_row_order_does_not_matter_and_the_range_holds(name: str, seed: int) -> None:
    compute, first, second, low, high = METRICS[name]
    for rows in (2, 5, 60):
        held = some_rows(seed, rows)
        value = compute(held[first], held[second])
        assert math.isnan(value) or low - 1e-12 <= value <= high + 1e-12
        shuffle = np.random.default_rng(seed).permutation(rows)
        again = compute(held[first][shuffle], held[second][shuffle])
        assert again == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_counting_a_row_twice_is_having_it_twice(seed: int) -> None:
    rows = some_rows(seed)
    counts = np.random.default_rng(seed).integers(0, 4, size=(5, len(rows["ratings"])))
    made: dict[str, tuple[Statistic, Callable[..., float]]] = {
        "labels": (kappa_of(rows["ratings"], rows["labels"], "quadratic"), kappa),
        "scores": (spearman_of(rows["ratings"].astype(float), rows["scores"]), spearman),
    }
    for second, (statistic, plain) in made.items():
        repeated = [plain(rows["ratings"].repeat(row), rows[second].repeat(row)) for row in counts]
        assert statistic(counts.astype(float)) == pytest.approx(repeated)
    hit = balanced_accuracy_of(rows["ratings"], rows["labels"])(counts.astype(float))
    area = auc_of(rows["positive"], rows["scores"])(counts.astype(float))
    mean = mean_of(rows["scores"])(counts.astype(float))
    for index, row in enumerate(counts):
        again = {key: column.repeat(row, axis=0) for key, column in rows.items()}
        assert hit[index] == pytest.approx(balanced_accuracy(again["ratings"], again["labels"]))
        assert area[index] == pytest.approx(auc(again["positive"], again["scores"]))
        assert mean[index] == pytest.approx(again["scores"].mean())


def test_draws_that_miss_a_class_are_undefined_and_silent() -> None:
    positive, scores = np.array([True, False, False]), np.array([0.9, 0.5, 0.1])
    counts = np.array([[1.0, 1.0, 1.0], [0.0, 2.0, 1.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    assert np.isnan(auc_of(positive, scores)(counts)).tolist() == [False, True, True, True]
    ranked = spearman_of(np.array([3.0, 1.0, 1.0]), scores)(counts)
    assert np.isnan(ranked).tolist() == [False, True, True, True]
    assert np.isnan(calibration_error_of(positive, scores, 2)(counts)).tolist() == [False, False, False, True]


def test_an_interval_of_mostly_undefined_draws_is_none() -> None:
    assert percentile_interval(np.array([])) is None
    assert percentile_interval(np.array([1.0, np.nan])) is None
    found = percentile_interval(np.arange(1001.0))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((25, 975))
