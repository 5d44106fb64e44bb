"""Years of nights, with and without a change, and when the alarm is raised."""

import math

import numpy as np

from calibration.estimate import Floats
from calibration.monitoring.confidence_sequence import (
    ALPHA,
    DROP,
    NIGHTS,
    Nights,
    Watch,
    changes,
    log_evidence,
    log_ratios,
)

PROMPTS = 160


SPREAD = 0.2  # over prompts, of the difference of two nights' Good probabilities


LIMIT = math.log(NIGHTS / ALPHA)


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


def years(
    seed: int,
    kind: str,
    *,
    histories: int,
    nights: int = NIGHTS,
    prompts: int = PROMPTS,
    drop_at: int | None = None,
    drop: float = 0.05,
    baseline_nights: int = 1,
    mood: float = 0.0,
    memory: float = 0.0,
    asked: float = 1.0,
) -> Nights:
    """Simulated histories, each with prompts and a baseline of its own.

    `mood` is the spread of what all answers of a night have in common, `memory` its correlation from night to
    night, and `asked` the part of the prompts that a night has, another part each night.
    """
    rng = np.random.default_rng(seed)
    totals, squares = np.empty((histories, nights)), np.empty((histories, nights))
    for row in range(histories):
        base = rng.beta(3, 2, size=prompts)
        baseline = answers(rng, kind, base, baseline_nights).mean(axis=0)
        apart = answers(rng, kind, base, nights) - baseline
        if mood:
            shared = moods(rng, baseline_nights + nights, mood, memory)
            apart += (shared[baseline_nights:] - shared[:baseline_nights].mean())[:, None]
        if asked < 1:
            keys = rng.random(apart.shape)
            apart = np.take_along_axis(apart, keys.argsort(axis=1), axis=1)[:, : round(asked * prompts)]
        if drop_at is not None:
            apart[drop_at:] -= drop
        totals[row], squares[row] = apart.sum(axis=1), (apart**2).sum(axis=1)
    return Nights(
        prompts=np.full(nights, float(round(asked * prompts))),
        totals=totals,
        squares=squares,
        baseline_nights=baseline_nights,
    )


def moods(rng: np.random.Generator, nights: int, spread: float, memory: float) -> Floats:
    """What the answers of each night have in common: an autoregression of the first order."""
    steps, found = rng.standard_normal(nights), np.empty(nights)
    found[0] = steps[0]
    for night in range(1, nights):
        found[night] = memory * found[night - 1] + math.sqrt(1 - memory**2) * steps[night]
    return spread * found


def watch_of(nights: Nights, row: int = 0, until: int | None = None) -> Watch:
    return Watch(
        baseline_nights=nights.baseline_nights,
        prompts=tuple(int(count) for count in nights.prompts[:until]),
        totals=tuple(nights.totals[row, :until].tolist()),
        squares=tuple(nights.squares[row, :until].tolist()),
    )


def evidence_by_night(nights: Nights) -> Floats:
    """The log evidence as it was on each night, (histories, nights)."""
    found = np.zeros(nights.totals.shape)
    for night in range(1, len(nights.prompts) + 1):
        until = Nights(
            prompts=nights.prompts[:night],
            totals=nights.totals[:, :night],
            squares=nights.squares[:, :night],
            baseline_nights=nights.baseline_nights,
        )
        found[:, night - 1] = log_evidence(log_ratios(changes(until), drop=DROP))
    return found


def false_alarms(nights: Nights, *, models: int = 1) -> float:
    top = evidence_by_night(nights).max(axis=1)
    return float(np.mean(top >= LIMIT + math.log(models)))


def delays(nights: Nights, drop_at: int) -> Floats:
    """Nights from the drop to the alarm, infinite for never; histories that alarmed before are left out."""
    raised = evidence_by_night(nights) >= LIMIT
    raised = raised[~raised[:, :drop_at].any(axis=1), drop_at:]
    return np.where(raised.any(axis=1), raised.argmax(axis=1) + 1.0, np.inf)
