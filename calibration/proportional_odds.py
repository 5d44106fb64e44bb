"""Probabilities of human labels from a score, by proportional odds with a normal prior."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from empathy_judge.calibration.estimate import Floats, Integers
from empathy_judge.data.records import LABELS

PRIOR_SD: Final = 2.0  # of parameters around "no change": nothing to a hundred ratings, a rein to ten
FOLDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ProportionalOdds:
    """logit P(label >= c) = slope * (score - middle) - cut_c."""

    slope: float
    middle: float
    cuts: tuple[float, ...]

    def apply(self, scores: ArrayLike) -> Floats:
        """Return the probability of every label, (rows, levels)."""
        above = _above(np.asarray(scores, dtype=float) - self.middle, self.slope, np.array(self.cuts))
        return -np.diff(above, axis=1, prepend=1.0, append=0.0)


def fit_proportional_odds(
    scores: ArrayLike, ratings: ArrayLike, *, levels: int = len(LABELS)
) -> ProportionalOdds:
    """Fit the odds on ratings 1 to `levels`."""
    from scipy.optimize import minimize

    values, rated = np.asarray(scores, dtype=float), np.asarray(ratings, dtype=np.intp)
    middle = float(values.mean()) if len(values) else 0.0
    scale = float(values.std()) or 1.0 if len(values) else 1.0
    shares = (np.bincount(rated - 1, minlength=levels) + 1) / (len(rated) + levels)
    above = 1 - shares.cumsum()[:-1]
    cuts = -np.log(above / (1 - above))
    start = np.concatenate([[0.0], cuts[:1], np.log(np.diff(cuts))])
    standard = (values - middle) / scale
    # P(rating) = P(its label or a better one) - P(a better one).
    signs = (np.eye(levels)[:, 1:] - np.eye(levels)[:, :-1])[rated - 1]

    def loss(free: Floats) -> float:
        above = _above(standard, float(free[0]), _cuts(free[1:]))
        chances = (signs * above).sum(axis=1) + (rated == 1)
        prior = ((free - start) ** 2).sum() / (2 * PRIOR_SD**2 * len(rated))
        return float(prior - np.log(np.maximum(chances, 1e-12)).mean())

    free = minimize(loss, start, method="BFGS").x if len(rated) else start
    return ProportionalOdds(slope=float(free[0]) / scale, middle=middle, cuts=tuple(_cuts(free[1:]).tolist()))


def folds_of(clusters: ArrayLike, *, rng: np.random.Generator) -> list[NDArray[np.bool_]]:
    """Return the rows of each fold as masks; clusters stay whole, and fewer than two make no folds.

    >>> first, second = folds_of(["a", "a", "b", "b"], rng=np.random.default_rng(0))
    >>> bool(first[0] == first[1] != first[2] == first[3]), bool((first == ~second).all())
    (True, True)
    """
    names, number = np.unique(np.asarray(clusters), return_inverse=True)
    count = min(FOLDS, len(names))
    if count < 2:
        return []
    fold = (rng.permutation(len(names)) % count)[number]
    return [fold == index for index in range(count)]


def held_out(scores: Floats, ratings: Integers, folds: Sequence[NDArray[np.bool_]], *, levels: int) -> Floats:
    """Return the probabilities of every row by odds fitted on the other folds, (rows, levels)."""
    probabilities = np.empty((len(ratings), levels))
    for inside in folds:
        fitted = fit_proportional_odds(scores[~inside], ratings[~inside], levels=levels)
        probabilities[inside] = fitted.apply(scores[inside])
    return probabilities


def _above(scores: Floats, slope: float, cuts: Floats) -> Floats:
    logits = slope * scores[:, None] - cuts
    return np.exp(-np.logaddexp(0, -logits))


def _cuts(free: Floats) -> Floats:
    """Return ascending cuts from the first and the logarithms of the gaps."""
    return np.concatenate([free[:1], free[:1] + np.exp(free[1:]).cumsum()])
