"""Levels and differences of models without human ratings, from the judge's means and calibrated models.

On the logit scale the human share is `a + b * (judge - mean)`, plus each model's own deviation. The slope `b`
and the standard deviation of the deviations have priors measured on several sets of rated systems; `a` has
none. Where the judge's own levels have clearly less error, the level is the judge's own, with the
interval of the line around it. Beyond the rated range the interval is one-sided.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

from empathy_judge.calibration.cluster import NORMAL, UNIT
from empathy_judge.calibration.estimate import CONFIDENCE, Bound, Estimate, Floats, Interval
from empathy_judge.data.runs import read_object

# Of systems' deviations from the line, in the judge's logits: pooled from four sets by an earlier judge.
DEVIATION, DEVIATION_FREEDOM = 0.19, 6.0
SCORE_DEVIATION: Final = 0.45  # of means on a scale, in standard deviations of the judge's scores
SLOPE_SD: Final = 0.5  # of the slope's logarithm around 0; a slope of 7 was seen once, on iEval
LEAST_SLOPE: Final = 0.5  # in the residuals of the sign rule
OFFSET_SD: Final = 0.1  # of the levels that other people give, in logits
EXTRAPOLATION: Final = 0.3  # standard deviation per logit beyond the calibrated models
LEAST_MODELS = 3  # a line through two fits exactly
LEAST_REPLIES = 10
PROMPTS_KNOWN = 20  # prompts of its own that the calibration's spread over prompts counts as
FEW_PROMPTS = 30
# Of a rated model, times the standard error of the line's prediction: the judge misjudges it as it does
# others, or wholly, with this chance.
ORDINARY_SCALE, OUTLIER_SCALE, OUTLIER_PRIOR = 0.9, 5.0, 0.3
MARGIN: Final = 0.25  # of the distance between the outermost calibrated models, on either side
# The judge's own levels are used where their error is less than this part of the line's on models left out,
# and no more than this many usual deviations from the line.
LESS_ERROR, MOST_OWN_ERROR = 0.9, 1.5
DISAGREE = 2.0  # standard errors between line and ratings from which on one of them is in doubt
LEAST_DROP: Final = 0.05  # share of the baseline below a drop, with which a loss of that size can be told
MIN_SHARE: Final = 0.002  # shares closer to 0 or 1 count as this
DRAWS: Final = 8192
RECORDED: Final = Path(__file__).parents[1] / "recorded.json"
MOST_DIMENSIONS: Final = 4  # of the sequence


@cache
def recorded_deviation() -> tuple[float, float]:
    """Return the scale of recorded judges' deviations, in their standard deviations, and the freedom of t."""
    row = read_object(RECORDED)
    return float(row["deviation"]), float(row["freedom"])


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
    judge's scores from prompt to prompt within a model. `base` are models that other people rated: they have
    the same line, but for an offset. `prior` is the expected deviation from the line, in logits, of a judge
    of another kind than the shipped ones.
    """

    models: tuple[str, ...]
    judge: tuple[float, ...]
    crowd: tuple[float, ...]
    noise: tuple[float, ...]
    bounds: tuple[float, float] = UNIT
    shared: float = 0.0
    prompt_variance: float | None = None
    base: "CalibratedModels | None" = None
    prior: float | None = None

    def __post_init__(self) -> None:
        columns = (self.judge, self.crowd, self.noise)
        if {len(column) for column in columns} != {len(self.models)}:
            raise ValueError("calibrated models: columns must have the same length")
        if not np.isfinite(columns).all() or min(self.noise, default=0) < 0:
            raise ValueError("calibrated models: means must be finite, and variances at least 0")

    @property
    def groups(self) -> "tuple[CalibratedModels, ...]":
        """These models, and those of the base."""
        return (self,) if self.base is None else (self, *self.base.groups)

    @property
    def count(self) -> int:
        """How many models the line goes through."""
        return sum(len(group.models) for group in self.groups)

    @cached_property
    def range(self) -> tuple[float, float]:
        """The rated range: from the lowest to the highest of the judge's means, and a margin."""
        judge = [mean for group in self.groups for mean in group.judge]
        if not judge:
            return math.nan, math.nan
        low, high = min(judge), max(judge)
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
        return SCORE_DEVIATION if self.unit is not None else self.prior or DEVIATION

    def expecting(self, deviation: float) -> "CalibratedModels":
        """Expect the usual deviations and these, in the judge's standard deviations, in equal parts."""
        if self.unit is not None or not self.models or not self.prompt_variance:
            return self
        share = float(np.clip(np.mean(self.judge), MIN_SHARE, 1 - MIN_SHARE))
        recorded = deviation * math.sqrt(self.prompt_variance) / (share * (1 - share))
        return replace(self, prior=math.hypot(DEVIATION, recorded) / math.sqrt(2))

    def as_dict(self) -> dict[str, Any]:
        """Return the fields; without a prior where it is the usual one."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return values if self.prior else {key: value for key, value in values.items() if key != "prior"}

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

    @cached_property
    def trusts_levels(self) -> bool:
        """Whether the judge's own levels have clearly less error than the line, and no more than usual.

        The line's error is that on calibrated models left out.
        """
        judge, crowd, noise = self.linked
        excess = (judge - crowd) ** 2 - noise - (MOST_OWN_ERROR * self.deviation) ** 2
        if len(self.models) <= LEAST_MODELS or excess.sum() > 0:
            return False
        line = [_on_line(self.without(name), mean) for name, mean in zip(self.models, judge, strict=True)]
        own, by_line = np.abs(np.array([self.judge, self.inverse(line)]) - self.crowd).mean(axis=1)
        return bool(own < LESS_ERROR * by_line)

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

    center = float(np.concatenate([group.linked[0] for group in calibrated.groups]).mean())
    # Slopes at equal steps of probability; deviations over three decades, where the prior has all its mass.
    slopes = np.exp(SLOPE_SD * ndtri((np.arange(40) + 0.5) / 40))
    deviations = calibrated.deviation * np.geomspace(0.15, 12, 50)
    slope, deviation = (grid.ravel() for grid in np.meshgrid(slopes, deviations))
    # The scaled inverse chi-square of the variance, as a density of the deviation's logarithm.
    log = -DEVIATION_FREEDOM * (np.log(deviation) + 0.5 * (calibrated.deviation / deviation) ** 2)
    heights = []
    for group in filter(lambda group: group.models, calibrated.groups):
        judge, crowd, noise = group.linked
        variance = deviation[:, None] ** 2 + noise
        misses = crowd - slope[:, None] * (judge - center)
        height_variance = 1 / (1 / variance).sum(axis=1)
        height = height_variance * (misses / variance).sum(axis=1)
        distance = ((misses - height[:, None]) ** 2 / variance).sum(axis=1)
        log += 0.5 * (np.log(height_variance) - np.log(variance).sum(axis=1) - distance)
        shared = group.shared / float((group.steepness(crowd) ** 2).mean())
        heights.append(
            (height, height_variance + shared + (OFFSET_SD**2 if group is not calibrated else 0.0))
        )
    height, height_variance = heights[0]
    for other, other_variance in heights[1:]:
        total = height_variance + other_variance
        log -= 0.5 * (np.log(total) + (height - other) ** 2 / total)
        height = (height * other_variance + other * height_variance) / total
        height_variance = height_variance * other_variance / total
    return _Posterior(
        weight=softmax(log),
        slope=slope,
        deviation=deviation,
        center=center,
        height=height,
        height_variance=height_variance,
    )


def _on_line(calibrated: CalibratedModels, judge: Any) -> Any:
    """Return the expected logits of human levels on the line where the judge's are these."""
    posterior = _posterior(calibrated)
    return posterior.weight @ (posterior.height + posterior.slope * (judge - posterior.center))


def _shift(calibrated: CalibratedModels, target: TargetModel, judge: float) -> float:
    """Return what to add to the line at the judge's logit, to get its own level where that is trusted."""
    low, high = calibrated.range
    is_own = low <= target.judge <= high and calibrated.trusts_levels
    return float(judge - _on_line(calibrated, judge)) if is_own else 0.0


def bound_beyond(calibrated: CalibratedModels, target: TargetModel) -> Bound | None:
    """Return which bound there is of a model outside the rated range by more than its standard error."""
    low, high = calibrated.range
    slack = math.sqrt(target.judge_noise)
    if target.is_rated or low - slack <= target.judge <= high + slack:
        return None
    return "at most" if target.judge < low else "at least"


def shows_loss(calibrated: CalibratedModels, model: TargetModel, baseline: TargetModel) -> bool:
    """Return whether a loss would be seen: the baseline is inside the rated range, the model not below it."""
    return bound_beyond(calibrated, baseline) is None and bound_beyond(calibrated, model) != "at most"


def refusal(calibrated: CalibratedModels, target: TargetModel) -> str | None:
    """Return why there is no level of this model, if so."""
    if calibrated.count < LEAST_MODELS:
        return f"other calibrated models: {calibrated.count}; at least {LEAST_MODELS} are needed"
    if not math.isfinite(target.judge):
        return "nothing was scored"
    if target.prompts is not None and target.prompts < LEAST_REPLIES:
        return f"{target.prompts} scored; at least {LEAST_REPLIES} are needed"
    return None


def transport(calibrated: CalibratedModels, target: TargetModel) -> Estimate:
    """Estimate the level of a model from the line, and from its own ratings if it has any.

    Outside the rated range there is only a bound.

    >>> judge, crowd = (0.5, 0.6, 0.7), (0.4, 0.52, 0.6)
    >>> known = CalibratedModels(models=("a", "b", "c"), judge=judge, crowd=crowd, noise=(0.0, 0.0, 0.0))
    >>> alone = transport(known, TargetModel(judge=0.65))
    >>> rated = transport(known, TargetModel(judge=0.65, crowd=0.5, noise=0.001))
    >>> round(alone.value, 2), alone.interval.high > rated.interval.high
    (0.55, True)
    >>> beyond = transport(known, TargetModel(judge=0.8))
    >>> beyond.value, beyond.bound, beyond.interval.high
    (nan, 'at least', 1.0)
    """
    if refusal(calibrated, target) is not None:
        return Estimate(math.nan, None)
    levels = calibrated.inverse(joint_draws(calibrated, target)[0])
    return _estimate(levels, bound_beyond(calibrated, target), calibrated.bounds)


@dataclass(frozen=True, slots=True, eq=False)
class LineDifference:
    """A difference by the line, with its draws."""

    estimate: Estimate
    draws: Floats

    def exceeds(self, threshold: float) -> float:
        """Return the probability that the difference is larger."""
        return float((self.draws > threshold).mean() + (self.draws == threshold).mean() / 2)


def transport_difference(
    calibrated: CalibratedModels,
    one: TargetModel,
    other: TargetModel | Estimate,
    *,
    correlation: float = 0.0,
) -> LineDifference:
    """Return one - other.

    `correlation` is that of the two models' deviations from the line, high for variants of one model. An
    `other` that people rated elsewhere is an estimate of its own. Where a model is outside the rated range
    there is only a bound, away from 0.
    """
    targets = [item for item in (one, other) if isinstance(item, TargetModel)]
    if any(refusal(calibrated, item) for item in targets):
        return LineDifference(Estimate(math.nan, None), np.full(1, np.nan))
    levels = calibrated.inverse(joint_draws(calibrated, *targets, correlation=correlation))
    gap = levels[0] - (_draws_of(other) if isinstance(other, Estimate) else levels[1])
    bound: Bound | None = None
    if any(bound_beyond(calibrated, item) for item in targets):
        bound = "at least" if np.median(gap) > 0 else "at most"
    width = calibrated.bounds[1] - calibrated.bounds[0]
    return LineDifference(_estimate(gap, bound, (-width, width)), gap)


def _draws_of(estimate: Estimate) -> Floats:
    """Draw from an estimate that is independent of the line: normal, as its interval states."""
    from scipy.special import ndtri

    ends = estimate.interval or Interval(estimate.value, estimate.value)
    # Another irrational step than those of `joint_draws`.
    points = (np.arange(1, DRAWS + 1) * math.sqrt(2)) % 1.0
    return np.asarray(estimate.value + (ends.high - ends.low) / 2 / NORMAL * ndtri(points))


def _estimate(draws: Floats, bound: Bound | None, bounds: tuple[float, float]) -> Estimate:
    """Return the median of draws with a two-sided interval, or only a bound."""
    tail = (1 - CONFIDENCE) / (1 if bound else 2)
    low, middle, high = (float(value) for value in np.quantile(draws, (tail, 0.5, 1 - tail)))
    if bound is None:
        return Estimate(middle, Interval(low, high))
    ends = Interval(low, bounds[1]) if bound == "at least" else Interval(bounds[0], high)
    return Estimate(math.nan, ends, bound, middle)


def joint_draws(calibrated: CalibratedModels, *targets: TargetModel, correlation: float = 0.0) -> Floats:
    """Draw the logits of the targets' human levels, (targets, draws), by the line and by own ratings."""
    posterior, size = _posterior(calibrated), len(targets)
    judge = np.array([calibrated.link(item.judge, item.prompts or math.inf) for item in targets])
    blur = np.array([item.judge_noise for item in targets]) / calibrated.steepness(judge) ** 2
    rated_judge = np.concatenate([group.linked[0] for group in calibrated.groups])
    distance = np.maximum(judge - rated_judge.max(), rated_judge.min() - judge)
    reach = (EXTRAPOLATION * np.maximum(distance, 0.0)) ** 2
    slope, deviation = posterior.slope[:, None], posterior.deviation[:, None, None]
    mean = posterior.height[:, None] + slope * (judge - posterior.center)
    mean += [_shift(calibrated, *pair) for pair in zip(targets, judge, strict=True)]
    covariance = np.where(np.eye(size), 1.0, correlation) * deviation**2
    covariance = covariance + np.eye(size) * (slope[..., None] ** 2 * blur + reach)
    covariance = covariance + posterior.height_variance[:, None, None]
    draws = _draw_mixture(posterior.weight, mean, covariance)
    if not any(item.is_rated for item in targets):
        return draws
    return _draw_mixture(*_update(calibrated, targets, draws))


def _update(
    calibrated: CalibratedModels, targets: Sequence[TargetModel], draws: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the levels after own ratings: the weights, means and covariances of a mixture of normals.

    `draws` are the levels by the line. Its error on a rated model is as usual, or five times as large.
    """
    from scipy.special import softmax

    rated = [index for index, item in enumerate(targets) if item.is_rated]
    crowd, noise = calibrated.link_ratings(
        [targets[index].crowd for index in rated], [targets[index].noise for index in rated]
    )
    mean, spread = draws.mean(axis=1), np.atleast_2d(np.cov(draws))
    ordinary = np.ones(len(targets))
    ordinary[rated] = ORDINARY_SCALE
    logs, means, covariances = [], [], []
    for is_outlier in product((0, 1), repeat=len(rated)):
        extra = np.zeros(len(targets))
        extra[rated] = np.array(is_outlier) * (OUTLIER_SCALE**2 - ORDINARY_SCALE**2)
        covariance = spread * np.outer(ordinary, ordinary) + np.diag(extra * np.diag(spread))
        total = covariance[np.ix_(rated, rated)] + np.diag(np.maximum(noise, 1e-12))
        gain = np.linalg.solve(total, covariance[rated]).T
        surprise = crowd - mean[rated]
        log = -0.5 * (surprise @ np.linalg.solve(total, surprise) + np.linalg.slogdet(total)[1])
        logs.append(log + np.log(np.where(is_outlier, OUTLIER_PRIOR, 1 - OUTLIER_PRIOR)).sum())
        means.append(mean + gain @ surprise)
        covariances.append(covariance - gain @ covariance[rated])
    return softmax(logs), np.array(means), np.array(covariances)


def _draw_mixture(weight: Floats, mean: Floats, covariance: Floats) -> Floats:
    """Draw from a mixture of normals, (dimensions, draws), by low-discrepancy points."""
    from scipy.special import ndtri

    size = mean.shape[1]
    # A Kronecker sequence: its first coordinate chooses the component, the others the normal draws, which are
    # taken with both signs. By hand, since scipy.stats.qmc takes long to import.
    golden = 1.5  # the root of x ** (size + 2) = x + 1
    for _ in range(40):
        golden = (1 + golden) ** (1 / (size + 2))
    points = (np.arange(1, DRAWS // 2 + 1)[:, None] * golden ** -np.arange(1.0, size + 2)) % 1.0
    if size > MOST_DIMENSIONS:  # the steps get too similar
        points = np.random.default_rng(0).random(points.shape)
    chosen = np.minimum(np.searchsorted(np.cumsum(weight), points[:, 0]), len(weight) - 1)
    roots = np.linalg.cholesky(covariance[chosen] + 1e-12 * np.eye(size))
    normals = np.einsum("dij,dj->di", roots, ndtri(points[:, 1:]))
    return np.concatenate([mean[chosen] + normals, mean[chosen] - normals]).T


def disagreement(calibrated: CalibratedModels, target: TargetModel) -> float:
    """Return by how many standard errors a model's own ratings exceed the line; nan without either."""
    if refusal(calibrated, target) is not None or not target.is_rated:
        return math.nan
    (alone,) = joint_draws(calibrated, target.without_ratings)
    crowd, noise = calibrated.link_ratings(target.crowd, target.noise)
    return float((crowd - np.median(alone)) / np.sqrt(alone.var() + noise))


def sign_probability(
    calibrated: CalibratedModels,
    one: TargetModel,
    other: TargetModel,
    error: float,
    *,
    correlation: float = 0.0,
    drop: float = 0.0,
) -> float:
    """Return the probability that people's share of one unrated model exceeds that of the other.

    With a `drop`, that it exceeds that share minus the drop; nan where the other has too little to lose. The
    judge's deviations from people are pooled over other sets and the calibrated models. `error` is the
    standard error of the difference of the judge's logits over the choice of prompts.
    """
    from scipy.special import stdtr

    posterior = _posterior(calibrated)
    judge = np.array([float(calibrated.link(item.judge, item.prompts or math.inf)) for item in (one, other)])
    scale = math.sqrt(2 * (1 - correlation) * error_variance(calibrated) + error**2)
    if not drop:
        return float(stdtr(_freedom(calibrated), (judge[0] - judge[1]) / scale))
    level = float(calibrated.inverse(_on_line(calibrated, judge[1]) + _shift(calibrated, other, judge[1])))
    if level <= drop + LEAST_DROP:
        return math.nan
    allowed = (calibrated.link(level) - calibrated.link(level - drop)) / posterior.slope
    return float(posterior.weight @ stdtr(_freedom(calibrated), (judge[0] - judge[1] + allowed) / scale))


def rank_draws(calibrated: CalibratedModels, targets: Sequence[TargetModel]) -> Floats:
    """Draw an order of models: as `sign_probability` does, or with ratings as `joint_draws` does."""
    if any(item.is_rated for item in targets):
        return joint_draws(calibrated, *targets)
    rng, freedom = np.random.default_rng(0), _freedom(calibrated)
    judge = np.array([float(calibrated.link(item.judge, item.prompts or math.inf)) for item in targets])
    noise = np.array([item.judge_noise for item in targets]) / calibrated.steepness(judge) ** 2
    size = np.sqrt((error_variance(calibrated) + noise)[:, None] * freedom / rng.chisquare(freedom, DRAWS))
    return np.asarray(judge[:, None] + size * rng.standard_normal((len(targets), DRAWS)))


def error_variance(calibrated: CalibratedModels) -> float:
    """Return the variance of the judge from people, pooled over these and other models."""
    posterior = _posterior(calibrated)
    slope = max(LEAST_SLOPE, float(posterior.weight @ posterior.slope))
    own = noises = 0.0
    for judge, crowd, noise in (group.linked for group in calibrated.groups if group.models):
        residuals = crowd - crowd.mean() - slope * (judge - judge.mean())
        own += float((residuals**2).sum())
        noises += float(noise.sum())
    freedom = _freedom(calibrated)
    own = max(0.0, own - (freedom - DEVIATION_FREEDOM) * noises / calibrated.count) / slope**2
    return (DEVIATION_FREEDOM * calibrated.deviation**2 + own) / freedom


def _freedom(calibrated: CalibratedModels) -> float:
    """Return the degrees of freedom of that variance: a slope, and a height for each group, are fitted."""
    return calibrated.count + DEVIATION_FREEDOM - 1 - sum(bool(group.models) for group in calibrated.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedLine:
    """The line through calibrated models on the logit scale, and the deviation of models from it.

    `model_sd` is the posterior median of that deviation, on the scale of the levels at their mean.
    """

    slope: float
    model_sd: float


def fit_line(calibrated: CalibratedModels) -> FittedLine:
    """Fit the line and its spread; nan with fewer than `LEAST_MODELS` models."""
    if calibrated.count < LEAST_MODELS:
        return FittedLine(slope=math.nan, model_sd=math.nan)
    posterior = _posterior(calibrated)
    order = np.argsort(posterior.deviation, kind="stable")
    median = float(np.interp(0.5, np.cumsum(posterior.weight[order]), posterior.deviation[order]))
    return FittedLine(
        slope=float(posterior.weight @ posterior.slope),
        model_sd=median * float(calibrated.steepness(calibrated.link(calibrated.crowd).mean())),
    )
