"""How far a judge and the crowd agree: one pure function per statistic, and `METRICS`, which lists them.

By hand, because sklearn.metrics takes 2.9 s to import and has no weights for bootstrap counts; the sums are
in `calibration.resampling`, where intervals come from. `*_error`: smaller is better; of all else, more. Where
a statistic is undefined it is nan; none raises or warns on degenerate ratings.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.intervals import Floats
from calibration.resampling import (
    Weights,
    auc_of,
    balanced_accuracy_of,
    calibration_error_of,
    correlation,
    kappa_of,
    kendall,
    mean_of,
    spearman_of,
    value_of,
)

LEAST_PROBABILITY: Final = 1e-6  # judgments are written to six digits: a 0 may stand for anything below this
BINS: Final = 10


def weighted_kappa(ratings: ArrayLike, labels: ArrayLike, weights: Weights = "quadratic") -> float:
    """Cohen's kappa: 1 - observed / expected disagreement; from -1 to 1, where 0 is chance.

    A pair x, y disagrees by (x - y)^2 with quadratic `weights`, by |x - y| with linear ones, and by 1, if it
    differs at all, with None. "Expected" is over all pairs of one's ratings with the other's labels.
    Undefined when both gave one and the same value throughout.

    >>> round(weighted_kappa([1, 2, 3, 3], [1, 2, 2, 3]), 3)
    0.8
    >>> weighted_kappa([3, 3], [3, 3])
    nan
    """
    first, second = np.asarray(ratings), np.asarray(labels)
    return value_of(kappa_of(first, second, weights), len(first))


def balanced_accuracy(ratings: ArrayLike, labels: ArrayLike) -> float:
    """The mean over ratings that occur of the part of them the label hits; from 0 to 1.

    With k ratings chance is 1 / k. Undefined when only one rating occurs: there is nothing to balance.

    >>> balanced_accuracy([1, 3, 3, 3], [3, 3, 3, 3])
    0.5
    >>> balanced_accuracy([3, 3], [3, 1])
    nan
    """
    first, second = np.asarray(ratings), np.asarray(labels)
    return value_of(balanced_accuracy_of(first, second), len(first))


def pearson(first: ArrayLike, second: ArrayLike) -> float:
    """The covariance over the product of the standard deviations; from -1 to 1.

    Undefined when either is constant.

    >>> round(pearson([1, 2, 3], [1, 2, 4]), 3)
    0.982
    >>> pearson([0.1, 0.1, 0.1], [1, 2, 4])
    nan
    """
    one, two = _floats(first), _floats(second)
    if not one.size:
        return float("nan")
    # Less its first value a constant is 0 throughout; less its rounded mean it might not be.
    return float(correlation((one - one[0])[None], (two - two[0])[None], np.ones((1, len(one))))[0])


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


def kendall_tau(first: ArrayLike, second: ArrayLike) -> float:
    """Tau-b, (concordant - discordant) / sqrt(pairs untied in one * pairs untied in the other); from -1 to 1.

    Undefined when either is constant. Takes all pairs: for tens of models, not thousands of responses.

    >>> round(kendall_tau([1, 2, 3, 4], [1, 3, 2, 4]), 3)
    0.667
    >>> kendall_tau([1, 1], [1, 2])
    nan
    """
    return float(kendall(_floats(first)[None], _floats(second)[None])[0])


def auc(positive: ArrayLike, scores: ArrayLike) -> float:
    """How often a positive scores above a negative, a tie counting half (Mann-Whitney); from 0 to 1.

    0.5 is chance. Undefined when all or none are positive.

    >>> auc([False, True, False, True], [0.1, 0.3, 0.3, 0.8])
    0.875
    >>> auc([True, True], [0.1, 0.3])
    nan
    """
    outcome = np.asarray(positive, dtype=bool)
    return value_of(auc_of(outcome, _floats(scores)), len(outcome))


def log_loss_error(ratings: ArrayLike, probabilities: ArrayLike) -> float:
    """The mean of -ln of the probability given to the rating, ratings 1..k by columns 1..k; 0 and up.

    Probabilities below `LEAST_PROBABILITY` count as that, so at most 13.8. Undefined without ratings.

    >>> round(log_loss_error([1, 3], [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]), 3)
    0.458
    """
    losses = log_losses(np.asarray(ratings), _floats(probabilities))
    return value_of(mean_of(losses), len(losses))


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


@dataclass(frozen=True, slots=True)
class Metric:
    """A statistic, the names of what it takes, and its range."""

    compute: Callable[..., float]
    takes: tuple[str, str]
    low: float
    high: float


METRICS: Final = {
    "weighted_kappa": Metric(weighted_kappa, ("ratings", "labels"), -1, 1),
    "balanced_accuracy": Metric(balanced_accuracy, ("ratings", "labels"), 0, 1),
    "pearson": Metric(pearson, ("ratings", "scores"), -1, 1),
    "spearman": Metric(spearman, ("ratings", "scores"), -1, 1),
    "kendall_tau": Metric(kendall_tau, ("ratings", "scores"), -1, 1),
    "auc": Metric(auc, ("positive", "scores"), 0, 1),
    "log_loss_error": Metric(log_loss_error, ("ratings", "probabilities"), 0, -np.log(LEAST_PROBABILITY)),
    "brier_error": Metric(brier_error, ("ratings", "probabilities"), 0, 2),
    "calibration_error": Metric(calibration_error, ("positive", "probability"), 0, 1),
}
