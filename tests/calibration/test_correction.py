"""Corrected shares: ppi-python's point, raters in the variance, and answers known beforehand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ppi_py import ppi_mean_pointestimate
from simulated_ratings import World, draw_models

from calibration.shares.correction import (
    MEAN,
    ModelCorrection,
    calibrated_models,
    correct,
    project,
)
from calibration.shares.planning import ratings_of_each
from calibration.shares.ppi import RatedModel, one_hot, ppi_estimate
from data.records import LABELS, to_plain


def by_each_other(
    models: dict[str, RatedModel], names: tuple[str, ...] = LABELS
) -> tuple[ModelCorrection, ...]:
    return correct(models, calibrated=calibrated_models(models), names=names)


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


@pytest.mark.parametrize("seed", range(5))
def test_the_point_is_that_of_ppi_python_and_the_weight_is_the_one_it_took(seed: int) -> None:
    rated = iid(np.random.default_rng(seed))
    found = ppi_estimate(rated)
    labelled, rest = rated.judged[:120], rated.judged[120:]
    np.testing.assert_allclose(found.value, ppi_mean_pointestimate(rated.value, labelled, rest), atol=1e-12)
    by_hand = rated.value.mean(axis=0) + found.weight * (rest.mean(axis=0) - labelled.mean(axis=0))
    np.testing.assert_allclose(found.value, by_hand, atol=1e-12)
    assert 0 < found.weight < 1
    assert found.value.sum() == pytest.approx(1)


def test_raters_who_agree_with_themselves_widen_the_interval() -> None:
    rated = iid(np.random.default_rng(2))
    order = np.argsort(rated.value @ [1, 2, 3], kind="stable")
    alike = RatedModel(
        judged=rated.judged, item=rated.item[order], value=rated.value[order], cluster=np.arange(120) // 10
    )
    assert (
        ppi_estimate(alike).high - ppi_estimate(alike).low
        > 1.5 * (ppi_estimate(rated).high - ppi_estimate(rated).low)
    ).all()
    assert (ppi_estimate(alike).design_effect > 2).all()


def test_several_raters_of_an_item_count_as_its_mean() -> None:
    rated = iid(np.random.default_rng(3))
    twice = RatedModel(
        judged=rated.judged,
        item=np.repeat(rated.item, 2),
        value=np.repeat(rated.value, 2, axis=0),
        cluster=np.arange(240) % 7,
    )
    found = ppi_estimate(twice)
    np.testing.assert_allclose(found.value, ppi_estimate(rated).value, atol=1e-12)
    # The same ratings twice are no more information.
    assert (found.variance >= 0.99 * ppi_estimate(rated).variance).all()


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_degenerate_ratings_are_undefined_or_wide_but_never_crash(rows: int) -> None:
    rated = RatedModel(
        judged=np.tile([0.2, 0.3, 0.5], (8, 1)),
        item=np.arange(rows),
        value=one_hot([3] * rows, 3),
        cluster=np.arange(rows),
    )
    found = ppi_estimate(rated)
    assert found.value.tolist() == [0, 0, 1]
    if rows == 1:
        assert np.isnan(found.low).all()
    else:
        assert found.low[2] < 0.8 and found.high[2] == 1
        assert found.high[0] > 0.2


def test_one_cluster_or_one_item_cannot_say_how_exact_it_is() -> None:
    judged = np.tile([0.2, 0.3, 0.5], (30, 1))
    lone_rater = RatedModel(
        judged=judged, item=np.arange(10), value=one_hot([1, 3] * 5, 3), cluster=np.zeros(10, dtype=int)
    )
    lone_item = RatedModel(
        judged=judged, item=np.zeros(4, dtype=int), value=one_hot([1, 2, 3, 3], 3), cluster=np.arange(4)
    )
    for rated in (lone_rater, lone_item):
        assert np.isnan(ppi_estimate(rated).variance).all()
        (found,) = by_each_other({"a": rated})
        assert found.how == "ratings" and found.corrected["Good"].interval is None


def test_a_mean_on_five_levels_is_corrected_like_a_share() -> None:
    rng = np.random.default_rng(6)
    models = {}
    truth = {}
    for number, level in enumerate([2.2, 2.8, 3.1, 3.4, 3.9]):
        quality = level + 0.6 * rng.standard_normal(500)
        rating = np.clip(np.round(quality[:150] + 0.5 * rng.standard_normal(150)), 1, 5)
        models[f"m{number}"] = RatedModel(
            judged=(0.8 * quality + 1.2)[:, None],
            item=np.arange(150),
            value=rating[:, None],
            cluster=np.arange(150) // 10 + 100 * number,
            bounds=(1.0, 5.0),
        )
        truth[f"m{number}"] = level
    for found in by_each_other(models, names=MEAN):
        level = found.corrected["mean"]
        assert found.how == ("both" if found.reason is None else "ratings")
        assert level.interval is not None
        assert level.interval.low <= truth[found.model] <= level.interval.high
        assert level.interval.high - level.interval.low < 0.4


def test_ratings_shrink_the_interval_of_a_model_and_shares_stay_shares() -> None:
    world = World(models=9, responses=300)
    models, truth = draw_models(world, 200, 1, np.random.default_rng(7))
    between = calibrated_models({name: rated for name, rated in models.items() if name != "model 0"})
    own, widths = models["model 0"], []
    for ratings in (0, 20, 50, 200):
        few = RatedModel(
            judged=own.judged,
            item=own.item[:ratings],
            value=own.value[:ratings],
            cluster=own.cluster[:ratings],
        )
        (found,) = correct({"model 0": few}, calibrated=between)
        assert found.how == ("both" if ratings else "line")
        assert sum(level.value for level in found.corrected.values()) == pytest.approx(1)
        for label, share in zip(LABELS, truth[0], strict=True):
            interval = found.corrected[label].interval
            assert interval is not None and interval.low <= share <= interval.high
        interval = found.corrected["Good"].interval
        assert interval is not None
        widths.append(interval.high - interval.low)
    # Ratings that conflict with the line widen the interval until they outweigh it.
    assert widths[1] < 1.1 * widths[0] and widths[-1] < 1.2 * widths[0], widths
    assert to_plain(found)["how"] == "both"


def test_beyond_the_rated_range_the_level_is_a_bound() -> None:
    models, _ = draw_models(World(models=6), 200, 1, np.random.default_rng(8))
    strange = RatedModel(
        judged=np.tile([0.9, 0.05, 0.05], (300, 1)),
        item=np.zeros(0, dtype=int),
        value=np.zeros((0, 3)),
        cluster=np.zeros(0, dtype=int),
    )
    *_, found = by_each_other({**models, "strange": strange})
    assert found.how == "line" and found.reason is None
    good, bad = found.corrected["Good"].interval, found.corrected["Bad"].interval
    assert good is not None and bad is not None
    assert good.low == 0.0 and good.high < 0.5 and bad.high == 1.0


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=6))
def test_projected_shares_are_shares(values: list[float]) -> None:
    shares = project(np.array(values))
    assert shares.sum() == pytest.approx(1) and (shares >= 0).all()
    np.testing.assert_allclose(project(shares), shares, atol=1e-12)


def test_planning_follows_the_textbook() -> None:
    # Two proportions near .5, 10 points apart, power .8: 392 a group by the usual formula, and what 40 raters
    # of each, ten ratings from each, add by their t.
    assert ratings_of_each(0.1, variance=0.25) == 403
    many = 2 * 0.25 * (2.8016 / 0.02) ** 2
    assert ratings_of_each(0.02, variance=0.25) == pytest.approx(many, rel=2e-3)
