"""Rated sets with several systems, as calibrations and as models to estimate; see `system_means`.

A score that is no probability is measured in standard deviations within a system, as the product does where
its bounds are not 0 and 1.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations
from typing import Final
from unittest.mock import patch

import numpy as np
from system_means import SystemMean, read_system_means

from empathy_judge.calibration.cluster import NORMAL
from empathy_judge.calibration.comparison.verdicts import SURE_AT_LEAST
from empathy_judge.calibration.shares import transport as transport_module
from empathy_judge.calibration.shares.transport import (
    CalibratedModels,
    TargetModel,
    shows_loss,
    sign_probability,
    transport,
    transport_difference,
)

DROP: Final = 0.1


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


@dataclass(frozen=True, kw_only=True)
class StatedPair:
    """What a line states of two systems, and people's difference of them."""

    names: tuple[str, str]
    probability: float  # that the first is better
    as_good: tuple[bool, bool]  # as the other, by no more than the drop
    gap: float
    is_significant: bool

    @property
    def stated(self) -> float:
        return max(self.probability, 1 - self.probability)

    @property
    def holds(self) -> bool:
        return (self.probability > 0.5) == (self.gap > 0)


def stated_pairs(
    systems: RatedSystems, line_of: Callable[[tuple[str, ...]], CalibratedModels]
) -> list[StatedPair]:
    """Return what the line for each pair of names states of it, inside the range of the whole line."""
    stated, known = [], systems.calibrated
    for first, second in systems.pairs:
        names = known.models[first], known.models[second]
        line, pair = line_of(names), (systems.targets[first], systems.targets[second])
        errors = [math.sqrt(each.judge_noise) / line.steepness(line.link(each.judge)) for each in pair]
        sign = partial(sign_probability, line, error=math.hypot(*errors))
        gap, noise = known.crowd[first] - known.crowd[second], known.noise[first] + known.noise[second]
        stated.append(
            StatedPair(
                names=names,
                probability=sign(*pair),
                as_good=tuple(
                    shows_loss(line_of(()), *each) and sign(*each, drop=DROP) >= SURE_AT_LEAST
                    for each in (pair, pair[::-1])
                ),
                gap=gap,
                is_significant=abs(gap) > NORMAL * math.sqrt(noise),
            )
        )
    return stated


def level_errors(systems: RatedSystems, *without: str) -> dict[str, float]:
    """Return mean errors of the levels of left-out systems, but for those named.

    They are of the printed level, the line's, the judge's own, and the mean of the others.
    """
    known, rows = systems.calibrated, []
    for index, name in enumerate(known.models):
        if name in without:
            continue
        rest = known.without(name)
        own = known.judge[index]
        with patch.object(CalibratedModels, "trusts_levels", False):
            by_line = transport(rest, systems.targets[index]).order
        others = np.mean(
            [crowd for each, crowd in zip(rest.models, rest.crowd, strict=True) if each not in without]
        )
        printed = transport(rest, systems.targets[index]).order
        rows.append(np.abs(np.array([printed, by_line, own, others]) - known.crowd[index]))
    return dict(zip(("printed", "line", "judge", "mean"), np.mean(rows, axis=0).tolist(), strict=True))


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
