"""Each model's level by human ratings, by the judge and corrected, and the line through models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from empathy_judge.calibration.pairing import Paired, score_and_label
from empathy_judge.calibration.shares.correction import MEAN, ModelCorrection, calibrated_models, correct
from empathy_judge.calibration.shares.ppi import RatedModel, judge_means, one_hot
from empathy_judge.calibration.shares.transport import CalibratedModels, FittedLine, fit_line, transport
from empathy_judge.data.judgments import first_number
from empathy_judge.data.records import LABELS, Judgment, to_plain


def rated_models(paired: Paired, judgments: Sequence[Judgment]) -> dict[str, RatedModel]:
    """Return every model's judgments with its ratings, the best-rated model first."""
    is_shares = paired.scale == LABELS
    offset = first_number(paired.scale) - 1.0
    model_of = dict(zip(paired.id.tolist(), paired.model.tolist(), strict=True))
    scored: dict[str, list[Judgment]] = {}
    scores = {item.id: found for item in judgments if (found := score_and_label(item, paired.scale))}
    for item in judgments:
        if item.id in scores:
            scored.setdefault(model_of.get(item.id, item.model), []).append(item)
    models = {}
    for model, items in scored.items():
        rows = np.flatnonzero(paired.model == model)
        place = {item.id: index for index, item in enumerate(items)}
        value = one_hot(paired.rating[rows], len(LABELS)) if is_shares else paired.rating[rows, None] + offset
        if not is_shares:
            judged = np.array([[scores[item.id][0]] for item in items]) + offset
        elif paired.probabilities is not None and all(item.probabilities for item in items):
            judged = np.array([[(item.probabilities or {})[name] for name in LABELS] for item in items])
        else:
            judged = one_hot([scores[item.id][1] for item in items], len(LABELS))
        models[model] = RatedModel(
            judged=judged,
            item=np.array([place[identity] for identity in paired.id[rows].tolist()], dtype=np.intp),
            value=value.astype(float),
            cluster=getattr(paired, paired.cluster_kind)[rows],
            prompt=np.array([item.prompt_digest for item in items]),
            bounds=(0.0, 1.0) if is_shares else (1 + offset, paired.levels + offset),
            chance=None if paired.chance is None else paired.chance[rows],
        )
    means = {name: rated.value[:, -1].mean() if len(rated.item) else -1.0 for name, rated in models.items()}
    return {name: models[name] for name in sorted(models, key=lambda name: (-means[name], name))}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFit:
    """The corrected models, and the line through them by column: by label, or on other scales the mean.

    `design_effect` is how many ratings of raters' batches count as one independent rating, over all models.
    """

    calibrated: Mapping[str, CalibratedModels]
    lines: Mapping[str, FittedLine]
    rows: tuple[ModelCorrection, ...]
    design_effect: float

    def as_dict(self) -> dict[str, Any]:
        """Return the lines; the report holds the models beside them."""
        lines = {
            name: {**to_plain(self.calibrated[name]), **to_plain(line), "range": self.calibrated[name].range}
            for name, line in self.lines.items()
        }
        return {"columns": tuple(self.calibrated), "lines": lines, "design_effect": self.design_effect}


def fit_models(
    models: Mapping[str, RatedModel],
    base: Mapping[str, CalibratedModels] | None = None,
    *,
    deviation: float | None = None,
) -> ModelFit:
    """Draw the line through the models, and correct each by the others.

    `base` are models by column that other people rated with the same judge; they share the line. `deviation`
    is that of recorded judges of the same kind, in standard deviations of their scores.

    All rated models are in the line, human replies too. A new model is a language model, yet the study's
    differ by so little that a line through them alone covers two percentage points; human replies,
    on which the judge has no larger error than on a language model, show how it follows a lower level.
    """
    of_columns = calibrated_models(models)
    columns = LABELS if len(of_columns) == len(LABELS) else MEAN
    if base is not None and {*base} == {*columns}:
        of_columns = tuple(
            replace(column, base=base[name].without(*models))
            for name, column in zip(columns, of_columns, strict=True)
        )
    if deviation is not None:
        of_columns = tuple(column.expecting(deviation) for column in of_columns)
    calibrated = dict(zip(columns, of_columns, strict=True))
    corrections = correct(models, calibrated=of_columns, names=columns)
    effects = [item.design_effect for item in corrections if np.isfinite(item.design_effect)]
    return ModelFit(
        calibrated=calibrated,
        lines={name: fit_line(column) for name, column in calibrated.items()},
        rows=tuple(_with_left_out(item, models[item.model], calibrated) for item in corrections),
        design_effect=float(np.mean(effects)) if effects else 1.0,
    )


def _with_left_out(
    correction: ModelCorrection, rated: RatedModel, columns: Mapping[str, CalibratedModels]
) -> ModelCorrection:
    left_out, covered = {}, {}
    if len(rated.item) and len(rated.judged):
        means, noises = judge_means(rated)
        for (name, column), mean, noise in zip(columns.items(), means, noises, strict=True):
            others = column.without(correction.model)
            left_out[name] = transport(others, others.judged(float(mean), float(noise), rated.prompt_count))
            ends, level = left_out[name].interval, correction.crowd[name]
            covered[name] = None if ends is None or level is None else ends.low <= level <= ends.high
    return replace(correction, left_out=left_out, covered=covered)
