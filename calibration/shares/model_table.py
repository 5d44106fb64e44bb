"""Each model's level: by people, by the judge, corrected; the line through models, and what it is worth."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from calibration.bias.slices import cluster_kind
from calibration.bootstrap import ratio
from calibration.cluster import NORMAL
from calibration.estimate import Floats, finite_or_none
from calibration.pairing import Paired
from calibration.shares.correction import MEAN, calibrated_models, correct, judge_worth, within_slope
from calibration.shares.planning import plan_ratings
from calibration.shares.ppi import RatedModel, judge_means, one_hot
from calibration.shares.transport import CalibratedModels, Target, fit_line, left_out_levels, transport
from data.judgments import first_number, position_on
from data.records import LABELS, Judgment, to_plain


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


SHARE_STEPS: Final = (0.02, 0.05, 0.1)
MEAN_STEPS: Final = (0.05, 0.1, 0.2)  # parts of the scale's length


def columns_of(scale: Sequence[str]) -> tuple[str, ...]:
    """What a model's level consists of: shares of Bad, Okay and Good, on other scales the mean."""
    return LABELS if tuple(scale) == LABELS else MEAN


def rated_models(paired: Paired, judgments: Sequence[Judgment]) -> dict[str, RatedModel]:
    """Every model's judgments, those nobody rated too, with its ratings; the best-rated model first."""
    is_shares = paired.scale == LABELS
    offset = first_number(paired.scale) - 1.0
    kind = cluster_kind(paired)
    named = dict(zip(paired.id.tolist(), paired.model.tolist(), strict=True))
    own: dict[str, list[Judgment]] = {}
    for item in judgments:
        if item.unscored is None:
            own.setdefault(named.get(item.id, item.model), []).append(item)
    found = {}
    for model, items in own.items():
        rows = np.flatnonzero(paired.model == model)
        place = {item.id: index for index, item in enumerate(items)}
        value = one_hot(paired.rating[rows], len(LABELS)) if is_shares else paired.rating[rows, None] + offset
        found[model] = RatedModel(
            judged=_levels(items, paired) if is_shares else _levels(items, paired) + offset,
            item=np.array([place[identity] for identity in paired.id[rows].tolist()], dtype=np.intp),
            value=value.astype(float),
            cluster=getattr(paired, kind)[rows],
            prompt=np.array([item.prompt_digest for item in items]),
            bounds=(0.0, 1.0) if is_shares else (1 + offset, paired.levels + offset),
        )
    return dict(sorted(found.items(), key=lambda item: (-_mean(item[1]), item[0])))


def _mean(rated: RatedModel) -> float:
    return float(rated.value[:, -1].mean()) if len(rated.item) else -1.0


def _levels(items: Sequence[Judgment], paired: Paired) -> Floats:
    if paired.scale != LABELS:
        return np.array([[score_of(item, paired.scale)] for item in items])
    if paired.probabilities is not None and all(item.probabilities is not None for item in items):
        return judged_values(items, LABELS, True)
    return one_hot([LABELS.index(item.label or LABELS[0]) + 1 for item in items], len(LABELS))


def models_part(
    models: Mapping[str, RatedModel], in_line: Mapping[str, RatedModel], scale: Sequence[str]
) -> list[dict[str, Any]]:
    """Each model's raw level, the crowd's, the corrected one, and what the other models' line would say."""
    names = columns_of(scale)
    lines = calibrated_models(in_line)
    rows = []
    for found in correct(models, calibrated=lines, names=names):
        rated = models[found.model]
        crowd = rated.value.mean(axis=0) if len(rated.item) else np.full(len(names), np.nan)
        alone = _left_out(found.model, rated, dict(zip(names, lines, strict=False)))
        row = found.as_dict()
        rows.append(
            {
                "model": found.model,
                "judged": found.judged,
                "ratings": found.ratings,
                "clusters": found.clusters,
                "judge": row["judge"],
                "crowd": dict(zip(names, map(finite_or_none, crowd.tolist()), strict=True)),
                "corrected": row["levels"],
                "how": found.how,
                "reason": found.reason,
                "design_effect": row["design_effect"],
                "worth_in_ratings": row["worth_in_ratings"],
                "left_out": alone,
                "covered": {name: _holds(alone[name], crowd[at]) for at, name in enumerate(names)}
                if alone
                else {},
            }
        )
    return rows


def _left_out(model: str, rated: RatedModel, lines: Mapping[str, CalibratedModels]) -> dict[str, Any]:
    """What the line through the other models would say of a rated model, had nobody rated it."""
    if not len(rated.item) or not len(rated.judged):
        return {}
    means, noises = judge_means(rated)
    return {
        name: transport(line.without(model), Target(judge=float(mean), judge_noise=float(noise))).as_dict()
        for (name, line), mean, noise in zip(lines.items(), means, noises, strict=True)
    }


def _holds(estimate: Mapping[str, float | None], value: float) -> bool | None:
    low, high = estimate["low"], estimate["high"]
    return None if low is None or high is None else bool(low <= value <= high)


def between_part(
    models: Mapping[str, RatedModel], in_line: Mapping[str, RatedModel], scale: Sequence[str]
) -> dict[str, Any]:
    """The line through models, and what it is worth."""
    names = columns_of(scale)
    lines = calibrated_models(in_line)
    effect = design_effect_of(models)
    spread = spread_of(models)
    top = lines[-1] if lines else None
    return {
        "columns": list(names),
        "lines": {
            name: {**to_plain(line), **to_plain(fit_line(line)), "range": _finite(line.range)}
            for name, line in zip(names, lines, strict=True)
        },
        "within_slope": finite_or_none(within_slope(models)),
        "design_effect": effect,
        "worth_in_ratings": finite_or_none(judge_worth(top, design_effect=effect, spread=spread))
        if top
        else None,
        "as_exact_as": _as_exact_as(top, effect * spread) if top else None,
    }


def _as_exact_as(line: CalibratedModels, variance: float) -> float | None:
    """How many ratings would give an interval as wide as the line's of a model left out of it, on average."""
    known = [item.interval for item in left_out_levels(line)]
    halves = [(item.high - item.low) / 2 for item in known if item]
    return finite_or_none(variance * (NORMAL / float(np.mean(halves))) ** 2) if halves else None


def _finite(values: Sequence[float]) -> list[float | None]:
    return [finite_or_none(value) for value in values]


def planning_part(
    models: Mapping[str, RatedModel], between: Mapping[str, Any], scale: Sequence[str]
) -> list[Any]:
    """How many ratings of each of two models find a difference, for several differences."""
    names = columns_of(scale)
    line = between["lines"].get(names[-1])
    between_sd = line["between_sd"] if line else None
    steps = SHARE_STEPS if names == LABELS else [part * (len(scale) - 1) for part in MEAN_STEPS]
    return [
        to_plain(
            plan_ratings(
                step,
                spread=spread_of(models),
                design_effect=max(1.0, between["design_effect"]),
                correlation=_correlation(models),
                between_sd=float("inf") if between_sd is None else between_sd,
            )
        )
        for step in steps
    ]


def design_effect_of(models: Mapping[str, RatedModel]) -> float:
    """How many ratings of raters' batches count as one independent rating, over all models."""
    found = [
        item["design_effect"] for item in (row.as_dict() for row in correct(models, names=_names(models)))
    ]
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if known else 1.0


def _names(models: Mapping[str, RatedModel]) -> tuple[str, ...]:
    first = next(iter(models.values()), None)
    return MEAN if first is not None and first.judged.shape[1] == 1 else LABELS


def spread_of(models: Mapping[str, RatedModel]) -> float:
    """The mean variance of single ratings of one model, in the last column."""
    found = [float(rated.value[:, -1].var()) for rated in models.values() if len(rated.item)]
    return float(np.mean(found)) if found else float("nan")


def _correlation(models: Mapping[str, RatedModel]) -> float:
    """Of ratings and judgments within models."""
    both = own = others = 0.0
    for rated in models.values():
        if len(rated.item):
            judged, value = rated.judged[rated.item, -1], rated.value[:, -1]
            both += float(((judged - judged.mean()) * (value - value.mean())).sum())
            own += float(((judged - judged.mean()) ** 2).sum())
            others += float(((value - value.mean()) ** 2).sum())
    found = float(ratio(np.array(both), np.array(np.sqrt(own * others))))
    return found if np.isfinite(found) else 0.0
