"""Nights of a model whose true drop is known, until a gate is inconclusive, and whether its promise holds."""

from dataclasses import dataclass

import numpy as np

from calibration.estimate import Floats
from calibration.monitoring.confidence_sequence import Watch, current, update
from calibration.monitoring.drift import paired_change
from nightly.changes import Change, Reading
from nightly.gates import CheckedModel, Gate, check_gates
from nightly.schema import GateResult

GATE = Gate(kind="good_share_drop", limit=5, subject="baseline")
SPREAD = 0.2  # over prompts, of the difference of two nights


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What was promised, None if nothing, and whether it came true."""

    drop: float
    nights: int | None
    told_in_nights: bool | None
    prompts: int | None
    told_by_prompts: bool | None


def promise(rng: np.random.Generator, drop: float, *, prompts: int, before: int = 1) -> Promise:
    """Look at the gate after `before` nights, and do what it says would tell."""
    baseline = _night(rng, 0.0, prompts)
    watch = Watch()
    for _ in range(before):
        watch, found = _look(watch, _night(rng, drop, prompts) - baseline)
    if found.outcome != "inconclusive":
        return Promise(drop=drop, nights=None, told_in_nights=None, prompts=None, told_by_prompts=None)
    told_in_nights = None
    if found.nights:
        later, outcomes = watch, []
        for _ in range(found.nights):
            later, result = _look(later, _night(rng, drop, prompts) - baseline)
            outcomes.append(result.outcome)
        told_in_nights = "regression" in outcomes
    wanted = None
    if " prompts a night" in found.sentence:
        wanted = int(found.sentence.split(" prompts a night")[0].split()[-1].replace(",", ""))
    told_by_prompts = None
    if wanted:
        baseline, later = _night(rng, 0.0, wanted), Watch()
        for _ in range(before):
            later, result = _look(later, _night(rng, drop, wanted) - baseline)
        told_by_prompts = result.outcome != "inconclusive"
    return Promise(
        drop=drop,
        nights=found.nights,
        told_in_nights=told_in_nights,
        prompts=wanted,
        told_by_prompts=told_by_prompts,
    )


def _night(rng: np.random.Generator, drop: float, prompts: int) -> Floats:
    answers: Floats = SPREAD / np.sqrt(2) * rng.standard_normal(prompts) - drop
    return answers


def _look(watch: Watch, differences: Floats) -> tuple[Watch, GateResult]:
    watch = update(watch, differences)
    tonight, uniform = paired_change(differences), current(watch)
    reading = Reading(
        value=uniform.value,
        interval=tonight.interval,
        uniform=uniform.interval,
        prompts=len(differences),
        watch=watch,
    )
    model = CheckedModel(model="m", changes={"baseline": Change(readings={"good": reading})})
    (result,) = check_gates([GATE], [model])
    return watch, result
