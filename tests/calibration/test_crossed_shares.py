"""Shares over attacks and replies at once, the best of N, and gaps between groups."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binomtest

from calibration.bias.crossed_shares import best_of, crossed_share, exact_share
from calibration.bias.group_gaps import largest_gap


def test_a_single_share_has_the_interval_of_scipy() -> None:
    for hits, count in ((0, 1), (1, 1), (0, 20), (7, 20), (20, 20), (1, 333), (332, 333), (1700, 5000)):
        found = exact_share(hits, count)
        theirs = binomtest(hits, count).proportion_ci(method="exact")
        assert found.value == hits / count and found.interval is not None
        assert (found.interval.low, found.interval.high) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_the_interval_knows_that_attacks_and_replies_differ() -> None:
    """A quarter of flips that are all two attacks' is known worse than a scattered quarter."""
    rng, counted = np.random.default_rng, np.ones((8, 40), dtype=bool)
    one_attack, scattered = np.zeros_like(counted), np.zeros_like(counted)
    one_attack[:2] = True
    scattered.flat[::4] = True
    widths = []
    for hits in (one_attack, scattered):
        found = crossed_share(hits, counted, rng=rng(0))
        assert found.value == 0.25 and found.interval is not None
        assert found.interval.low < 0.25 < found.interval.high
        widths.append(found.interval.high - found.interval.low)
    assert widths[0] > 1.5 * widths[1]
    assert crossed_share(counted, ~counted, rng=rng(0)).interval is None
    everything = crossed_share(counted, counted, rng=rng(0))
    assert everything == exact_share(40, 40)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    chance = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        hard = chance.normal(size=(12, 1)) + chance.normal(size=(1, 30)) + chance.normal(size=(12, 30))
        hits = hard > 1.5  # of a normal with variance 3: 19.3 % in truth
        found = crossed_share(hits, np.ones_like(hits), rng=chance, draws=400).interval
        assert found is not None
        held += found.low <= 0.1932 <= found.high
    assert held >= 176  # twelve attacks are few, and percentile intervals of few clusters run short


@pytest.mark.parametrize("tries", [1, 2, 3, 5, 9])
def test_the_best_of_n_is_the_mean_over_all_choices_of_n(tries: int) -> None:
    rng = np.random.default_rng(3)
    hits, counted = rng.random((5, 8)) < 0.3, np.ones((5, 8), dtype=bool)
    counted[3:, 0] = False  # not every attack met every reply
    shares = []
    for reply in range(8):
        met = np.flatnonzero(counted[:, reply])
        choices = list(combinations(met, min(tries, len(met))))
        shares.append(np.mean([hits[list(choice), reply].any() for choice in choices]))
    found = best_of(hits, counted, tries, rng=rng)
    assert found.value == pytest.approx(np.mean(shares))
    assert found.interval is not None and found.interval.low <= found.value <= found.interval.high


def test_where_no_attack_hits_the_best_of_all_is_still_not_surely_none() -> None:
    cells = np.zeros((6, 30), dtype=bool)
    assert best_of(cells, ~cells, 6, rng=np.random.default_rng(0)) == exact_share(0, 30)
    assert best_of(~cells, ~cells, 6, rng=np.random.default_rng(0)) == exact_share(30, 30)
    assert best_of(cells, cells, 6, rng=np.random.default_rng(0)).interval is None


def test_the_largest_gap_names_its_groups_and_is_seldom_found_where_there_is_none() -> None:
    rng = np.random.default_rng(8)
    held = found = 0
    for _ in range(100):
        alike = {str(group): (rng.random(8) < 0.6).astype(float) for group in range(10)}
        gap = largest_gap(alike, most=1.0, rng=rng, draws=200)
        assert gap is not None and gap.gap.interval is not None
        held += gap.gap.interval.low == 0
        found += gap.p < 0.05
    assert held >= 95 and found <= 8
    apart = {"low": np.zeros(20), "middle": np.full(20, 0.5), "high": np.ones(20), "empty": np.zeros(0)}
    gap = largest_gap(apart, most=1.0, rng=rng)
    assert gap is not None and (gap.gap.value, gap.lowest, gap.highest) == (1.0, "low", "high")
    assert gap.gap.interval is not None and gap.gap.interval.low > 0.5 and gap.p < 0.001
    assert largest_gap({"one": np.ones(3)}, most=1.0, rng=rng) is None
