"""The simulation keeps its own promises: known shares, intervals that hold, a naive judge that does not."""

import math

import numpy as np
import pytest

from calibration.selftest import (
    Planted,
    Verdict,
    World,
    audit_planted,
    draw_models,
    draw_planted,
    self_test,
)
from data.records import LABELS


def test_the_drawn_ratings_have_the_shares_they_are_said_to_have() -> None:
    world = World(models=4, responses=6000, per_rater=2)
    models, truth = draw_models(world, 6000, 1, np.random.default_rng(0))
    for rated, shares in zip(models.values(), truth, strict=True):
        np.testing.assert_allclose(rated.value.mean(axis=0), shares, atol=0.03)
        np.testing.assert_allclose(rated.judged.sum(axis=1), 1)
    assert truth.sum(axis=1) == pytest.approx(np.ones(4))


def test_three_raters_share_every_response_and_none_rates_it_twice() -> None:
    models, _ = draw_models(World(models=1), 50, 3, np.random.default_rng(1))
    (rated,) = models.values()
    pairs = list(zip(rated.item.tolist(), rated.cluster.tolist(), strict=True))
    assert len(pairs) == 51 == len(set(pairs))
    assert set(np.bincount(rated.item)) == {3}


def test_an_audit_that_cannot_see_is_found_out() -> None:
    def blind(planted: Planted) -> Verdict:
        return Verdict(low=-1.0, high=1.0, detectable=0.1)

    def jumpy(planted: Planted) -> Verdict:
        return Verdict(low=0.1, high=1.0, detectable=0.1)

    for audit, says in ((blind, "found in 0%"), (jumpy, "without one")):
        found = self_test(rng=np.random.default_rng(3), draws=5, ratings=[], audit=audit)
        assert any(says in problem for problem in found["problems"])


def test_a_planted_bias_is_there() -> None:
    planted = draw_planted(World(models=1, responses=4000), 4000, 0.5, np.random.default_rng(4))
    has = planted.feature == 1
    assert planted.score[has].mean() - planted.score[~has].mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.slow
def test_the_naive_interval_visibly_fails_and_the_self_test_says_what_it_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("calibration.selftest.coverage_cells", lambda **options: ())  # tests/golden has them
    found = self_test(rng=np.random.default_rng(2), draws=5, ratings=[100])
    assert [row["samples"] for row in found["rows"]] == [50, 50]
    for row in found["rows"]:
        assert all(row["naive_shares"][label] < 0.3 for label in LABELS)
        width = row["width_good"]
        assert width["both"] < min(width["ratings"], width["judge"])
    empty = Planted(rating=np.ones(3), score=np.ones(3), feature=np.ones(3), cluster=np.zeros(3))
    assert math.isnan(audit_planted(empty).detectable)
