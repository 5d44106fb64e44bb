"""A judge beside people: every metric of agreement, with intervals over whole clusters of ratings.

Values come from scikit-learn, krippendorff and scipy, draws from count tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from calibration.agreement.metrics import (
    TABLE_STATISTICS,
    icc_sums,
    icc_two,
    kendall_of,
    matched_labels,
    point_value,
    refused_by_rarity,
    spearman_of,
    table_of,
    tables_of,
    unseen_variance,
)
from calibration.agreement.model_levels import ModelLevel, ModelMeans, model_levels, model_means, tabulate
from calibration.bootstrap import (
    Draws,
    Sampled,
    Statistic,
    leaves_one_out,
    replicate_clusters,
    sample,
    sum_draws,
)
from calibration.cluster import cluster_sums
from calibration.estimate import Estimate, Floats, Integers
from calibration.pairing import Cluster, Paired, SpeaksFor
from data.records import LABELS

PARTS_OF_HITS: Final = {"exact", "balanced_accuracy", "macro_f1"}  # all other metrics are coefficients
MAX_CELLS: Final = 512  # of distinct (rating, score): more of them than this, and rows are counted one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How a judge and people agree, rating by rating and model by model.

    `confusion` has people's ratings down and the judge's labels across. `shares` are there on the scale Bad,
    Okay, Good only, `means` on every scale. `clusters` says what was drawn or left out whole.
    """

    scale: tuple[str, ...]
    ratings: int
    responses: int
    raters: int
    clusters: Cluster
    cluster_count: int
    speaks_for: SpeaksFor
    draws: int
    unjudged: int
    unrated: int
    unscored: Mapping[str, int]
    metrics: Mapping[str, Estimate]
    confusion: tuple[tuple[int, ...], ...]
    means: ModelMeans
    shares: tuple[ModelLevel, ...] | None


def agreement(paired: Paired, *, rng: np.random.Generator, draws: int = 2000) -> Agreement:
    """Every metric of a judge against people, with intervals over whole batches.

    Of the rating and the judge's label: `exact`, `balanced_accuracy`, `macro_f1`, Cohen's `kappa`,
    `kappa_linear` and `qwk`, Krippendorff's `alpha_nominal`, `alpha_ordinal` and `alpha_interval`, Gwet's
    `ac1` and (quadratic) `ac2`. `qwk_matched` takes, instead of the judge's label, its score cut so that
    labels are as frequent as ratings: it asks for the order only. Of the rating and the score: `spearman`,
    `kendall` (tau-b) and `icc`, which is ICC(A,1): two-way, absolute agreement, single rating.

    With fewer than four raters the intervals are over prompts, and say nothing of people: `speaks_for`.
    Those that allow for chance are undefined where people or the judge hardly ever gave but one label.
    """
    kind = paired.cluster_kind
    codes = paired.clusters(kind)
    count = int(codes.max()) + 1 if len(codes) else 0
    drawn = replicate_clusters(count, rng=rng, draws=draws)
    table = table_of(paired.rating, paired.label, paired.levels)
    return Agreement(
        scale=paired.scale,
        ratings=len(paired),
        responses=len(np.unique(paired.id)),
        raters=len(np.unique(paired.rater)),
        clusters=kind,
        speaks_for=paired.speaks_for,
        cluster_count=count,
        draws=len(drawn),
        metrics=_estimates(paired, codes, drawn),
        confusion=tuple(tuple(int(cell) for cell in row) for row in table),
        means=model_means(paired.model, paired.rating, paired.score, codes, drawn),
        shares=_shares(paired, codes, drawn),
        unscored=paired.unscored,
        unjudged=paired.unjudged,
        unrated=paired.unrated,
    )


def _estimates(paired: Paired, codes: Integers, drawn: Draws) -> dict[str, Estimate]:
    table = table_of(paired.rating, paired.label, paired.levels)
    found = {
        name: item.estimate(low=0.0, high=1.0, scale="logit", unseen=unseen_variance(name, table))
        if name in PARTS_OF_HITS
        else item.estimate(high=1.0, scale="z")
        for name, item in _metrics(paired, codes, drawn).items()
    }
    kept = refused_by_rarity(found, paired.rating, paired.label)
    # What is cut as frequently as people rate is as rare as their labels.
    return kept | refused_by_rarity(
        {name: found[name] for name in found if name == "qwk_matched"}, paired.rating
    )


def _metrics(paired: Paired, codes: Integers, drawn: Draws) -> dict[str, Sampled]:
    levels, ratings, scores = paired.levels, paired.rating, paired.score
    tables = tables_of(ratings, paired.label, levels, codes, drawn)
    is_left_out = leaves_one_out(drawn)
    metrics = {
        name: Sampled(point_value(name, ratings, paired.label, levels), statistic(tables), is_left_out)
        for name, statistic in TABLE_STATISTICS.items()
    }
    if len(paired):
        cut = matched_labels(ratings, scores, levels)
        draws = TABLE_STATISTICS["qwk"](tables_of(ratings, cut, levels, codes, drawn))
        metrics["qwk_matched"] = Sampled(point_value("qwk", ratings, cut, levels), draws, is_left_out)
    metrics |= _ranked(ratings.astype(float), scores, codes, drawn)
    sums = icc_sums(ratings.astype(float), scores, (levels + 1) / 2)
    each = sum_draws(cluster_sums(codes, sums, drawn.shape[1]), drawn)
    return metrics | {"icc": Sampled(float(icc_two(sums.sum(axis=0)[None])[0]), icc_two(each), is_left_out)}


def _ranked(ratings: Floats, scores: Floats, codes: Integers, drawn: Draws) -> dict[str, Sampled]:
    """Rank correlations, their values by scipy; where scores repeat, rows alike are counted together."""
    cells, rows = np.unique(np.column_stack([ratings, scores]), axis=0, return_inverse=True)
    if len(cells) > MAX_CELLS:
        sampled = sample(_rank_statistics(ratings, scores), codes, drawn)
    else:
        kinds = drawn.shape[1]
        counted = np.bincount(codes * len(cells) + rows.ravel(), minlength=kinds * len(cells))
        clusters = counted.reshape(kinds, len(cells)).astype(float)
        counts, whole = sum_draws(clusters, drawn), clusters.sum(axis=0)[None]
        sampled = {
            name: Sampled(float(statistic(whole)[0]), statistic(counts), leaves_one_out(drawn))
            for name, statistic in _rank_statistics(cells[:, 0], cells[:, 1]).items()
        }
    from scipy import stats

    library = {"spearman": stats.spearmanr, "kendall": stats.kendalltau}
    # Asked only where there is an answer: scipy warns where there is none.
    return {
        name: replace(item, value=float(library[name](ratings, scores).statistic))
        if np.isfinite(item.value)
        else item
        for name, item in sampled.items()
    }


def _rank_statistics(ratings: Floats, scores: Floats) -> dict[str, Statistic]:
    return {"spearman": spearman_of(ratings, scores), "kendall": kendall_of(ratings, scores)}


def _shares(paired: Paired, codes: Integers, drawn: Draws) -> tuple[ModelLevel, ...] | None:
    if paired.scale != LABELS:
        return None
    probabilities = paired.probabilities
    if probabilities is None:
        probabilities = (paired.label[:, None] == np.arange(1, paired.levels + 1)).astype(float)
    return model_levels(tabulate(paired.model, codes, paired.rating, probabilities, drawn))
