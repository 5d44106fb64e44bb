"""Simulated years of nights, with and without a change."""

import math

import numpy as np

from empathy_judge.calibration.estimate import Floats
from empathy_judge.calibration.monitoring.confidence_sequence import (
    NIGHTS,
    NightSums,
    recent_change,
    sum_night,
)

PROMPTS = 160
SPREAD = 0.2  # over prompts, of the difference of two nights' Good probabilities


def answers(rng: np.random.Generator, kind: str, base: Floats, nights: int) -> Floats:
    """Good probabilities of as many nights' answers, (nights, prompts), all with about the same spread."""
    shape, own = (nights, len(base)), SPREAD / math.sqrt(2)
    if kind == "normal":
        return base + own * rng.standard_normal(shape)
    if kind == "bounded":  # between 0 and 1, and skewed near either end
        weight = np.maximum(base * (1 - base) / own**2 - 1, 0.3)
        return rng.beta(np.broadcast_to(base * weight, shape), np.broadcast_to((1 - base) * weight, shape))
    if kind == "heavy":  # one answer in eight is another one altogether
        return base + own * math.sqrt(8) * rng.standard_normal(shape) * (rng.random(shape) < 1 / 8)
    assert kind == "collapse"  # now and then a good answer turns out badly, never a bad one well
    return base - 0.9 * base * (rng.random(shape) < 0.06)


def year(
    rng: np.random.Generator,
    kind: str,
    *,
    nights: int = NIGHTS,
    drop_at: int | None = None,
    drop: float = 0.05,
    baseline_nights: int = 1,
    variation: float = 0.0,
    memory: float = 0.0,
    fewest: int = PROMPTS,
) -> list[NightSums]:
    """A simulated history with prompts and a baseline of its own.

    `variation` is the spread of what all answers of a night have in common, `memory` its correlation from
    night to night. The prompts dwindle to the `fewest` over the first quarter.
    """
    base = rng.beta(3, 2, size=PROMPTS)
    apart = answers(rng, kind, base, nights) - answers(rng, kind, base, baseline_nights).mean(axis=0)
    if variation:
        shared = common_parts(rng, baseline_nights + nights, variation, memory)
        apart += (shared[baseline_nights:] - shared[:baseline_nights].mean())[:, None]
    if drop_at is not None:
        apart[drop_at:] -= drop
    sums = []
    for night, differences in enumerate(apart):
        left = max(fewest, round(PROMPTS - 4 * (PROMPTS - fewest) * night / nights))
        sums.append(sum_night(differences[:left], 1 / baseline_nights))
    return sums


def common_parts(rng: np.random.Generator, nights: int, spread: float, memory: float) -> Floats:
    """What the answers of each night have in common: an autoregression of the first order."""
    steps, found = rng.standard_normal(nights), np.empty(nights)
    found[0] = steps[0]
    for night in range(1, nights):
        found[night] = memory * found[night - 1] + math.sqrt(1 - memory**2) * steps[night]
    return spread * found


def first_alarm(nights: list[NightSums], *, start: int = 1) -> float:
    """Return the first night on which a drop is shown; infinite for never."""
    for night in range(start, len(nights) + 1):
        ends = recent_change(nights[:night]).interval
        if ends is not None and ends.high < 0:
            return night
    return math.inf
