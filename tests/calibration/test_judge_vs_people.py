"""A judge beside people: the libraries' values, their bootstrap, and kappas others published."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from repository import SHARED
from scipy import stats
from sklearn import metrics

from calibration.agreement.judge_vs_people import agreement
from calibration.agreement.metrics import matched_labels, qwk, table_of
from calibration.agreement.model_levels import model_levels, tabulate
from calibration.pairing import Paired, pair
from data.importers import import_source
from data.importers.intake import Imported
from data.judgments import judgments_by, parse_scale
from data.records import Rating, to_plain


def some_paired(
    seed: int, rows: int = 90, levels: int = 3, batches: int = 15, *, is_coarse: bool = False
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
        rater=(number % batches).astype(str),
        batch=(number % batches).astype(str),
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
    kappa = metrics.cohen_kappa_score(ratings, labels, weights="quadratic")
    assert values["qwk"] == pytest.approx(kappa)
    assert values["spearman"] == pytest.approx(stats.spearmanr(ratings, scores).statistic)
    assert np.array(found.confusion).tolist() == metrics.confusion_matrix(ratings, labels).tolist()
    for name, estimate in found.metrics.items():
        assert estimate.interval is not None, name
        assert estimate.interval.low <= estimate.value <= estimate.interval.high, name
    assert {level.model for level in found.levels.models} == {"ada", "bea", "cyd"}
    json.dumps(to_plain(found), allow_nan=False)


def test_chance_is_seeded() -> None:
    one, two = (to_plain(agreement(some_paired(3), rng=np.random.default_rng(7), draws=50)) for _ in range(2))
    assert one == two


def test_few_clusters_give_way_to_prompts() -> None:
    found = agreement(some_paired(0, batches=3), rng=np.random.default_rng(0), draws=50)
    assert (found.clusters, found.cluster_count) == ("prompt", 30)


def test_means_by_model_on_any_scale() -> None:
    paired = some_paired(0, 300, levels=5)
    found = agreement(paired, rng=np.random.default_rng(0), draws=200)
    people = {name: part.rating.mean() for name, part in paired.by_model().items()}
    judge = {name: part.score.mean() for name, part in paired.by_model().items()}
    assert {item.model: item.people for item in found.levels.models} == pytest.approx(people)
    errors = {item.model: item.error.value for item in found.levels.models}
    assert errors == pytest.approx({name: judge[name] - people[name] for name in people})
    assert found.levels.mean_error.value == pytest.approx(np.mean(np.abs(list(errors.values()))))
    assert found.levels.tau.value == pytest.approx(
        stats.kendalltau(list(people.values()), list(judge.values())).statistic
    )
    assert [item.people for item in found.levels.models] == sorted(people.values(), reverse=True)


def test_levels_of_labels_are_shares_of_good_as_in_an_evaluation() -> None:
    paired = some_paired(0, 300)
    assert paired.probabilities is not None
    found = agreement(paired, rng=np.random.default_rng(0), draws=20)
    drawn = (1 - np.eye(15)).astype(np.uint16)
    table = tabulate(paired.model, paired.clusters(), paired.rating, paired.probabilities, drawn)
    expected = {level.model: level for level in model_levels(table)}
    for level in found.levels.models:
        theirs = expected[level.model]
        assert (level.people, level.judge) == pytest.approx((theirs.crowd["Good"], theirs.judge["Good"]))
        assert level.people_standard_error == pytest.approx(theirs.crowd_standard_error)
        assert level.error.as_dict() == pytest.approx(theirs.share_error.as_dict())


def test_matched_labels_are_as_frequent_as_ratings() -> None:
    paired = some_paired(0, 200)
    labels = matched_labels(paired.rating, paired.score, 3)
    assert np.abs(np.bincount(labels, minlength=4) - np.bincount(paired.rating, minlength=4)).max() <= 1


@pytest.mark.parametrize("rating", [[3] * 40, [1, 3] * 20])
def test_agreement_of_a_judge_that_says_one_thing(rating: list[int]) -> None:
    """All Good against all Good, or against two levels: undefined is said, and nothing breaks."""
    paired = some_paired(0, 40, is_coarse=True)
    constant = Paired(
        **{name: getattr(paired, name) for name in ("id", "model", "rater", "batch", "prompt")},
        rating=np.array(rating),
        score=np.full(40, 2.9),
        label=np.full(40, 3),
    )
    found = agreement(constant, rng=np.random.default_rng(0), draws=50)
    assert math.isnan(found.metrics["spearman"].value)
    assert found.metrics["qwk"].value == pytest.approx(math.nan if rating[0] == 3 else 0, nan_ok=True)
    assert found.metrics["exact"].value == np.mean(np.array(rating) == 3)
    json.dumps(to_plain(found), allow_nan=False)


def test_agreement_on_a_single_rating() -> None:
    found = agreement(some_paired(0).take(np.array([0])), rng=np.random.default_rng(0), draws=50)
    assert found.draws == 0
    assert all(estimate.interval is None for estimate in found.metrics.values())


# --- Published values of Kumar et al., from their data.

# Experts 1-2, 2-3, 3-1; then GPT-4o, Claude 3.7 Sonnet and Gemini 2.5 Pro against the experts' median.
KUMAR = {
    ("epitome", "level_emotional_reactions"): (0.35, 0.56, 0.53, 0.72, 0.81, 0.64),
    ("epitome", "level_explorations"): (0.76, 0.84, 0.74, 0.80, 0.75, 0.76),
    ("epitome", "level_interpretations"): (0.26, 0.62, 0.29, 0.14, 0.41, 0.59),
    ("empatheticdialogues", "empathy"): (0.51, 0.62, 0.53, 0.23, 0.22, 0.34),
    ("empatheticdialogues", "fluency"): (0.28, 0.11, 0.41, 0.03, 0.05, 0.22),
    ("empatheticdialogues", "relevance"): (0.44, 0.58, 0.49, 0.13, 0.31, 0.23),
    ("lend_an_ear", "advice_giving"): (0.70, 0.69, 0.54, 0.66, 0.38, 0.66),
    ("lend_an_ear", "demonstrating_understanding"): (0.47, 0.43, 0.37, 0.42, 0.38, 0.59),
    ("lend_an_ear", "dismissing_emotions"): (0.35, 0.51, 0.49, 0.15, 0.16, 0.17),
    ("lend_an_ear", "encouraging_elaboration"): (0.69, 0.73, 0.62, 0.72, 0.81, 0.86),
    ("lend_an_ear", "self_oriented"): (0.82, 0.52, 0.70, 0.71, 0.74, 0.69),
    ("lend_an_ear", "validating_emotions"): (0.25, 0.58, 0.39, 0.66, 0.66, 0.63),
    ("perceived_empathy", "m_accepted"): (0.43, 0.58, 0.57, 0.14, 0.46, 0.45),
    ("perceived_empathy", "m_affirmed"): (0.49, 0.65, 0.60, 0.39, 0.49, 0.63),
    ("perceived_empathy", "m_caredfor"): (0.55, 0.60, 0.39, 0.38, 0.57, 0.60),
    ("perceived_empathy", "m_emotional"): (0.74, 0.59, 0.59, 0.70, 0.62, 0.75),
    ("perceived_empathy", "m_motivation"): (0.66, 0.64, 0.78, 0.45, 0.68, 0.70),
    ("perceived_empathy", "m_practical"): (0.77, 0.69, 0.81, 0.70, 0.70, 0.74),
    ("perceived_empathy", "m_seen"): (0.55, 0.56, 0.54, 0.40, 0.39, 0.60),
    ("perceived_empathy", "m_understood"): (0.60, 0.62, 0.51, 0.34, 0.32, 0.53),
    ("perceived_empathy", "m_validated"): (0.59, 0.69, 0.65, 0.38, 0.47, 0.60),
}
KUMAR_SCALES = {
    "epitome": "0-2",
    "empatheticdialogues": "1-5",
    "lend_an_ear": "1-5",
    "perceived_empathy": "1-7",
}
EXPERTS = ("expert1", "expert2", "expert3")
LANGUAGE_MODELS = ("gpt-4o", "claude-3.7-sonnet", "gemini-2.5-pro")


@pytest.fixture(scope="module")
def judging_empathy() -> Imported:
    folder = SHARED / "judging-empathy"
    if not folder.exists():
        pytest.skip("public dataset not at hand: set EMPATHY_DATA to a folder with judging-empathy")
    return import_source("judging-empathy", folder)


def median_ratings(paired: Paired) -> Paired:
    """One row a response, with the rounded median of its ratings, as published."""
    names, first = np.unique(paired.id, return_index=True)
    medians = [np.rint(np.median(paired.rating[paired.id == name])) for name in names]
    return replace(paired.take(first), rating=np.array(medians).astype(np.int64))


def expert_pair(ratings: list[Rating], one: str, two: str) -> list[list[int]]:
    held = {who: {item.id: int(item.rating) for item in ratings if item.rater == who} for who in (one, two)}
    return [[held[who][key] for key in sorted(held[one])] for who in (one, two)]


@pytest.mark.slow
def test_kumar_s_kappas_between_experts_and_of_language_models(judging_empathy: Imported) -> None:
    """As published: by scikit-learn over the levels that occur, so that one leaves a level out."""
    pairs = (("expert1", "expert2"), ("expert2", "expert3"), ("expert3", "expert1"))
    differing = {}
    for (dataset, dimension), published in KUMAR.items():
        scale = parse_scale(KUMAR_SCALES[dataset])
        ratings = [
            rating
            for rating in judging_empathy.ratings
            if rating.extra["dataset"] == dataset and rating.dimension == dimension
        ]
        values = [
            metrics.cohen_kappa_score(*expert_pair(ratings, *two), weights="quadratic") for two in pairs
        ]
        experts = [rating for rating in ratings if rating.rater in EXPERTS]
        for judge in LANGUAGE_MODELS:
            judgments = judgments_by(ratings, rater=judge, scale=scale, dimension=dimension)
            medians = median_ratings(pair(judgments, experts, scale=scale, dimension=dimension))
            values.append(agreement(medians, rng=np.random.default_rng(0), draws=20).metrics["qwk"].value)
        if (found := tuple(round(value, 2) for value in values)) != published:
            differing[dataset, dimension] = found
    assert not differing


def test_one_published_kappa_left_a_level_out(judging_empathy: Imported) -> None:
    """Nobody gave a 4 for `self_oriented`, so 3 and 5 were taken for neighbours: .82, on the scale .79."""
    ratings = [rating for rating in judging_empathy.ratings if rating.dimension == "self_oriented"]
    one, two = expert_pair(ratings, "expert1", "expert2")
    assert round(qwk(table_of(np.array(one), np.array(two), 5)[None])[0], 2) == 0.79
