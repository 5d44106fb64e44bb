"""Maps from what a judge said to the probabilities of a crowd's labels, and the choice among them.

Maps are plain numbers, kept as JSON without loss. Simple ones come first in `KINDS`: a richer one is taken
only if it is better by more than one standard error on clusters it has not seen. By hand, because
scikit-learn's calibrators wrap a classifier of its own, know no order of labels and are kept by pickle; the
searches are scipy's.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.agreement.metrics import LEAST_PROBABILITY, log_losses
from calibration.cluster import contrast
from calibration.estimate import Floats, Integers
from data.errors import UserError
from data.records import LABELS

MOST_VALUES: Final = 25  # of a judge's scale for which each has frequencies of its own
PRIOR_SD: Final = 2.0  # of parameters around "no change": nothing to a hundred ratings, a rein to ten
PRIOR_RATINGS: Final = 3.0  # how many ratings with the overall shares each row of a table is given

Parameters = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """How a map of one kind is fitted (values, ratings, levels) and applied (values, parameters, levels)."""

    parameters: tuple[str, ...]
    fit: Callable[[NDArray[Any], Integers, int], dict[str, Any]]
    apply: Callable[[NDArray[Any], Parameters, int], Floats]


def _fit_temperature(values: Floats, ratings: Integers, levels: int) -> dict[str, Any]:
    from scipy.optimize import minimize_scalar

    if not len(ratings):
        return {"temperature": 1.0}
    logits = log_probabilities(values)
    found = minimize_scalar(
        lambda log: _loss(logits / math.exp(log), ratings), bounds=(-4.0, 4.0), method="bounded"
    )
    return {"temperature": math.exp(float(found.x))}


def _apply_temperature(values: Floats, parameters: Parameters, levels: int) -> Floats:
    return softmax(log_probabilities(values) / parameters["temperature"])


def _fit_vector(values: Floats, ratings: Integers, levels: int) -> dict[str, Any]:
    logits, hits = log_probabilities(values), np.eye(levels)[ratings - 1]

    def loss(free: Floats) -> tuple[float, Floats]:
        scaled = logits * free[:levels] + free[levels:]
        off = (softmax(scaled) - hits) / len(ratings)
        return _loss(scaled, ratings), np.append((off * logits).sum(axis=0), off.sum(axis=0))

    found = _search(loss, np.append(np.ones(levels), np.zeros(levels)), len(ratings))
    return {"weights": found[:levels].tolist(), "biases": found[levels:].tolist()}


def _apply_vector(values: Floats, parameters: Parameters, levels: int) -> Floats:
    return softmax(
        log_probabilities(values) * np.array(parameters["weights"]) + np.array(parameters["biases"])
    )


def _fit_proportional(scores: Floats, ratings: Integers, levels: int) -> dict[str, Any]:
    """Proportional odds on a score: logit P(label >= c) = slope * (score - middle) / scale - cut_c."""
    middle = float(scores.mean()) if len(scores) else 0.0
    scale = float(scores.std()) or 1.0 if len(scores) else 1.0
    shares = _smooth_shares(ratings, levels)
    above = 1 - shares.cumsum()[:-1]
    cuts = -np.log(above / (1 - above))
    start = np.concatenate([[0.0], cuts[:1], np.log(np.diff(cuts))])
    standard = (scores - middle) / scale
    # A rating is as likely as its label or a better one, less the chance of a better one.
    signs = (np.eye(levels)[:, 1:] - np.eye(levels)[:, :-1])[ratings - 1]

    def loss(free: Floats) -> tuple[float, Floats]:
        above = _above(standard, float(free[0]), _cuts(free[1:]))
        chances = (signs * above).sum(axis=1) + (ratings == 1)
        held = np.maximum(chances, 1e-12)
        by_logit = -signs * above * (1 - above) * ((chances == held) / held)[:, None] / len(ratings)
        by_cut = -by_logit.sum(axis=0)[::-1].cumsum()[::-1]  # a gap moves every cut above it
        by_cut[1:] *= np.exp(free[2:])
        return -float(np.log(held).mean()), np.append(by_logit.sum(axis=1) @ standard, by_cut)

    found = _search(loss, start, len(ratings))
    return {"slope": float(found[0]) / scale, "middle": middle, "cuts": _cuts(found[1:]).tolist()}


def _apply_proportional(scores: Floats, parameters: Parameters, levels: int) -> Floats:
    standard = scores - parameters["middle"]
    return _between(_above(standard, parameters["slope"], np.array(parameters["cuts"])))


def _fit_isotonic(values: Floats, ratings: Integers, levels: int) -> dict[str, Any]:
    """For each cut, the monotone curve from P(label >= cut) to how often it was so, as knots."""
    from scipy.optimize import isotonic_regression

    if not len(ratings):  # no curve is the straight one
        return {"places": [[0.0, 1.0]] * (levels - 1), "heights": [[0.0, 1.0]] * (levels - 1), "ratings": 0}
    places, heights = [], []
    for cut, said in enumerate(_cumulative(values).T, start=2):
        known, number, counts = np.unique(said, return_inverse=True, return_counts=True)
        means = np.bincount(number, ratings >= cut) / counts
        curve = isotonic_regression(means, weights=counts).x
        # Of a flat run only the ends are needed.
        kept = np.ones(len(curve), dtype=bool)
        kept[1:-1] = (curve[1:-1] != curve[:-2]) | (curve[1:-1] != curve[2:])
        places.append(known[kept].tolist())
        heights.append(curve[kept].tolist())
    return {"places": places, "heights": heights, "ratings": len(ratings)}


def _apply_isotonic(values: Floats, parameters: Parameters, levels: int) -> Floats:
    knots = zip(_cumulative(values).T, parameters["places"], parameters["heights"], strict=True)
    above = np.column_stack([np.interp(said, places, heights) for said, places, heights in knots])
    # Fitted apart, two curves may cross: Good is never likelier than Okay or better.
    above = np.minimum.accumulate(above, axis=1)
    # A curve that ends at 0 or 1 has seen no exception among so many ratings, not none for ever.
    rows = parameters["ratings"]
    smooth: Floats = (rows * _between(above) + 1) / (rows + levels)
    return smooth


def _fit_table(values: NDArray[Any], ratings: Integers, levels: int) -> dict[str, Any]:
    """How often each rating met each of the judge's values, drawn a little towards the overall shares."""
    shares = _smooth_shares(ratings, levels)
    known, number = np.unique(values, return_inverse=True)
    counts = np.zeros((len(known), levels))
    np.add.at(counts, (number, ratings - 1), 1)
    rows = (counts + PRIOR_RATINGS * shares) / (counts.sum(axis=1, keepdims=True) + PRIOR_RATINGS)
    return {"values": known.tolist(), "rows": rows.tolist(), "shares": shares.tolist()}


def _apply_table(values: NDArray[Any], parameters: Parameters, levels: int) -> Floats:
    rows = dict(zip(parameters["values"], parameters["rows"], strict=True))
    # A value never seen tells nothing: the overall shares.
    found = [rows.get(value, parameters["shares"]) for value in values.tolist()]
    return np.array(found).reshape(len(values), levels)


FROM_PROBABILITIES: Final = ("identity", "temperature", "ordinal", "vector", "isotonic")
FROM_SCORES: Final = ("constant", "proportional", "table")
KINDS: Final = {  # each group from the simplest to the richest
    "identity": Kind((), lambda values, ratings, levels: {}, lambda values, parameters, levels: values),
    "temperature": Kind(("temperature",), _fit_temperature, _apply_temperature),
    "ordinal": Kind(
        ("slope", "middle", "cuts"),
        lambda values, ratings, levels: _fit_proportional(_location(values), ratings, levels),
        lambda values, parameters, levels: _apply_proportional(_location(values), parameters, levels),
    ),
    "vector": Kind(("weights", "biases"), _fit_vector, _apply_vector),
    "isotonic": Kind(("places", "heights", "ratings"), _fit_isotonic, _apply_isotonic),
    "constant": Kind(
        ("shares",),
        lambda values, ratings, levels: {"shares": _smooth_shares(ratings, levels).tolist()},
        lambda values, parameters, levels: np.tile(np.array(parameters["shares"]), (len(values), 1)),
    ),
    "proportional": Kind(("slope", "middle", "cuts"), _fit_proportional, _apply_proportional),
    "table": Kind(("values", "rows", "shares"), _fit_table, _apply_table),
}


def _search(loss: Callable[[Floats], tuple[float, Floats]], start: Floats, rows: int) -> Floats:
    """The parameters of the least mean loss, held to the start as if by a normal prior.

    `loss` gives its gradient too: by differences the search would ask for each parameter at every step.
    """
    from scipy.optimize import minimize

    if not rows:
        return start

    def held(free: Floats) -> tuple[float, Floats]:
        value, gradient = loss(free)
        pull = (free - start) / (PRIOR_SD**2 * rows)
        return value + float(pull @ (free - start)) / 2, gradient + pull

    found: Floats = minimize(held, start, jac=True, method="BFGS", options={"gtol": 1e-6}).x
    return found


def _loss(logits: Floats, ratings: Integers) -> float:
    shifted = logits - logits.max(axis=1, keepdims=True)
    said = shifted[np.arange(len(ratings)), ratings - 1]
    return float((np.log(np.exp(shifted).sum(axis=1)) - said).mean())


def log_probabilities(probabilities: Floats) -> Floats:
    """Logarithms, of 0 too: what is below the least probability counts as that."""
    logs: Floats = np.log(np.maximum(probabilities, LEAST_PROBABILITY))
    return logs


def softmax(logits: Floats) -> Floats:
    """Probabilities in the ratio of the exponentials, row by row."""
    # Applied in `score`, which runs where scipy is not installed; so is `_above`.
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    found: Floats = powers / powers.sum(axis=1, keepdims=True)
    return found


def _cumulative(probabilities: Floats) -> Floats:
    """P(label >= 2), P(label >= 3) and so on, (rows, levels - 1)."""
    above: Floats = probabilities[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
    return np.round(above, 12)  # rounded, or equal probabilities might differ in the last bit


def _location(probabilities: Floats) -> Floats:
    """Where a row stands: the mean logit of its cumulative probabilities.

    Proportional odds move all these logits alike, so of a judge that follows them nothing is lost.
    """
    above = np.clip(_cumulative(probabilities), LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
    middle: Floats = np.log(above / (1 - above)).mean(axis=1)
    return middle


def _above(scores: Floats, slope: float, cuts: Floats) -> Floats:
    logits = slope * scores[:, None] - cuts
    chances: Floats = np.exp(-np.logaddexp(0, -logits))
    return chances


def _cuts(free: Floats) -> Floats:
    """Ascending, from the first and the logarithms of the gaps."""
    return np.concatenate([free[:1], free[:1] + np.exp(free[1:]).cumsum()])


def _between(above: Floats) -> Floats:
    """Label probabilities from cumulative ones, (rows, levels)."""
    ends = np.ones((len(above), 1)), np.zeros((len(above), 1))
    parts: Floats = -np.diff(np.hstack([ends[0], above, ends[1]]), axis=1)
    return parts


def _smooth_shares(ratings: Integers, levels: int) -> Floats:
    shares: Floats = (np.bincount(ratings - 1, minlength=levels) + 1) / (len(ratings) + levels)
    return shares


FOLDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMap:
    """A map from a judge's probabilities, scores or labels to probabilities over `levels` human labels."""

    kind: str
    levels: int
    parameters: Mapping[str, Any]

    def apply(self, values: ArrayLike) -> Floats:
        """(rows, levels) from the judge's probabilities, (rows, levels), or its scores or labels, (rows,)."""
        return KINDS[self.kind].apply(_as_values(values), self.parameters, self.levels)


def map_from_dict(found: Mapping[str, Any]) -> LabelMap:
    """The map `as_dict` described.

    >>> found = {"kind": "temperature", "levels": 2, "parameters": {"temperature": 1.0}}
    >>> map_from_dict(found).apply([[0.2, 0.8]])
    array([[0.2, 0.8]])
    """
    kind, parameters = found.get("kind"), found.get("parameters")
    if kind not in KINDS:
        raise UserError(f"calibration map: unknown kind {kind!r}; known: {', '.join(KINDS)}")
    needs = KINDS[kind].parameters
    if not isinstance(parameters, Mapping) or set(parameters) != set(needs):
        raise UserError(
            f"calibration map {kind!r}: parameters must be {', '.join(needs) or 'none'}; fit it again"
        )
    return LabelMap(kind=kind, levels=int(found["levels"]), parameters=dict(parameters))


@dataclass(frozen=True, slots=True)
class HeldOutLoss:
    """A kind's log-loss on clusters it was not fitted on, and how far that is above the best kind's."""

    loss: float
    excess: float
    excess_error: float  # the standard error of `excess`, over clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen map, fitted on everything; `losses` is empty when there were too few clusters to compare."""

    map: LabelMap
    folds: int
    losses: Mapping[str, HeldOutLoss]


def fit_map(kind: str, values: ArrayLike, ratings: ArrayLike, *, levels: int = len(LABELS)) -> LabelMap:
    """A map of one kind, fitted on ratings 1 to `levels`."""
    if kind not in KINDS:
        raise UserError(f"unknown kind of map {kind!r}; known: {', '.join(KINDS)}")
    said = _as_values(values)
    given = np.asarray(ratings, dtype=np.intp)
    return LabelMap(kind=kind, levels=levels, parameters=KINDS[kind].fit(said, given, levels))


def choose_map(
    values: ArrayLike,
    ratings: ArrayLike,
    clusters: ArrayLike,
    *,
    rng: np.random.Generator,
    levels: int = len(LABELS),
) -> Choice:
    """The simplest kind whose held-out log-loss is within one standard error of the best kind's.

    `values` are a judge's probabilities, (rows, levels), or its scores or labels, (rows,) numbers or words,
    on any scale. A cluster (batch, rater) is never on both sides of a fold. The standard error is that of the
    difference, row by row and summed by cluster: what makes a row hard for both kinds cancels. With fewer
    than two clusters nothing can be held out, and the simplest kind is taken.
    """
    said, given = _as_values(values), np.asarray(ratings, dtype=np.intp)
    candidates: tuple[str, ...] = FROM_PROBABILITIES
    if said.ndim == 1:  # a table of many values would be a table of single ratings
        is_number, few = said.dtype.kind == "f", len(np.unique(said)) <= MOST_VALUES
        can_take = {"constant": True, "proportional": is_number, "table": few}
        candidates = tuple(kind for kind in FROM_SCORES if can_take[kind])
    folds = folds_of(clusters, rng=rng)
    losses: dict[str, HeldOutLoss] = {}
    chosen = candidates[0]
    if folds:
        number = np.unique(np.asarray(clusters), return_inverse=True)[1]
        rows = {kind: log_losses(given, held_out(kind, said, given, folds, levels)) for kind in candidates}
        best = min(rows.values(), key=lambda loss: float(loss.mean()))
        for kind, loss in rows.items():
            excess = loss - best
            error = contrast(excess, np.ones(len(excess)), number).error
            losses[kind] = HeldOutLoss(float(loss.mean()), float(excess.mean()), error)
        chosen = next(kind for kind in candidates if losses[kind].excess <= losses[kind].excess_error)
    return Choice(map=fit_map(chosen, said, given, levels=levels), folds=len(folds), losses=losses)


def folds_of(clusters: ArrayLike, *, rng: np.random.Generator) -> list[NDArray[np.bool_]]:
    """The rows of each fold, as masks; clusters are dealt out whole, and fewer than two make no folds.

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
    kind: str, values: NDArray[Any], ratings: Integers, folds: Sequence[NDArray[np.bool_]], levels: int
) -> Floats:
    """Probabilities of every row by a map of this kind that was fitted on the other folds, (rows, levels)."""
    probabilities = np.empty((len(ratings), levels))
    for inside in folds:
        fitted = fit_map(kind, values[~inside], ratings[~inside], levels=levels)
        probabilities[inside] = fitted.apply(values[inside])
    return probabilities


def _as_values(values: ArrayLike) -> NDArray[Any]:
    """Numbers as floats, so that 2 and 2.0 are one label; words stay words."""
    found = np.asarray(values)
    return found.astype(float) if found.dtype.kind in "biuf" else found.astype(str)
