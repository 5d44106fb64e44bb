"""Agreement metrics: the libraries' values, draws by counts, and silence on degenerate ratings."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import krippendorff
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics

from empathy_judge.calibration.agreement import metrics as ours
from empathy_judge.calibration.bootstrap import Statistic, mean_of, value_of
from empathy_judge.calibration.estimate import Floats
from empathy_judge.data.records import LEAST_PROBABILITY

_ = np.nan


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Ratings, and the labels, scores and probabilities of a mediocre judge."""

    levels: int
    rating: NDArray[Any]
    label: NDArray[Any]
    score: Floats
    probabilities: Floats

    @property
    def scale(self) -> list[int]:
        return list(range(1, self.levels + 1))

    def take(self, rows: NDArray[Any]) -> "Rows":
        columns = ("rating", "label", "score", "probabilities")
        return replace(self, **{name: getattr(self, name)[rows] for name in columns})


def some_rows(seed: int, levels: int, rows: int = 60) -> Rows:
    """Make random rows; every other seed has many ties."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.arange(1, levels + 1), size=rows)
    if seed % 2:
        probabilities = np.round(4 * probabilities) + 1
        probabilities = probabilities / probabilities.sum(axis=1, keepdims=True)
    rating = 1 + (rng.random(rows)[:, None] > probabilities.cumsum(axis=1)[:, :-1]).sum(axis=1)
    label = np.where(rng.random(rows) < 0.5, rating, rng.integers(1, levels + 1, rows))
    score = np.round(probabilities @ np.arange(1, levels + 1), 9)
    return Rows(levels=levels, rating=rating, label=label, score=score, probabilities=probabilities)


def worlds() -> Iterator[Rows]:
    return (some_rows(seed, levels) for seed in range(4) for levels in (2, 3, 5))


def same(values: list[int]) -> Rows:
    """A judge that repeats people's ratings, 1 to 3."""
    rating = np.asarray(values, dtype=np.int64)
    sure = (rating[:, None] == np.arange(1, 4)).astype(float)
    return Rows(levels=3, rating=rating, label=rating, score=rating.astype(float), probabilities=sure)


def of_table(name: str) -> Callable[[Rows], Statistic]:
    return lambda rows: ours.from_table(ours.TABLE_STATISTICS[name], rows.rating, rows.label, rows.levels)


METRICS = {  # our statistic, and the library's value
    "exact": (of_table("exact"), lambda rows: metrics.accuracy_score(rows.rating, rows.label)),
    "balanced_accuracy": (
        of_table("balanced_accuracy"),
        lambda rows: metrics.recall_score(
            rows.rating, rows.label, labels=np.unique(rows.rating), average="macro", zero_division=0.0
        ),
    ),
    "qwk": (
        of_table("qwk"),
        lambda rows: metrics.cohen_kappa_score(
            rows.rating, rows.label, weights="quadratic", labels=rows.scale
        ),
    ),
    "alpha_ordinal": (
        of_table("alpha_ordinal"),
        lambda rows: krippendorff.alpha(
            [rows.rating, rows.label], level_of_measurement="ordinal", value_domain=rows.scale
        ),
    ),
    "spearman": (
        lambda rows: ours.spearman_of(rows.rating.astype(float), rows.score),
        lambda rows: stats.spearmanr(rows.rating, rows.score).statistic,
    ),
    "auc": (
        lambda rows: ours.auc_of(rows.rating == rows.levels, rows.probabilities[:, -1]),
        lambda rows: metrics.roc_auc_score(rows.rating == rows.levels, rows.probabilities[:, -1]),
    ),
    "log_loss": (
        lambda rows: mean_of(ours.log_losses(rows.rating, rows.probabilities)),
        lambda rows: metrics.log_loss(
            rows.rating, np.maximum(rows.probabilities, LEAST_PROBABILITY), labels=rows.scale
        ),
    ),
}
OF_ONE_LEVEL = {"exact": 1, "log_loss": 0}  # the others are undefined


def value(name: str, rows: Rows) -> float:
    return value_of(METRICS[name][0](rows), len(rows.rating))


@pytest.mark.parametrize("name", METRICS)
def test_values_are_the_library_s_in_any_order_of_rows(name: str) -> None:
    for rows in worlds():
        shuffled = rows.take(np.random.default_rng(1).permutation(len(rows.rating)))
        expected = METRICS[name][1](rows)
        assert value(name, rows) == pytest.approx(expected, abs=1e-9)
        assert value(name, shuffled) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", METRICS)
def test_counting_a_row_twice_is_having_it_twice(name: str) -> None:
    for rows in worlds():
        counts = np.random.default_rng(3).integers(0, 4, size=(3, 60))
        drawn = METRICS[name][0](rows)(counts.astype(float))
        copied = [value(name, rows.take(np.arange(60).repeat(row))) for row in counts]
        assert drawn == pytest.approx(copied, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("name", METRICS)
def test_perfect_agreement_one_level_and_no_rows(name: str) -> None:
    for values in ([1, 3, 2, 2], [1, 3], [1, 1, 1, 3]):
        assert value(name, same(values)) == pytest.approx(0 if name == "log_loss" else 1), values
    for values in ([3, 3, 3], [3]):
        expected = OF_ONE_LEVEL.get(name, math.nan)
        assert value(name, same(values)) == pytest.approx(expected, nan_ok=True), values
    assert math.isnan(value(name, same([])))
    assert np.isnan(METRICS[name][0](same([3, 3]))(np.zeros((1, 2)))).all(), "a draw without rows"


@pytest.mark.parametrize("rating", [[], [3], [3, 3], [1, 3]])
def test_the_library_s_value_is_undefined_where_ours_is(rating: list[int]) -> None:
    for label in (rating, [3] * len(rating), [1] * len(rating)):
        rated, given = np.array(rating, dtype=np.intp), np.array(label, dtype=np.intp)
        made = {name: ours.from_table(item, rated, given, 3) for name, item in ours.TABLE_STATISTICS.items()}
        for name, statistic in {**made, "spearman": ours.spearman_of(rated, given)}.items():
            expected = value_of(statistic, len(rated))
            assert ours.library_value(name, rated, given, 3) == pytest.approx(expected, nan_ok=True)


def test_models_are_ranked_as_scipy_ranks_them() -> None:
    rng = np.random.default_rng(0)
    people, judge = rng.integers(1, 6, size=(2, 30, 7)).astype(float)
    theirs = [stats.kendalltau(one, two).statistic for one, two in zip(people, judge, strict=True)]
    assert ours.kendall(people, judge) == pytest.approx(theirs, nan_ok=True)
    assert np.isnan(ours.kendall(np.ones((1, 1)), np.ones((1, 1)))).all()


def counted(table: Floats, levels: int) -> Floats:
    return np.stack([(table == level).sum(axis=0) for level in range(1, levels + 1)], axis=1)


def test_alpha_of_many_raters_with_gaps() -> None:
    # Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), section C: four observers.
    published = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
            [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
        ]
    )
    assert ours.alpha_of(counted(published, 5)) == pytest.approx(0.815, abs=0.0005)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        table = np.clip(rng.integers(1, 5, 40) + rng.integers(-1, 2, (6, 40)), 1, 4).astype(float)
        table[rng.random(table.shape) < 0.4] = np.nan
        theirs = krippendorff.alpha(table, level_of_measurement="ordinal", value_domain=[1, 2, 3, 4])
        assert ours.alpha_of(counted(table, 4)) == pytest.approx(theirs, abs=1e-9)
    for table in ([[1.0], [_]], [[2.0, 2.0], [2.0, 2.0]], [[1.0, _], [_, 2.0]], np.full((3, 4), _)):
        assert math.isnan(ours.alpha_of(counted(np.asarray(table), 2)))
