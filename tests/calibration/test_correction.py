"""Corrected shares: ppi-python's point, raters in the variance, and answers known beforehand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_ratings import World, draw_models

from empathy_judge.calibration.comparison.verdicts import ratings_of_each
from empathy_judge.calibration.shares import correction
from empathy_judge.calibration.shares.correction import MEAN, ModelCorrection, calibrated_models
from empathy_judge.calibration.shares.model_table import fit_models
from empathy_judge.calibration.shares.ppi import RatedModel, one_hot, ppi_estimate
from empathy_judge.calibration.shares.transport import refusal
from empathy_judge.data.records import LABELS


def by_each_other(
    models: dict[str, RatedModel], names: tuple[str, ...] = LABELS
) -> tuple[ModelCorrection, ...]:
    return correction.correct(models, calibrated=calibrated_models(models), names=names)


def iid(rng: np.random.Generator, responses: int = 600, rated: int = 120) -> RatedModel:
    """Every rating by another rater, of a judge that knows something."""
    quality = rng.standard_normal(responses)
    raw = np.exp(np.stack([-quality, 0 * quality, quality + 0.3], axis=1))
    felt = quality[:rated] + rng.standard_normal(rated)
    return RatedModel(
        judged=raw / raw.sum(axis=1, keepdims=True),
        item=np.arange(rated),
        value=one_hot(1 + (felt > -1).astype(int) + (felt > 0), 3),
        cluster=np.arange(rated),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_the_point_is_that_of_ppi_python_and_the_weight_is_the_one_it_took(seed: int) -> None:
    from ppi_py import ppi_mean_pointestimate

    rated = iid(np.random.default_rng(seed))
    found = ppi_estimate(rated)
    labelled, rest = rated.judged[:120], rated.judged[120:]
    np.testing.assert_allclose(found.value, ppi_mean_pointestimate(rated.value, labelled, rest), atol=1e-12)
    by_hand = rated.value.mean(axis=0) + found.weight * (rest.mean(axis=0) - labelled.mean(axis=0))
    np.testing.assert_allclose(found.value, by_hand, atol=1e-12)
    assert 0 < found.weight < 1
    assert found.value.sum() == pytest.approx(1)


def test_several_raters_of_an_item_count_as_its_mean() -> None:
    rated = iid(np.random.default_rng(3))
    item, value = np.repeat(rated.item, 2), np.repeat(rated.value, 2, axis=0)
    twice = replace(rated, item=item, value=value, cluster=np.arange(240) % 7)
    found = ppi_estimate(twice)
    np.testing.assert_allclose(found.value, ppi_estimate(rated).value, atol=1e-12)
    # The same ratings twice are no more information.
    assert (found.variance >= 0.99 * ppi_estimate(rated).variance).all()


def test_one_cluster_or_one_item_cannot_say_how_exact_it_is() -> None:
    judged, one, many = np.tile([0.2, 0.3, 0.5], (30, 1)), np.zeros(10, dtype=int), np.arange(10)
    for item, cluster in ((many, one), (one, many)):
        rated = RatedModel(judged=judged, item=item, value=one_hot([1, 3] * 5, 3), cluster=cluster)
        assert np.isnan(ppi_estimate(rated).variance).all()
        (found,) = by_each_other({"a": rated})
        assert found.how == "ratings" and found.corrected["Good"].interval is None


def test_a_mean_on_five_levels_is_corrected_like_a_share() -> None:
    rng, models = np.random.default_rng(6), {}
    truth = {"m0": 2.2, "m1": 2.8, "m2": 3.1, "m3": 3.4, "m4": 3.9}
    for number, (name, level) in enumerate(truth.items()):
        quality = level + 0.6 * rng.standard_normal(500)
        rating = np.clip(np.round(quality[:150] + 0.5 * rng.standard_normal(150)), 1, 5)
        models[name] = RatedModel(
            judged=(0.8 * quality + 1.2)[:, None],
            item=np.arange(150),
            value=rating[:, None],
            cluster=np.arange(150) // 10 + 100 * number,
            bounds=(1.0, 5.0),
        )
    for found in by_each_other(models, names=MEAN):
        level = found.corrected["mean"]
        assert found.how == ("both" if found.reason is None else "ratings")
        assert level.interval.low <= truth[found.model] <= level.interval.high
        assert level.interval.high - level.interval.low < 0.4


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=6))
def test_projected_shares_are_shares(values: list[float]) -> None:
    shares = correction.project(np.array(values))
    assert shares.sum() == pytest.approx(1) and (shares >= 0).all()
    np.testing.assert_allclose(correction.project(shares), shares, atol=1e-12)


def test_planning_follows_the_textbook() -> None:
    # Two proportions near .5, 10 points apart, power .8: 392 a group by the usual formula, and what 40 raters
    # of each, ten ratings from each, add by their t.
    assert ratings_of_each(0.1, variance=0.25) == 403
    many = 2 * 0.25 * (2.8016 / 0.02) ** 2
    assert ratings_of_each(0.02, variance=0.25) == pytest.approx(many, rel=2e-3)


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
    (row,) = correction.correct({"new": alike}, calibrated=lines)
    if replies < 10:
        assert (row.how, row.corrected) == ("refused", {}) and row.reason
        return
    assert row.how == "line"
    target = lines[-1].judged(float(alike.judged[0, -1]), 0.0, replies)
    assert target.judge_noise == pytest.approx(20 * (lines[-1].prompt_variance or 0) / 39 / replies)
    assert refusal(lines[-1], target) is None
