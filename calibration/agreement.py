"""How far a judge and the crowd agree: one pure function per statistic.

By hand, because sklearn.metrics takes 2.9 s to import and has no weights for bootstrap counts; the sums are
in `calibration.resampling`, where intervals come from. `*_error`: smaller is better; of all else, more. Where
a statistic is undefined it is nan; none raises or warns on degenerate ratings.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.intervals import Floats
from calibration.resampling import (
    calibration_error_of,
    mean_of,
    spearman_of,
    value_of,
)

LEAST_PROBABILITY: Final = 1e-6  # judgments are written to six digits: a 0 may stand for anything below this
BINS: Final = 10


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Pearson's correlation of the ranks, where equal values share their average rank; from -1 to 1.

    Undefined when either is constant.

    >>> spearman([1, 2, 3, 3], [0.1, 0.4, 0.5, 0.5])
    1.0
    >>> spearman([1, 2, 3], [7, 7, 7])
    nan
    """
    one, two = _floats(first), _floats(second)
    return value_of(spearman_of(one, two), len(one))


def brier_error(ratings: ArrayLike, probabilities: ArrayLike) -> float:
    """The mean squared distance between the probabilities and the rating as 0s and a 1; from 0 to 2.

    Undefined without ratings.

    >>> round(brier_error([1, 3], [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]), 3)
    0.22
    """
    table = _floats(probabilities)
    hits = np.asarray(ratings)[:, None] == np.arange(1, table.shape[-1] + 1) if table.size else table
    return value_of(mean_of(((table - hits) ** 2).sum(axis=-1)), len(table))


def calibration_error(positive: ArrayLike, probabilities: ArrayLike, bins: int = BINS) -> float:
    """The mean over responses of |mean probability - positive part| in the response's bin; from 0 to 1.

    The responses are sorted by probability and cut into `bins` bins of equal count; equal probabilities stay
    together, in the bin of their middle, so bins may differ in size or stand empty. Chance alone keeps a
    perfect judge above 0, by about 0.8 sqrt(bins p (1 - p) / n): compare judges on the same responses only.
    Undefined without responses.

    >>> round(calibration_error([True, False, True, True], [0.2, 0.2, 0.9, 0.9], bins=2), 3)
    0.2
    """
    outcome = np.asarray(positive, dtype=bool)
    return value_of(calibration_error_of(outcome, _floats(probabilities), bins), len(outcome))


def log_losses(ratings: NDArray[Any], probabilities: Floats) -> Floats:
    """The log-loss of each response, (rows,)."""
    if not probabilities.size:
        return np.zeros(0)
    given = np.take_along_axis(probabilities, ratings[:, None].astype(np.intp) - 1, axis=1)[:, 0]
    return -np.log(np.maximum(given, LEAST_PROBABILITY))


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=float)
