"""A judge beside people: the libraries' values, their bootstrap, and kappas others published."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from empathy_judge.calibration.agreement.judge_vs_people import agreement
from empathy_judge.calibration.pairing import Paired
from empathy_judge.data.judgments import parse_scale
from empathy_judge.data.records import to_plain


def some_paired(seed: int, rows: int = 90, levels: int = 3, *, is_coarse: bool = False) -> Paired:
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
        rater=(number % 15).astype(str),
        batch=(number % 15).astype(str),
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
