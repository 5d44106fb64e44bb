"""Language models as judges without a calibration: how probable it is that people prefer one of two models.

Recorded language models deviate from people, on one model, by Student's t times a multiple of the judge's own
standard deviation within that model. The judge's level is unknown.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from empathy_judge.calibration.comparison.judged_models import JudgedModel, score_contrast
from empathy_judge.calibration.estimate import Floats
from empathy_judge.calibration.shares.transport import DRAWS, recorded_deviation

HEAVIER: Final = 1.03  # than one t of this scale, for the tails of the difference of two
LEAST_SD: Final = 0.1  # of scores from 0 to 1: replies that the judge all labels alike do not make it exact


def deviation_scale(model: JudgedModel) -> float:
    """Return the scale of the judge's deviation from people on a model, in scores from 0 to 1."""
    return recorded_deviation()[0] * max(LEAST_SD, float(model.scores.std(ddof=1)))


def probability_higher(one: JudgedModel, other: JudgedModel, *, correlation: float) -> float:
    """Return the probability that people rate the one higher.

    `correlation` is that of the judge's deviations on the two.
    """
    from scipy.special import stdtr

    gap = score_contrast(one, other)
    own = deviation_scale(one) ** 2 + deviation_scale(other) ** 2
    scale = HEAVIER * math.sqrt((1 - correlation) * own + gap.error**2)
    return float(stdtr(recorded_deviation()[1], gap.effect / scale))


def rank_by_scores(models: Sequence[JudgedModel]) -> Floats:
    """Draw an order of models, (models, draws), as `probability_higher` does of two."""
    means = np.array([item.scores.mean() for item in models])
    noises = [item.scores.var() / item.rated.prompt_count for item in models]
    scales = np.sqrt([deviation_scale(item) ** 2 for item in models] + np.array(noises))
    draws = np.random.default_rng(0).standard_t(recorded_deviation()[1], (len(models), DRAWS))
    return np.asarray(means[:, None] + scales[:, None] * draws)
