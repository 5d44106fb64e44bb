"""From what a judge said to the probabilities of a crowd's labels: maps, and the choice among them.

Maps are plain numbers: what `as_dict` gives goes to JSON and back without loss. Simple ones come first in
`KINDS`: a richer one is taken only if it is better by more than one standard error on clusters it has not
seen.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.agreement import log_losses
from calibration.intervals import Floats, finite_or_none
from calibration.kinds import FROM_PROBABILITIES, FROM_SCORES, KINDS, MOST_VALUES
from calibration.reliability import clustered_variance
from calibration.resampling import Integers
from data.errors import UserError
from data.records import LABELS

FOLDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMap:
    """A map from a judge's probabilities, scores or labels to probabilities over `levels` human labels."""

    kind: str
    levels: int
    parameters: Mapping[str, Any]

    def apply(self, values: ArrayLike) -> Floats:
        """(rows, levels) from the judge's probabilities, (rows, levels), or its scores or labels, (rows,)."""
        return KINDS[self.kind].apply(_said(values), self.parameters, self.levels)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"kind": self.kind, "levels": self.levels, "parameters": dict(self.parameters)}


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

    def as_dict(self) -> dict[str, float | None]:
        """Ready for JSON; null is undefined."""
        return {
            "loss": finite_or_none(self.loss),
            "excess": finite_or_none(self.excess),
            "excess_error": finite_or_none(self.excess_error),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen map, fitted on everything; `losses` is empty when there were too few clusters to compare."""

    map: LabelMap
    folds: int
    losses: Mapping[str, HeldOutLoss]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "map": self.map.as_dict(),
            "folds": self.folds,
            "losses": {kind: loss.as_dict() for kind, loss in self.losses.items()},
        }


def fit_map(kind: str, values: ArrayLike, ratings: ArrayLike, *, levels: int = len(LABELS)) -> LabelMap:
    """A map of one kind, fitted on ratings 1 to `levels`."""
    if kind not in KINDS:
        raise UserError(f"unknown kind of map {kind!r}; known: {', '.join(KINDS)}")
    said = _said(values)
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
    said, given = _said(values), np.asarray(ratings, dtype=np.intp)
    candidates = [kind for kind in KINDS if kind in _fitting(said)]
    names, number = np.unique(np.asarray(clusters), return_inverse=True)
    used = min(FOLDS, len(names))
    losses: dict[str, HeldOutLoss] = {}
    chosen = candidates[0]
    if used > 1:
        fold = fold_of(number, folds=used, rng=rng)
        rows = {kind: _held_out(kind, said, given, fold, levels) for kind in candidates}
        losses = _compare(rows, number)
        chosen = next(kind for kind in candidates if losses[kind].excess <= losses[kind].excess_error)
    return Choice(
        map=fit_map(chosen, said, given, levels=levels), folds=used if used > 1 else 0, losses=losses
    )


def fold_of(clusters: Integers, *, folds: int, rng: np.random.Generator) -> Integers:
    """A fold, 0 to folds - 1, for every row; clusters, numbered from 0, are dealt out whole.

    >>> folds = fold_of(np.array([0, 0, 1, 1]), folds=2, rng=np.random.default_rng(0))
    >>> bool(folds[0] == folds[1] != folds[2] == folds[3])
    True
    """
    groups = int(clusters.max(initial=-1)) + 1
    dealt: Integers = (rng.permutation(groups) % folds)[clusters]
    return dealt


def _held_out(kind: str, values: NDArray[Any], ratings: Integers, fold: Integers, levels: int) -> Floats:
    losses = np.empty(len(ratings))
    for index in np.unique(fold):
        inside = fold == index
        fitted = fit_map(kind, values[~inside], ratings[~inside], levels=levels)
        losses[inside] = log_losses(ratings[inside], fitted.apply(values[inside]))
    return losses


def _compare(losses: Mapping[str, Floats], clusters: Integers) -> dict[str, HeldOutLoss]:
    best = min(losses, key=lambda kind: float(losses[kind].mean()))
    return {
        kind: HeldOutLoss(
            float(rows.mean()),
            float((rows - losses[best]).mean()),
            math.sqrt(clustered_variance(rows - losses[best], clusters)),
        )
        for kind, rows in losses.items()
    }


def _fitting(values: NDArray[Any]) -> tuple[str, ...]:
    """The kinds that can take such values; a table of many values would be a table of single ratings."""
    if values.ndim == 2:
        return FROM_PROBABILITIES
    is_number = values.dtype.kind == "f"
    few = len(np.unique(values)) <= MOST_VALUES
    return tuple(
        kind for kind in FROM_SCORES if (kind != "proportional" or is_number) and (kind != "table" or few)
    )


def _said(values: ArrayLike) -> NDArray[Any]:
    """Numbers as floats, so that 2 and 2.0 are one label; words stay words."""
    found = np.asarray(values)
    return found.astype(float) if found.dtype.kind in "biuf" else found.astype(str)
