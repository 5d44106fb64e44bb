"""Agreement, against scikit-learn and scipy, against cases worked out by hand, and where it is undefined."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from calibration.agreement import (
    LEAST_PROBABILITY,
    METRICS,
    Metric,
    auc,
    balanced_accuracy,
    brier_error,
    calibration_error,
    kendall_tau,
    log_loss_error,
    pearson,
    spearman,
    weighted_kappa,
)
from calibration.intervals import percentile_interval
from calibration.resampling import (
    Statistic,
    auc_of,
    balanced_accuracy_of,
    calibration_error_of,
    kappa_of,
    mean_of,
    spearman_of,
)

SEEDS = range(6)


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


def taken(metric: Metric, rows: dict[str, Any]) -> tuple[Any, Any]:
    first, second = metric.takes
    return rows[first], rows[second]


@pytest.mark.parametrize("seed", SEEDS)
def test_kappa_and_balanced_accuracy_are_scikit_learn_s(seed: int) -> None:
    rows = some_rows(seed)
    ratings, labels = rows["ratings"], rows["labels"]
    for weights in ("quadratic", "linear", None):
        theirs = metrics.cohen_kappa_score(ratings, labels, weights=weights, labels=[1, 2, 3])
        assert weighted_kappa(ratings, labels, weights) == pytest.approx(theirs)
    theirs = metrics.balanced_accuracy_score(ratings, labels)
    assert balanced_accuracy(ratings, labels) == pytest.approx(theirs)


@pytest.mark.parametrize("seed", SEEDS)
def test_rank_statistics_are_scipy_s(seed: int) -> None:
    rows = some_rows(seed)
    ratings, scores = rows["ratings"], rows["scores"]
    assert spearman(ratings, scores) == pytest.approx(stats.spearmanr(ratings, scores).statistic)
    assert pearson(ratings, scores) == pytest.approx(stats.pearsonr(ratings, scores).statistic)
    assert kendall_tau(ratings, scores) == pytest.approx(stats.kendalltau(ratings, scores).statistic)
    assert auc(ratings == 1, -scores) == pytest.approx(metrics.roc_auc_score(ratings == 1, -scores))


@pytest.mark.parametrize("seed", SEEDS)
def test_errors_of_probabilities_are_scikit_learn_s(seed: int) -> None:
    rows = some_rows(seed)
    ratings, probabilities = rows["ratings"], rows["probabilities"]
    brier = metrics.brier_score_loss(ratings, probabilities, labels=[1, 2, 3], scale_by_half=False)
    assert brier_error(ratings, probabilities) == pytest.approx(brier)
    floored = np.maximum(probabilities, LEAST_PROBABILITY)
    given = floored[np.arange(len(ratings)), ratings - 1]
    assert log_loss_error(ratings, probabilities) == pytest.approx(-np.log(given).mean())
    if not seed % 2:  # no zeros: scikit-learn has its own floor
        theirs = metrics.log_loss(ratings, probabilities, labels=[1, 2, 3])
        assert log_loss_error(ratings, probabilities) == pytest.approx(theirs)


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
        (lambda: weighted_kappa([3, 3], [3, 3]), math.nan),
        (lambda: weighted_kappa([3, 3, 1], [3, 3, 3]), 0.0),
        (lambda: weighted_kappa([3, 3], [2, 2]), 0.0),
        (lambda: weighted_kappa([1, 3], [3, 1]), -1.0),
        (lambda: weighted_kappa([1, 3, 2, 2], [1, 3, 2, 2]), 1.0),
        (lambda: balanced_accuracy([3, 3], [3, 3]), math.nan),
        (lambda: balanced_accuracy([1, 2, 3], [3, 3, 3]), 1 / 3),
        (lambda: balanced_accuracy([1, 3], [2, 3]), 0.5),
        (lambda: auc([True, True], [0.2, 0.4]), math.nan),
        (lambda: auc([False, False], [0.2, 0.4]), math.nan),
        (lambda: auc([False, True], [0.2, 0.2]), 0.5),
        (lambda: spearman([1, 2, 3], [0.3, 0.3, 0.3]), math.nan),
        (lambda: spearman([3, 3, 3], [0.1, 0.2, 0.3]), math.nan),
        (lambda: pearson([0.1] * 7, range(7)), math.nan),
        (lambda: kendall_tau([1, 2, 3], [5, 5, 5]), math.nan),
        (lambda: kendall_tau([1], [1]), math.nan),
        (lambda: log_loss_error([1], [[0.0, 0.0, 1.0]]), -math.log(LEAST_PROBABILITY)),
        (lambda: log_loss_error([3], [[0.0, 0.0, 1.0]]), 0.0),
        (lambda: brier_error([1], [[0.0, 0.0, 1.0]]), 2.0),
        (lambda: calibration_error([True], [1.0]), 0.0),
    ],
)
def test_degenerate_cases(found: Callable[[], float], expected: float) -> None:
    assert found() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("name", METRICS)
def test_without_rows_every_metric_is_undefined(name: str) -> None:
    empty = {**some_rows(0, rows=0), "probabilities": np.zeros((0, 3))}
    assert math.isnan(METRICS[name].compute(*taken(METRICS[name], empty)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", METRICS)
def test_row_order_does_not_matter_and_the_range_holds(name: str, seed: int) -> None:
    metric = METRICS[name]
    for rows in (2, 5, 60):
        held = some_rows(seed, rows)
        value = metric.compute(*taken(metric, held))
        assert math.isnan(value) or metric.low - 1e-12 <= value <= metric.high + 1e-12
        shuffle = np.random.default_rng(seed).permutation(rows)
        again = metric.compute(*taken(metric, {key: column[shuffle] for key, column in held.items()}))
        assert again == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_counting_a_row_twice_is_having_it_twice(seed: int) -> None:
    rows = some_rows(seed)
    counts = np.random.default_rng(seed).integers(0, 4, size=(5, len(rows["ratings"])))
    made: dict[str, tuple[Statistic, Callable[..., float]]] = {
        "labels": (kappa_of(rows["ratings"], rows["labels"], "quadratic"), weighted_kappa),
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
