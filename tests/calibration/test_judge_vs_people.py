"""A judge beside people: the libraries' values, their bootstrap, and kappas others published."""

import json
import math

import krippendorff
import numpy as np
import pytest
from repository import SHARED
from scipy import stats
from sklearn import metrics

from calibration.agreement.judge_vs_people import MAX_CELLS, agreement, matched_labels
from calibration.agreement.metrics import (
    TABLE_STATISTICS,
    Scaling,
    cohen_kappa,
    gwet_ac,
    icc,
    icc_sums,
    icc_two,
    kendall_of,
    tables_of,
)
from calibration.agreement.model_levels import tabulate
from calibration.bootstrap import resample_clusters
from calibration.pairing import Paired, median_ratings, pair
from data.importers import import_source
from data.importers.intake import Imported
from data.judgments import judgments_by, parse_scale
from data.records import Rating

SEEDS = range(5)
SCALINGS: tuple[Scaling, ...] = ("nominal", "ordinal", "interval")


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


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("levels", [2, 3, 5])
def test_tables_give_what_the_libraries_give(seed: int, levels: int) -> None:
    """In every draw: the rows it takes, as often as it takes them, given to the library."""
    paired = some_paired(seed, 60, levels)
    ratings, labels, codes = paired.rating, paired.label, paired.clusters()
    drawn = resample_clusters(15, rng=np.random.default_rng(seed), draws=8)
    tables = tables_of(ratings, labels, levels, codes, drawn)
    ours = {name: statistic(tables) for name, statistic in TABLE_STATISTICS.items()}
    scale = list(range(1, levels + 1))
    for draw, counts in enumerate(drawn[:, codes]):
        first, second = ratings.repeat(counts), labels.repeat(counts)
        theirs = {
            "exact": metrics.accuracy_score(first, second),
            "macro_f1": metrics.f1_score(first, second, average="macro", zero_division=0.0),
            "balanced_accuracy": metrics.recall_score(
                first, second, labels=np.unique(first), average="macro", zero_division=0.0
            ),
        }
        for name, weights in (("kappa", None), ("kappa_linear", "linear"), ("qwk", "quadratic")):
            theirs[name] = metrics.cohen_kappa_score(first, second, weights=weights, labels=scale)
        for scaling in SCALINGS:
            theirs[f"alpha_{scaling}"] = krippendorff.alpha(
                [first, second], level_of_measurement=scaling, value_domain=scale
            )
        theirs |= {"ac1": gwet_ac([first, second], levels=levels)}
        theirs |= {"ac2": gwet_ac([first, second], "quadratic", levels=levels)}
        assert theirs.keys() == ours.keys()
        for name, value in theirs.items():
            assert ours[name][draw] == pytest.approx(value, abs=1e-9), name


@pytest.mark.parametrize("seed", SEEDS)
def test_score_statistics_give_what_scipy_gives(seed: int) -> None:
    paired = some_paired(seed, is_coarse=bool(seed % 2))
    ratings, scores = paired.rating.astype(float), paired.score
    counts = np.random.default_rng(seed).integers(0, 4, size=(6, len(paired)))
    tau = kendall_of(ratings, scores)(counts.astype(float))
    both = icc_two(counts.astype(float) @ icc_sums(ratings, scores, 2.0))
    for draw, row in enumerate(counts):
        first, second = ratings.repeat(row), scores.repeat(row)
        assert tau[draw] == pytest.approx(stats.kendalltau(first, second).statistic, abs=1e-9)
        assert both[draw] == pytest.approx(icc([first, second], "A1"), abs=1e-9)


@pytest.mark.parametrize("is_coarse", [False, True])
def test_agreement_s_values_are_the_libraries_and_its_intervals_hold_them(is_coarse: bool) -> None:
    paired = some_paired(1, 900, is_coarse=is_coarse)
    found = agreement(paired, rng=np.random.default_rng(0), draws=300)
    assert (found.clusters, found.cluster_count, found.draws) == ("batch", 15, 300)
    values = {name: estimate.value for name, estimate in found.metrics.items()}
    ratings, labels, scores = paired.rating, paired.label, paired.score
    assert values["qwk"] == metrics.cohen_kappa_score(ratings, labels, weights="quadratic")
    assert values["macro_f1"] == metrics.f1_score(ratings, labels, average="macro")
    assert values["spearman"] == stats.spearmanr(ratings, scores).statistic
    assert values["kendall"] == stats.kendalltau(ratings, scores).statistic
    assert values["icc"] == pytest.approx(icc([ratings, scores], "A1"))
    assert np.array(found.confusion).tolist() == metrics.confusion_matrix(ratings, labels).tolist()
    for name, estimate in found.metrics.items():
        assert estimate.interval is not None, name
        assert estimate.interval.low <= estimate.value <= estimate.interval.high, name
    assert found.shares is not None
    assert {level.model for level in found.shares} == {"ada", "bea", "cyd"}
    json.dumps(found.as_dict(), allow_nan=False)


def test_rows_alike_counted_together_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two ways to count ranks, cell by cell and row by row, have the same draws."""
    paired = some_paired(2, 300, is_coarse=True)
    assert len({*zip(paired.rating, paired.score, strict=True)}) < MAX_CELLS
    found = agreement(paired, rng=np.random.default_rng(0), draws=100).metrics
    monkeypatch.setattr("calibration.agreement.judge_vs_people.MAX_CELLS", 0)
    again = agreement(paired, rng=np.random.default_rng(0), draws=100).metrics
    for name in ("spearman", "kendall"):
        one, two = found[name].interval, again[name].interval
        assert one is not None and two is not None
        assert (one.low, one.high) == pytest.approx((two.low, two.high))


def test_chance_is_seeded() -> None:
    one, two = (agreement(some_paired(3), rng=np.random.default_rng(7), draws=50).as_dict() for _ in range(2))
    assert one == two


def test_few_clusters_give_way_to_prompts() -> None:
    found = agreement(some_paired(0, batches=3), rng=np.random.default_rng(0), draws=50)
    assert (found.clusters, found.cluster_count) == ("prompt", 30)


def test_means_by_model_on_any_scale() -> None:
    paired = some_paired(0, 300, levels=5)
    found = agreement(paired, rng=np.random.default_rng(0), draws=200)
    assert found.shares is None, "shares of Good are of the scale Bad, Okay, Good only"
    people = {name: part.rating.mean() for name, part in paired.by_model().items()}
    judge = {name: part.score.mean() for name, part in paired.by_model().items()}
    assert {item.model: item.people for item in found.means.models} == pytest.approx(people)
    errors = {item.model: item.error.value for item in found.means.models}
    assert errors == pytest.approx({name: judge[name] - people[name] for name in people})
    assert found.means.mean_error.value == pytest.approx(np.mean(np.abs(list(errors.values()))))
    assert found.means.tau.value == pytest.approx(
        stats.kendalltau(list(people.values()), list(judge.values())).statistic
    )
    assert found.means.pairwise_order.value == pytest.approx((1 + found.means.tau.value) / 2)
    assert [item.people for item in found.means.models] == sorted(people.values(), reverse=True)


def test_shares_are_those_of_an_evaluation() -> None:
    paired = some_paired(0, 300)
    assert paired.probabilities is not None
    found = agreement(paired, rng=np.random.default_rng(0), draws=20)
    none = np.zeros((0, 15), dtype=np.uint16)
    table = tabulate(paired.model, paired.clusters(), paired.rating, paired.probabilities, none)
    assert found.shares is not None
    for level in found.shares:
        row = table.models.index(level.model)
        assert list(level.judge.values()) == pytest.approx(table.shares(table.judge)[row])


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
    assert math.isnan(found.metrics["kendall"].value)
    assert found.metrics["qwk"].value == pytest.approx(math.nan if rating[0] == 3 else 0, nan_ok=True)
    assert found.metrics["exact"].value == np.mean(np.array(rating) == 3)
    json.dumps(found.as_dict(), allow_nan=False)


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


def expert_pair(ratings: list[Rating], one: str, two: str) -> list[list[int]]:
    held = {who: {item.id: int(item.rating) for item in ratings if item.rater == who} for who in (one, two)}
    return [[held[who][key] for key in sorted(held[one])] for who in (one, two)]


@pytest.mark.parametrize(("dataset", "dimension"), KUMAR)
def test_kumar_s_kappas_between_experts_and_of_language_models(
    judging_empathy: Imported, dataset: str, dimension: str
) -> None:
    scale = parse_scale(KUMAR_SCALES[dataset])
    own = [
        rating
        for rating in judging_empathy.ratings
        if rating.extra["dataset"] == dataset and rating.dimension == dimension
    ]
    pairs = (("expert1", "expert2"), ("expert2", "expert3"), ("expert3", "expert1"))
    between = [round(cohen_kappa(*expert_pair(own, *two)), 2) for two in pairs]
    experts = [rating for rating in own if rating.rater in EXPERTS]
    beside = []
    for judge in LANGUAGE_MODELS:
        judgments = judgments_by(own, rater=judge, scale=scale, dimension=dimension)
        medians = median_ratings(pair(judgments, experts, scale=scale, dimension=dimension))
        found = agreement(medians, rng=np.random.default_rng(0), draws=20)
        beside.append(round(found.metrics["qwk"].value, 2))
    assert tuple(between + beside) == KUMAR[dataset, dimension]


def test_one_published_kappa_left_a_level_out(judging_empathy: Imported) -> None:
    """Nobody gave a 4 for `self_oriented`, so 3 and 5 were taken for neighbours: .82, on the scale .79."""
    own = [rating for rating in judging_empathy.ratings if rating.dimension == "self_oriented"]
    ratings = expert_pair(own, "expert1", "expert2")
    assert round(cohen_kappa(*ratings, levels=5), 2) == 0.79
