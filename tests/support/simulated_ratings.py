"""Simulated ratings of models with known shares, by people and by a judge with errors.

A reply has a latent quality, a model an effect on it, a rater a severity; two cuts make a rater's impression
Bad, Okay or Good. The judge sees the quality through noise and deviates from model to model. True shares are
known in closed form. `draw_models` makes many models for calibration, `two_models` a pair to compare.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import ndtr

from empathy_judge.calibration.comparison.judged_models import ComparisonSettings, JudgedModel
from empathy_judge.calibration.estimate import Floats
from empathy_judge.calibration.shares.ppi import RatedModel, one_hot
from empathy_judge.calibration.shares.transport import CalibratedModels
from empathy_judge.data.records import LABELS

RATED_CUTS = np.array([-1.4, -0.3])  # of `draw_models`
QUALITY, JUDGE_SLOPE = 0.7, 0.6  # within a model; between models the judge follows them at 0.8
CUTS = np.array([-0.9, 0.0])  # of `two_models`, whose standard deviations are on the same scale:
PROMPT, REPLY, SEVERITY, TASTE, SLIP, BLUR = 0.4, 0.4, 0.5, 0.25, 0.8, 0.3
STRAY = 0.04  # of the judge's share of Good, from model to model
MIDDLE = 0.2
Design = Literal["split", "crossed", "apart"]  # each reply read by one; by all; and other people a model


def label_shares(levels: Floats | float, spread: float, cuts: Floats = CUTS) -> Floats:
    """Return the shares of Bad, Okay and Good around these levels."""
    under = ndtr((cuts - np.asarray(levels)[..., None]) / spread)
    return np.stack([under[..., 0], under[..., 1] - under[..., 0], 1 - under[..., 1]], axis=-1)


@dataclass(frozen=True, kw_only=True)
class World:
    """The population that data are drawn from; standard deviations are in units of a rating's noise."""

    models: int = 10
    responses: int = 400
    per_rater: int = 10
    model_sd: float = 0.3
    level: float = 0.0  # the mean effect of a model
    raters: int | None = None  # of a model; else as many as `per_rater` needs
    is_uneven: bool = False  # one rater gives half of the ratings
    is_shared: bool = False  # the same raters rate all models

    def shares(self, effects: Floats) -> Floats:
        """Return the true human shares of models with these effects, (models, labels)."""
        return label_shares(effects, math.hypot(QUALITY, SEVERITY, 1), RATED_CUTS)


def draw_models(
    world: World, ratings: int, per_item: int, rng: np.random.Generator
) -> tuple[dict[str, RatedModel], Floats]:
    """Return models with that many ratings each, `per_item` people to a response, and their true shares."""
    effects = world.level + world.model_sd * rng.standard_normal(world.models)
    kindness = 0.4 + 0.15 * rng.standard_normal(world.models)
    # Which response and which rater each rating is of and by; raters of several to a response take turns.
    item = np.repeat(np.arange(-(-ratings // per_item)), per_item)
    turn = np.arange(len(item))
    raters = world.raters or max(per_item, round(len(item) / world.per_rater))
    rater = turn % raters if per_item > 1 or world.raters else turn * raters // len(item)
    if world.is_uneven:
        rater = np.where(2 * turn < len(item), 0, 1 + turn % (raters - 1))
    common = SEVERITY * rng.standard_normal(raters) if world.is_shared else None
    models = {}
    for number, (effect, kind) in enumerate(zip(effects, kindness, strict=True)):
        quality = QUALITY * rng.standard_normal(world.responses)
        seen = JUDGE_SLOPE * quality + 0.4 * rng.standard_normal(world.responses)
        severity = SEVERITY * rng.standard_normal(raters) if common is None else common
        felt = effect + quality[item] - severity[rater] + rng.standard_normal(len(item))
        models[f"model {number}"] = RatedModel(
            judged=label_shares(0.8 * effect + kind + seen, 1.1, RATED_CUTS),
            item=item,
            value=one_hot(1 + (felt[:, None] > RATED_CUTS).sum(axis=1), len(LABELS)),
            cluster=rater + (0 if world.is_shared else 1000 * number),
        )
    return models, world.shares(effects)


def truth(level: float) -> Floats:
    """Return the shares of all prompts, were all people asked."""
    return label_shares(level, math.hypot(PROMPT, REPLY, SEVERITY, TASTE, SLIP))


def judged(
    level: float, prompt: Floats, reply: Floats, rng: np.random.Generator, *, common: float, alike: float
) -> Floats:
    """Return labels by a judge that sees most of what people see, and deviates on this model."""
    seen = level + 0.7 * (prompt + reply) + rng.normal(0, BLUR, len(prompt))
    found = label_shares(seen, math.hypot(SEVERITY, TASTE, SLIP))
    stray = math.sqrt(alike) * common + math.sqrt(1 - alike) * rng.normal(0, STRAY)
    good = np.clip(found[:, 2] + stray, 0.01, 0.99)
    rest = (1 - good) / (1 - found[:, 2])
    return np.column_stack([found[:, 0] * rest, found[:, 1] * rest, good])


def two_models(
    raters: int,
    prompts: int,
    rng: np.random.Generator,
    *,
    gap: float = 0.0,
    design: Design = "split",
    unrated: int = 0,
    middle: float = MIDDLE,
    alike: float = 0.0,
) -> tuple[JudgedModel, JudgedModel]:
    """Return models whose levels are `gap` apart, with replies to the same prompts.

    Only the judge reads the replies to `unrated` further prompts. `alike` is the correlation of its errors on
    the two models.
    """
    common = rng.normal(0, STRAY) if alike else 0.0
    prompt = rng.normal(0, PROMPT, prompts + unrated)
    severity = rng.normal(0, SEVERITY, raters)
    item = np.repeat(np.arange(prompts), raters if design == "crossed" else 1)
    who = np.arange(len(item)) % raters
    models = []
    for name, level in (("a", middle + gap / 2), ("b", middle - gap / 2)):
        if design == "apart":
            severity = rng.normal(0, SEVERITY, raters)
        reply, taste = rng.normal(0, REPLY, len(prompt)), rng.normal(0, TASTE, raters)
        felt = level + (prompt + reply)[item] + (severity + taste)[who] + rng.normal(0, SLIP, len(item))
        rated = RatedModel(
            judged=judged(level, prompt, reply, rng, common=common, alike=alike),
            item=item,
            value=one_hot(1 + (felt[:, None] > CUTS).sum(axis=1), 3),
            cluster=np.array([f"{name if design == 'apart' else ''}{number}" for number in who]),
            prompt=np.arange(len(prompt)).astype(str),
        )
        models.append(JudgedModel(name=name, rated=rated))
    return models[0], models[1]


def calibrated(rng: np.random.Generator, *, count: int = 6) -> ComparisonSettings:
    """Return a line through well-rated models, on which the judge deviates as it does on new ones."""
    crowd = np.array([truth(level) for level in np.linspace(-0.4, 0.8, count)])
    judge = crowd + rng.normal(0, STRAY, count)[:, None] * [-0.3, -0.7, 1.0]
    noise = 2 * crowd * (1 - crowd) / 1500
    crowd = crowd + rng.normal(0, np.sqrt(noise))
    names = tuple(f"known-{at}" for at in range(count))
    rows = zip(judge.T.tolist(), crowd.T.tolist(), noise.T.tolist(), strict=True)
    return ComparisonSettings(
        calibrated=tuple(
            CalibratedModels(models=names, judge=tuple(one), crowd=tuple(two), noise=tuple(three))
            for one, two, three in rows
        )
    )


def without_ratings(model: JudgedModel) -> JudgedModel:
    """Return the model as if only the judge had read it."""
    none = np.zeros(0, dtype=np.intp)
    bare = replace(model.rated, item=none, value=np.zeros((0, 3)), cluster=none.astype(str))
    return replace(model, rated=bare)
