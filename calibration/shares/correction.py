"""Corrected shares of every model: by its ratings, by the calibrated judge, or by both.

The judge's own shares are never the answer. A model with ratings is corrected by them (`ppi`); one
without by the line through calibrated models (`transport`); one with a few by both, so that its interval
shrinks as ratings arrive. Where the line does not reach, the level is refused and the reason given.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from calibration.agreement.model_levels import worth_in_ratings
from calibration.artifact import Calibration
from calibration.bootstrap import ratio
from calibration.cluster import UNIT, sum_variance
from calibration.estimate import Estimate, Floats, Interval, estimate_of
from calibration.shares.ppi import PpiEstimate, RatedModel, judge_means, ppi_estimate
from calibration.shares.tally import Tally
from calibration.shares.transport import CalibratedModels, Target, fit_line, refusal, transport
from data.records import LABELS

How = Literal["ratings", "judge", "both", "refused"]
MEAN = ("mean",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCorrection:
    """One model's level; `corrected` is empty where it is refused, and `reason` says why.

    `corrected` holds the share of each label, or the mean under "mean"; `judge` and `crowd` are what the
    judge alone and the ratings alone say. `reason` is also given where the line was refused and the model's
    own ratings stand alone. `worth_in_ratings` is how many ratings tell as much as the line does about the
    last column, Good.
    """

    model: str
    judged: int
    ratings: int
    clusters: int
    judge: Mapping[str, float]
    crowd: Mapping[str, float | None]
    corrected: Mapping[str, Estimate]
    how: How
    reason: str | None
    design_effect: float
    worth_in_ratings: float


def calibrated_models(models: Mapping[str, RatedModel]) -> tuple[CalibratedModels, ...]:
    """The calibrated models for `transport`, one `CalibratedModels` a column.

    Left out are models without ratings and those with one cluster of them, which cannot say how exact it is.
    """
    return _calibrated(models, _ppi_estimates(models))


def _ppi_estimates(models: Mapping[str, RatedModel]) -> dict[str, PpiEstimate]:
    """Estimate the models that have ratings from these."""
    return {name: ppi_estimate(rated) for name, rated in models.items() if len(rated.item)}


def correct(
    models: Mapping[str, RatedModel],
    *,
    calibrated: Sequence[CalibratedModels] | None = None,
    names: Sequence[str] = LABELS,
) -> tuple[ModelCorrection, ...]:
    """Every model's corrected levels, in the order given.

    `names` are the columns': the labels, or `MEAN`. `calibrated` is of a calibration made earlier; a model of
    `models` is left out of it, since what was rated then need not be what is judged now. Without it every
    model is corrected by the other rated ones of `models`.
    """
    estimates = _ppi_estimates(models)
    lines = tuple(calibrated) if calibrated is not None else _calibrated(models, estimates)
    effects = [float(item.design_effect.mean()) for item in estimates.values()]
    spreads = [float(item.spread[-1]) for item in estimates.values()]
    worth = _Worth(
        design_effect=float(np.nanmean(effects)) if np.isfinite(effects).any() else 1.0,
        spread=float(np.mean(spreads)) if spreads else None,
    )
    return tuple(
        _correct(name, rated, estimates.get(name), lines, names, worth) for name, rated in models.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worth:
    """What turns the spread of a line into ratings."""

    design_effect: float
    spread: float | None


def _correct(
    model: str,
    rated: RatedModel,
    own: PpiEstimate | None,
    calibrated: Sequence[CalibratedModels],
    names: Sequence[str],
    worth: _Worth,
) -> ModelCorrection:
    lines = [line.without(model) for line in calibrated]
    targets = [target_of(rated, own, column) for column in range(len(names))]
    refusals = [
        f"{name}: {reason}"
        for name, line, target in zip(names, lines, targets, strict=True)
        if (reason := refusal(line, target))
    ]
    reason = refusals[0] if refusals else None
    how = _how(own, targets, reason)
    estimates: list[Estimate] = []
    if how in ("judge", "both"):
        estimates = [transport(line, target) for line, target in zip(lines, targets, strict=True)]
    elif how == "ratings" and own is not None:
        estimates = [estimate_of(*values) for values in zip(own.value, own.low, own.high, strict=True)]
    if rated.bounds == UNIT and len(names) > 1:
        estimates = on_simplex(estimates)
    return ModelCorrection(
        model=model,
        how=how,
        reason=reason,
        corrected=dict(zip(names, estimates, strict=True)) if estimates else {},
        judge=dict(zip(names, rated.judged.mean(axis=0).tolist(), strict=True)) if len(rated.judged) else {},
        crowd=dict(zip(names, rated.value.mean(axis=0).tolist(), strict=True))
        if len(rated.item)
        else dict.fromkeys(names),
        judged=len(rated.judged),
        ratings=len(rated.item),
        clusters=own.clusters if own is not None else 0,
        design_effect=float(own.design_effect.mean()) if own is not None else math.nan,
        worth_in_ratings=math.nan
        if reason
        else judge_worth(lines[-1], design_effect=worth.design_effect, spread=worth.spread),
    )


def judge_worth(
    calibrated: CalibratedModels, *, design_effect: float = 1.0, spread: float | None = None
) -> float:
    """How many ratings of a new model tell as much as the judge's line does.

    `spread` is the variance of single ratings; a share's is p (1 - p) if none is given, a mean's is unknown.
    """
    between_sd = fit_line(calibrated).between_sd
    if spread is not None:
        return spread * design_effect / between_sd**2
    if calibrated.bounds != UNIT:
        return math.nan
    return worth_in_ratings(float(np.mean(calibrated.crowd)), design_effect, between_sd)


def _calibrated(
    models: Mapping[str, RatedModel], estimates: Mapping[str, PpiEstimate]
) -> tuple[CalibratedModels, ...]:
    found = {name: item for name, item in estimates.items() if np.isfinite(item.variance).all()}
    first = next(iter(models.values()), None)
    return tuple(
        CalibratedModels(
            models=tuple(found),
            judge=tuple(float(models[name].judged[:, column].mean()) for name in found),
            crowd=tuple(float(item.value[column]) for item in found.values()),
            noise=tuple(float(item.least_variance[column]) for item in found.values()),
            bounds=first.bounds if first else UNIT,
        )
        for column in range(first.judged.shape[1] if first else 0)
    )


def _how(own: PpiEstimate | None, targets: Sequence[Target], reason: str | None) -> How:
    if own is None:
        return "refused" if reason else "judge"
    if reason:
        return "ratings"
    # One cluster of ratings has a level but no error: the line cannot weigh it.
    return "both" if all(target.is_rated for target in targets) else "judge"


def target_of(sample: RatedModel, own: PpiEstimate | None, column: int) -> Target:
    """A model as the line takes it, with its own ratings if they say how exact they are."""
    mean, noise = judge_means(sample)
    judge = Target(judge=float(mean[column]), judge_noise=float(np.nan_to_num(noise[column])))
    if own is None or not np.isfinite(own.variance).all():
        return judge
    # Transport takes noises as known. Few clusters know theirs badly, which the interval has in it.
    return replace(judge, crowd=float(own.value[column]), noise=float(own.stated_variance[column]))


def on_simplex(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Shares that add up to 1, none below 0; an interval that would miss its share reaches out to it."""
    values = np.array([item.value for item in estimates])
    if not len(values) or not np.isfinite(values).all():
        return list(estimates)
    found = []
    for value, item in zip(project(values), estimates, strict=True):
        reach = item.interval and Interval(min(item.interval.low, value), max(item.interval.high, value))
        found.append(Estimate(float(value), reach))
    return found


def project(values: Floats) -> Floats:
    """The nearest shares that add up to 1 (Euclidean; Held, Wolfe and Crowder 1974).

    >>> project(np.array([0.5, 0.25, 0.25])).tolist(), project(np.array([-0.25, 0.25, 1.0])).tolist()
    ([0.5, 0.25, 0.25], [0.0, 0.125, 0.875])
    """
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(ordered > excess)[-1])
    shares: Floats = np.maximum(values - excess[last], 0)
    return shares


def within_slope(models: Mapping[str, RatedModel]) -> float:
    """The pooled slope of ratings on judgments within models, in the last column; between: `fit_line`.

    Undefined when the judge says the same of every rated response of a model.
    """
    above = below = 0.0
    for rated in models.values():
        if len(rated.item):
            judged, value = rated.judged[rated.item, -1], rated.value[:, -1]
            above += float(((judged - judged.mean()) * value).sum())
            below += float(((judged - judged.mean()) ** 2).sum())
    return float(ratio(np.array(above), np.array(below)))


@dataclass(frozen=True, slots=True)
class Refused:
    """Stands where a model's level would be, and says why there is none."""

    reason: str

    def __str__(self) -> str:
        return f"refused ({self.reason})"


def correct_shares(tally: Tally, calibration: Calibration) -> dict[str, Mapping[str, Estimate] | Refused]:
    """Every model's shares by the calibrated line, with transport intervals, or why they are refused."""
    lines = {label: CalibratedModels.from_dict(dict(calibration.between[label])) for label in LABELS}
    return {model: _correct_calibrated(model, clusters, lines) for model, clusters in tally.sums.items()}


def _correct_calibrated(
    model: str, clusters: Mapping[int, list[float]], lines: Mapping[str, CalibratedModels]
) -> Mapping[str, Estimate] | Refused:
    means, noises = _judged(np.array(list(clusters.values())).reshape(-1, len(LABELS) + 1))
    targets = {
        label: Target(judge=mean, judge_noise=noise)
        for label, mean, noise in zip(LABELS, means, noises, strict=True)
    }
    # What was rated under this name then need not be what is judged now.
    others = {label: line.without(model) for label, line in lines.items()}
    for label in LABELS:
        if reason := refusal(others[label], targets[label]):
            return Refused(f"{label}: {reason}")
    estimates = on_simplex([transport(others[label], targets[label]) for label in LABELS])
    return dict(zip(LABELS, estimates, strict=True))


def _judged(sums: Floats) -> tuple[list[float], list[float]]:
    """The judge's mean of every label and its sampling variance, over clusters of one prompt's responses."""
    counts = sums[:, -1].sum()
    if not counts:
        return [math.nan] * len(LABELS), [0.0] * len(LABELS)
    means = sums[:, :-1].sum(axis=0) / counts
    pulls = (sums[:, :-1] - sums[:, -1:] * means) / counts
    return means.tolist(), sum_variance(pulls).tolist()
