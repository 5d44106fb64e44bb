"""What is fitted to a judge's word on single responses: a map and sets of labels; and how well each holds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from calibration.agreement import calibration_error, log_losses
from calibration.conformal import (
    Thresholds,
    ask_first,
    cross_assess_sets,
    fit_thresholds,
    prediction_sets,
)
from calibration.intervals import Floats, finite_or_none
from calibration.mapping import FOLDS, Choice, choose_map, fit_map, fold_of
from calibration.pairing import Paired
from calibration.reliability import brier_parts, reliability_curve
from data.recorded import position_on
from data.records import Judgment
from nightly.facets import clusters_of

ASK_FIRST: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A map and what it makes of every paired row when fitted on the other clusters."""

    choice: Choice
    held_out: Floats
    thresholds: Thresholds


def fit(paired: Paired, *, seed: int) -> Fitted:
    """The map chosen for the judge's probabilities, or scores where it gives none, and the sets' thresholds.

    Thresholds come from held-out maps, so that they are no tighter than a new response deserves.
    """
    values = said_values(paired)
    clusters = clusters_of(paired)
    levels = paired.levels
    choice = choose_map(values, paired.rating, clusters, rng=np.random.default_rng(seed), levels=levels)
    folds = min(FOLDS, int(clusters.max()) + 1)
    if folds < 2:
        held_out = choice.map.apply(values)
    else:
        fold = fold_of(clusters, folds=folds, rng=np.random.default_rng(seed))
        held_out = np.empty((len(paired), levels))
        for part in range(folds):
            inside = fold == part
            fitted = fit_map(choice.map.kind, values[~inside], paired.rating[~inside], levels=levels)
            held_out[inside] = fitted.apply(values[inside])
    thresholds = fit_thresholds(held_out, paired.rating, labels=paired.scale)
    return Fitted(choice=choice, held_out=held_out, thresholds=thresholds)


def said_values(paired: Paired) -> Floats:
    """What the map starts from."""
    return paired.score if paired.probabilities is None else paired.probabilities


def mapping_part(fitted: Fitted) -> dict[str, Any]:
    """The chosen map and how the others did."""
    return {"chosen": fitted.choice.map.kind, **fitted.choice.as_dict()}


def reliability_part(paired: Paired, fitted: Fitted) -> dict[str, Any]:
    """Whether the highest label's probability means what it says, before the map and after."""
    clusters = clusters_of(paired)
    said = paired.probabilities
    return {
        "label": paired.scale[-1],
        "before": _reliability(paired, said, clusters) if said is not None else None,
        "after": _reliability(paired, fitted.held_out, clusters),
    }


def _reliability(paired: Paired, said: Floats, clusters: Any) -> dict[str, Any]:
    top = paired.rating == paired.levels
    return {
        "curve": [item.as_dict() for item in reliability_curve(top, said[:, -1], clusters=clusters)],
        "ece": finite_or_none(calibration_error(top, said[:, -1])),
        "brier": {
            name: finite_or_none(value) for name, value in asdict(brier_parts(paired.rating, said)).items()
        },
        "log_loss": finite_or_none(float(log_losses(paired.rating, said).mean())),
    }


def conformal_part(
    paired: Paired, fitted: Fitted, judgments: Sequence[Judgment], *, seed: int
) -> dict[str, Any]:
    """How often sets hold the rating, how large they are, and whom to ask first."""
    report = cross_assess_sets(
        fitted.held_out,
        paired.rating,
        clusters_of(paired),
        rng=np.random.default_rng(seed),
        labels=paired.scale,
    )
    return {
        **report.as_dict(),
        "thresholds": fitted.thresholds.as_dict(),
        "ask_first": _ask_first(paired, fitted, judgments),
    }


def _ask_first(paired: Paired, fitted: Fitted, judgments: Sequence[Judgment]) -> list[dict[str, Any]]:
    """Responses nobody rated, or all where everything was rated; the least certain first."""
    rated = set(paired.id.tolist())
    scored = [item for item in judgments if item.unscored is None]
    asked = [item for item in scored if item.id not in rated] or scored
    said = fitted.choice.map.apply(judged_values(asked, paired.scale, paired.probabilities is not None))
    order = ask_first(said, fitted.thresholds)[:ASK_FIRST]
    sets = prediction_sets(said[order], fitted.thresholds)
    return [
        {
            "id": asked[row].id,
            "model": asked[row].model,
            "set": list(labels),
            "probabilities": dict(zip(paired.scale, said[row].tolist(), strict=True)),
        }
        for row, labels in zip(order.tolist(), sets, strict=True)
    ]


def judged_values(judgments: Sequence[Judgment], scale: Sequence[str], has_probabilities: bool) -> Floats:
    """What the map starts from, of judgments that have a label."""
    if has_probabilities:
        return np.array([[(item.probabilities or {})[name] for name in scale] for item in judgments])
    return np.array([score_of(item, scale) for item in judgments])


def score_of(judgment: Judgment, scale: Sequence[str]) -> float:
    """The judge's expected rating, 1 to k."""
    if judgment.score is not None:
        return min(max(judgment.score, 1.0), float(len(scale)))
    return position_on(judgment.label, scale) or 1.0
