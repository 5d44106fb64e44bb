"""Corrected shares of every model: by its ratings, by the calibrated judge, or by both.

A model with ratings is corrected by them (`ppi`), one without by the line through calibrated models
(`transport`), and one with a few by both, so that its interval shrinks as ratings arrive. The judge's own
shares are the answer only where a calibration shows that they are right. Where the line does not reach, the
level is refused and the reason given.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final, Literal

import numpy as np

from empathy_judge.calibration import cluster
from empathy_judge.calibration.artifact import Calibration
from empathy_judge.calibration.estimate import Estimate, Floats
from empathy_judge.calibration.shares import transport
from empathy_judge.calibration.shares.ppi import PpiEstimate, RatedModel, judge_means, ppi_estimate
from empathy_judge.calibration.shares.tally import Tally, replies_digest
from empathy_judge.calibration.shares.transport import CalibratedModels, TargetModel
from empathy_judge.data.records import LABELS

How = Literal["ratings", "line", "both", "refused"]
MEAN = ("mean",)
NO_LEVEL: Final = "no human ratings: the judge's level is unknown"  # a language model, uncalibrated
UNCALIBRATED: Final = CalibratedModels(models=(), judge=(), crowd=(), noise=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCorrection:
    """One model's level: the share of each label, or the mean under "mean".

    `left_out` is the level of a rated model by the line through the others, as if it had no ratings, and
    `covered` whether its interval includes the human level; `fit_models` adds them.
    """

    model: str
    judged: int
    ratings: int
    judge: Mapping[str, float]  # by the judge alone
    crowd: Mapping[str, float | None]  # by the ratings alone
    corrected: Mapping[str, Estimate]  # empty where it is refused
    how: How
    reason: str | None  # why the line was refused
    design_effect: float
    disagreement: float = math.nan  # standard errors by which the ratings exceed the line, where that is most
    left_out: Mapping[str, Estimate] = field(default_factory=dict)
    covered: Mapping[str, bool | None] = field(default_factory=dict)

    @property
    def warning(self) -> str | None:
        """The warning where line and ratings disagree by more than chance makes likely."""
        if not abs(self.disagreement) > transport.DISAGREE:
            return None
        side = "above" if self.disagreement > 0 else "below"
        return (
            f"{self.model}: its ratings are {abs(self.disagreement):.1f} standard errors {side} the "
            "calibration line; the judge may be biased on this model, or its raters may differ from the "
            "others"
        )


@dataclass(frozen=True, slots=True)
class RefusedShares:
    """The reason why a model's shares are not corrected."""

    reason: str

    def __str__(self) -> str:
        return f"refused ({self.reason})"


def calibrated_models(models: Mapping[str, RatedModel]) -> tuple[CalibratedModels, ...]:
    """Return the calibrated models for `transport`, one `CalibratedModels` a column.

    Models without ratings, or with one cluster of them, are left out: their error is unknown.
    """
    estimates = {name: ppi_estimate(rated) for name, rated in models.items() if len(rated.item)}
    estimates = {name: item for name, item in estimates.items() if np.isfinite(item.variance).all()}
    first = next(iter(models.values()), None)
    shared = _shared_variance(list(estimates.values()))
    spread = _prompt_variance([models[name] for name in estimates])
    return tuple(
        CalibratedModels(
            models=tuple(estimates),
            judge=tuple(float(models[name].judged[:, column].mean()) for name in estimates),
            crowd=tuple(float(item.value[column]) for item in estimates.values()),
            noise=tuple(float(item.least_variance[column]) for item in estimates.values()),
            bounds=first.bounds if first else cluster.UNIT,
            shared=shared[column],
            prompt_variance=spread[column],
        )
        for column in range(first.judged.shape[1] if first else 0)
    )


def _shared_variance(estimates: Sequence[PpiEstimate]) -> list[float]:
    """Return the variance that models' levels share because the same people rated them, by column.

    It is the mean covariance of two models through their raters, no less than 0, and as much larger as t with
    so many raters reaches further than the normal: few raters know it badly.
    """
    columns = len(estimates[0].value) if estimates else len(LABELS)
    sums = []
    for item in estimates:
        names, number = np.unique(item.sample.cluster, return_inverse=True)
        sums.append((names, cluster.cluster_sums(number, item.influence, len(names))))
    pairs = list(combinations(sums, 2))
    if not any(len(np.intersect1d(one[0], other[0])) for one, other in pairs):
        return [0.0] * columns
    covariance = np.mean([cluster.shared_covariance(*one, *other) for one, other in pairs], axis=0)
    raters = len(np.unique(np.concatenate([names for names, _ in sums])))
    reach = float(cluster.t_quantile(raters - 1)) / cluster.NORMAL
    return [max(0.0, float(value)) * reach**2 for value in covariance]


def _prompt_variance(models: Sequence[RatedModel]) -> list[float | None]:
    """Return the variance of the judge's scores over a model's prompts, by column; None if unknown."""
    variances = [judge_means(rated)[1] * rated.prompt_count for rated in models if rated.prompt_count > 1]
    if not variances:
        return [None] * (models[0].judged.shape[1] if models else len(LABELS))
    return [float(value) for value in np.mean(variances, axis=0)]


def correct(
    models: Mapping[str, RatedModel], *, calibrated: Sequence[CalibratedModels], names: Sequence[str] = LABELS
) -> tuple[ModelCorrection, ...]:
    """Return every model's corrected levels, in the order given.

    `names` are the columns': the labels, or `MEAN`. A model of `models` is left out of the `calibrated`
    ones, since what was rated then need not be what is judged now.
    """
    corrections = []
    for model, rated in models.items():
        ppi = ppi_estimate(rated) if len(rated.item) else None
        lines = [line.without(model) for line in calibrated]
        targets = [target_of(rated, ppi, column, line) for column, line in enumerate(lines)]
        found = _by_line(names, lines, targets)
        reason = found.reason if isinstance(found, RefusedShares) else None
        corrected: Mapping[str, Estimate] = {} if isinstance(found, RefusedShares) else found
        # One cluster of ratings has a level but no error: the line cannot weigh it.
        how: How = "refused" if reason else "both" if all(item.is_rated for item in targets) else "line"
        if ppi is not None and (reason or ppi.is_complete):
            estimates = ppi.estimates()
            estimates = on_simplex(estimates) if len(names) > 1 else estimates
            how, corrected = "ratings", dict(zip(names, estimates, strict=True))
        judge = rated.judged.mean(axis=0).tolist() if len(rated.judged) else ()
        crowd = rated.crowd.tolist() if len(rated.item) else (None,) * len(names)
        corrections.append(
            ModelCorrection(
                model=model,
                how=how,
                reason=reason,
                corrected=corrected,
                judge=dict(zip(names, judge, strict=False)),
                crowd=dict(zip(names, crowd, strict=True)),
                judged=len(rated.judged),
                ratings=len(rated.item),
                design_effect=float(ppi.design_effect.mean()) if ppi is not None else math.nan,
                disagreement=max(map(transport.disagreement, lines, targets), key=abs)
                if how == "both"
                else math.nan,
            )
        )
    return tuple(corrections)


def correct_shares(
    tally: Tally, calibration: Calibration
) -> dict[str, Mapping[str, Estimate] | RefusedShares]:
    """Return every model's shares by the calibrated line, or why they are refused.

    Replies that were rated for the calibration have the shares of their ratings.
    """
    corrected: dict[str, Mapping[str, Estimate] | RefusedShares] = {}
    for model, clusters in tally.sums.items():
        if shares := calibration.rated_shares(replies_digest(tally.replies.get(model, 0))):
            corrected[model] = shares
            continue
        # What was rated under this name then need not be what is judged now.
        lines = [calibration.calibrated_models[label].without(model) for label in LABELS]
        sums = np.array(list(clusters.values())).reshape(-1, len(LABELS) + 1)
        judged = zip(lines, *_judged(sums), strict=True)
        targets = [line.judged(mean, noise, len(clusters)) for line, mean, noise in judged]
        corrected[model] = _by_line(LABELS, lines, targets)
    return corrected


def _by_line(
    names: Sequence[str], lines: Sequence[CalibratedModels], targets: Sequence[TargetModel]
) -> dict[str, Estimate] | RefusedShares:
    """Return the levels by the lines, or why they are refused: the reason of the last column that has one."""
    for name, line, target in reversed(list(zip(names, lines, targets, strict=True))):
        if reason := transport.refusal(line, target):
            return RefusedShares(f"{name}: {reason}")
    estimates = [transport.transport(*pair) for pair in zip(lines, targets, strict=True)]
    return dict(zip(names, on_simplex(estimates) if len(names) > 1 else estimates, strict=True))


def _judged(sums: Floats) -> tuple[list[float], list[float]]:
    """Return the judge's mean of every label and its sampling variance, with prompts as clusters."""
    counts = sums[:, -1].sum()
    if not counts:
        return [math.nan] * len(LABELS), [0.0] * len(LABELS)
    means = sums[:, :-1].sum(axis=0) / counts
    pulls = (sums[:, :-1] - sums[:, -1:] * means) / counts
    return means.tolist(), cluster.sum_variance(pulls).tolist()


def target_of(
    sample: RatedModel, ppi: PpiEstimate | None, column: int, line: CalibratedModels
) -> TargetModel:
    """Return a model's judged mean, with its own ratings if they have an error."""
    mean, noise = judge_means(sample)
    judge = line.judged(float(mean[column]), float(noise[column]), sample.prompt_count)
    if ppi is None or not np.isfinite(ppi.variance).all():
        return judge
    # Transport takes noises as known. Few clusters know theirs badly, which the interval has in it.
    return replace(judge, crowd=float(ppi.value[column]), noise=float(ppi.stated_variance[column]))


def on_simplex(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Return shares that add up to 1, none below 0; intervals are extended to their share."""
    values = np.array([item.value for item in estimates])
    if not np.isfinite(values).all():
        return list(estimates)
    return [item.at(value) for item, value in zip(estimates, project(values).tolist(), strict=True)]


def project(values: Floats) -> Floats:
    """Return the nearest shares that add up to 1 (Euclidean; Held, Wolfe and Crowder 1974).

    >>> project(np.array([0.5, 0.25, 0.25])).tolist(), project(np.array([-0.25, 0.25, 1.0])).tolist()
    ([0.5, 0.25, 0.25], [0.0, 0.125, 0.875])
    """
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(ordered > excess)[-1])
    shares: Floats = np.maximum(values - excess[last], 0)
    return shares
