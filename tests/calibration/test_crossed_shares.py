"""Shares over attacks and replies at once, the best of N, and gaps between groups."""

import numpy as np
import pytest
from scipy.stats import binomtest

from empathy_judge.calibration.bias import crossed_share, exact_share


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
        held += found.low <= 0.1932 <= found.high
    assert held >= 176  # twelve attacks are few, and percentile intervals of few clusters run short
