"""How often `compare` gives each verdict, on made data in which the true difference is known.

    python tests/support/verdict_worlds.py           print the table of the docs: two minutes
    python tests/support/verdict_worlds.py --draws 50

People's view of a reply and the judge's are each a place on a scale that two cuts make into Bad, Okay and
Good. On every model the judge strays, in where it puts the model (4 points of Good) and in where it cuts; the
calibration has some models that people rated, each with an error of 1.6 points. Nobody rated the two that are
compared.
"""

import argparse
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from calibration.comparison.differences import differences
from calibration.comparison.judged_models import ComparisonSettings, JudgedModel
from calibration.comparison.siblings import measure_likeness, stated
from calibration.shares.ppi import RatedModel
from calibration.shares.transport import CalibratedModels

CUTS = np.array([-1.1, 0.0])
STRAY, CUT_STRAY = 0.1, 0.05  # on that scale: 4 points of Good, and 1 to 2 of Bad
PROMPT, REPLY, CROWD = 0.3, 0.24, 0.016
NONE = np.zeros(0, dtype=np.intp)
LEANS = {"leans better", "leans worse"}


@dataclass(frozen=True, kw_only=True)
class World:
    """What is compared: `alike` is the true correlation of the two strays, `claimed` what the user says.

    `claimed` None is a comparison of strangers, "measured" one that takes it from the calibration's pairs.
    `middle` is where the two lie, in people's share of Good: rated models go from `low` to `high`.
    """

    gap: float
    prompts: int = 64
    models: int = 5
    pairs: int = 0
    alike: float = 0.0
    claimed: float | str | None = None
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
    families = [number // 2 if number < 2 * world.pairs else number for number in range(world.models)]
    names = tuple(f"m{family}@{number}" for number, family in enumerate(families))
    places = np.array([place_of(good) for good in np.linspace(world.low, world.high, world.models)])
    places = rng.permutation(places)
    off, cuts = strays(families, world.alike, rng)
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
    likeness = None
    if world.claimed == "measured":
        likeness = measure_likeness(calibrated[-1])
    elif world.claimed is not None:
        likeness = stated(float(world.claimed))
    settings = ComparisonSettings(
        calibrated=calibrated, likeness=likeness, are_siblings=world.claimed is not None
    )
    (found,) = differences([(models[0], models[1])], settings, is_planning=False)
    return found.verdict


def rates(world: World, *, draws: int, seed: int = 0) -> dict[str, float]:
    """How often each verdict is given; the ends of the world's name are those of its first model."""
    rng = np.random.default_rng(seed)
    counts = Counter(verdict(world, rng) for _ in range(draws))
    return {name: count / draws for name, count in counts.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--models", type=int, default=5)
    options = parser.parse_args()
    kinds = {
        "strangers": {},
        "siblings, .8 stated": {"alike": 0.8, "claimed": 0.8},
        "siblings, measured on 5 pairs": {"alike": 0.8, "claimed": "measured", "pairs": 5, "models": 12},
    }
    print("| models | prompts | true difference | better | leans | same | cannot say | the wrong way |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for kind, given in kinds.items():
        for prompts in (64, 160):
            for gap in (0.0, 0.05, 0.1, 0.2):
                world = World(gap=gap, prompts=prompts, **{"models": options.models, **given})
                found = rates(world, draws=options.draws)
                right = [found.get("better", 0), found.get("leans better", 0)]
                wrong = [found.get("worse", 0), found.get("leans worse", 0)]
                if not gap:
                    right, wrong = [one + two for one, two in zip(right, wrong, strict=True)], [0.0, 0.0]
                cells = [*right, found.get("same", 0), found.get("cannot say", 0), sum(wrong)]
                print(
                    f"| {kind} | {prompts} | {100 * gap:g} points |",
                    " | ".join(f"{100 * cell:.0f} %" for cell in cells),
                    "|",
                    flush=True,
                )


if __name__ == "__main__":
    main()
