"""Agreement of a judge with people, rating by rating and model by model, with intervals over whole clusters.

A level of a model is its share of Good or its mean. Its intervals resample rating batches and nothing else:
they show how far other raters and prompts could have moved a number, not how far other models could. Noise
also raises a mean of absolute errors, once in the value and once more in the draws, so its interval is biased
upward.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from empathy_judge.calibration import bootstrap
from empathy_judge.calibration.agreement import metrics
from empathy_judge.calibration.bootstrap import Draws, Sampled, ratio
from empathy_judge.calibration.cluster import cluster_sums
from empathy_judge.calibration.estimate import Estimate, Floats, Integers
from empathy_judge.calibration.pairing import Cluster, Paired
from empathy_judge.calibration.shares.transport import LEAST_MODELS
from empathy_judge.data.judgments import first_number
from empathy_judge.data.records import LABELS


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
    """Several models, the one people found best first; errors are absolute, `tau` is Kendall's.

    `slope` is that of the judge's levels on people's: the part of people's gap between models that it shows.
    """

    models: tuple[LevelError, ...]
    mean_error: Estimate
    worst_error: Estimate
    tau: Estimate
    slope: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How a judge and people agree, rating by rating and model by model.

    `confusion` has people's ratings down and the judge's labels across. `levels` are each model's
    share of Good, on other scales its mean. `clusters` says what was drawn or left out whole.
    """

    scale: tuple[str, ...]
    clusters: Cluster
    cluster_count: int
    draws: int
    metrics: Mapping[str, Estimate]
    undefined: Mapping[str, str]  # the reason, for every metric without a value
    confusion: tuple[tuple[int, ...], ...]
    levels: LevelErrors


def agreement(paired: Paired, *, rng: np.random.Generator, draws: int = 2000) -> Agreement:
    """Return every metric of a judge against people, with intervals over whole batches.

    `exact`, `balanced_accuracy`, `qwk` and `alpha_ordinal` are of the rating and the judge's label,
    `spearman` of the rating and the score; see `library_value`. `qwk_matched` is of the score cut into labels
    as frequent as the ratings: it measures the order only.

    With fewer than four raters the intervals are over prompts: see `population`. Metrics that allow for
    chance are undefined where people or the judge nearly always gave one label.
    """
    from sklearn.metrics import confusion_matrix

    kind, ratings, levels = paired.cluster_kind, paired.rating, paired.levels
    codes = paired.clusters(kind)
    count = int(codes.max()) + 1
    drawn = bootstrap.replicate_clusters(count, rng=rng, draws=draws)
    confusion = confusion_matrix(ratings, paired.label, labels=np.arange(1, levels + 1))
    columns: dict[str, NDArray[Any]] = dict.fromkeys(metrics.TABLE_STATISTICS, paired.label)
    columns["qwk_matched"] = metrics.matched_labels(ratings, paired.score, levels)
    statistics = {
        name: metrics.from_table(
            metrics.TABLE_STATISTICS[name.removesuffix("_matched")], ratings, column, levels
        )
        for name, column in columns.items()
    }
    statistics["spearman"] = metrics.spearman_of(ratings.astype(float), paired.score)
    columns["spearman"] = paired.score
    estimates = {}
    for name, item in bootstrap.sample(statistics, codes, drawn).items():
        value = metrics.library_value(name.removesuffix("_matched"), ratings, columns[name], levels)
        unseen = metrics.unseen_variance(confusion) if name == "balanced_accuracy" else 0.0
        is_part = name in ("exact", "balanced_accuracy")
        estimates[name] = replace(item, value=value).estimate(
            low=0.0 if is_part else -np.inf, high=1.0, scale="logit" if is_part else "z", unseen=unseen
        )
    found = metrics.refused_by_rarity(estimates, ratings, paired.label)
    # Matched labels are as rare as people's labels, whatever the judge gave.
    found |= metrics.refused_by_rarity({"qwk_matched": estimates["qwk_matched"]}, ratings)
    return Agreement(
        scale=paired.scale,
        clusters=kind,
        cluster_count=count,
        draws=len(drawn),
        metrics=found,
        undefined={
            name: metrics.REASONS[name] for name, item in found.items() if not np.isfinite(item.value)
        },
        confusion=tuple(map(tuple, confusion.tolist())),
        levels=level_errors(paired.model, *good_or_mean(paired), codes, drawn),
    )


def good_or_mean(paired: Paired) -> tuple[Floats, Floats]:
    """Return each rating's part in the level of its model, by people and by the judge.

    The level is the share of Good, by the judge's probabilities or label; on other scales the mean, in the
    scale's own numbers.
    """
    if paired.scale == LABELS:
        judge, probabilities = paired.label == paired.levels, paired.probabilities
        good = judge.astype(float) if probabilities is None else probabilities[:, -1]
        return (paired.rating == paired.levels).astype(float), good
    offset = first_number(paired.scale) - 1
    return paired.rating.astype(float) + offset, paired.score + offset


def level_errors(
    model: NDArray[Any], people: Floats, judge: Floats, clusters: Integers, drawn: Draws
) -> LevelErrors:
    """Return every model's mean by people and by the judge; `clusters` is each row's column in `drawn`."""
    names, codes = np.unique(model, return_inverse=True)
    here = (codes[:, None] == np.arange(len(names))).astype(float)
    columns = np.hstack([here, here * people[:, None], here * judge[:, None]])
    sums = cluster_sums(clusters, columns, drawn.shape[1])
    # The first row is the data, the others are the draws; the columns of each part are the models.
    totals = np.vstack([sums.sum(axis=0), bootstrap.sum_draws(sums, drawn)])
    sizes, by_people, by_judge = np.split(totals, 3, axis=1)
    by_people, by_judge = ratio(by_people, sizes), ratio(by_judge, sizes)
    errors = by_judge - by_people
    size, total, _ = np.split(sums, 3, axis=1)
    count = (size > 0).sum(axis=0).astype(float)
    squares = ((total - size * by_people[0]) ** 2).sum(axis=0)
    people_errors = np.sqrt(ratio(count, count - 1) * squares) / sizes[0]

    def sampled(values: Floats) -> Sampled:
        return Sampled(float(values[0]), values[1:], bootstrap.leaves_one_out(drawn))

    tau = sampled(metrics.kendall(by_people, by_judge))
    noise = np.full(len(totals), (people_errors**2).mean())
    noise[1:] *= 1 if bootstrap.leaves_one_out(drawn) else 2  # clusters drawn at random have it twice
    slope = sampled(_slopes(by_people, by_judge, noise))
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
        mean_error=sampled(np.abs(errors).mean(axis=1)).estimate(low=0.0),
        worst_error=sampled(np.abs(errors).max(axis=1)).estimate(low=0.0),
        # Clusters left out one by one give no interval of an order.
        tau=Estimate(tau.value, None) if tau.is_left_out else tau.estimate(),
        slope=slope.estimate(),
    )


def _slopes(people: Floats, judge: Floats, noise: Floats) -> Floats:
    """Return the slope of the judge's levels on people's in the data and in each draw.

    The ratings' noise would flatten it: it is taken off the variance of people's levels. Undefined with few
    models, or where noise is most of that variance.
    """
    count = people.shape[1]
    apart = people - people.mean(axis=1, keepdims=True)
    product = (apart * judge).sum(axis=1) / max(1, count - 1)
    squares = (apart**2).sum(axis=1) / max(1, count - 1)
    known = squares - noise
    is_seen = count >= LEAST_MODELS and known[0] > noise[0]
    return ratio(product, np.maximum(known, squares / 4)) if is_seen else np.full(len(people), np.nan)


def independent_judges(judges: Sequence[LevelErrors]) -> float:
    """Return how many judges with independent errors so many amount to: n / (1 + (n - 1) r) (Kish 1965).

    r is the mean correlation of their errors on the models that all have judged. Undefined with few models.
    """
    errors = [{item.model: item.error.value for item in judge.models} for judge in judges]
    names = sorted(set.intersection(*(set(item) for item in errors)))
    table = np.array([[item[name] for name in names] for item in errors])
    if len(errors) < 2 or len(names) <= LEAST_MODELS or not table.std(axis=1).all():
        return math.nan
    count = len(errors)
    mean = (np.corrcoef(table).sum() - count) / (count * (count - 1))
    return float(count / (1 + (count - 1) * max(0.0, mean)))
