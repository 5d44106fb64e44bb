"""Errors of a judge's levels over models, and how far it orders models as people do.

A level is a model's share of Good or its mean. Intervals resample rating batches and nothing else: they show
how far other raters and prompts could have moved a number, not how far other models could. Noise also raises
a mean of absolute errors, once in the value and once more in the draws, so its interval is biased upward.
"""

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
    parts = np.hstack([here, here * people[:, None], here * judge[:, None]])
    sums = cluster_sums(clusters, parts, drawn.shape[1])
    values, draws = _means(sums.sum(axis=0)[None], len(names)), _means(sum_draws(sums, drawn), len(names))
    sizes = here.sum(axis=0)
    residuals = sums[:, len(names) : 2 * len(names)] - sums[:, : len(names)] * values[0]
    count = (sums[:, : len(names)] > 0).sum(axis=0).astype(float)
    errors = np.sqrt(ratio(count, count - 1) * (residuals**2).sum(axis=0)) / sizes
    is_left_out = leaves_one_out(drawn)

    def level(index: int) -> LevelError:
        people, judge = (float(each[0, index]) for each in values)
        drawn_errors = draws[1][:, index] - draws[0][:, index]
        return LevelError(
            model=str(names[index]),
            ratings=int(sizes[index]),
            people=people,
            judge=judge,
            error=Sampled(judge - people, drawn_errors, is_left_out).estimate(),
            people_standard_error=float(errors[index]),
        )

    over, over_draws = over_models(*values), over_models(*draws)
    return LevelErrors(
        models=tuple(sorted(map(level, range(len(names))), key=lambda item: (-item.people, item.model))),
        **{
            name: estimate_over_models(name, Sampled(float(over[name][0]), over_draws[name], is_left_out))
            for name in over
        },
    )


def kendall(people: Floats, judge: Floats) -> Floats:
    """Return Kendall's tau-b of levels, (draws, models) -> (draws,); nan where a model has no level.

    It takes all pairs, so tens of models.
    """
    # Rounded: a judge that says the same of all models ties them, though its sums differ in the last bit.
    first, second = np.round(people, 12), np.round(judge, 12)
    # Which of each two models is the higher, (draws, models, models).
    one, two = (np.sign(values[:, :, None] - values[:, None, :]) for values in (first, second))
    untied = (one**2).sum(axis=(1, 2)) * (two**2).sum(axis=(1, 2))
    return ratio((one * two).sum(axis=(1, 2)), np.sqrt(untied))


def _means(sums: Floats, models: int) -> tuple[Floats, Floats]:
    sizes, people, judge = (sums[:, start * models : (start + 1) * models] for start in range(3))
    return ratio(people, sizes), ratio(judge, sizes)


def over_models(people: Floats, judge: Floats) -> dict[str, Floats]:
    """Measure how far off the judge is, and how far in the same order, from levels, (draws, models)."""
    if not people.shape[1]:
        return dict.fromkeys(("mean_error", "worst_error", "tau"), np.full(len(people), np.nan))
    errors = np.abs(judge - people)
    return {
        "mean_error": errors.mean(axis=1),
        "worst_error": errors.max(axis=1),
        "tau": kendall(people, judge),
    }


def estimate_over_models(name: str, sampled: Sampled) -> Estimate:
    """Return the estimate over several models; clusters left out one by one give no interval of an order."""
    if name == "tau" and sampled.is_left_out:
        return Estimate(sampled.value, None)
    return sampled.estimate(low=0.0)
