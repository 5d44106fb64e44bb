"""Rated models with known shares: a latent-quality model of replies, raters and a biased judge.

A reply has a latent quality, a model an effect on it, a rater a severity; two thresholds cut a rater's
impression into Bad, Okay and Good. The judge sees the quality through noise, is too kind to every model, and
kinder to some models than to others. True shares are known in closed form.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from calibration.estimate import Floats
from calibration.shares.ppi import RatedModel, one_hot
from data.records import LABELS

CUTS = np.array([-1.4, -0.3])


@dataclass(frozen=True, kw_only=True)
class World:
    """The population that data are drawn from; standard deviations are in units of a rating's noise."""

    models: int = 10
    responses: int = 400
    per_rater: int = 10
    quality_sd: float = 0.7
    model_sd: float = 0.3
    severity_sd: float = 0.5
    judge_slope: float = 0.6  # within a model; between models the judge follows them at 0.8
    judge_noise: float = 0.4
    kindness: float = 0.4
    kindness_sd: float = 0.15  # how much kinder to one model than to another
    level: float = 0.0  # the mean effect of a model
    raters: int | None = None  # of a model; else as many as `per_rater` needs
    is_uneven: bool = False  # one rater gives half of the ratings
    is_shared: bool = False  # the same raters rate all models

    def shares(self, effects: Floats) -> Floats:
        """Return the true human shares of models with these effects, (models, labels)."""
        return label_shares(effects, math.sqrt(self.quality_sd**2 + self.severity_sd**2 + 1))


def draw_models(
    world: World, ratings: int, per_item: int, rng: np.random.Generator
) -> tuple[dict[str, RatedModel], Floats]:
    """Return models with that many ratings each, `per_item` people to a response, and their true shares."""
    effects = world.level + world.model_sd * rng.standard_normal(world.models)
    kindness = world.kindness + world.kindness_sd * rng.standard_normal(world.models)
    # Which response and which rater each rating is of and by; raters of several to a response take turns.
    item = np.repeat(np.arange(-(-ratings // per_item)), per_item)
    turn = np.arange(len(item))
    raters = world.raters or max(per_item, round(len(item) / world.per_rater))
    rater = turn % raters if per_item > 1 or world.raters else turn * raters // len(item)
    if world.is_uneven:
        rater = np.where(2 * turn < len(item), 0, 1 + turn % (raters - 1))
    common = world.severity_sd * rng.standard_normal(raters) if world.is_shared else None
    models = {}
    for number, (effect, kind) in enumerate(zip(effects, kindness, strict=True)):
        quality = world.quality_sd * rng.standard_normal(world.responses)
        seen = world.judge_slope * quality + world.judge_noise * rng.standard_normal(world.responses)
        severity = world.severity_sd * rng.standard_normal(raters) if common is None else common
        felt = effect + quality[item] - severity[rater] + rng.standard_normal(len(item))
        models[f"model {number}"] = RatedModel(
            judged=label_shares(0.8 * effect + kind + seen, 1.1),
            item=item,
            value=one_hot(1 + (felt[:, None] > CUTS).sum(axis=1), len(LABELS)),
            cluster=rater + (0 if world.is_shared else 1000 * number),
        )
    return models, world.shares(effects)


def label_shares(effects: Floats, spread: float) -> Floats:
    under = ndtr((CUTS - effects[:, None]) / spread)
    return np.stack([under[:, 0], under[:, 1] - under[:, 0], 1 - under[:, 1]], axis=1)
