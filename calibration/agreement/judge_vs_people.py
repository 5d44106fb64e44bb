"""Agreement of a judge with people: every metric, with intervals over whole clusters of ratings."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from empathy_judge.calibration.agreement.level_errors import LevelErrors, level_errors
from empathy_judge.calibration.agreement.metrics import (
    REASONS,
    TABLE_STATISTICS,
    from_table,
    library_value,
    matched_labels,
    refused_by_rarity,
    spearman_of,
    unseen_variance,
)
from empathy_judge.calibration.bootstrap import replicate_clusters, sample
from empathy_judge.calibration.estimate import Estimate, Floats
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
    count = int(codes.max()) + 1 if len(codes) else 0
    drawn = replicate_clusters(count, rng=rng, draws=draws)
    confusion = confusion_matrix(ratings, paired.label, labels=np.arange(1, levels + 1))
    columns: dict[str, NDArray[Any]] = dict.fromkeys(TABLE_STATISTICS, paired.label)
    columns["qwk_matched"] = matched_labels(ratings, paired.score, levels)
    statistics = {
        name: from_table(TABLE_STATISTICS[name.removesuffix("_matched")], ratings, column, levels)
        for name, column in columns.items()
    }
    sampled = sample(
        statistics | {"spearman": spearman_of(ratings.astype(float), paired.score)}, codes, drawn
    )
    columns["spearman"] = paired.score
    estimates = {}
    for name, item in sampled.items():
        value = library_value(name.removesuffix("_matched"), ratings, columns[name], levels)
        unseen = unseen_variance(confusion) if name == "balanced_accuracy" else 0.0
        is_part = name in ("exact", "balanced_accuracy")
        estimates[name] = replace(item, value=value).estimate(
            low=0.0 if is_part else -np.inf, high=1.0, scale="logit" if is_part else "z", unseen=unseen
        )
    metrics = refused_by_rarity(estimates, ratings, paired.label)
    # Matched labels are as rare as people's labels, whatever the judge gave.
    metrics |= refused_by_rarity({"qwk_matched": estimates["qwk_matched"]}, ratings)
    return Agreement(
        scale=paired.scale,
        clusters=kind,
        cluster_count=count,
        draws=len(drawn),
        metrics=metrics,
        undefined={name: REASONS[name] for name, item in metrics.items() if not np.isfinite(item.value)},
        confusion=tuple(map(tuple, confusion.tolist())),
        levels=level_errors(paired.model, *good_or_mean(paired), codes, drawn),
    )


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
