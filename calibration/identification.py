"""Which ratings a rater model can use, and what of the model they identify."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibration.intervals import Floats
from calibration.resampling import Integers
from calibration.severity import Cells, count_cells
from data.errors import UserError

Spread = Literal["shared", "by model"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """The rows a fit uses, by number; `population` is each rater's covariates, centred."""

    models: tuple[str, ...]  # the reference first
    raters: tuple[str, ...]
    levels: tuple[int, ...]  # the ratings in use
    cells: Cells
    names: tuple[str, ...]  # of the covariates
    constant: tuple[str, ...]  # of those that are the same for all raters, and have no effect to be found
    scales: Floats  # by which covariates were divided
    population: Floats


def number_rows(
    ratings: NDArray[Any],
    raters: NDArray[np.str_],
    models: NDArray[np.str_],
    table: Floats,
    names: tuple[str, ...],
    reference: str | None,
    spread: Spread,
) -> Rows:
    """The rows as numbers; the reference, or the first model by name, is number 0."""
    levels, level = np.unique(ratings, return_inverse=True)
    rater_names, first, rater = np.unique(raters, return_index=True, return_inverse=True)
    population = table[first]
    if differing := raters[(table != population[rater]).any(axis=1)].tolist():
        raise UserError(f"rater {differing[0]!r} has two values of a covariate; give one for each rater")
    found = sorted(set(models.tolist()), key=lambda name: (name != reference, name))
    number = {name: index for index, name in enumerate(found)}
    model = np.array([number[name] for name in models.tolist()], dtype=np.intp)
    # Centred and scaled, so that one step of the search means as much in every direction.
    scales = population.std(axis=0)
    varies = scales > 0
    population = (population - population.mean(axis=0))[:, varies] / scales[varies]
    return Rows(
        models=tuple(found),
        raters=tuple(rater_names.tolist()),
        levels=tuple(levels.tolist()),
        cells=count_cells(
            rater,
            model,
            level,
            population[rater],
            models=len(found),
            levels=len(levels),
            apart=spread == "by model",
        ),
        names=tuple(name for name, does in zip(names, varies, strict=True) if does),
        constant=tuple(name for name, does in zip(names, varies, strict=True) if not does),
        scales=scales[varies],
        population=population,
    )


def why_undefined(
    ratings: NDArray[Any], raters: NDArray[np.str_], models: NDArray[np.str_], spread: Spread
) -> str | None:
    """Why these ratings do not identify the model, or None."""
    levels = np.unique(ratings)
    if len(levels) < 2:
        return "there is no rating, or all ratings of a model are the same and the highest or lowest"
    _, number, given = np.unique(raters, return_inverse=True, return_counts=True)
    names, model = np.unique(models, return_inverse=True)
    several = given[number] > 1
    if _comparisons(number[several], model[several]) < 1:
        return "severity cannot be told from the models: no two raters of one model gave several ratings each"
    if spread == "by model":
        for index, name in enumerate(names.tolist()):
            own = model == index
            if len(levels) < 3 or len(np.unique(ratings[own])) < len(levels):
                return f"the noise of {name!r} cannot be told: it takes three ratings, all of them given"
            if len(np.unique(number[own & several])) < 2:
                return f"the severity of {name!r} cannot be told: it takes two raters with several ratings"
    return None


def _comparisons(rater: Integers, model: Integers) -> int:
    """How many differences between raters do not depend on differences between models.

    Raters and models form a graph, joined by ratings; within a connected part all raters can be compared.
    Raters with a single rating are no use: their severity cannot be told from noise.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not len(rater):
        return 0
    raters, one = np.unique(rater, return_inverse=True)
    models, two = np.unique(model, return_inverse=True)
    size = len(raters) + len(models)
    graph = coo_array((np.ones(len(one)), (one, two + len(raters))), shape=(size, size))
    return len(raters) - int(connected_components(graph, directed=False)[0])
