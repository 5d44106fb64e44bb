"""Errors of a judge's levels over models, and how far it orders models as people do.

A level is a model's share of Good or its mean. Intervals resample rating batches and nothing else: they show
how far other raters and prompts could have moved a number, not how far other models could. Noise also raises
a mean of absolute errors, once in the value and once more in the draws, so its interval is biased upward.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from empathy_judge.calibration.bootstrap import Draws, Sampled, leaves_one_out, ratio, sum_draws
from empathy_judge.calibration.cluster import cluster_sums
from empathy_judge.calibration.estimate import Estimate, Floats, Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelError:
    """The level of one model by people and by the judge, and `error`, judge - people.

    `people_standard_error` is clustered; nan with one cluster.
    """

    model: str
    ratings: int
    people: float
    judge: float
    error: Estimate
    people_standard_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelErrors:
    """Several models, the one people found best first; errors are absolute, `tau` is Kendall's."""

    models: tuple[LevelError, ...]
    mean_error: Estimate
    worst_error: Estimate
    tau: Estimate


def level_errors(
    model: NDArray[Any], people: Floats, judge: Floats, clusters: Integers, drawn: Draws
) -> LevelErrors:
    """Return every model's mean by people and by the judge; `clusters` is each row's column in `drawn`."""
    names, codes = np.unique(model, return_inverse=True)
    here = (codes[:, None] == np.arange(len(names))).astype(float)
    columns = np.hstack([here, here * people[:, None], here * judge[:, None]])
    sums = cluster_sums(clusters, columns, drawn.shape[1])
    # The first row is the data, the others are the draws; the columns of each part are the models.
    totals = np.vstack([sums.sum(axis=0), sum_draws(sums, drawn)])
    sizes, by_people, by_judge = np.split(totals, 3, axis=1)
    by_people, by_judge = ratio(by_people, sizes), ratio(by_judge, sizes)
    errors = by_judge - by_people
    size, total, _ = np.split(sums, 3, axis=1)
    count = (size > 0).sum(axis=0).astype(float)
    squares = ((total - size * by_people[0]) ** 2).sum(axis=0)
    people_errors = np.sqrt(ratio(count, count - 1) * squares) / sizes[0]

    def sampled(values: Floats) -> Sampled:
        return Sampled(float(values[0]), values[1:], leaves_one_out(drawn))

    def over(reduce: Callable[[Floats], Floats]) -> Estimate:
        values = reduce(np.abs(errors)) if len(names) else np.full(len(errors), np.nan)
        return sampled(values).estimate(low=0.0)

    tau = sampled(kendall(by_people, by_judge))
    levels = [
        LevelError(
            model=str(name),
            ratings=int(sizes[0, index]),
            people=float(by_people[0, index]),
            judge=float(by_judge[0, index]),
            error=sampled(errors[:, index]).estimate(),
            people_standard_error=float(people_errors[index]),
        )
        for index, name in enumerate(names)
    ]
    return LevelErrors(
        models=tuple(sorted(levels, key=lambda item: (-item.people, item.model))),
        mean_error=over(lambda absolute: absolute.mean(axis=1)),
        worst_error=over(lambda absolute: absolute.max(axis=1)),
        # Clusters left out one by one give no interval of an order.
        tau=Estimate(tau.value, None) if tau.is_left_out else tau.estimate(),
    )


def kendall(people: Floats, judge: Floats) -> Floats:
    """Return Kendall's tau-b of levels, (draws, models) -> (draws,); nan where a model has no level."""
    # Rounded: a judge that gives all models one level ties them, though its sums differ in the last bit.
    first, second = np.round(people, 12), np.round(judge, 12)
    # Which of each two models is the higher, (draws, models, models).
    one, two = (np.sign(values[:, :, None] - values[:, None, :]) for values in (first, second))
    untied = (one**2).sum(axis=(1, 2)) * (two**2).sum(axis=(1, 2))
    return ratio((one * two).sum(axis=(1, 2)), np.sqrt(untied))
