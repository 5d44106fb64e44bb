"""Maps from a judge's output to probabilities of human labels: identity, temperature, proportional odds.

A judge's probabilities stay as they are unless a temperature is better by more than one standard error on
clusters it was not fitted on; scores go through proportional odds. By hand, because scikit-learn's
calibrators wrap a classifier of its own and have no order of labels; the searches are scipy's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.agreement.metrics import LEAST_PROBABILITY, log_losses
from calibration.cluster import contrast
from calibration.estimate import Floats, Integers
from data.records import LABELS

MapKind = Literal["identity", "temperature", "proportional"]
FROM_PROBABILITIES: Final[tuple[MapKind, ...]] = ("identity", "temperature")
PRIOR_SD: Final = 2.0  # of parameters around "no change": nothing to a hundred ratings, a rein to ten
FOLDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMap:
    """A map from a judge's probabilities or scores to probabilities over `levels` human labels."""

    kind: MapKind
    levels: int
    parameters: Mapping[str, Any]

    def apply(self, values: ArrayLike) -> Floats:
        """Return (rows, levels) from the judge's probabilities, (rows, levels), or its scores, (rows,)."""
        table = np.asarray(values, dtype=float)
        if self.kind == "identity":
            return table
        if self.kind == "temperature":
            from scipy.special import softmax

            scaled: Floats = softmax(_log_probabilities(table) / self.parameters["temperature"], axis=1)
            return scaled
        shifted = table - self.parameters["middle"]
        above = _above(shifted, self.parameters["slope"], np.array(self.parameters["cuts"]))
        ends = np.ones((len(above), 1)), np.zeros((len(above), 1))
        parts: Floats = -np.diff(np.hstack([ends[0], above, ends[1]]), axis=1)
        return parts


@dataclass(frozen=True, slots=True)
class HeldOutLoss:
    """A kind's log-loss on clusters it was not fitted on, and how far that is above the best kind's."""

    loss: float
    excess: float
    excess_error: float  # the standard error of `excess`, over clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class MapChoice:
    """The chosen map, fitted on everything; `losses` is empty when there were too few clusters to compare."""

    map: LabelMap
    folds: int
    losses: Mapping[str, HeldOutLoss]


def fit_map(kind: MapKind, values: ArrayLike, ratings: ArrayLike, *, levels: int = len(LABELS)) -> LabelMap:
    """Fit a map of one kind on ratings 1 to `levels`."""
    table, rated = np.asarray(values, dtype=float), np.asarray(ratings, dtype=np.intp)
    parameters: dict[str, Any] = {}
    if kind == "temperature":
        parameters = {"temperature": _fit_temperature(table, rated)}
    elif kind == "proportional":
        parameters = _fit_proportional(table, rated, levels)
    return LabelMap(kind=kind, levels=levels, parameters=parameters)


def choose_map(
    values: ArrayLike,
    ratings: ArrayLike,
    clusters: ArrayLike,
    *,
    rng: np.random.Generator,
    levels: int = len(LABELS),
) -> MapChoice:
    """Choose the simplest kind whose held-out log-loss is within one standard error of the best kind's.

    `values` are a judge's probabilities, (rows, levels), or its scores, (rows,), on any scale. A cluster
    (batch, rater) is never on both sides of a fold. The standard error is that of the difference, row by row
    and summed by cluster: what makes a row hard for both kinds cancels. With fewer than two clusters nothing
    can be held out, and the simplest kind is taken.
    """
    table, rated = np.asarray(values, dtype=float), np.asarray(ratings, dtype=np.intp)
    candidates: tuple[MapKind, ...] = FROM_PROBABILITIES if table.ndim == 2 else ("proportional",)
    folds = folds_of(clusters, rng=rng)
    losses: dict[str, HeldOutLoss] = {}
    chosen = candidates[0]
    if folds:
        number = np.unique(np.asarray(clusters), return_inverse=True)[1]
        rows = {kind: log_losses(rated, held_out(kind, table, rated, folds, levels)) for kind in candidates}
        best = min(rows.values(), key=lambda loss: float(loss.mean()))
        for kind, loss in rows.items():
            excess = loss - best
            error = contrast(excess, np.ones(len(excess)), number).error
            losses[kind] = HeldOutLoss(float(loss.mean()), float(excess.mean()), error)
        chosen = next(kind for kind in candidates if losses[kind].excess <= losses[kind].excess_error)
    return MapChoice(map=fit_map(chosen, table, rated, levels=levels), folds=len(folds), losses=losses)


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


def held_out(
    kind: MapKind, values: Floats, ratings: Integers, folds: Sequence[NDArray[np.bool_]], levels: int
) -> Floats:
    """Return the probabilities of every row by a map fitted on the other folds, (rows, levels)."""
    probabilities = np.empty((len(ratings), levels))
    for inside in folds:
        fitted = fit_map(kind, values[~inside], ratings[~inside], levels=levels)
        probabilities[inside] = fitted.apply(values[inside])
    return probabilities


def _fit_temperature(values: Floats, ratings: Integers) -> float:
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    if not len(ratings):
        return 1.0
    logits, rows = _log_probabilities(values), np.arange(len(ratings))

    def loss(log: float) -> float:
        return -float(log_softmax(logits / math.exp(log), axis=1)[rows, ratings - 1].mean())

    return math.exp(float(minimize_scalar(loss, bounds=(-4.0, 4.0), method="bounded").x))


def _fit_proportional(scores: Floats, ratings: Integers, levels: int) -> dict[str, Any]:
    """Fit logit P(label >= c) = slope * (score - middle) / scale - cut_c, with a normal prior."""
    from scipy.optimize import minimize

    middle = float(scores.mean()) if len(scores) else 0.0
    scale = float(scores.std()) or 1.0 if len(scores) else 1.0
    shares = (np.bincount(ratings - 1, minlength=levels) + 1) / (len(ratings) + levels)
    above = 1 - shares.cumsum()[:-1]
    cuts = -np.log(above / (1 - above))
    start = np.concatenate([[0.0], cuts[:1], np.log(np.diff(cuts))])
    standard = (scores - middle) / scale
    # P(rating) = P(its label or a better one) - P(a better one).
    signs = (np.eye(levels)[:, 1:] - np.eye(levels)[:, :-1])[ratings - 1]

    def loss(free: Floats) -> float:
        above = _above(standard, float(free[0]), _cuts(free[1:]))
        chances = (signs * above).sum(axis=1) + (ratings == 1)
        prior = ((free - start) ** 2).sum() / (2 * PRIOR_SD**2 * len(ratings))
        return float(prior - np.log(np.maximum(chances, 1e-12)).mean())

    free = minimize(loss, start, method="BFGS").x if len(ratings) else start
    return {"slope": float(free[0]) / scale, "middle": middle, "cuts": _cuts(free[1:]).tolist()}


def _log_probabilities(probabilities: Floats) -> Floats:
    logs: Floats = np.log(np.maximum(probabilities, LEAST_PROBABILITY))
    return logs


def _above(scores: Floats, slope: float, cuts: Floats) -> Floats:
    logits = slope * scores[:, None] - cuts
    chances: Floats = np.exp(-np.logaddexp(0, -logits))
    return chances


def _cuts(free: Floats) -> Floats:
    """Return ascending cuts from the first and the logarithms of the gaps."""
    return np.concatenate([free[:1], free[:1] + np.exp(free[1:]).cumsum()])
