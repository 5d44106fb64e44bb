"""Two judged models that people rated: by few or many, each reply by one or by all, with a known truth."""

import math
from typing import Any, Literal

import numpy as np
from scipy.special import ndtr

from calibration.comparison.judged_models import ComparisonSettings, JudgedModel
from calibration.shares.ppi import RatedModel, one_hot
from calibration.shares.transport import CalibratedModels

# Standard deviations on the scale that the two cuts make into Bad, Okay and Good.
CUTS = np.array([-0.9, 0.0])


PROMPT, REPLY, SEVERITY, TASTE, SLIP, BLUR = 0.4, 0.4, 0.5, 0.25, 0.8, 0.3


STRAY = 0.04  # of the judge's share of Good, from model to model


MIDDLE = 0.2


Design = Literal["split", "crossed", "apart"]  # each reply read by one; by all; and other people a model


def shares(latent: Any, spread: float) -> np.ndarray:
    under = ndtr((CUTS - np.asarray(latent)[..., None]) / spread)
    return np.stack([under[..., 0], under[..., 1] - under[..., 0], 1 - under[..., 1]], axis=-1)


def truth(level: float) -> np.ndarray:
    """A crowd's shares of all prompts, were all people asked."""
    return shares(level, math.hypot(PROMPT, REPLY, SEVERITY, TASTE, SLIP))


def judged(
    level: float, prompt: np.ndarray, reply: np.ndarray, rng: np.random.Generator, stray: float = STRAY
) -> np.ndarray:
    """A judge that sees most of what people see, and strays on this model."""
    seen = level + 0.7 * (prompt + reply) + rng.normal(0, BLUR, len(prompt))
    found = shares(seen, math.hypot(SEVERITY, TASTE, SLIP))
    good = np.clip(found[:, 2] + rng.normal(0, stray), 0.01, 0.99)
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
    stray: float = STRAY,
) -> tuple[JudgedModel, JudgedModel]:
    """Both answer the same prompts, and `unrated` more only the judge reads; `gap` parts their levels."""
    prompt = rng.normal(0, PROMPT, prompts + unrated)
    severity = rng.normal(0, SEVERITY, raters)
    item = np.repeat(np.arange(prompts), raters if design == "crossed" else 1)
    who = np.arange(len(item)) % raters
    models = []
    for name, level in (("a", MIDDLE + gap / 2), ("b", MIDDLE - gap / 2)):
        if design == "apart":
            severity = rng.normal(0, SEVERITY, raters)
        reply, taste = rng.normal(0, REPLY, len(prompt)), rng.normal(0, TASTE, raters)
        felt = level + (prompt + reply)[item] + (severity + taste)[who] + rng.normal(0, SLIP, len(item))
        rated = RatedModel(
            judged=judged(level, prompt, reply, rng, stray),
            item=item,
            value=one_hot(1 + (felt[:, None] > CUTS).sum(axis=1), 3),
            cluster=np.array([f"{name if design == 'apart' else ''}{number}" for number in who]),
            prompt=np.arange(len(prompt)).astype(str),
        )
        models.append(JudgedModel(name=name, rated=rated))
    return models[0], models[1]


def calibrated(rng: np.random.Generator, *, count: int = 6) -> ComparisonSettings:
    """A line through models rated well, on which the judge strays as it does on new ones."""
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
