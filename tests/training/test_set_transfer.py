"""A judge on sets it never met: every figure against the library that defines it, and who is compared."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kendalltau, spearmanr
from sklearn.metrics import roc_auc_score

from empathy_judge.training.held_out import SetItem, SetTransfer, measure_set


def make_items(*, count: int = 80, systems: int = 5, experts: int = 3) -> list[SetItem]:
    """Ratings with many ties, and parties that see them through noise of different size."""
    rng = np.random.default_rng(3)
    quality = rng.normal(size=count) + np.arange(count) % systems / 2
    items = []
    for number, truth in enumerate(quality):
        powers = np.exp(np.array([-1.0, 0.0, 1.0]) * (truth + rng.normal()))
        seen = {"gpt-4o": 0.5, "crowd": 2.0, **{f"expert-{n + 1}": 0.7 for n in range(experts)}}
        others = {name: round(truth + noise * rng.normal(), 1) for name, noise in seen.items()}
        if number % 4 == 0:
            del others["crowd"]  # who did not rate everything is measured on what they rated
        items.append(
            SetItem(
                id=str(number),
                set="made",
                system=f"system-{number % systems}",
                cluster=f"post-{number // 2}",
                rating=float(np.clip(round(2 * truth), -2, 4)),
                words=float(20 + round(10 * truth + 30 * rng.random())),
                probabilities=list(powers / powers.sum()),
                others=others,
            )
        )
    return items


ITEMS = make_items()
RATING = np.array([item.rating for item in ITEMS])
SCORE = np.array([item.probabilities for item in ITEMS]) @ [1, 2, 3]


@pytest.fixture(scope="module")
def found() -> SetTransfer:
    return measure_set(ITEMS, draws=50)


def column(name: str) -> np.ndarray:
    own = {"judge": SCORE, "length": np.array([item.words for item in ITEMS])}
    return own.get(name, np.array([item.others.get(name, np.nan) for item in ITEMS]))


def means(values: np.ndarray, there: np.ndarray) -> list[float]:
    system = np.array([item.system for item in ITEMS])
    return [float(values[there & (system == name)].mean()) for name in np.unique(system)]


@pytest.mark.parametrize("name", ["judge", "length", "gpt-4o", "crowd"])
def test_every_party_is_measured_as_the_libraries_do(found: SetTransfer, name: str) -> None:
    said = column(name)
    there = np.isfinite(said)
    rating, said = RATING[there], said[there]
    worst = rating <= np.quantile(rating, 0.2)
    party = found.parties[name]
    assert party.spearman.value == pytest.approx(spearmanr(rating, said).statistic)
    assert party.worst.value == pytest.approx(roc_auc_score(worst, -said))
    assert party.tau is not None
    tau = kendalltau(means(RATING, there), means(column(name), there)).statistic
    assert party.tau.value == pytest.approx(tau)
    for estimate in (party.spearman, party.worst, party.tau):
        assert estimate.interval and estimate.interval.low <= estimate.value <= estimate.interval.high


def test_one_expert_is_held_against_the_mean_of_the_others(found: SetTransfer) -> None:
    table = np.array([[item.others[f"expert-{n}"] for n in (1, 2, 3)] for item in ITEMS])
    rest = [np.delete(table, n, axis=1).mean(axis=1).round(9) for n in range(3)]
    expected = [spearmanr(table[:, n], rest[n]).statistic for n in range(3)]
    assert found.parties["one expert"].spearman.value == pytest.approx(np.mean(expected))
    assert not any(name.startswith("expert-") for name in found.parties), "part of the rating itself"
    assert "one expert" not in measure_set(make_items(experts=1), draws=5).parties


def test_an_order_only_of_three_systems_and_nothing_where_all_ratings_are_equal() -> None:
    assert measure_set(make_items(systems=2), draws=5).parties["judge"].tau is None
    party = measure_set([replace(item, rating=3.0) for item in ITEMS], draws=5).parties["judge"]
    assert math.isnan(party.spearman.value) and party.spearman.interval is None
    assert math.isnan(party.worst.value) and party.worst.interval is None
