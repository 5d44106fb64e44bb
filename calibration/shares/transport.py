"""A line from the judge's mean for a model to the crowd's, through models, and how far a new one strays.

A judge's item-by-item slope does not carry over to models: what lifts a reply within a model is not what
separates models. So the line is drawn through the means of calibrated models, and what it misses from model
to model (`between_sd`) goes into every interval. With few models that spread is itself hardly known; the
interval is averaged over all spreads the models allow, under the reference prior of Berger and Bernardo for a
mean with known noises. Where the crowd's noise is small that is Student's t with as many degrees of freedom
as there are models less what the line uses; where it is large, noise is not taken for error of the judge.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from calibration.cluster import UNIT
from calibration.estimate import CONFIDENCE, Estimate, Floats, Interval

# The slope before any model is seen: a judge that says what the crowd says has slope 1. Slopes fitted to
# recorded judges (four judges, six attributes, ten systems) lie around 1.26 with a spread of .38, noise
# included. From .25 to no prior at all, the coverage of left-out systems is the same and their mean error
# within .015 on a scale of 1 to 5; the prior is for the case of few models.
SLOPE, SLOPE_SD = 1.0, 0.4
MARGIN = 0.25  # of the calibrated range, on either side
LEAST_MODELS = 3  # through two a line fits exactly, and shows no spread
NORMAL_END = 9.0  # standard deviations, beyond which a normal has nothing left
SPREADS = 120  # steps of the grid over spreads, three decades to either side of the residuals'


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A model to find the level of: the judge's mean and its sampling variance, and its own ratings' if any.

    `crowd` is nan and `noise` infinite for a model nobody rated.
    """

    judge: float
    judge_noise: float = 0.0
    crowd: float = math.nan
    noise: float = math.inf

    @property
    def is_rated(self) -> bool:
        """Has it ratings that say how exact they are?"""
        return math.isfinite(self.crowd) and math.isfinite(self.noise)


@dataclass(frozen=True, kw_only=True)
class CalibratedModels:
    """Calibrated models, and of each the judge's mean, the crowd's, and the latter's sampling variance.

    Of one quantity: the share of a label, or a mean on a scale with these `bounds`.
    """

    models: tuple[str, ...]
    judge: tuple[float, ...]
    crowd: tuple[float, ...]
    noise: tuple[float, ...]
    bounds: tuple[float, float] = UNIT

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
        columns = {
            name: tuple(getattr(self, name)[index] for index in kept)
            for name in ("models", "judge", "crowd", "noise")
        }
        return replace(self, **columns)

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "CalibratedModels":
        """Read what a calibration keeps of the models."""
        return cls(
            models=tuple(str(name) for name in row["models"]),
            judge=tuple(float(value) for value in row["judge"]),
            crowd=tuple(float(value) for value in row["crowd"]),
            noise=tuple(float(value) for value in row["noise"]),
            bounds=(float(row["bounds"][0]), float(row["bounds"][1])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What `fit_line` found: crowd = intercept + slope * judge, give or take `between_sd` a model.

    `residuals` are crowd - line with the model left out. `between_sd` is the median of what the models allow,
    the crowd's noise taken off; it is never 0, since no number of models shows that a judge never errs.
    """

    intercept: float
    slope: float
    between_sd: float
    residuals: tuple[float, ...]


def refusal(calibrated: CalibratedModels, target: Target) -> str | None:
    """Say why the line says nothing of this model, if so; its judged mean may err by two standard errors."""
    if len(calibrated.models) < LEAST_MODELS:
        return (
            f"{len(calibrated.models)} calibrated models: at least {LEAST_MODELS} tell how far a judge strays"
        )
    if not math.isfinite(target.judge):
        return "no response was scored"
    low, high = calibrated.range
    slack = 2 * math.sqrt(target.judge_noise)
    if low - slack <= target.judge <= high + slack:
        return None
    side = "below" if target.judge < low else "above"
    return f"the judge's mean {target.judge:.3f} is {side} the calibrated range, {low:.3f} to {high:.3f}"


def transport(calibrated: CalibratedModels, target: Target) -> Estimate:
    """The level of a model: from the line alone, or from line and own ratings, each as it is exact.

    Says nothing of refusal: `refusal` does. The crowd's noises are taken as independent from model to model.
    Undefined with fewer than `LEAST_MODELS` calibrated models.

    >>> judge, crowd = (0.5, 0.6, 0.7), (0.4, 0.52, 0.6)
    >>> known = CalibratedModels(models=("a", "b", "c"), judge=judge, crowd=crowd, noise=(0.0, 0.0, 0.0))
    >>> alone = transport(known, Target(judge=0.65))
    >>> rated = transport(known, Target(judge=0.65, crowd=0.5, noise=0.001))
    >>> round(alone.value, 2), alone.interval.high > rated.interval.high
    (0.56, True)
    """
    return _estimate(calibrated, [target], np.ones(1), calibrated.bounds)


def transport_difference(calibrated: CalibratedModels, one: Target, other: Target) -> Estimate:
    """one - other, each with its own stray from the line and both with the same line."""
    width = calibrated.bounds[1] - calibrated.bounds[0]
    return _estimate(calibrated, [one, other], np.array([1.0, -1.0]), (-width, width))


def fit_line(calibrated: CalibratedModels) -> Line:
    """The line, its spread and its left-out residuals; nan with fewer than `LEAST_MODELS` models."""
    if len(calibrated.models) < LEAST_MODELS:
        unknown = (math.nan,) * len(calibrated.models)
        return Line(intercept=math.nan, slope=math.nan, between_sd=math.nan, residuals=unknown)
    posterior = _posterior(calibrated, [])
    slope = float(posterior.weight @ posterior.slope)
    left_out = left_out_levels(calibrated)
    return Line(
        intercept=float(posterior.weight @ posterior.height) - slope * posterior.centre,
        slope=slope,
        between_sd=float(np.interp(0.5, np.cumsum(posterior.weight), posterior.spread)),
        residuals=tuple(crowd - left.value for crowd, left in zip(calibrated.crowd, left_out, strict=True)),
    )


def left_out_levels(calibrated: CalibratedModels) -> tuple[Estimate, ...]:
    """Every calibrated model's level as the others' line has it: what a new model may expect."""
    return tuple(
        transport(calibrated.without(name), Target(judge=judge))
        for name, judge in zip(calibrated.models, calibrated.judge, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Posterior:
    """The line for every spread of the grid, (spreads,); `height` is the line's at `centre`."""

    spread: Floats
    weight: Floats
    centre: float
    height: Floats
    slope: Floats
    height_variance: Floats
    slope_variance: Floats
    covariance: Floats


def _posterior(calibrated: CalibratedModels, targets: Sequence[Target]) -> _Posterior:
    rated = [target for target in targets if target.is_rated]
    judge = np.array([*calibrated.judge, *(target.judge for target in rated)])
    crowd = np.array([*calibrated.crowd, *(target.crowd for target in rated)])
    noise = np.array([*calibrated.noise, *(target.noise for target in rated)])
    blur = np.array([0.0] * len(calibrated.judge) + [target.judge_noise for target in rated])
    centre = float(np.mean(calibrated.judge))
    across = judge - centre
    residuals = crowd - SLOPE * across
    least = 1e-6 * (calibrated.bounds[1] - calibrated.bounds[0])
    scale = float(residuals.std()) + math.sqrt(float(noise.mean())) + least
    spread = scale * np.geomspace(1e-3, 1e3, SPREADS)
    variance = spread[:, None] ** 2 + noise + SLOPE**2 * blur
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
    log += 0.5 * np.log(((spread[:, None] * precision) ** 2).sum(axis=1)) + np.log(spread)
    weight = np.exp(log - log.max())
    return _Posterior(
        spread=spread,
        weight=weight / weight.sum(),
        centre=centre,
        height=height,
        slope=slope,
        height_variance=three / determinant,
        slope_variance=one / determinant,
        covariance=-two / determinant,
    )


def _estimate(
    calibrated: CalibratedModels, targets: Sequence[Target], contrast: Floats, bounds: tuple[float, float]
) -> Estimate:
    if len(calibrated.models) < LEAST_MODELS or not all(math.isfinite(target.judge) for target in targets):
        return Estimate(math.nan, None)
    found = _posterior(calibrated, targets)
    mean, own = np.zeros(SPREADS), np.zeros(SPREADS)
    flat, rising = np.zeros(SPREADS), np.zeros(SPREADS)
    for sign, target in zip(contrast, targets, strict=True):
        across = target.judge - found.centre
        stray = found.spread**2 + found.slope**2 * target.judge_noise
        # How far its own ratings are believed, at each spread: all, where models stray far from the line.
        trust = stray / (stray + target.noise) if target.is_rated else np.zeros(SPREADS)
        level = found.height + found.slope * across
        mean += sign * (level + trust * (np.nan_to_num(target.crowd) - level))
        own += stray * (1 - trust)
        flat += sign * (1 - trust)
        rising += sign * (1 - trust) * across
    line = flat**2 * found.height_variance + rising**2 * found.slope_variance
    line += 2 * flat * rising * found.covariance
    low, middle, high = _quantiles(found.weight, mean, np.sqrt(own + line))
    middle, low, high = (float(np.clip(value, *bounds)) for value in (middle, low, high))
    return Estimate(middle, Interval(low, high))


def _quantiles(weight: Floats, mean: Floats, sd: Floats) -> Floats:
    """The ends and the median of a mixture of normals, by bisection."""
    tail = (1 - CONFIDENCE) / 2
    wanted = np.array([tail, 0.5, 1 - tail])
    kept = weight > 1e-12
    weight, mean, sd = weight[kept], mean[kept], np.maximum(sd[kept], 1e-12)
    low, high = np.full(3, (mean - NORMAL_END * sd).min()), np.full(3, (mean + NORMAL_END * sd).max())
    for _ in range(40):
        middle = (low + high) / 2
        under = normal_below((middle[:, None] - mean) / sd) @ weight < wanted
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    quantiles: Floats = (low + high) / 2
    return quantiles


def normal_below(values: Floats) -> Floats:
    """The standard normal's distribution function to 1e-7; by hand: `score` runs without scipy.

    >>> normal_below(np.array([-1.96, 0.0, 1.96])).round(4).tolist()
    [0.025, 0.5, 0.975]
    """
    table = _normal_table()
    place = np.clip((values + NORMAL_END) * (len(table) - 1) / (2 * NORMAL_END), 0, len(table) - 2)
    under = place.astype(np.intp)
    low = table[under]
    below: Floats = low + (place - under) * (table[under + 1] - low)
    return below


@cache
def _normal_table() -> Floats:
    places = np.linspace(-NORMAL_END, NORMAL_END, 10_001)
    return np.array([math.erfc(-place / math.sqrt(2)) / 2 for place in places.tolist()])
