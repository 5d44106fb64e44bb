"""How many more ratings or prompts detect a difference as large as the margin."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from calibration.cluster import NORMAL, reach
from calibration.comparison.judged_models import GOOD, ComparisonSettings, How, JudgedModel
from calibration.comparison.published_models import PublishedModel
from calibration.shares.planning import ratings_of_each

KNOWN_RATERS: Final = 10  # as many raters show their own design effect


def needed_ratings(
    one: JudgedModel,
    other: JudgedModel | PublishedModel,
    how: How,
    error: float,
    settings: ComparisonSettings,
) -> int | None:
    """Return how many more ratings of each model detect a true difference of the margin with 80% power.

    Each rating is of a new reply. By the judge alone it is more prompts instead. None where no number does,
    or none is known.
    """
    judged = [item for item in (one, other) if isinstance(item, JudgedModel)]
    if how == "judge":
        have = min(len(item.rated.judged) for item in judged)
        total = _prompts(settings.margin, error, have)
    elif how == "refused" and settings.calibrated is None:
        return None
    else:
        have = min(len(item.rated.item) for item in judged)
        shares = [float(item.rated.judged[:, -1].mean()) for item in judged if len(item.rated.judged)]
        share = float(np.mean(shares)) if shares else 0.5
        known = 0.0
        if isinstance(other, PublishedModel):
            ends = other.shares[GOOD].interval
            known = ((ends.high - ends.low) / 2 / NORMAL) ** 2 if ends else math.inf
        variance = share * (1 - share) * _design_effect(judged, settings)
        total = ratings_of_each(settings.margin, variance=variance, sides=len(judged), known=known)
    return max(1, math.ceil(total - have)) if math.isfinite(total) else None


def _prompts(difference: float, error: float, prompts: int) -> float:
    """Return how many prompts detect a difference, if so many have this standard error."""
    total = float(prompts)
    for _ in range(10):  # the more prompts, the smaller their t
        total = prompts * (error * reach(max(1.0, total - 1)) / difference) ** 2
    return total


def _design_effect(judged: Sequence[JudgedModel], settings: ComparisonSettings) -> float:
    """Return their own raters' design effect where those are many enough, else the calibration's."""
    known = [item.ppi for item in judged if item.ppi is not None and item.ppi.clusters >= KNOWN_RATERS]
    own = [float(ppi.design_effect[-1]) for ppi in known if math.isfinite(ppi.design_effect[-1])]
    return max(1.0, float(np.mean(own)) if own else settings.design_effect)
