"""Bias audits: right against formulas known in closed form, found at their stated power, silent otherwise."""

import math
from dataclasses import replace

import numpy as np
import pytest
from biased_judges import draw, rates
from scipy.stats import binomtest

from empathy_judge.calibration import bias
from empathy_judge.calibration.bias import AUDITS, audit, crossed_share, exact_share
from empathy_judge.calibration.cluster import Contrast, contrast
from empathy_judge.data.records import to_plain


def test_two_groups_give_welchs_error_and_the_published_degrees_of_freedom() -> None:
    """Every row its own cluster: Welch's error; the degrees are Imbens and Kolesár's (2016) closed form."""
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=12), 2 * rng.normal(size=30)
    found = contrast(
        np.r_[one, two], np.r_[np.ones(12), np.zeros(30)], np.arange(42), strata=np.zeros(42, dtype=int)
    )
    assert found.effect == pytest.approx(one.mean() - two.mean())
    assert found.error == pytest.approx(math.sqrt(one.var(ddof=1) / 12 + two.var(ddof=1) / 30))
    assert found.freedom == pytest.approx(42**2 * 11 * 29 / (12**2 * 11 + 30**2 * 29))


def test_clusters_and_strata_agree_with_the_definition_written_out() -> None:
    """The bias-reduced variance from whole matrices, as Bell and McCaffrey define it."""
    rng = np.random.default_rng(1)
    values, feature = rng.normal(size=60), rng.normal(size=60)
    clusters, strata = rng.integers(9, size=60), rng.integers(3, size=60)
    design = np.column_stack([np.eye(3)[strata], feature])
    inverse = np.linalg.inv(design.T @ design)
    hat = design @ inverse @ design.T
    rest, variance, columns = values - hat @ values, 0.0, []
    for cluster in range(9):
        rows = np.flatnonzero(clusters == cluster)
        sizes, vectors = np.linalg.eigh(np.eye(len(rows)) - hat[np.ix_(rows, rows)])
        adjust = vectors @ np.diag(sizes**-0.5) @ vectors.T
        variance += (inverse @ design[rows].T @ adjust @ rest[rows])[-1] ** 2
        columns.append((np.eye(60) - hat)[rows].T @ adjust @ design[rows] @ inverse[:, -1])
    products = np.array(columns) @ np.array(columns).T
    found = contrast(values, feature, clusters, strata=strata)
    assert found.effect == pytest.approx((inverse @ design.T @ values)[-1])
    assert found.error == pytest.approx(math.sqrt(variance))
    assert found.freedom == pytest.approx(np.trace(products) ** 2 / np.trace(products @ products))


def test_items_that_cross_clusters_are_counted_and_nested_ones_change_nothing() -> None:
    rng = np.random.default_rng(3)
    clusters, items = np.repeat(np.arange(12), 20), np.tile(np.arange(20), 12)
    shared = rng.normal(size=20)[items] + 0.1 * rng.normal(size=240)
    ones = np.ones(240)
    crossed = contrast(shared, ones, clusters, items=items)
    assert crossed.error > 5 * contrast(shared, ones, clusters).error
    assert crossed.error == pytest.approx(1 / math.sqrt(20), rel=0.3)
    nested = clusters * 100 + np.arange(240) % 5
    assert contrast(shared, ones, clusters, items=nested) == contrast(shared, ones, clusters)


def test_what_one_cluster_alone_tells_is_undefined() -> None:
    values, strata = np.arange(12.0), np.zeros(12, dtype=int)
    feature, clusters = np.repeat([1.0, 0.0], [4, 8]), np.repeat([0, 1, 2], 4)
    assert not contrast(values, feature, clusters, strata=strata).is_defined  # all of it in cluster 0
    assert not contrast(values, np.ones(12), clusters, strata=strata).is_defined  # the same everywhere
    assert not contrast(values, np.ones(12), strata).is_defined  # one cluster
    assert not contrast(values[:0], values[:0], strata[:0]).is_defined
    # A stratum of one cluster only takes itself out of the slope, not the slope away.
    slope = contrast(np.tile([1.0, 3.0], 6), np.tile([0.0, 1.0], 6), clusters, strata=clusters)
    assert slope.effect == pytest.approx(2) and slope.error == pytest.approx(0)


def test_the_verdict_follows_its_rule() -> None:
    for effect, error, *verdict in (
        (0.5, 0.1, "found", "matters"),
        (0.05, 0.02, "found", "small"),
        (0.12, 0.05, "found", "unclear"),
        (0.0, 0.0356, "none found", "small"),  # 2.802 x .0356 = .0998
        (0.0, 0.0358, "could not have been found", "small"),
        (0.05, 0.2, "could not have been found", "unclear"),
        (math.nan, math.nan, "could not have been found", "unclear"),
    ):
        found = bias.judge_effect(Contrast(effect=effect, error=error, freedom=1e5), threshold=0.1)
        assert found == tuple(verdict)


def test_a_bias_as_large_as_stated_is_found_and_none_is_not() -> None:
    """A few draws, and wide limits; the slow tests have many."""
    alarms, found, planted = rates(30, seed=0)
    assert set(planted) == {"length", "author", "valence"}
    assert all(found[name] >= 17 and alarms[name] <= 6 for name in planted)


def test_planted_biases_are_measured_and_told_apart() -> None:
    rng = np.random.default_rng(6)
    paired, (words, emotion) = draw(rng, raters=300, length=0.2, valence=-0.3)
    found = {finding.audit: finding for finding in audit(paired, words=words, emotion=emotion)}
    assert found["length"].effect.value == pytest.approx(0.2, abs=0.05)
    assert found["valence"].effect.value == pytest.approx(-0.3, abs=0.05)
    assert (found["length"].verdict, found["valence"].size) == ("found", "matters")
    assert found["author"].verdict in ("none found", "could not have been found")


def test_a_smaller_study_could_not_have_found_what_a_larger_one_rules_out() -> None:
    rng = np.random.default_rng(7)
    (few, (words, _)), (many, (more, _)) = (draw(rng, raters=raters) for raters in (12, 600))
    small, large = audit(few, words=words)[1], audit(many, words=more)[1]
    assert (small.verdict, large.verdict) == ("could not have been found", "none found")
    assert large.detectable < 0.1 < small.detectable


def test_missing_facts_are_undefined_and_say_so() -> None:
    paired, (words, _) = draw(np.random.default_rng(9))
    alike = replace(paired, model=np.full(len(paired), "ada"))
    findings = {finding.audit: finding for finding in audit(alike)}
    assert list(findings) == list(AUDITS)
    for name in ("length", "author", "valence"):
        assert math.isnan(findings[name].effect.value) and findings[name].effect.interval is None
        assert findings[name].verdict == "could not have been found" and findings[name].note
    row = to_plain(findings["length"])
    assert row["effect"] == {"value": None, "low": None, "high": None} and row["p"] is None
    for rows in (0, 1):
        found = audit(paired.take(np.arange(rows)), words=words)
        assert {finding.verdict for finding in found} == {"could not have been found"}
    same = audit(paired.take(paired.model == "ada"), words=dict.fromkeys(words, 7))
    assert math.isnan(same[1].effect.value)


def test_a_change_passes_fails_or_cannot_tell_by_its_interval() -> None:
    rng = np.random.default_rng(12)
    prompts = np.repeat(np.arange(40), 2)
    before = np.full(80, 2.0)

    def result(shift: float, least: float, most: float, spread: float = 0.1, pairs: int = 80) -> str:
        after = before + shift + spread * rng.standard_normal(80)
        change = bias.mean_change(*(part[:pairs] for part in (before, after, prompts)))
        return bias.conclude(change, least, most)

    same = (-0.1, 0.1)
    assert result(0.0, *same) == result(0.3, 0.1, np.inf) == result(0.3, -0.1, np.inf) == "passes"
    assert result(0.3, *same) == result(-0.3, *same) == result(0.0, -np.inf, -0.1) == "fails"
    assert result(0.1, -np.inf, 0.1) == result(0.0, *same, spread=3.0) == "inconclusive"
    assert result(0.0, *same, pairs=2) == "inconclusive"  # one prompt
    assert result(0.0, *same, pairs=0) == "inconclusive"


def test_a_single_share_has_the_interval_of_scipy() -> None:
    for hits, count in ((0, 1), (1, 1), (0, 20), (7, 20), (20, 20), (1, 333), (332, 333), (1700, 5000)):
        found = exact_share(hits, count)
        theirs = binomtest(hits, count).proportion_ci(method="exact")
        assert found.value == hits / count
        assert (found.interval.low, found.interval.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_the_interval_of_a_crossed_share_knows_that_attacks_and_replies_differ() -> None:
    """A quarter of flips that are all two attacks' is known worse than a scattered quarter."""
    rng, counted = np.random.default_rng, np.ones((8, 40), dtype=bool)
    one_attack, scattered = np.zeros_like(counted), np.zeros_like(counted)
    one_attack[:2] = True
    scattered.flat[::4] = True
    widths = []
    for hits in (one_attack, scattered):
        found = crossed_share(hits, counted, rng=rng(0))
        assert found.value == 0.25
        assert found.interval.low < 0.25 < found.interval.high
        widths.append(found.interval.high - found.interval.low)
    assert widths[0] > 1.5 * widths[1]
    assert crossed_share(counted, ~counted, rng=rng(0)).interval is None
    assert crossed_share(counted, counted, rng=rng(0)) == exact_share(40, 40)


def test_the_interval_of_a_crossed_share_holds_the_truth_as_often_as_it_says() -> None:
    chance, held = np.random.default_rng(5), 0
    for _ in range(200):
        hard = chance.normal(size=(12, 1)) + chance.normal(size=(1, 30)) + chance.normal(size=(12, 30))
        hits = hard > 1.5  # of a normal with variance 3: 19.3 % in truth
        found = crossed_share(hits, np.ones_like(hits), rng=chance, draws=400).interval
        held += found.low <= 0.1932 <= found.high
    assert held >= 176  # twelve attacks are few, and percentile intervals of few clusters run short
