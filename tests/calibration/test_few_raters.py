"""With few raters, labels or replies: what is still said, of whom, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logit
from simulated_ratings import World, draw_models
from sklearn.metrics import confusion_matrix

from empathy_judge.calibration.agreement.judge_vs_people import agreement
from empathy_judge.calibration.agreement.metrics import unseen_variance
from empathy_judge.calibration.cluster import contrast
from empathy_judge.calibration.pairing import Paired
from empathy_judge.calibration.shares.correction import calibrated_models, correct
from empathy_judge.calibration.shares.model_table import fit_models
from empathy_judge.calibration.shares.ppi import RatedModel, one_hot, ppi_estimate
from empathy_judge.calibration.shares.transport import refusal


def some_paired(raters: int, *, rows: int = 120, batches: int = 0) -> Paired:
    rng = np.random.default_rng(raters)
    number = np.arange(rows)
    rating = rng.choice([1, 2, 3], size=rows, p=[0.2, 0.3, 0.5])
    return Paired(
        id=number.astype(str),
        model=np.array(["ada", "bea"])[number % 2],
        rater=(number % raters).astype(str),
        batch=(number % (batches or raters)).astype(str),
        prompt=(number // 2).astype(str),
        rating=rating,
        score=np.clip(rating + rng.normal(0, 0.4, rows), 1, 3),
        label=rng.permutation(rating),
    )


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
    paired = some_paired(raters, batches=batches)
    assert agreement(paired, rng=np.random.default_rng(0)).clusters == clusters
    assert paired.population == population


def test_few_raters_intervals_are_student_s_on_the_logit() -> None:
    """A mean left out rater by rater is the t-test of the raters' means, by the delta method on log odds."""
    paired = some_paired(5)
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
    assert unseen_variance(confusion_matrix(rating, label)) == pytest.approx(0.5 / 3**2 / 9)
    paired = replace(some_paired(4, rows=44), rating=rating, label=label)
    found = agreement(paired, rng=np.random.default_rng(0)).metrics["balanced_accuracy"]
    assert found.interval.low < found.value - 0.15 and found.value + 0.14 < found.interval.high < 1


def test_a_label_nobody_gave_keeps_the_rule_of_three_whatever_the_judge_says() -> None:
    rng, number = np.random.default_rng(3), np.arange(50)
    judged, value = rng.dirichlet([0.02, 1, 5], size=400), one_hot(rng.choice([2, 3], size=50), 3)
    found = ppi_estimate(RatedModel(judged=judged, item=number, value=value, cluster=number % 10))
    assert found.high[0] >= 3 / 50
    assert found.least_variance[0] >= 0.01 * 0.99 / 100


def test_ratings_far_from_the_line_are_believed_and_said_to_be() -> None:
    models, _ = draw_models(World(models=10), 200, 1, np.random.default_rng(6))
    name, rated = next(iter(models.items()))
    assert all(row.warning is None for row in fit_models(models).rows if row.model != name)
    models[name] = replace(rated, value=one_hot(np.ones(len(rated.item), dtype=int), 3))
    row = fit_models(models).rows[0]
    assert row.warning and row.corrected["Bad"].value > 0.8


@pytest.mark.parametrize("replies", [1, 5, 20])
def test_below_ten_replies_no_level_is_given_and_above_the_spread_is_the_calibration_s(replies: int) -> None:
    models, _ = draw_models(World(models=6), 100, 1, np.random.default_rng(7))
    lines = calibrated_models(models)
    judged = next(iter(models.values())).judged
    none = {"item": np.zeros(0, dtype=np.intp), "value": np.zeros((0, 3)), "cluster": np.zeros(0, dtype=str)}
    alike = RatedModel(judged=np.repeat(judged.mean(axis=0)[None], replies, axis=0), **none)
    (row,) = correct({"new": alike}, calibrated=lines)
    if replies < 10:
        assert (row.how, row.corrected) == ("refused", {}) and row.reason
        return
    assert row.how == "line"
    target = lines[-1].judged(float(alike.judged[0, -1]), 0.0, replies)
    assert target.judge_noise == pytest.approx(20 * (lines[-1].prompt_variance or 0) / 39 / replies)
    assert refusal(lines[-1], target) is None


def test_kappas_are_refused_where_hardly_anybody_gave_another_label() -> None:
    paired, rng = some_paired(8), np.random.default_rng(0)
    for others in (9, 10):
        rating = np.where(np.arange(120) < others, 1, 3)
        found = agreement(replace(paired, rating=rating, label=rating[::-1]), rng=rng).metrics
        for name in ("qwk", "qwk_matched", "alpha_ordinal"):
            assert np.isfinite(found[name].value) == (others >= 10), name
        assert np.isfinite(found["exact"].value)
    always = agreement(replace(paired, label=np.full(120, 3)), rng=rng).metrics
    assert (always["qwk"].value, always["qwk"].interval) == (0.0, None)
