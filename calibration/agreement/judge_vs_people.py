"""Agreement of a judge with people: every metric, with intervals over whole clusters of ratings."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from empathy_judge.calibration.agreement.level_errors import LevelErrors, level_errors
from empathy_judge.calibration.agreement.metrics import (
    REASONS,
    TABLE_STATISTICS,
    matched_labels,
    refused_by_rarity,
    spearman_of,
    table_of,
    tables_of,
    unseen_variance,
)
from empathy_judge.calibration.bootstrap import (
    Draws,
    Sampled,
    Statistic,
    leaves_one_out,
    replicate_clusters,
    sample,
)
from empathy_judge.calibration.estimate import Estimate, Floats, Integers
from empathy_judge.calibration.pairing import Cluster, Paired
from empathy_judge.data.judgments import first_number
from empathy_judge.data.records import LABELS


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
    """Every metric of a judge against people, with intervals over whole batches.

    Of the rating and the judge's label: `exact`, `balanced_accuracy`, `qwk` (Cohen's kappa with quadratic
    weights) and Krippendorff's `alpha_ordinal`. `qwk_matched` takes, instead of the judge's label, its score
    cut so that labels are as frequent as ratings: it measures the order only. Of the rating and the score:
    `spearman`.

    With fewer than four raters the intervals are over prompts, and say nothing of people: `population`.
    Those that allow for chance are undefined where people or the judge nearly always gave one label.
    """
    kind = paired.cluster_kind
    codes = paired.clusters(kind)
    count = int(codes.max()) + 1 if len(codes) else 0
    drawn = replicate_clusters(count, rng=rng, draws=draws)
    table = table_of(paired.rating, paired.label, paired.levels)
    metrics = _estimates(paired, table, codes, drawn)
    return Agreement(
        scale=paired.scale,
        clusters=kind,
        cluster_count=count,
        draws=len(drawn),
        metrics=metrics,
        undefined={name: REASONS[name] for name, item in metrics.items() if not np.isfinite(item.value)},
        confusion=tuple(tuple(int(cell) for cell in row) for row in table),
        levels=level_errors(paired.model, *good_or_mean(paired), codes, drawn),
    )


def _estimates(paired: Paired, table: Floats, codes: Integers, drawn: Draws) -> dict[str, Estimate]:
    unseen = {"exact": 0.0, "balanced_accuracy": unseen_variance(table)}
    estimates = {
        name: item.estimate(low=0.0, high=1.0, scale="logit", unseen=unseen[name])
        if name in unseen
        else item.estimate(high=1.0, scale="z")
        for name, item in _metrics(paired, codes, drawn).items()
    }
    checked = refused_by_rarity(estimates, paired.rating, paired.label)
    # Matched labels are as rare as people's labels, whatever the judge gave.
    matched = {name: item for name, item in estimates.items() if name == "qwk_matched"}
    return checked | refused_by_rarity(matched, paired.rating)


def _metrics(paired: Paired, codes: Integers, drawn: Draws) -> dict[str, Sampled]:
    ratings, levels = paired.rating, paired.levels
    columns = dict.fromkeys(TABLE_STATISTICS, paired.label)
    if len(paired):
        columns["qwk_matched"] = matched_labels(ratings, paired.score, levels)
    metrics = {}
    for name, column in columns.items():
        statistic = TABLE_STATISTICS[name.removesuffix("_matched")]
        value = float(statistic(table_of(ratings, column, levels)[None])[0])
        draws = statistic(tables_of(ratings, column, levels, codes, drawn))
        metrics[name] = Sampled(value, draws, leaves_one_out(drawn))
    ranks: dict[str, Statistic] = {"spearman": spearman_of(ratings.astype(float), paired.score)}
    return metrics | sample(ranks, codes, drawn)


def good_or_mean(paired: Paired) -> tuple[Floats, Floats]:
    """Return each rating's part in the level of its model, by people and by the judge.

    The level is the share of Good, by the judge's probabilities or label; on other scales the mean, in the
    scale's own numbers.
    """
    if paired.scale == LABELS:
        judge = (
            (paired.label == paired.levels) if paired.probabilities is None else paired.probabilities[:, -1]
        )
        return (paired.rating == paired.levels).astype(float), judge.astype(float)
    offset = first_number(paired.scale) - 1
    return paired.rating.astype(float) + offset, paired.score + offset
