"""Intervals over conversations hold the true share as often as they promise, with few conversations too."""

import numpy as np
import pytest

from calibration.shares.tally import Tally, model_shares
from data.records import LABELS, Judgment

DRAWS = 1500
LEVELS = (-0.15, 0.6)  # of a poor and of a good bot on the judge's direction: 20 and 44 % Good
SLOPE, CUTS = 2.0, (-0.1, 0.7)  # about those of the shipped judge
SPREAD = 0.5  # of a bot's conversations
MANY = 400_000


def chances(places: np.ndarray) -> np.ndarray:
    okay, good = (1 / (1 + np.exp(SLOPE * (cut - places))) for cut in CUTS)
    return np.stack([1 - okay, okay - good, good], axis=1)


def draw(level: float, count: int, rng: np.random.Generator) -> Tally:
    tally = Tally()
    for number, row in enumerate(chances(level + SPREAD * rng.standard_normal(count)).tolist()):
        probabilities = dict(zip(LABELS, row, strict=True))
        known = {"id": str(number), "model": "bot", "content": "", "prompt_digest": f"{number:x}"}
        tally.add(Judgment(**known, probabilities=probabilities))
    return tally


def held(level: float, count: int, rng: np.random.Generator, draws: int) -> float:
    """How often the interval of Good holds what all conversations of the bot would give."""
    truth = chances(level + SPREAD * rng.standard_normal(MANY))[:, -1].mean()
    hits = 0
    for _ in range(draws):
        (model,) = model_shares(draw(level, count, rng), rng=rng, draws=1000, widened=True)
        interval = model.shares["Good"].interval
        hits += interval.low <= truth <= interval.high
    return hits / draws


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("count", [20, 60, 200])
def test_intervals_over_conversations_hold(level: float, count: int) -> None:
    """The table of docs/explanation/conversations.md; three standard errors of the simulation are granted."""
    found = held(level, count, np.random.default_rng(count), DRAWS)
    slack = 3 * (0.95 * 0.05 / DRAWS) ** 0.5
    assert 0.93 - slack <= found <= 0.97 + slack
