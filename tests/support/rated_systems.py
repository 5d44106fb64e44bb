"""Rated sets with several systems, as calibrations and as models to estimate; see `system_means`.

A score that is no probability is measured in standard deviations within a system, as the product does where
its bounds are not 0 and 1.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from unittest.mock import patch

import numpy as np
from system_means import SystemMean, read_system_means

from empathy_judge.calibration.shares import transport as transport_module
from empathy_judge.calibration.shares.transport import (
    CalibratedModels,
    TargetModel,
    sign_probability,
    transport,
    transport_difference,
)


@dataclass(frozen=True, kw_only=True)
class RatedSystems:
    """The systems of one set by one judge, with their human means."""

    set: str
    judge: str
    calibrated: CalibratedModels
    targets: tuple[TargetModel, ...]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(combinations(range(len(self.targets)), 2))


@cache
def rated_systems() -> tuple[RatedSystems, ...]:
    """Return every set by every judge."""
    groups: dict[tuple[str, str], list[SystemMean]] = {}
    for mean in read_system_means():
        groups.setdefault((mean.set, mean.judge), []).append(mean)
    return tuple(_rated_systems(name, judge, rows) for (name, judge), rows in groups.items())


def _rated_systems(name: str, judge: str, rows: Sequence[SystemMean]) -> RatedSystems:
    means, spreads, human, errors = (
        np.array([getattr(row, field) for row in rows])
        for field in ("judge_mean", "judge_sd", "human_mean", "human_error")
    )
    unit = 1.0 if rows[0].is_probability else math.sqrt(float((spreads**2).mean()))
    means, human, errors = means / unit, human / unit, errors / unit
    judge_errors = spreads / np.sqrt([row.n for row in rows]) / unit
    return RatedSystems(
        set=name,
        judge=judge,
        calibrated=CalibratedModels(
            models=tuple(row.system for row in rows),
            judge=tuple(means.tolist()),
            crowd=tuple(human.tolist()),
            noise=tuple((errors**2).tolist()),
            bounds=(0.0, 1 / unit),
            prompt_variance=float((spreads**2).mean()) / unit**2,
        ),
        targets=tuple(
            TargetModel(judge=mean, judge_noise=error**2)
            for mean, error in zip(means.tolist(), judge_errors.tolist(), strict=True)
        ),
    )


def signs(systems: RatedSystems, by: CalibratedModels) -> Iterable[tuple[float, bool]]:
    """Return every pair's probability of the likelier sign by another set's calibration, and if it holds."""
    for first, second in systems.pairs:
        one, other = systems.targets[first], systems.targets[second]
        steepness = [by.steepness(by.link(target.judge)) for target in (one, other)]
        error = math.hypot(
            math.sqrt(one.judge_noise) / steepness[0], math.sqrt(other.judge_noise) / steepness[1]
        )
        probability = sign_probability(by, one, other, error)
        is_preferred = systems.calibrated.crowd[first] > systems.calibrated.crowd[second]
        yield max(probability, 1 - probability), (probability > 0.5) == is_preferred


def levels_held(systems: RatedSystems) -> list[bool]:
    """Return whether each system's human mean is in its interval by the line through the others."""
    held = []
    for name, human, target in zip(
        systems.calibrated.models, systems.calibrated.crowd, systems.targets, strict=True
    ):
        interval = transport(systems.calibrated.without(name), target).interval
        assert interval is not None
        held.append(interval.low <= human <= interval.high)
    return held


def differences_held(systems: RatedSystems) -> list[bool]:
    """Return whether each difference is in its interval by the line through the systems of neither.

    Of four systems this leaves two, which the product refuses: here they suffice.
    """
    held = []
    with patch.object(transport_module, "LEAST_MODELS", 2):
        for first, second in systems.pairs:
            names, human = systems.calibrated.models, systems.calibrated.crowd
            line = systems.calibrated.without(names[first], names[second])
            pair = systems.targets[first], systems.targets[second]
            interval = transport_difference(line, *pair).estimate.interval
            assert interval is not None
            held.append(interval.low <= human[first] - human[second] <= interval.high)
    return held
