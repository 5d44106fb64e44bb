"""How often `compare` gives each verdict, on made data in which the true difference is known.

People's view of a reply and the judge's are each a place on a scale that two cuts make into Bad, Okay and
Good. On every model the judge strays, in where it puts the model (4 points of Good) and in where it cuts; the
calibration has some models that people rated, each with an error of 1.6 points. Nobody rated the two that are
compared.
"""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from calibration.comparison.differences import differences
from calibration.comparison.judged_models import ComparisonSettings, JudgedModel
from calibration.shares.ppi import RatedModel
from calibration.shares.transport import CalibratedModels

CUTS = np.array([-1.1, 0.0])
STRAY, CUT_STRAY = 0.1, 0.05  # on that scale: 4 points of Good, and 1 to 2 of Bad
PROMPT, REPLY, CROWD = 0.3, 0.24, 0.016
NONE = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, kw_only=True)
class World:
    """What is compared: `alike` is the true correlation of the judge's errors on the two models.

    `are_variants` is what the user says of them. `middle` is where the two lie, in people's share of Good:
    rated models go from `low` to `high`.
    """

    gap: float
    prompts: int = 64
    models: int = 5
    alike: float = 0.0
    are_variants: bool = False
    middle: float = 0.55
    low: float = 0.4
    high: float = 0.7


def shares_at(place: np.ndarray, cuts: np.ndarray = CUTS) -> np.ndarray:
    under = ndtr((cuts - np.asarray(place)[..., None]) / math.hypot(1.0, PROMPT, REPLY))
    return np.stack([under[..., 0], under[..., 1] - under[..., 0], 1 - under[..., 1]], axis=-1)


def place_of(good: float) -> float:
    """Where a model stands whose replies people call Good in this share."""
    return float(ndtri(good)) * math.hypot(1.0, PROMPT, REPLY)


def strays(families: list[int], alike: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """How far the judge is off in each model's place, and in its cuts; alike within a family."""
    columns = []
    for size, spread in ((1, STRAY), (2, CUT_STRAY)):
        common = rng.normal(0, 1, (max(families) + 1, size))[families]
        own = rng.normal(0, 1, (len(families), size))
        columns.append(spread * (math.sqrt(alike) * common + math.sqrt(1 - alike) * own))
    return columns[0][:, 0], columns[1]


def calibration(world: World, rng: np.random.Generator) -> tuple[CalibratedModels, ...]:
    names = tuple(f"m{number}" for number in range(world.models))
    places = np.array([place_of(good) for good in np.linspace(world.low, world.high, world.models)])
    places = rng.permutation(places)
    off, cuts = strays(list(range(world.models)), world.alike, rng)
    judge = np.array([shares_at(place, CUTS + cut) for place, cut in zip(places + off, cuts, strict=True)])
    crowd = shares_at(places)
    noise = CROWD**2 * crowd * (1 - crowd) / 0.24
    crowd = crowd + rng.normal(0, np.sqrt(noise))
    return tuple(
        CalibratedModels(models=names, judge=tuple(one), crowd=tuple(two), noise=tuple(three))
        for one, two, three in zip(judge.T.tolist(), crowd.T.tolist(), noise.T.tolist(), strict=True)
    )


def verdict(world: World, rng: np.random.Generator) -> str:
    """Make both models, compare them, and return the verdict on the first, which is better by `gap`."""
    calibrated = calibration(world, rng)
    off, cuts = strays([0, 0], world.alike, rng)
    prompt = rng.normal(0, PROMPT, world.prompts)
    numbers = np.arange(world.prompts).astype(str)
    models = []
    for at, (name, side) in enumerate((("a", 0.5), ("b", -0.5))):
        place = place_of(world.middle + side * world.gap) + off[at]
        seen = (place + prompt + rng.normal(0, REPLY, world.prompts))[:, None]
        under = ndtr(CUTS + cuts[at] - seen)
        judged = np.stack([under[:, 0], under[:, 1] - under[:, 0], 1 - under[:, 1]], axis=1)
        rated = RatedModel(judged=judged, item=NONE, value=np.zeros((0, 3)), cluster=NONE, prompt=numbers)
        models.append(JudgedModel(name=name, rated=rated))
    settings = ComparisonSettings(calibrated=calibrated, are_variants=world.are_variants)
    (found,) = differences([(models[0], models[1])], settings)
    return found.verdict


def rates(world: World, *, draws: int, seed: int = 0) -> dict[str, float]:
    """How often each verdict is given; the ends of the world's name are those of its first model."""
    rng = np.random.default_rng(seed)
    counts = Counter(verdict(world, rng) for _ in range(draws))
    return {name: count / draws for name, count in counts.items()}
