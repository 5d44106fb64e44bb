"""Held-out evaluations, against cases worked out by hand and judges with known errors."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn import metrics

from empathy_judge.calibration.estimate import Estimate
from empathy_judge.calibration.pairing import labels_from_probabilities
from empathy_judge.data.records import to_plain
from empathy_judge.training import held_out as measures
from empathy_judge.training.held_out import HeldOut, HeldOutEvaluation, evaluate_held_out


def rows(*lines: tuple[str, str, str, int, Sequence[float]]) -> HeldOut:
    """One line a response: model, batch, split, rating, probabilities."""
    model, batch, split, rating, probabilities = zip(*lines, strict=True)
    return HeldOut(
        model=np.array(model),
        batch=np.array(batch),
        split=np.array(split),
        rating=np.array(rating),
        probabilities=np.array(probabilities, dtype=float),
    )


def ratings_of(shares: dict[str, str], judged: float = 0.5) -> HeldOut:
    """Of each model a word a batch, a letter a response (G is Good, else Bad), all judged the same."""
    said = [1 - judged, 0.0, judged]
    return rows(
        *(
            (model, str(number), str(number % 2), 3 if letter == "G" else 1, said)
            for model, words in shares.items()
            for number, word in enumerate(words.split())
            for letter in word
        )
    )


def simulated(
    rng: np.random.Generator,
    *,
    models: Sequence[str] = ("a", "b", "c"),
    batches: int = 40,
    mood: float = 0.2,
    bias: Sequence[float] = (0.0, 0.0, 0.0),
) -> HeldOut:
    """Ten responses a batch and model; the judge knows all but the raters' moods, and errs by `bias`."""
    size = (batches, len(models), 10)
    quality = rng.uniform(0.4, 0.75, size)
    good = rng.random(size) < quality + mood * rng.choice([-1, 1], size=(*size[:2], 1))
    judged = (quality + np.array(bias)[:, None]).ravel()
    bad = rng.random(good.size) < 0.4
    return HeldOut(
        model=np.tile(np.repeat(models, 10), batches),
        batch=np.repeat(np.arange(batches), len(models) * 10).astype(str),
        split=np.repeat(np.arange(batches) % 5, len(models) * 10).astype(str),
        rating=np.where(good.ravel(), 3, np.where(bad, 1, 2)),
        probabilities=np.column_stack([0.4 * (1 - judged), 0.6 * (1 - judged), judged]),
    )


def evaluated(held_out: HeldOut, draws: int = 200, chosen: Sequence[str] = ()) -> HeldOutEvaluation:
    return evaluate_held_out({"ours": held_out}, draws=draws, chosen=chosen)["ours"]


def test_values_per_response_are_the_metrics_of_their_labels() -> None:
    held = simulated(np.random.default_rng(5), batches=20)
    found = evaluated(held, draws=50).per_response
    scores = measures.expected_scores(held.probabilities)
    good, bad = held.rating == 3, held.rating == 1
    ranked = measures.labels_by_frequency(scores, held.rating, held.split)
    likeliest = labels_from_probabilities(held.probabilities)
    lifted = measures.labels_by_lift(held.probabilities, held.split)
    expected = {
        "qwk": metrics.cohen_kappa_score(held.rating, ranked, weights="quadratic"),
        "label_qwk": metrics.cohen_kappa_score(held.rating, likeliest, weights="quadratic"),
        "spearman": spearmanr(held.rating, scores).statistic,
        "balanced_accuracy": metrics.balanced_accuracy_score(held.rating, lifted),
        "auc_good": metrics.roc_auc_score(good, held.probabilities[:, 2]),
        "auc_bad": metrics.roc_auc_score(bad, held.probabilities[:, 0]),
        "log_loss": metrics.log_loss(held.rating, held.probabilities),
    }
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].value == pytest.approx(value)
        assert (interval := found[name].interval) and interval.low < interval.high


def test_the_guess_by_hand() -> None:
    """Shares .2, .5, .8; the others' means .65, .5, .35; among a and b alone .5 and .2."""
    held = ratings_of({"a": "GBBBB BGBBB", "b": "GGGGG BBBBB", "c": "GGGGB BGGGG"}, judged=0.5)
    found = evaluated(held, chosen=["b", "a"])
    assert found.all_models.guess_error.value == pytest.approx(0.3)
    assert found.all_models.guess_error_among.value == pytest.approx(0.3)
    assert found.all_models.mean_share_error.value == pytest.approx(0.2)
    assert found.all_models.worst_share_error.value == pytest.approx(0.3)
    assert math.isnan(found.all_models.tau.value), "a judge that ties all models ranks none"
    assert found.chosen_models is not None
    assert found.chosen_models.models == ("b", "a")
    assert found.chosen_models.guess_error.value == pytest.approx((0 + 0.45) / 2)
    assert found.chosen_models.guess_error_among.value == pytest.approx(0.3)
    assert found.chosen_models.mean_share_error.value == pytest.approx((0 + 0.3) / 2)
    assert [level.model for level in found.models] == ["c", "b", "a"], "the largest human share first"
    best = found.models[0]
    assert (best.people, best.judge, best.error.value) == pytest.approx((0.8, 0.5, -0.3))


def test_nothing_varies_within_one_batch() -> None:
    found = evaluated(rows(("m", "b", "s", 3, [0.1, 0.2, 0.7]), ("m", "b", "s", 1, [0.2, 0.2, 0.6])))
    assert found.per_response["auc_good"] == Estimate(1.0, None)
    assert found.models[0].error.interval is None
    assert found.all_models.mean_share_error.interval is None
    assert math.isnan(found.all_models.guess_error.value), "one model has no others"


def test_one_rating_throughout_is_undefined_and_says_null() -> None:
    found = to_plain(evaluated(ratings_of({"a": "GG GG GG", "b": "GG GG GG"}, judged=0.8)))
    for name in ("spearman", "balanced_accuracy", "auc_good", "auc_bad", "qwk"):
        assert found["per_response"][name] == {"value": None, "low": None, "high": None}
    assert found["per_response"]["log_loss"]["value"] == pytest.approx(-math.log(0.8))
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_judges_share_rows_and_draws() -> None:
    ours = simulated(np.random.default_rng(9), batches=8)
    constant = replace(ours, probabilities=np.tile([0.1, 0.3, 0.6], (len(ours.rating), 1)))
    both = evaluate_held_out({"ours": ours, "majority": constant, "same": ours}, draws=200, chosen=["a", "b"])
    assert to_plain(both["ours"]) == to_plain(both["same"]) == to_plain(evaluated(ours, chosen=["a", "b"]))
    majority = both["majority"]
    assert math.isnan(majority.per_response["spearman"].value), "one prediction for all has no ranks"
    assert math.isnan(majority.per_response["balanced_accuracy"].value), "one label for all is refused"
    assert majority.per_response["qwk"].value == pytest.approx(0)
    assert math.isnan(majority.all_models.tau.value)
