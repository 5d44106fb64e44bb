"""Worlds in which human levels are known: how often levels, bounds and verdicts of unrated models are right.

Models have the layout of the shipped calibration: their number, the judge's means and the noise of their
ratings. On the logit scale the human level is `a + slope * (judge - mean)` plus a deviation of each model.
Beyond the rated models the slope changes by the factor of a curve.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

import numpy as np

from empathy_judge.calibration.artifact import CALIBRATION_FILE, read_calibration
from empathy_judge.calibration.comparison.verdicts import LIKELY, SURE, SURE_AT_LEAST
from empathy_judge.calibration.estimate import Estimate, Floats
from empathy_judge.calibration.shares.transport import (
    CalibratedModels,
    TargetModel,
    shows_loss,
    sign_probability,
    transport,
)
from empathy_judge.judge.base import WEIGHTS

DRAWS: Final = 400
PAIRS: Final = 4  # with each draw's calibration
PROMPTS: Final = 64
VERDICTS: Final = ("better", "probably better", "at least as good")
BEYOND: Final = {"0.3 above": 0.3, "0.5 below": -0.5, "1 below": -1.0}  # logits beyond the rated models
CURVES: Final = {"linear": 1.0, "half": 0.5, "twice": 2.0, "three times": 3.0}
GAPS: Final = (-10, 0, 5, 10, 15, 20)  # true differences in points; in worlds of another kind 0 and 20
GAP_SD: Final = 0.08  # of the true differences among which wrong verdicts are counted
DROP: Final = 0.1
OUTLIER: Final = 0.15  # by which the judge misjudges a rated model
OWN_MODELS, OWN_RATINGS, DESIGN_EFFECT = 7, 60, 1.8  # of a user, and of each
EDGE: Final = 0.001


@dataclass(frozen=True, kw_only=True)
class AnswerWorld:
    """Standard deviation of the models' deviations in logits, and the slope between models.

    `by_set` is the standard deviation of the logarithm of that size from set to set.
    """

    deviation: float = 0.18
    slope: float = 1.0
    is_heavy_tailed: bool = False  # Student's t with 4 degrees of freedom
    by_set: float = 0.0

    @property
    def is_plain(self) -> bool:
        """Whether only the size of the deviations is special."""
        return self == AnswerWorld(deviation=self.deviation)


WORLDS: Final = {
    "deviations 0.14": AnswerWorld(deviation=0.14),
    "deviations 0.18": AnswerWorld(),
    "deviations 0.25": AnswerWorld(deviation=0.25),
    "deviations t4": AnswerWorld(is_heavy_tailed=True),
    "deviations by set": AnswerWorld(by_set=0.5),
    "slope 0.5": AnswerWorld(slope=0.5),
    "slope 2": AnswerWorld(slope=2.0),
}


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


def measure(name: str, draws: int = DRAWS) -> dict[str, float]:
    """Return the rates of a simulated world: coverage of levels and bounds, and of verdicts.

    A verdict's rate is that on the better of two models, by the points that it is ahead; at 0 on either. The
    last two are the parts of verdicts on random pairs that name the worse model.
    """
    rng = np.random.default_rng(list(WORLDS).index(name))
    gaps = GAPS if WORLDS[name].is_plain else (0, 20)
    covered, said, verdicts = Counter[str](), Counter[str](), Counter[tuple[str, bool]]()
    for _ in range(draws):
        draw = Draw.of(WORLDS[name], rng)
        covered.update(_covered(draw))
        for _ in range(PAIRS):
            for points in gaps:
                verdict, is_right, is_as_good = _verdict(draw, points / 100)
                said[f"{verdict} at {points}"] += is_right or not points
                said[f"at least as good at {points}"] += is_as_good
            verdicts[_verdict(draw, GAP_SD * rng.standard_normal())[:2]] += 1
    checks = [
        f"{verdict} at {points}" for verdict in VERDICTS for points in gaps if points >= 0 or "as" in verdict
    ]
    places = [f"bound {target}, {curve}" for target in BEYOND for curve in CURVES]
    return (
        {check: covered[check] / draws for check in ("level", *places)}
        | {check: said[check] / draws / PAIRS for check in checks}
        | {
            f"{each} wrong": verdicts[each, False] / max(1, verdicts[each, False] + verdicts[each, True])
            for each in VERDICTS[:2]
        }
    )


def _covered(draw: Draw) -> list[str]:
    """Return the checks of levels and bounds that include the truth."""
    logits = layout().link(layout().judge)
    ends = float(logits.min()), float(logits.max())
    places = {"level": draw.rng.uniform(*ends)}
    places |= {f"bound {name}": ends[by > 0] + by for name, by in BEYOND.items()}
    covered = []
    for check, place in places.items():
        estimate = transport(draw.calibrated, draw.judged(place))
        inside = float(np.clip(place, *ends))
        (human,) = draw.human(np.array([inside]))
        for curve, factor in CURVES.items() if check != "level" else [("", 1.0)]:
            level = float(layout().inverse(human + factor * draw.world.slope * (place - inside)))
            covered += [f"{check}, {curve}".removesuffix(", ")] if _is_in(level, estimate) else []
    return covered


def _verdict(draw: Draw, gap: float, correlation: float = 0.0) -> tuple[str, bool, bool]:
    """Return the verdict on two models whose human levels differ by the gap, and whether its sign is right.

    The last is whether the one is called at least as good, within the drop.
    """
    level = float(layout().inverse(middle()[0]))
    human = layout().link(np.array([level + gap / 2, level - gap / 2]))
    one, other = (draw.judged(float(logit)) for logit in draw.judge(human))
    steepness = layout().steepness(layout().link([one.judge, other.judge]))
    error = prompt_error() * float(np.sqrt((1 / steepness**2).sum()))
    sign = partial(sign_probability, draw.calibrated, one, other, error, correlation=correlation)
    probability = sign()
    as_good = shows_loss(draw.calibrated, one, other) and sign(drop=DROP) >= SURE_AT_LEAST
    certain = max(probability, 1 - probability)
    verdict = "better" if certain >= SURE else "probably better" if certain >= LIKELY else "inconclusive"
    return verdict, (probability > 0.5) == (gap > 0), as_good


def variants_called_better(correlation: float, draws: int = DRAWS) -> float:
    """Return how often one of two equal models is called better if errors are assumed to correlate."""
    rng = np.random.default_rng(0)
    each = (Draw.of(AnswerWorld(), rng) for _ in range(draws))
    verdicts = [_verdict(draw, 0.0, correlation)[0] for draw in each for _ in range(PAIRS)]
    return verdicts.count("better") / len(verdicts)


def outlier_covered(ratings: int, draws: int = DRAWS) -> float:
    """Return how often the interval of a rated model that the judge misjudges by `OUTLIER` has its level."""
    rng = np.random.default_rng(ratings)
    draw = Draw(world=AnswerWorld(), rng=rng, size=0.0, calibrated=layout())
    ends = np.quantile(layout().link(layout().judge), (0, 1))
    covered = 0
    for number in range(draws):
        place = rng.uniform(*ends)
        usual = transport(layout(), TargetModel(judge=float(layout().inverse(place)))).value
        human = usual + (OUTLIER if number % 2 else -OUTLIER)
        noise = human * (1 - human) * DESIGN_EFFECT / ratings
        crowd = float(np.clip(human + math.sqrt(noise) * rng.standard_normal(), EDGE, 1 - EDGE))
        covered += _is_in(human, transport(layout(), replace(draw.judged(place), crowd=crowd, noise=noise)))
    return covered / draws


def own_calibration(draws: int = DRAWS) -> dict[str, float]:
    """Return the coverage of a new model's interval with own ratings, and its relative width.

    The own models fit the shipped line; the width is relative to that with the shipped calibration alone.
    """
    rng = np.random.default_rng(0)
    covered, widths = 0, []
    for _ in range(draws):
        draw = Draw.of(AnswerWorld(), rng)
        ends = np.quantile(layout().link(layout().judge), (0, 1))
        places = rng.uniform(*ends, OWN_MODELS + 1)
        human = layout().inverse(draw.human(places))
        noise = human * (1 - human) * DESIGN_EFFECT / OWN_RATINGS
        crowd = np.clip(human + np.sqrt(noise) * rng.standard_normal(len(human)), EDGE, 1 - EDGE)
        own = replace(
            draw.calibrated,
            models=tuple(f"own {number}" for number in range(OWN_MODELS)),
            judge=tuple(draw.judged(place).judge for place in places[1:]),
            crowd=tuple(crowd[1:].tolist()),
            noise=tuple(noise[1:].tolist()),
            shared=0.0,
            base=draw.calibrated,
        )
        model = draw.judged(places[0])
        with_own, alone = (transport(line, model) for line in (own, draw.calibrated))
        covered += _is_in(float(human[0]), with_own)
        widths.append((with_own.width, alone.width))
    return {"new model covered": covered / draws, "width": float(np.divide(*np.mean(widths, axis=0)))}


def _is_in(value: float, estimate: Estimate) -> bool:
    ends = estimate.interval
    assert ends is not None
    return ends.low <= value <= ends.high
