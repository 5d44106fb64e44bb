"""A line from the judge's mean of a model to the human one, through models, and how far a new model deviates.

A judge's item-by-item slope does not carry over to models: what lifts a reply within a model is not what
separates models. So the line is drawn through the means of calibrated models, and what it misses from model
to model (`between_sd`) goes into every interval. With few models that spread is itself hardly known; the
interval is averaged over all spreads the models allow, under the reference prior of Berger and Bernardo for a
mean with known noises. Where the crowd's noise is small that is Student's t with as many degrees of freedom
as there are models less what the line uses; where it is large, noise is not taken for error of the judge.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, Literal

import numpy as np

from calibration.cluster import NORMAL, UNIT
from calibration.estimate import CONFIDENCE, Estimate, Floats, Interval

# The slope before any model is seen: a judge that says what the crowd says has slope 1. Slopes fitted to
# recorded judges (four judges, six attributes, ten systems) lie around 1.26 with a spread of .38, noise
# included. From .25 to no prior at all, the coverage of left-out systems is the same and their mean error
# within .015 on a scale of 1 to 5; the prior is for the case of few models.
SLOPE, SLOPE_SD = 1.0, 0.4
MARGIN = 0.25  # of the calibrated range, on either side
LEAST_MODELS = 3  # through two a line fits exactly, and shows no spread
NORMAL_END = 9.0  # standard deviations, beyond which the normal density is 0
# A judge's errors on models are normal but for a few models it misjudges wholly, on which it strays so many
# times as far. A rated model is taken for one with this chance at most: with all of it where its ratings are
# exact, and with hardly any where they could not show it.
FAR, FAR_CHANCE = 5.0, 0.3
LEAST_REPLIES = 10  # fewer prompts say too little of a model, whatever the judge says of them
FEW_PROMPTS = 30
PROMPTS_KNOWN = 20  # prompts of its own that the calibration's spread over prompts counts as
DISAGREE = 2.0  # standard errors between line and ratings from which on one of them is in doubt
SPREADS = 120  # steps of the grid over spreads, three decades to either side of the residuals'


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetModel:
    """A model to find the level of: the judge's mean and its sampling variance, and its own ratings' if any.

    `crowd` is nan and `noise` infinite for a model nobody rated. `prompts` is how many its replies answer,
    None where that is not to be asked.
    """

    judge: float
    judge_noise: float = 0.0
    crowd: float = math.nan
    noise: float = math.inf
    prompts: int | None = None

    @property
    def is_rated(self) -> bool:
        """Whether it has ratings with an error."""
        return math.isfinite(self.crowd) and math.isfinite(self.noise)


@dataclass(frozen=True, kw_only=True)
class CalibratedModels:
    """Calibrated models, and of each the judge's mean, the crowd's, and the latter's sampling variance.

    Of one quantity: the share of a label, or a mean on a scale with these `bounds`. `shared` is the part of
    the variances that all have in common, since the same people rated them: no line shows it, and a new model
    does not have it. `prompt_variance` is that of the judge's word from prompt to prompt within a model.
    """

    models: tuple[str, ...]
    judge: tuple[float, ...]
    crowd: tuple[float, ...]
    noise: tuple[float, ...]
    bounds: tuple[float, float] = UNIT
    shared: float = 0.0
    prompt_variance: float | None = None

    def __post_init__(self) -> None:
        columns = (self.judge, self.crowd, self.noise)
        if {len(column) for column in columns} != {len(self.models)}:
            raise ValueError("calibrated models: columns of one length")
        if not np.isfinite(columns).all() or min(self.noise, default=0) < 0:
            raise ValueError("calibrated models: means are numbers, and variances not below 0")

    @cached_property
    def range(self) -> tuple[float, float]:
        """Where the judge's mean of a new model may lie: as far as calibrated models reach, and a margin."""
        if not self.judge:
            return math.nan, math.nan
        low, high = min(self.judge), max(self.judge)
        margin = MARGIN * (high - low)
        return max(self.bounds[0], low - margin), min(self.bounds[1], high + margin)

    def without(self, *models: str) -> "CalibratedModels":
        """Leave these models out."""
        kept = [index for index, name in enumerate(self.models) if name not in models]
        columns: dict[str, Any] = {
            name: tuple(getattr(self, name)[index] for index in kept)
            for name in ("models", "judge", "crowd", "noise")
        }
        return replace(self, **columns)

    def judged(self, mean: float, noise: float, prompts: int) -> TargetModel:
        """Return a model judged on so many prompts; few of them borrow the spread of the calibrated models.

        Without a calibration's spread, few prompts tell their own by Student's t.
        """
        own = float(np.nan_to_num(noise)) * max(1, prompts)
        if self.prompt_variance is not None:
            own = (PROMPTS_KNOWN * self.prompt_variance + (prompts - 1) * own) / (PROMPTS_KNOWN + prompts - 1)
        elif 1 < prompts < FEW_PROMPTS:
            own *= 1 + 3 / (prompts - 1)  # as t's 95 % are to the normal's
        return TargetModel(judge=mean, judge_noise=own / max(1, prompts), prompts=prompts)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLine:
    """A line: crowd = intercept + slope * judge, with a standard deviation `between_sd` of models.

    `residuals` are crowd - line with the model left out. `between_sd` is the median of what the models allow,
    the crowd's noise taken off; it is never 0, since no number of models shows that a judge never errs.
    `between_range` is its 95% interval.
    """

    intercept: float
    slope: float
    between_sd: float
    residuals: tuple[float, ...]
    between_range: Interval | None = None


Side = Literal["below", "above"]


def side_beyond(calibrated: CalibratedModels, target: TargetModel) -> Side | None:
    """Return on which side of the calibrated range a model lies, by more than two standard errors."""
    low, high = calibrated.range
    slack = 2 * math.sqrt(target.judge_noise)
    if low - slack <= target.judge <= high + slack:
        return None
    return "below" if target.judge < low else "above"


def refusal(calibrated: CalibratedModels, target: TargetModel) -> str | None:
    """Say why the line says nothing of this model, if so."""
    if reason := no_line(calibrated, target):
        return reason
    low, high = calibrated.range
    if (side := side_beyond(calibrated, target)) is None:
        return None
    return f"the judge's mean {target.judge:.3f} is {side} the calibrated range, {low:.3f} to {high:.3f}"


def no_line(calibrated: CalibratedModels, target: TargetModel) -> str | None:
    """Say why there is no line to put this model on, not even beyond its ends."""
    if len(calibrated.models) < LEAST_MODELS:
        return (
            f"{len(calibrated.models)} calibrated models: at least {LEAST_MODELS} tell how far a judge strays"
        )
    if not math.isfinite(target.judge):
        return "nothing was scored"
    if target.prompts is not None and target.prompts < LEAST_REPLIES:
        return f"{target.prompts} scored; at least {LEAST_REPLIES} are needed"
    return None


def transport(calibrated: CalibratedModels, target: TargetModel) -> Estimate:
    """Estimate the level of a model from the line, and from its own ratings if it has any.

    See `refusal` for when not to. Undefined with fewer than `LEAST_MODELS` calibrated models.

    >>> judge, crowd = (0.5, 0.6, 0.7), (0.4, 0.52, 0.6)
    >>> known = CalibratedModels(models=("a", "b", "c"), judge=judge, crowd=crowd, noise=(0.0, 0.0, 0.0))
    >>> alone = transport(known, TargetModel(judge=0.65))
    >>> rated = transport(known, TargetModel(judge=0.65, crowd=0.5, noise=0.001))
    >>> round(alone.value, 2), alone.interval.high > rated.interval.high
    (0.56, True)
    """
    return _estimate(calibrated, [target], np.ones(1), calibrated.bounds)


def disagreement(calibrated: CalibratedModels, target: TargetModel) -> float:
    """Return by how many standard errors a model's own ratings lie above the line; nan without either.

    >>> known = CalibratedModels(
    ...     models=("a", "b", "c"), judge=(0.5, 0.6, 0.7), crowd=(0.4, 0.52, 0.6), noise=(0.0, 0.0, 0.0)
    ... )
    >>> round(disagreement(known, TargetModel(judge=0.65, crowd=0.9, noise=0.0)))
    7
    """
    alone = transport(calibrated, replace(target, crowd=math.nan, noise=math.inf))
    if alone.interval is None or not target.is_rated:
        return math.nan
    error = (alone.interval.high - alone.interval.low) / 2 / NORMAL
    return (target.crowd - alone.value) / max(math.sqrt(error**2 + target.noise), 1e-12)


def transport_difference(
    calibrated: CalibratedModels, one: TargetModel, other: TargetModel, *, correlation: float = 0.0
) -> Estimate:
    """Return one - other: each has its own deviation from the line, and both share the line.

    `correlation` is that of the two deviations, which is high for variants of one model.
    """
    width = calibrated.bounds[1] - calibrated.bounds[0]
    return _estimate(calibrated, [one, other], np.array([1.0, -1.0]), (-width, width), correlation)


def fit_line(calibrated: CalibratedModels) -> FittedLine:
    """Fit the line, its spread and its left-out residuals; nan with fewer than `LEAST_MODELS` models."""
    if len(calibrated.models) < LEAST_MODELS:
        unknown = (math.nan,) * len(calibrated.models)
        return FittedLine(intercept=math.nan, slope=math.nan, between_sd=math.nan, residuals=unknown)
    posterior = _posterior(calibrated, [])
    slope = float(posterior.weight @ posterior.slope)
    left_out = left_out_levels(calibrated)
    tail = (1 - CONFIDENCE) / 2
    low, middle, high = np.interp((tail, 0.5, 1 - tail), np.cumsum(posterior.weight), posterior.spread)
    return FittedLine(
        intercept=float(posterior.weight @ posterior.height) - slope * posterior.centre,
        slope=slope,
        between_sd=float(middle),
        between_range=Interval(float(low), float(high)),
        residuals=tuple(crowd - left.value for crowd, left in zip(calibrated.crowd, left_out, strict=True)),
    )


def left_out_levels(calibrated: CalibratedModels) -> tuple[Estimate, ...]:
    """Return every calibrated model's level by the line through the others."""
    return tuple(
        transport(calibrated.without(name), TargetModel(judge=judge))
        for name, judge in zip(calibrated.models, calibrated.judge, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Posterior:
    """The line for every spread of the grid, (spreads,); `height` is the line's at `centre`."""

    spread: Floats
    log_weight: Floats  # but for a constant
    centre: float
    height: Floats
    slope: Floats
    height_variance: Floats
    slope_variance: Floats
    covariance: Floats

    @property
    def weight(self) -> Floats:
        """How likely each spread is."""
        weight = np.exp(self.log_weight - self.log_weight.max())
        return np.asarray(weight / weight.sum())


def _posterior(
    calibrated: CalibratedModels, targets: Sequence[TargetModel], far: Sequence[float] = ()
) -> _Posterior:
    """Fit the line at every spread, if each rated target deviates `far` times as far as the others."""
    rated = [target for target in targets if target.is_rated]
    judge = np.array([*calibrated.judge, *(target.judge for target in rated)])
    crowd = np.array([*calibrated.crowd, *(target.crowd for target in rated)])
    own = np.maximum(np.array(calibrated.noise) - calibrated.shared, 0.0)
    noise = np.array([*own, *(target.noise for target in rated)])
    strays = np.array([1.0] * len(calibrated.judge) + list(far or [1.0] * len(rated)))
    blur = np.array([0.0] * len(calibrated.judge) + [target.judge_noise for target in rated])
    centre = float(np.mean(calibrated.judge))
    across = judge - centre
    residuals = crowd - SLOPE * across
    least = 1e-6 * (calibrated.bounds[1] - calibrated.bounds[0])
    scale = float(residuals.std()) + math.sqrt(float(noise.mean())) + least
    spread = scale * np.geomspace(1e-3, 1e3, SPREADS)
    variance = (strays * spread[:, None]) ** 2 + noise + SLOPE**2 * blur
    precision = 1 / variance
    prior = SLOPE_SD**-2
    one, two, three = precision.sum(axis=1), precision @ across, precision @ across**2 + prior
    right, rising = precision @ crowd, precision @ (across * crowd) + prior * SLOPE
    determinant = one * three - two**2
    height, slope = (three * right - two * rising) / determinant, (one * rising - two * right) / determinant
    misses = crowd - height[:, None] - slope[:, None] * across
    distance = (precision * misses**2).sum(axis=1) + prior * (slope - SLOPE) ** 2
    # The last term is the reference prior, times the spread since the grid is even in its logarithm.
    log = -0.5 * (np.log(variance).sum(axis=1) + np.log(determinant) + distance)
    total_precision = 1 / (spread[:, None] ** 2 + noise + SLOPE**2 * blur)
    log += 0.5 * np.log(((spread[:, None] * total_precision) ** 2).sum(axis=1)) + np.log(spread)
    return _Posterior(
        spread=spread,
        log_weight=log,
        centre=centre,
        height=height,
        slope=slope,
        height_variance=three / determinant,
        slope_variance=one / determinant,
        covariance=-two / determinant,
    )


def _estimate(
    calibrated: CalibratedModels,
    targets: Sequence[TargetModel],
    contrast: Floats,
    bounds: tuple[float, float],
    correlation: float = 0.0,
) -> Estimate:
    if len(calibrated.models) < LEAST_MODELS or not all(math.isfinite(target.judge) for target in targets):
        return Estimate(math.nan, None)
    blur = np.diag([target.judge_noise for target in targets])
    is_rated = np.array([target.is_rated for target in targets])
    rated = np.array([target.crowd if target.is_rated else 0.0 for target in targets])
    rating_precision = np.array(
        [1 / max(target.noise, 1e-12) if target.is_rated else 0.0 for target in targets]
    )
    size = len(targets)
    logs, means, variances = [], [], []
    for kinds in product((1.0, FAR), repeat=int(is_rated.sum())):
        far = np.ones(size)
        far[is_rated] = kinds
        posterior = _posterior(calibrated, targets, far[is_rated].tolist())
        across = np.array([target.judge for target in targets]) - posterior.centre
        level = posterior.height[:, None] + posterior.slope[:, None] * across
        strays = np.where(np.eye(size), 1.0, correlation) * np.outer(far, far)
        strays = strays * posterior.spread[:, None, None] ** 2 + blur * posterior.slope[:, None, None] ** 2
        # How far own ratings are believed, at each spread: all, where models stray far from the line.
        trust = np.linalg.solve(np.eye(size) + strays * rating_precision, strays * rating_precision)
        left = contrast @ (np.eye(size) - trust)
        flat, rising = left.sum(axis=1), left @ across
        line = flat**2 * posterior.height_variance + rising**2 * posterior.slope_variance
        line += 2 * flat * rising * posterior.covariance
        # The raters' common error, but for the part of it that is in own ratings' noise.
        line += np.maximum(contrast.sum() ** 2 - (contrast.sum() - flat) ** 2, 0.0) * calibrated.shared
        own = np.einsum("si,sij,j->s", left, strays, contrast)
        means.append((left * level).sum(axis=1) + contrast @ trust @ rated)
        variances.append(np.maximum(own, 0.0) + line)
        stray = posterior.spread[:, None] ** 2
        chance = FAR_CHANCE * (stray * rating_precision / (1 + stray * rating_precision))[:, is_rated] ** 2
        chance = np.where(far[is_rated] > 1, chance, 1 - chance).prod(axis=1)
        logs.append(posterior.log_weight + np.log(np.maximum(chance, 1e-300)))
    weight = np.exp(np.concatenate(logs) - max(log.max() for log in logs))
    ends = _quantiles(weight / weight.sum(), np.concatenate(means), np.sqrt(np.concatenate(variances)))
    low, middle, high = (float(np.clip(value, *bounds)) for value in ends)
    return Estimate(middle, Interval(low, high))


def _quantiles(weight: Floats, mean: Floats, sd: Floats) -> Floats:
    """Return the ends and the median of a mixture of normals, by bisection."""
    from scipy.special import ndtr

    tail = (1 - CONFIDENCE) / 2
    wanted = np.array([tail, 0.5, 1 - tail])
    kept = weight > 1e-12
    weight, mean, sd = weight[kept], mean[kept], np.maximum(sd[kept], 1e-12)
    low, high = np.full(3, (mean - NORMAL_END * sd).min()), np.full(3, (mean + NORMAL_END * sd).max())
    for _ in range(40):
        middle = (low + high) / 2
        under = ndtr((middle[:, None] - mean) / sd) @ weight < wanted
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    quantiles: Floats = (low + high) / 2
    return quantiles
