"""A judge beside an AI's ratings: how far the two agree. An AI's ratings calibrate nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from calibration.agreement.judge_vs_people import agreement
from calibration.calibration_inputs import Material
from calibration.estimate import Estimate
from calibration.fit import CalibratedJudge, baseline_rows
from calibration.pairing import Cluster, pair
from data.judgments import with_exchanges


@dataclass(frozen=True, slots=True, kw_only=True)
class AiAgreement:
    """How far a judge agrees with one AI; `headline` is the metric to lead with, as it is with people.

    `baselines` are what the commonest label and the number of words reach. Intervals are over `clusters`.
    """

    judge: CalibratedJudge
    rater: str
    ratings: int
    responses: int
    scale: tuple[str, ...]
    headline: str
    metrics: Mapping[str, Estimate]
    confusion: tuple[tuple[int, ...], ...]
    baselines: Mapping[str, Estimate]
    clusters: Cluster
    cluster_count: int
    unscored: int
    unjudged: int


def agree_with_ais(material: Material) -> tuple[AiAgreement, ...]:
    """Every judge against every AI that rated, the one with most ratings first."""
    options, found = material.options, []
    for judged in (with_exchanges(item, material.exchanges) for item in material.judges):
        for rater in dict.fromkeys(item.rater for item in material.by_ai):
            paired = pair(
                judged.judgments,
                [item for item in material.by_ai if item.rater == rater],
                scale=options.scale,
                dimension=options.dimension,
                is_rounding=options.is_rounding,
            )
            agreed = agreement(paired, rng=np.random.default_rng(options.seed), draws=options.draws)
            headline = "qwk" if paired.probabilities is None else "qwk_matched"
            found.append(
                AiAgreement(
                    judge=CalibratedJudge(
                        **{item.name: getattr(judged, item.name) for item in fields(CalibratedJudge)}
                    ),
                    rater=rater,
                    ratings=agreed.ratings,
                    responses=agreed.responses,
                    scale=agreed.scale,
                    headline=headline,
                    metrics=agreed.metrics,
                    confusion=agreed.confusion,
                    baselines={
                        row.name: row.metrics[headline]
                        for row in baseline_rows(paired, material.exchanges, options)
                    },
                    clusters=agreed.clusters,
                    cluster_count=agreed.cluster_count,
                    unscored=sum(agreed.unscored.values()),
                    unjudged=agreed.unjudged,
                )
            )
    return tuple(sorted(found, key=lambda item: -item.ratings))
