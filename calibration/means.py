"""Each model's mean rating: by people and by a judge, on any scale; see `calibration.levels` for shares.

Intervals resample clusters of ratings, never models: with a handful of models that is the larger doubt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.counts import sum_clusters, sum_draws
from calibration.intervals import Draws, Estimate, Floats
from calibration.resampling import Integers, Sampled, kendall, ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMean:
    """One model: the mean rating, the judge's mean score, and `error`, judge - people, with its sign."""

    model: str
    ratings: int
    people: float
    judge: float
    error: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        return {
            "model": self.model,
            "ratings": self.ratings,
            "people": self.people,
            "judge": self.judge,
            "error": self.error.as_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMeans:
    """Several models together, the one people found best first; errors in steps of the scale.

    `tau` is Kendall's between the two means. `pairwise_order` is the part of the pairs people tell apart that
    the judge puts in the same order, a tie of the judge's counting half.
    """

    models: tuple[ModelMean, ...]
    mean_error: Estimate
    worst_error: Estimate
    tau: Estimate
    pairwise_order: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        estimates = ("mean_error", "worst_error", "tau", "pairwise_order")
        return {
            "models": [model.as_dict() for model in self.models],
            **{name: getattr(self, name).as_dict() for name in estimates},
        }


def model_means(
    model: NDArray[Any], ratings: NDArray[Any], scores: Floats, clusters: Integers, drawn: Draws
) -> ModelMeans:
    """The means of every model; `clusters` is each row's column in `drawn`."""
    names, codes = np.unique(model, return_inverse=True)
    here = (codes[:, None] == np.arange(len(names))).astype(float)
    parts = np.hstack([here, here * np.asarray(ratings, dtype=float)[:, None], here * scores[:, None]])
    sums = sum_clusters(parts, clusters, drawn.shape[1]) if len(codes) else np.zeros((drawn.shape[1], 0))
    people, judge, sizes = _means(sums.sum(axis=0)[None], len(names))
    drawn_people, drawn_judge, _ = _means(sum_draws(sums, drawn), len(names))
    errors, drawn_errors = judge - people, drawn_judge - drawn_people
    order = sorted(range(len(names)), key=lambda index: (-people[0, index], str(names[index])))
    values, draws = _over_models(people, judge), _over_models(drawn_people, drawn_judge)
    return ModelMeans(
        models=tuple(
            ModelMean(
                model=str(names[index]),
                ratings=int(sizes[0, index]),
                people=float(people[0, index]),
                judge=float(judge[0, index]),
                error=Sampled(float(errors[0, index]), drawn_errors[:, index]).estimate(),
            )
            for index in order
        ),
        **{name: Sampled(float(values[name][0]), draws[name]).estimate() for name in values},
    )


def pairwise_order(first: Floats, second: Floats) -> Floats:
    """Over the last axis, (draws, models) -> (draws,); undefined when the first ties all pairs.

    >>> pairwise_order(np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 3.0, 2.0]])).round(3).tolist()
    [0.667]
    """
    one = np.sign(first[:, :, None] - first[:, None, :])
    two = np.sign(second[:, :, None] - second[:, None, :])
    agreed = ((one * two + 1) / 2 * (one != 0)).sum(axis=(1, 2))
    return ratio(agreed, (one != 0).sum(axis=(1, 2)).astype(float))


def _means(sums: Floats, models: int) -> tuple[Floats, Floats, Floats]:
    sizes, ratings, scores = (sums[:, start * models : (start + 1) * models] for start in range(3))
    return ratio(ratings, sizes), ratio(scores, sizes), sizes


def _over_models(people: Floats, judge: Floats) -> dict[str, Floats]:
    if not people.shape[1]:
        return dict.fromkeys(_ESTIMATES, np.full(len(people), np.nan))
    errors = np.abs(judge - people)
    # Rounded: means that are equal may differ in the last bit, and are a tie all the same.
    one, two = np.round(people, 12), np.round(judge, 12)
    missing = np.isnan(errors).any(axis=1)  # a draw without ratings of some model has no order of them
    found = (errors.mean(axis=1), errors.max(axis=1), kendall(one, two), pairwise_order(one, two))
    return {name: np.where(missing, np.nan, values) for name, values in zip(_ESTIMATES, found, strict=True)}


_ESTIMATES: Sequence[str] = ("mean_error", "worst_error", "tau", "pairwise_order")
