"""Worlds in which human levels are known: how often levels, bounds and verdicts of unrated models are right.

Models have the layout of the shipped calibration: their number, the judge's means and the noise of their
ratings. On the logit scale the human level is `a + slope * (judge - mean)` plus a deviation of each model.
Beyond the rated models the slope changes by the factor of a curve.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final
from unittest.mock import patch

import numpy as np

from empathy_judge.calibration.artifact import CALIBRATION_FILE, read_calibration
from empathy_judge.calibration.comparison.verdicts import ALPHA, LIKELY
from empathy_judge.calibration.estimate import Floats
from empathy_judge.calibration.shares import transport as transport_module
from empathy_judge.calibration.shares.transport import (
    CalibratedModels,
    TargetModel,
    sign_probability,
    transport,
)
from empathy_judge.judge.base import WEIGHTS

DRAWS: Final = 1000
PAIRS: Final = 5  # with each draw's calibration
KNOWN_SIZE_DRAWS: Final = 200  # repeated with the size of the deviations known
PROMPTS: Final = 64
INSIDE: Final = "inside"
BEYOND: Final = {"0.3 above": 0.3, "0.5 below": -0.5, "1 below": -1.0}  # logits beyond the rated models
CURVES: Final = {"linear": 1.0, "half": 0.5, "twice": 2.0, "three times": 3.0, "flat": 0.0}
GAP_SD: Final = 0.08  # of the true differences among which wrong verdicts are counted
EDGE: Final = 0.001


@dataclass(frozen=True, kw_only=True)
class AnswerWorld:
    """Standard deviation of the models' deviations in logits, and the slope between models.

    `by_set` is the standard deviation of the logarithm of that size from set to set.
    """

    deviation: float = 0.16
    slope: float = 1.0
    is_heavy_tailed: bool = False  # Student's t with 4 degrees of freedom
    by_set: float = 0.0


WORLDS: Final = {
    "deviations 0.10": AnswerWorld(deviation=0.10),
    "deviations 0.16": AnswerWorld(),
    "deviations 0.25": AnswerWorld(deviation=0.25),
    "deviations t4": AnswerWorld(is_heavy_tailed=True),
    "deviations by set": AnswerWorld(by_set=0.5),
    "slope 0.5": AnswerWorld(slope=0.5),
    "slope 2": AnswerWorld(slope=2.0),
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Rates over the draws of a world.

    `level` and `bounds` (by target and curve) are coverages. `width` is the width of the interval inside the
    rated range, relative to that with the size of the deviations known. `found` is the rate of *better* for
    the better of two models 20 points apart. `wrong` is the part of each verdict that names the worse model.
    """

    level: float
    width: float
    bounds: Mapping[tuple[str, str], float]
    better_at_0: float
    found: float
    wrong: Mapping[str, float]


@cache
def layout() -> CalibratedModels:
    """Return the shipped calibration of the Good share."""
    return read_calibration(WEIGHTS / "classifier" / CALIBRATION_FILE).calibrated_models["Good"]


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One calibration of a world, with the size of its deviations, and models to estimate."""

    world: AnswerWorld
    rng: np.random.Generator
    size: float
    calibrated: CalibratedModels

    @classmethod
    def of(cls, world: AnswerWorld, rng: np.random.Generator) -> "Draw":
        size = world.deviation * math.exp(world.by_set * rng.standard_normal())
        draw = cls(world=world, rng=rng, size=size, calibrated=layout())
        crowd = layout().inverse(draw.human(layout().link(layout().judge)))
        crowd = np.clip(crowd + np.sqrt(layout().noise) * rng.standard_normal(len(crowd)), EDGE, 1 - EDGE)
        return replace(draw, calibrated=replace(layout(), crowd=tuple(crowd.tolist())))

    def deviations(self, count: int) -> Floats:
        is_heavy = self.world.is_heavy_tailed
        drawn = self.rng.standard_t(4, count) / math.sqrt(2) if is_heavy else self.rng.standard_normal(count)
        return np.asarray(self.size * drawn)

    def human(self, judge: Floats) -> Floats:
        """Draw the logits of human levels where the judge's are these."""
        height, centre = middle()
        return height + self.world.slope * (judge - centre) + self.deviations(len(judge))

    def judge(self, human: Floats) -> Floats:
        """Draw the logits of the judge's means where the human ones are these."""
        height, centre = middle()
        return centre + (human - height - self.deviations(len(human))) / self.world.slope

    def judged(self, logit: float) -> TargetModel:
        """Return a model as judged on some prompts."""
        mean = float(layout().inverse(logit)) + prompt_error() * self.rng.standard_normal()
        return self.calibrated.judged(float(np.clip(mean, EDGE, 1 - EDGE)), prompt_error() ** 2, PROMPTS)


@cache
def middle() -> tuple[float, float]:
    """Return the means of the human logits and of the judge's over the layout."""
    return tuple(float(layout().link(each).mean()) for each in (layout().crowd, layout().judge))  # type: ignore[return-value]


@cache
def prompt_error() -> float:
    """Return the standard error of the judge's mean over the choice of prompts."""
    return math.sqrt((layout().prompt_variance or 0.0) / PROMPTS)


@cache
def measure(name: str, draws: int = DRAWS) -> Measured:
    """Simulate a world."""
    rng = np.random.default_rng(list(WORLDS).index(name))
    covered, verdicts = Counter[tuple[str, str]](), Counter[tuple[str, str, bool]]()
    widths: list[tuple[float, float]] = []
    for number in range(draws):
        draw = Draw.of(WORLDS[name], rng)
        covered.update(_covered(draw, widths if number < KNOWN_SIZE_DRAWS else None))
        for _ in range(PAIRS):
            for gap_name, gap in (("0", 0.0), ("20", 0.2), ("random", GAP_SD * rng.standard_normal())):
                verdicts[gap_name, *_verdict(draw, gap)] += 1
    own, known = np.mean(widths, axis=0)
    pairs = draws * PAIRS
    return Measured(
        level=covered[INSIDE, "linear"] / draws,
        width=float(own / known),
        bounds={(target, curve): covered[target, curve] / draws for target in BEYOND for curve in CURVES},
        better_at_0=sum(verdicts["0", "better", is_right] for is_right in (True, False)) / pairs,
        found=verdicts["20", "better", True] / pairs,
        wrong={
            verdict: verdicts["random", verdict, False]
            / max(1, sum(verdicts["random", verdict, is_right] for is_right in (True, False)))
            for verdict in ("better", "probably better")
        },
    )


def _covered(draw: Draw, widths: list[tuple[float, float]] | None) -> list[tuple[str, str]]:
    """Return the targets and curves whose level is in its interval; add the widths of those inside."""
    logits = layout().link(layout().judge)
    ends = float(logits.min()), float(logits.max())
    places = {INSIDE: draw.rng.uniform(*ends)} | {name: ends[by > 0] + by for name, by in BEYOND.items()}
    covered = []
    for target, place in places.items():
        model = draw.judged(place)
        interval = transport(draw.calibrated, model).interval
        assert interval is not None
        inside = float(np.clip(place, *ends))
        (human,) = draw.human(np.array([inside]))
        for curve, factor in CURVES.items():
            level = float(layout().inverse(human + factor * draw.world.slope * (place - inside)))
            covered += [(target, curve)] if interval.low <= level <= interval.high else []
        if target == INSIDE and widths is not None:
            widths.append((interval.high - interval.low, _width_with_known_size(draw, model)))
    return covered


def _width_with_known_size(draw: Draw, model: TargetModel) -> float:
    """Return the width of the interval where the size of the deviations is known."""
    names = tuple(f"{name}, size known" for name in draw.calibrated.models)  # else the posterior is cached
    with patch.multiple(transport_module, DEVIATION=draw.size, DEVIATION_FREEDOM=1e6):
        interval = transport(replace(draw.calibrated, models=names), model).interval
    assert interval is not None
    return interval.high - interval.low


def _verdict(draw: Draw, gap: float) -> tuple[str, bool]:
    """Return the verdict on two models whose human levels differ by the gap, and whether it is right."""
    level = float(layout().inverse(middle()[0]))
    human = layout().link(np.array([level + gap / 2, level - gap / 2]))
    one, other = (draw.judged(float(logit)) for logit in draw.judge(human))
    steepness = layout().steepness(layout().link([one.judge, other.judge]))
    error = prompt_error() * float(np.sqrt((1 / steepness**2).sum()))
    probability = sign_probability(draw.calibrated, one, other, error)
    return verdict_of(probability), (probability > 0.5) == (gap > 0)


def verdict_of(probability: float) -> str:
    """Return the verdict on one pair, whichever model it names."""
    certain = max(probability, 1 - probability)
    if certain >= 1 - ALPHA / 2:
        return "better"
    return "probably better" if certain >= LIKELY else "inconclusive"
