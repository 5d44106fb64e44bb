"""A judge beside people: the libraries' values, their intervals, and few raters or labels."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import logit
from sklearn import metrics

from empathy_judge.calibration.agreement.judge_vs_people import (
    LevelErrors,
    agreement,
    independent_judges,
    level_errors,
)
from empathy_judge.calibration.agreement.metrics import unseen_variance
from empathy_judge.calibration.bootstrap import replicate_clusters
from empathy_judge.calibration.cluster import contrast
from empathy_judge.calibration.estimate import Estimate
from empathy_judge.calibration.pairing import Paired
from empathy_judge.data.judgments import parse_scale
from empathy_judge.data.records import to_plain


def some_paired(
    seed: int, rows: int = 90, levels: int = 3, *, raters: int = 15, batches: int = 0, is_coarse: bool = False
) -> Paired:
    """A middling judge of three models; `is_coarse`: it gives whole scores and no probabilities."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.arange(1, levels + 1), size=rows)
    steps = probabilities.cumsum(axis=1)[:, :-1]
    rating = 1 + (rng.random(rows)[:, None] > steps).sum(axis=1)
    label = 1 + probabilities.argmax(axis=1)
    score = label.astype(float) if is_coarse else np.round(probabilities @ np.arange(1, levels + 1), 6)
    number = np.arange(rows)
    return Paired(
        id=number.astype(str),
        model=np.array(["ada", "bea", "cyd"])[number % 3],
        rater=(number % raters).astype(str),
        batch=(number % (batches or raters)).astype(str),
        prompt=(number // 3).astype(str),
        rating=rating.astype(np.int64),
        score=np.clip(score, 1, levels),
        label=label.astype(np.int64),
        probabilities=None if is_coarse else probabilities,
        scale=("Bad", "Okay", "Good") if levels == 3 else parse_scale(f"1-{levels}"),
    )


@pytest.mark.parametrize("is_coarse", [False, True])
def test_agreement_s_values_are_the_libraries_and_its_intervals_hold_them(is_coarse: bool) -> None:
    paired = some_paired(1, 900, is_coarse=is_coarse)
    found = agreement(paired, rng=np.random.default_rng(0), draws=300)
    assert (found.clusters, found.cluster_count, found.draws) == ("batch", 15, 15)  # each left out once
    values = {name: estimate.value for name, estimate in found.metrics.items()}
    ratings, labels, scores = paired.rating, paired.label, paired.score
    assert values["qwk"] == pytest.approx(metrics.cohen_kappa_score(ratings, labels, weights="quadratic"))
    assert values["spearman"] == pytest.approx(stats.spearmanr(ratings, scores).statistic)
    assert np.array(found.confusion).tolist() == metrics.confusion_matrix(ratings, labels).tolist()
    for name, estimate in found.metrics.items():
        assert estimate.interval.low <= estimate.value <= estimate.interval.high, name
    assert {level.model for level in found.levels.models} == {"ada", "bea", "cyd"}
    json.dumps(to_plain(found), allow_nan=False)


@pytest.mark.parametrize("slope", [0.5, 1.8])
def test_the_part_of_peoples_gap_between_models_that_the_judge_shows(slope: float) -> None:
    """Known answers, also where the noise of few ratings would flatten the slope."""
    rng, people, values, hits, wide = np.random.default_rng(0), np.linspace(0.35, 0.65, 7), [], [], []
    model = np.repeat(np.arange(7), 100)
    for _ in range(60):
        said = (rng.random(700) < people[model]).astype(float)
        judge = 0.5 + slope * (people[model] - 0.5)
        clusters = np.arange(700) % 28
        found = level_errors(model, said, judge, clusters, replicate_clusters(28, rng=rng, draws=200)).slope
        if found.interval:
            values.append(found.value)
            hits.append(found.interval.low <= slope <= found.interval.high)
            wide.append(found.interval.high - found.interval.low)
    assert len(values) > 40 and np.median(values) == pytest.approx(slope, rel=0.1)
    assert np.mean(hits) > 0.85 and np.median(wide) < 1.3 * slope
    few = level_errors(model[:200], said[:200], judge[:200], clusters[:200], np.ones((2, 28)))
    assert math.isnan(few.slope.value), "two models"


def test_judges_that_err_alike_count_as_one() -> None:
    rng = np.random.default_rng(0)
    levels = agreement(some_paired(0, 300), rng=rng, draws=20).levels

    def judge(errors: np.ndarray) -> LevelErrors:
        named = zip("abcdefgh", errors, strict=True)
        rows = [replace(levels.models[0], model=name, error=Estimate(error, None)) for name, error in named]
        return replace(levels, models=tuple(rows))

    errors = rng.normal(size=(3, 8))
    errors -= errors.mean(axis=1, keepdims=True)
    apart = np.linalg.qr(errors.T)[0].T
    assert independent_judges([judge(item) for item in apart]) == pytest.approx(3)
    assert independent_judges([judge(apart[0]), judge(2 * apart[0] + 0.1)]) == pytest.approx(1)
    half = [judge(apart[0]), judge(apart[0] + math.sqrt(3) * apart[1])]  # they correlate at 0.5
    assert independent_judges(half) == pytest.approx(2 / 1.5)
    assert math.isnan(independent_judges([levels, levels])), "three models"


def test_means_by_model_on_any_scale() -> None:
    paired = some_paired(0, 300, levels=5)
    found = agreement(paired, rng=np.random.default_rng(0), draws=200)
    by_model = paired.by_model()
    found, levels = found.levels, [by_model[item.model] for item in found.levels.models]
    people, judge = (np.array([getattr(part, of).mean() for part in levels]) for of in ("rating", "score"))
    assert [item.people for item in found.models] == pytest.approx(people) and (np.diff(people) <= 0).all()
    assert [item.error.value for item in found.models] == pytest.approx(judge - people)
    assert found.mean_error.value == pytest.approx(np.abs(judge - people).mean())
    assert found.tau.value == pytest.approx(stats.kendalltau(people, judge).statistic)


@pytest.mark.parametrize("rating", [[3] * 40, [1, 3] * 20])
def test_agreement_of_a_judge_that_says_one_thing(rating: list[int]) -> None:
    """All Good against all Good, or against two levels: undefined is said, and nothing breaks."""
    paired = some_paired(0, 40, is_coarse=True)
    constant = replace(paired, rating=np.array(rating), score=np.full(40, 2.9), label=np.full(40, 3))
    found = agreement(constant, rng=np.random.default_rng(0), draws=50)
    assert math.isnan(found.metrics["spearman"].value)
    assert found.metrics["qwk"].value == pytest.approx(math.nan if rating[0] == 3 else 0, nan_ok=True)
    assert found.metrics["exact"].value == np.mean(np.array(rating) == 3)
    assert math.isnan(found.metrics["balanced_accuracy"].value), "it is 1/3 by definition"
    assert "balanced_accuracy" in found.undefined
    json.dumps(to_plain(found), allow_nan=False)


def test_agreement_on_a_single_rating() -> None:
    found = agreement(some_paired(0).take(np.array([0])), rng=np.random.default_rng(0), draws=50)
    assert found.draws == 0
    assert all(estimate.interval is None for estimate in found.metrics.values())


@pytest.mark.parametrize(
    ("raters", "batches", "clusters", "population"),
    [
        (12, 0, "batch", "general"),
        (4, 0, "batch", "general"),
        (6, 60, "rater", "general"),  # one rater's batches are one rater's
        (3, 0, "prompt", "these raters only"),
        (1, 30, "prompt", "these raters only"),
    ],
)
def test_raters_stay_clusters_and_below_four_figures_are_of_these_raters(
    raters: int, batches: int, clusters: str, population: str
) -> None:
    paired = some_paired(0, raters=raters, batches=batches)
    assert agreement(paired, rng=np.random.default_rng(0)).clusters == clusters
    assert paired.population == population


def test_few_raters_intervals_are_student_s_on_the_logit() -> None:
    """A mean left out rater by rater is the t-test of the raters' means, by the delta method on log odds."""
    paired = some_paired(5, 120, raters=5)
    exact = agreement(paired, rng=np.random.default_rng(0)).metrics["exact"]
    hits = (paired.rating == paired.label).astype(float)
    plain = contrast(hits, np.ones(len(hits)), paired.clusters()).estimate()
    away = (plain.interval.high - exact.value) / (exact.value * (1 - exact.value))
    ends = logit(exact.value) + np.array([-away, away])
    assert logit([exact.interval.low, exact.interval.high]) == pytest.approx(ends, abs=1e-9)


def test_a_label_the_judge_never_hits_is_not_known_to_be_missed() -> None:
    """Without half a hit's variance three misses of three would count as exact, whoever is left out."""
    rating = np.array([1, 1, 1, *[2, 3] * 20, 3])
    label = np.where(rating == 1, 2, np.where(np.arange(44) % 5 == 0, 5 - rating, rating))
    assert unseen_variance(metrics.confusion_matrix(rating, label)) == pytest.approx(0.5 / 3**2 / 9)
    paired = replace(some_paired(4, 44, raters=4), rating=rating, label=label)
    found = agreement(paired, rng=np.random.default_rng(0)).metrics["balanced_accuracy"]
    assert found.interval.low < found.value - 0.15 and found.value + 0.14 < found.interval.high < 1


def test_kappas_are_refused_where_hardly_anybody_gave_another_label() -> None:
    paired, rng = some_paired(8, 120, raters=8), np.random.default_rng(0)
    for others in (9, 10):
        rating = np.where(np.arange(120) < others, 1, 3)
        found = agreement(replace(paired, rating=rating, label=rating[::-1]), rng=rng).metrics
        for name in ("qwk", "qwk_matched", "alpha_ordinal"):
            assert np.isfinite(found[name].value) == (others >= 10), name
        assert np.isfinite(found["exact"].value)
    always = agreement(replace(paired, label=np.full(120, 3)), rng=rng).metrics
    assert (always["qwk"].value, always["qwk"].interval) == (0.0, None)
