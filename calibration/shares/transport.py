"""Levels and differences of models without human ratings, from the judge's means and calibrated models.

On the logit scale the human share is `a + b * (judge - mean)`, plus each model's own deviation. The slope `b`
and the standard deviation of the deviations have priors measured on several sets of rated systems; `a` has
none. Beyond the rated range the interval is one-sided.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, Final, Literal

import numpy as np

from empathy_judge.calibration.cluster import NORMAL, UNIT
from empathy_judge.calibration.estimate import CONFIDENCE, Estimate, Floats, Interval

# Of systems' deviations from the line, in the judge's logits: pooled from four sets by an earlier judge.
DEVIATION, DEVIATION_FREEDOM = 0.19, 6.0
SCORE_DEVIATION: Final = 0.45  # of means on a scale, in standard deviations of the judge's scores
SLOPE_SD: Final = 0.5  # of the slope's logarithm around 0; a slope of 7 was seen once, on iEval
LEAST_SLOPE: Final = 0.5  # in the residuals of the sign rule
EXTRAPOLATION: Final = 0.3  # standard deviation per logit beyond the calibrated models
LEAST_MODELS = 3  # a line through two fits exactly
LEAST_REPLIES = 10
PROMPTS_KNOWN = 20  # prompts of its own that the calibration's spread over prompts counts as
FEW_PROMPTS = 30
LEAST_EXACT: Final = 4.0  # times the line's standard error: ratings less exact show no conflict with it
# A rated model is misjudged wholly, by so many times the deviation of others, with this chance at most.
OUTLIER_SCALE, OUTLIER_PRIOR = 5.0, 0.3
MARGIN: Final = 0.25  # of the distance between the outermost calibrated models, on either side
DISAGREE = 2.0  # standard errors between line and ratings from which on one of them is in doubt
MIN_SHARE: Final = 0.002  # shares closer to 0 or 1 count as this
DRAWS: Final = 8192

Side = Literal["below", "above"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetModel:
    """A model to estimate the level of: the judge's mean with its sampling variance, and own ratings if any.

    `crowd` is nan and `noise` infinite without ratings. `prompts` is how many its replies answer, if known.
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

    @property
    def without_ratings(self) -> "TargetModel":
        """The same model as if it had no ratings."""
        return replace(self, crowd=math.nan, noise=math.inf)


@dataclass(frozen=True, kw_only=True)
class CalibratedModels:
    """Calibrated models with the judge's mean, the human mean, and the latter's sampling variance.

    Of one quantity: the share of a label, or a mean on a scale with these `bounds`. `shared` is the part of
    the variances that all have in common, since the same people rated them. `prompt_variance` is that of the
    judge's scores from prompt to prompt within a model.
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
            raise ValueError("calibrated models: columns must have the same length")
        if not np.isfinite(columns).all() or min(self.noise, default=0) < 0:
            raise ValueError("calibrated models: means must be finite, and variances at least 0")

    @cached_property
    def range(self) -> tuple[float, float]:
        """The rated range: from the lowest to the highest of the judge's means, and a margin."""
        if not self.judge:
            return math.nan, math.nan
        low, high = min(self.judge), max(self.judge)
        margin = MARGIN * (high - low)
        return max(self.bounds[0], low - margin), min(self.bounds[1], high + margin)

    def without(self, *models: str) -> "CalibratedModels":
        """Leave these models out."""
        kept = [index for index, name in enumerate(self.models) if name not in models]
        if len(kept) == len(self.models):
            return self
        columns: dict[str, Any] = {
            name: tuple(getattr(self, name)[index] for index in kept)
            for name in ("models", "judge", "crowd", "noise")
        }
        return replace(self, **columns)

    def judged(self, mean: float, noise: float, prompts: int) -> TargetModel:
        """Return a model judged on so many prompts; few of them borrow the spread of the calibrated models.

        Without a calibration's spread, that of few prompts is estimated, with Student's t.
        """
        own = float(np.nan_to_num(noise)) * max(1, prompts)
        if self.prompt_variance is not None:
            own = (PROMPTS_KNOWN * self.prompt_variance + (prompts - 1) * own) / (PROMPTS_KNOWN + prompts - 1)
        elif 1 < prompts < FEW_PROMPTS:
            own *= 1 + 3 / (prompts - 1)  # as t's 95% are to the normal's
        return TargetModel(judge=mean, judge_noise=own / max(1, prompts), prompts=prompts)

    @cached_property
    def unit(self) -> float | None:
        """Of a mean on a scale, the judge's standard deviation within models; None for shares."""
        if self.bounds == UNIT:
            return None
        return math.sqrt(self.prompt_variance or ((self.bounds[1] - self.bounds[0]) / 4) ** 2)

    @property
    def deviation(self) -> float:
        """The standard deviation of models from the line that other sets show."""
        return DEVIATION if self.unit is None else SCORE_DEVIATION

    def link(self, value: Any, count: float = math.inf) -> Any:
        """Return shares as logits, with half a reply added on either side of `count`; means in units."""
        from scipy.special import logit

        if self.unit is not None:
            return np.asarray(value) / self.unit
        share = np.asarray(value)
        if math.isfinite(count):
            share = (count * share + 0.5) / (count + 1)
        return logit(np.clip(share, MIN_SHARE, 1 - MIN_SHARE))

    def link_ratings(self, crowd: Any, noise: Any) -> tuple[Floats, Floats]:
        """Return human levels and variances as `link` does; shares keep a standard error from 0 and 1."""
        levels, error = np.asarray(crowd, dtype=float), np.sqrt(noise)
        if self.unit is None:
            levels = np.clip(levels, np.minimum(error, 0.5), 1 - np.minimum(error, 0.5))
        linked = np.asarray(self.link(levels))
        return linked, np.asarray(noise) / self.steepness(linked) ** 2

    @cached_property
    def linked(self) -> tuple[Floats, Floats, Floats]:
        """The judge's means, the human levels and the own part of their variances, as `link` gives them."""
        own = np.maximum(np.array(self.noise) - self.shared, 0.0)
        return (self.link(self.judge), *self.link_ratings(self.crowd, own))

    def inverse(self, linked: Any) -> Any:
        """Return the shares or means that `link` makes these of."""
        from scipy.special import expit

        if self.unit is not None:
            return np.clip(np.asarray(linked) * self.unit, *self.bounds)
        return expit(linked)

    def steepness(self, linked: Any) -> Any:
        """Return the derivative of `inverse`."""
        share = self.inverse(linked)
        return share * (1 - share) if self.unit is None else np.full(np.shape(linked), self.unit)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Posterior:
    """The line at every point of a grid over slope and deviation, with its probability.

    `height` is the line's at `center`, and `height_variance` its variance with the ratings' shared noise.
    """

    weight: Floats
    slope: Floats
    deviation: Floats
    center: float
    height: Floats
    height_variance: Floats


@lru_cache(maxsize=256)
def _posterior(calibrated: CalibratedModels) -> _Posterior:
    from scipy.special import ndtri, softmax

    judge, crowd, noise = calibrated.linked
    # Slopes at equal steps of probability; deviations over three decades, where the prior has all its mass.
    slopes = np.exp(SLOPE_SD * ndtri((np.arange(40) + 0.5) / 40))
    deviations = calibrated.deviation * np.geomspace(0.15, 12, 50)
    slope, deviation = (grid.ravel() for grid in np.meshgrid(slopes, deviations))
    variance = deviation[:, None] ** 2 + noise
    misses = crowd - slope[:, None] * (judge - judge.mean())
    height_variance = 1 / (1 / variance).sum(axis=1)
    height = height_variance * (misses / variance).sum(axis=1)
    distance = ((misses - height[:, None]) ** 2 / variance).sum(axis=1)
    log = 0.5 * (np.log(height_variance) - np.log(variance).sum(axis=1) - distance)
    # The scaled inverse chi-square of the variance, as a density of the deviation's logarithm.
    log -= DEVIATION_FREEDOM * (np.log(deviation) + 0.5 * (calibrated.deviation / deviation) ** 2)
    return _Posterior(
        weight=softmax(log),
        slope=slope,
        deviation=deviation,
        center=float(judge.mean()),
        height=height,
        height_variance=height_variance
        + calibrated.shared / float((calibrated.steepness(crowd) ** 2).mean()),
    )


def side_beyond(calibrated: CalibratedModels, target: TargetModel) -> Side | None:
    """Return on which side of the rated range a model lies, by more than its standard error."""
    low, high = calibrated.range
    slack = math.sqrt(target.judge_noise)
    if low - slack <= target.judge <= high + slack:
        return None
    return "below" if target.judge < low else "above"


def refusal(calibrated: CalibratedModels, target: TargetModel) -> str | None:
    """Return why there is no level of this model, if so."""
    if len(calibrated.models) < LEAST_MODELS:
        return f"{len(calibrated.models)} calibrated models; at least {LEAST_MODELS} are needed"
    if not math.isfinite(target.judge):
        return "nothing was scored"
    if target.prompts is not None and target.prompts < LEAST_REPLIES:
        return f"{target.prompts} scored; at least {LEAST_REPLIES} are needed"
    return None


def transport(calibrated: CalibratedModels, target: TargetModel) -> Estimate:
    """Estimate the level of a model from the line, and from its own ratings if it has any.

    Beyond the calibrated models the interval reaches to the end of the scale.

    >>> judge, crowd = (0.5, 0.6, 0.7), (0.4, 0.52, 0.6)
    >>> known = CalibratedModels(models=("a", "b", "c"), judge=judge, crowd=crowd, noise=(0.0, 0.0, 0.0))
    >>> alone = transport(known, TargetModel(judge=0.65))
    >>> rated = transport(known, TargetModel(judge=0.65, crowd=0.5, noise=0.001))
    >>> round(alone.value, 2), alone.interval.high > rated.interval.high
    (0.55, True)
    >>> transport(known, TargetModel(judge=0.8)).interval.high
    1.0
    """
    if refusal(calibrated, target) is not None:
        return Estimate(math.nan, None)
    levels = calibrated.inverse(joint_draws(calibrated, target)[0])
    side = None if target.is_rated else side_beyond(calibrated, target)
    estimate = _estimate(levels, side, calibrated.bounds)
    conflict = find_conflict(calibrated, target)
    if conflict is None:
        return estimate
    wide = NORMAL * math.sqrt(target.noise)
    low, high = np.clip([target.crowd - wide, target.crowd + wide], *calibrated.bounds)
    own = Estimate(target.crowd, Interval(float(low), float(high)))
    return own if conflict == "ratings" else own.hull(estimate)


def transport_difference(
    calibrated: CalibratedModels,
    one: TargetModel,
    other: TargetModel | Estimate,
    *,
    correlation: float = 0.0,
    is_open: bool = False,
) -> tuple[Estimate, float]:
    """Return one - other, and the probability that it is positive.

    `correlation` is that of the two models' deviations from the line, high for variants of one model. An
    `other` that people rated elsewhere is an estimate of its own. `is_open` leaves the interval open away
    from 0: an unrated model is beyond the rated range.
    """
    targets = [item for item in (one, other) if isinstance(item, TargetModel)]
    if any(refusal(calibrated, item) for item in targets):
        return Estimate(math.nan, None), math.nan
    levels = calibrated.inverse(joint_draws(calibrated, *targets, correlation=correlation))
    gap = levels[0] - (_draws_of(other) if isinstance(other, Estimate) else levels[1])
    side: Side | None = None if not is_open else "above" if np.median(gap) > 0 else "below"
    width = calibrated.bounds[1] - calibrated.bounds[0]
    return _estimate(gap, side, (-width, width)), float((gap > 0).mean() + (gap == 0).mean() / 2)


def _draws_of(estimate: Estimate) -> Floats:
    """Draw from an estimate that is independent of the line: normal, as its interval states."""
    from scipy.special import ndtri

    ends = estimate.interval or Interval(estimate.value, estimate.value)
    # Another irrational step than those of `joint_draws`.
    points = (np.arange(1, DRAWS + 1) * math.sqrt(2)) % 1.0
    return np.asarray(estimate.value + (ends.high - ends.low) / 2 / NORMAL * ndtri(points))


def _estimate(draws: Floats, side: Side | None, bounds: tuple[float, float]) -> Estimate:
    """Return the median of draws with a two-sided interval, or one that is open on a side."""
    tail = (1 - CONFIDENCE) / (1 if side else 2)
    low, middle, high = (float(value) for value in np.quantile(draws, (tail, 0.5, 1 - tail)))
    if side:
        low, high = (low, bounds[1]) if side == "above" else (bounds[0], high)
    return Estimate(middle, Interval(low, high))


def joint_draws(calibrated: CalibratedModels, *targets: TargetModel, correlation: float = 0.0) -> Floats:
    """Draw the logits of the targets' human levels, (targets, draws), from low-discrepancy points.

    Own ratings of a target update the line's levels at every point of the grid, and the grid's weights.
    """
    from scipy.special import ndtri, softmax

    posterior = _posterior(calibrated)
    size = len(targets)
    judge = np.array([calibrated.link(item.judge, item.prompts or math.inf) for item in targets])
    blur = np.array([item.judge_noise for item in targets]) / calibrated.steepness(judge) ** 2
    rated_judge = calibrated.linked[0]
    distance = np.maximum(judge - rated_judge.max(), rated_judge.min() - judge)
    reach = (EXTRAPOLATION * np.maximum(distance, 0.0)) ** 2
    line = posterior.height[:, None] + posterior.slope[:, None] * (judge - posterior.center)
    known = np.eye(size) * (posterior.slope[:, None, None] ** 2 * blur + reach)
    known = known + posterior.height_variance[:, None, None]
    rated = [index for index, item in enumerate(targets) if item.is_rated]
    ratings = np.array([(targets[index].crowd, targets[index].noise) for index in rated]).reshape(-1, 2)
    crowd, noise = calibrated.link_ratings(*ratings.T)
    # The chance that the judge misjudges a rated model wholly, as far as its ratings could show it.
    squares = posterior.deviation[:, None] ** 2
    chance = OUTLIER_PRIOR * (squares / (squares + noise)) ** 2
    logs, means, covariances = [], [], []
    for kinds in product((1.0, OUTLIER_SCALE), repeat=len(rated)):
        scale = np.ones(size)
        scale[rated] = kinds
        own = np.where(np.eye(size), 1.0, correlation) * np.outer(scale, scale)
        covariance = own * squares[..., None] + known
        total = covariance[:, rated][:, :, rated] + np.diag(np.maximum(noise, 1e-12))
        gain = np.linalg.solve(total, covariance[:, rated]).transpose(0, 2, 1)
        surprise = crowd - line[:, rated]
        log = -0.5 * np.einsum("gi,gi->g", surprise, np.linalg.solve(total, surprise[..., None])[..., 0])
        log -= 0.5 * np.linalg.slogdet(total)[1]
        log += np.log(np.where(np.array(kinds) > 1, chance, 1 - chance)).sum(axis=1)
        logs.append(log + np.log(np.maximum(posterior.weight, 1e-300)))
        means.append(line + np.einsum("gij,gj->gi", gain, surprise))
        covariances.append(covariance - gain @ covariance[:, rated])
    mean, covariance, log = (np.concatenate(parts) for parts in (means, covariances, logs))
    weight = softmax(log)
    # A Kronecker sequence: its first coordinate chooses the point of the grid, the others the normal draws,
    # which are taken with both signs. By hand, since scipy.stats.qmc takes long to import.
    golden = 1.5  # the root of x ** (size + 2) = x + 1
    for _ in range(40):
        golden = (1 + golden) ** (1 / (size + 2))
    points = (np.arange(1, DRAWS // 2 + 1)[:, None] * golden ** -np.arange(1.0, size + 2)) % 1.0
    grid = np.minimum(np.searchsorted(np.cumsum(weight), points[:, 0]), len(weight) - 1)
    roots = np.linalg.cholesky(covariance[grid] + 1e-12 * np.eye(size))
    normals = np.einsum("dij,dj->di", roots, ndtri(points[:, 1:]))
    return np.concatenate([mean[grid] + normals, mean[grid] - normals]).T


def disagreement(calibrated: CalibratedModels, target: TargetModel) -> float:
    """Return by how many standard errors a model's own ratings exceed the line; nan without either."""
    if refusal(calibrated, target) is not None or not target.is_rated:
        return math.nan
    gap, line, noise = _against_line(calibrated, target)
    return gap / math.sqrt(line + noise)


Conflict = Literal["hull", "ratings"]


def find_conflict(calibrated: CalibratedModels, target: TargetModel) -> Conflict | None:
    """Return what resolves a conflict between a model's ratings and the line; None where there is none.

    They conflict where they differ by more than their joint standard error. Ratings more exact than the line
    then count alone; else the interval includes those of both. Much less exact ratings show no conflict.
    """
    if refusal(calibrated, target) is not None or not target.is_rated:
        return None
    gap, line, noise = _against_line(calibrated, target)
    if abs(gap) <= math.sqrt(line + noise) or noise >= LEAST_EXACT**2 * line:
        return None
    return "ratings" if noise <= line else "hull"


def _against_line(calibrated: CalibratedModels, target: TargetModel) -> tuple[float, float, float]:
    """Return how far ratings exceed the line, and the variances of line and ratings."""
    (alone,) = joint_draws(calibrated, target.without_ratings)
    crowd, noise = calibrated.link_ratings(target.crowd, target.noise)
    return float(crowd - np.median(alone)), float(alone.var()), float(noise)


def sign_probability(
    calibrated: CalibratedModels,
    one: TargetModel,
    other: TargetModel,
    error: float,
    *,
    correlation: float = 0.0,
) -> float:
    """Return the probability that people prefer one of two unrated models to the other.

    The judge's deviations from people are pooled over other sets and the calibrated models. `error` is the
    standard error of the difference of the judge's logits over the choice of prompts.
    """
    from scipy.special import stdtr

    posterior = _posterior(calibrated)
    count = len(calibrated.models)
    judge, crowd, noise = calibrated.linked
    slope = max(LEAST_SLOPE, float(posterior.weight @ posterior.slope))
    residuals = crowd - crowd.mean() - slope * (judge - judge.mean())
    own = max(0.0, float((residuals**2).sum() - (count - 2) * noise.mean())) / slope**2
    variance = (DEVIATION_FREEDOM * calibrated.deviation**2 + own) / (DEVIATION_FREEDOM + count - 2)
    gap = [float(calibrated.link(item.judge, item.prompts or math.inf)) for item in (one, other)]
    scale = math.sqrt(2 * (1 - correlation) * variance + error**2)
    return float(stdtr(count + DEVIATION_FREEDOM - 2, (gap[0] - gap[1]) / scale))


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLine:
    """The line through calibrated models on the logit scale, and the deviation of models from it.

    `model_sd` is the posterior median of that deviation, on the scale of the levels at their mean.
    """

    slope: float
    model_sd: float


def fit_line(calibrated: CalibratedModels) -> FittedLine:
    """Fit the line and its spread; nan with fewer than `LEAST_MODELS` models."""
    if len(calibrated.models) < LEAST_MODELS:
        return FittedLine(slope=math.nan, model_sd=math.nan)
    posterior = _posterior(calibrated)
    order = np.argsort(posterior.deviation, kind="stable")
    median = float(np.interp(0.5, np.cumsum(posterior.weight[order]), posterior.deviation[order]))
    return FittedLine(
        slope=float(posterior.weight @ posterior.slope),
        model_sd=median * float(calibrated.steepness(calibrated.link(calibrated.crowd).mean())),
    )
