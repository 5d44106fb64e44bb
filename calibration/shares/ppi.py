"""A rated model's shares, or its mean: PPI++ for the point, raters in the variance, t for few of them.

The mean of the ratings, plus `weight` times how far the judge scores the other responses differently, is
unbiased whatever the judge's bias; a good judge reduces its noise (Angelopoulos, Duchi and Zrnic 2023, arXiv
2311.01453). Responses that were drawn to be rated with unequal chances count by 1 / chance (Hájek). The
difference of two models has Newcombe's interval, with the raters and prompts that they share.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from empathy_judge.calibration import cluster as by_cluster
from empathy_judge.calibration.cluster import MIN_COUNT, NORMAL, UNIT, contrast, joint_freedom, sum_variance
from empathy_judge.calibration.estimate import Estimate, Floats, Integers, estimate_of
from empathy_judge.data.records import LABELS

RARE: Final = 5  # a label given fewer times says little about how raters differ in giving it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatedModel:
    """A judge's scores of one model's responses, and people's ratings of some (or none) of them.

    Columns are labels, where `judged` holds probabilities and `value` a 1 under the label given, or there is
    one column of scores within `bounds`.
    """

    judged: Floats  # (responses, columns)
    item: Integers  # (ratings,): the row of `judged` that was rated
    value: Floats  # (ratings, columns)
    cluster: NDArray[Any]  # (ratings,): the batches, else the raters
    prompt: NDArray[Any] | None = None  # (responses,); without it every response has a prompt of its own
    bounds: tuple[float, float] = UNIT
    chance: Floats | None = None  # (ratings,): with which they were drawn; without it all had the same

    @property
    def crowd(self) -> Floats:
        """The mean of the ratings alone, by column."""
        return np.average(self.value, axis=0, weights=None if self.chance is None else 1 / self.chance)

    @property
    def prompt_count(self) -> int:
        """How many prompts the judged responses answer."""
        return len(self.judged) if self.prompt is None else len(np.unique(self.prompt))

    def without_ratings(self) -> "RatedModel":
        """Return the same model as if nobody had rated it."""
        return replace(self, item=self.item[:0], value=self.value[:0], cluster=self.cluster[:0], chance=None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatedEstimate:
    """Shares or a mean by column, or a difference of two; `variance` counts raters and prompts.

    All but the value are nan with only one cluster of ratings.
    """

    value: Floats
    low: Floats
    high: Floats
    variance: Floats
    freedom: Floats

    def estimates(self) -> list[Estimate]:
        """Return every column's value with its interval, if that is defined."""
        return [estimate_of(*values) for values in zip(self.value, self.low, self.high, strict=True)]

    def shares(self) -> dict[str, Estimate]:
        """Return the estimates by label."""
        return dict(zip(LABELS, self.estimates(), strict=True))

    @property
    def stated_variance(self) -> Floats:
        """The variance of a normal error whose interval is as wide as this one."""
        return ((self.high - self.low) / 2 / NORMAL) ** 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PpiEstimate(RatedEstimate):
    """A model's shares or mean from its ratings and its judgments; arrays are by column."""

    weight: float  # of the judge, 0 to 1
    design_effect: Floats  # n ratings count as n / design_effect
    clusters: int
    influence: Floats  # (ratings, columns): how far each rating moves the value
    sample: RatedModel
    prompts: NDArray[Any] | None
    prompt_influence: Floats  # (prompts, columns): that of unrated responses
    effective_n: float  # the effective number of ratings where a share shows no variance
    max_effective_n: Floats  # the upper bound of that number, for rare labels

    @property
    def is_complete(self) -> bool:
        """Whether people rated every response, and enough of them for the shares to have an error."""
        is_known = bool(np.isfinite(self.variance).all())
        return is_known and len(np.unique(self.sample.item)) == len(self.sample.judged)

    @property
    def least_variance(self) -> Floats:
        """`variance`, or the stated one where all ratings were alike, which does not make them exact."""
        return np.where(self.variance > 0, self.variance, self.stated_variance)


def one_hot(ratings: ArrayLike, levels: int) -> Floats:
    """Turn ratings 1..levels into rows of 0s and a 1.

    >>> one_hot([3, 1], 3).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    rows: Floats = (np.asarray(ratings)[:, None] == np.arange(1, levels + 1)).astype(float)
    return rows


def ppi_estimate(sample: RatedModel) -> PpiEstimate:
    """Estimate the shares or the mean of one model by PPI++, with rater-clustered variance.

    An item with several ratings counts with their mean. Ratings by one rater are not independent, so the
    variance is summed by rater, and by item where raters share items; intervals use t with as many degrees of
    freedom as raters allow. Shares come from one weight for all labels, so they add up to 1, and their
    intervals are Wilson's at the effective number of ratings. With unequal chances the unrated responses are
    no sample of all, so that the judge's scores of all responses count.
    """
    rows, position, counts = np.unique(sample.item, return_inverse=True, return_counts=True)
    if not len(rows):
        raise ValueError("no ratings: see calibration.shares.transport")
    is_drawn = sample.chance is not None and bool((sample.chance != sample.chance[:1]).any())
    out = np.zeros(0, dtype=np.intp) if is_drawn else rows
    judged, rest = sample.judged[rows], np.delete(sample.judged, out, axis=0)
    means = by_cluster.cluster_sums(position, sample.value, len(rows)) / counts[:, None]
    drawn = None  # of each rated response in the mean, where they differ
    if is_drawn and sample.chance is not None:
        drawn = np.bincount(position, 1 / sample.chance) / counts
        drawn = drawn / drawn.sum()
    weight = ppi_weight(means, judged, rest, share=drawn)
    value = np.average(means, axis=0, weights=drawn)
    if weight:
        value = value + weight * (rest.mean(axis=0) - np.average(judged, axis=0, weights=drawn))
    part = ((1 / len(rows) if drawn is None else drawn) / counts)[position][:, None]
    residuals = sample.value - weight * judged[position]
    influence = part * (residuals - np.average(means - weight * judged, axis=0, weights=drawn))
    raters, rater = np.unique(sample.cluster, return_inverse=True)
    rated_variance, rated_freedom = _mean_variance(residuals, part, rater, position)
    others = None if sample.prompt is None else np.delete(sample.prompt, out)
    prompts, prompt_influence = _prompt_influence(rest, others, weight)
    rest_variance = sum_variance(prompt_influence)
    rest_freedom = np.full(rest_variance.shape, len(prompt_influence) - 1.0)
    variance = rated_variance + rest_variance
    freedom = joint_freedom(variance, (rated_variance, rated_freedom), (rest_variance, rest_freedom))
    plain, _ = _mean_variance(sample.value, part, rater, position)
    spread = sample.value.var(axis=0)
    effect = np.divide(plain * len(sample.item), spread, out=np.ones_like(spread), where=spread > 0)
    effective_n = len(sample.item) / max(1.0, float(effect.max()))
    max_effective_n = np.full(value.shape, np.inf)
    if sample.bounds == UNIT:
        max_effective_n = _max_effective_n(sample.value, effective_n)
        share = np.clip(value, MIN_COUNT / len(sample.item), 1 - MIN_COUNT / len(sample.item))
        variance = np.maximum(variance, share * (1 - share) / max_effective_n)  # nan stays nan
    low, high = by_cluster.t_intervals(value, variance, freedom, sample.bounds, effective_n, max_effective_n)
    return PpiEstimate(
        value=value,
        low=low,
        high=high,
        variance=variance,
        freedom=freedom,
        weight=weight,
        design_effect=effect,
        clusters=len(raters),
        influence=influence,
        sample=sample,
        prompts=prompts,
        prompt_influence=prompt_influence,
        effective_n=effective_n,
        max_effective_n=max_effective_n,
    )


def _max_effective_n(value: Floats, effective_n: float) -> Floats:
    """Return how many ratings a label's may count as at most, by column.

    Ratings of a rare or nearly universal label count as twice their number at most, and without any as their
    number over the design effect, so that the upper end is the rule of three's or more.
    """
    count = value.sum(axis=0)
    rare = np.minimum(count, len(value) - count)
    return np.where(rare < 0.5, effective_n, np.where(rare < RARE, 2.0 * len(value), np.inf))


def _mean_variance(values: Floats, part: Floats, rater: Integers, item: Integers) -> tuple[Floats, Floats]:
    """Return the variance of a weighted mean of ratings and its degrees of freedom, by column."""
    ones = np.ones(len(part))
    means = [contrast(column, ones, rater, items=item, weights=part[:, 0]) for column in values.T]
    errors, freedom = np.array([(mean.error, mean.freedom) for mean in means]).T
    return errors**2, freedom


def judge_means(sample: RatedModel) -> tuple[Floats, Floats]:
    """Return the judge's means and their sampling variances, by column; nan without responses."""
    count, columns = sample.judged.shape
    if not count:
        return np.full(columns, np.nan), np.full(columns, np.nan)
    _, influence = _prompt_influence(sample.judged, sample.prompt, 1.0)
    return sample.judged.mean(axis=0), sum_variance(influence)


def ppi_weight(means: Floats, judged: Floats, rest: Floats, *, share: Floats | None = None) -> float:
    """Return PPI++'s weight of the judge, 0 to 1: the one with the least variance over all columns.

    With `share`, each rated response's part in the mean, `rest` are all responses: that is a regression
    estimator, whose least variance has the slope of ratings on judgments.
    """
    if len(means) < 2 or not len(rest):
        return 0.0
    if share is not None:
        shared = (share @ ((means - share @ means) * (judged - share @ judged))).sum()
        own = rest.var(axis=0).sum()
        return float(np.clip(shared / own, 0, 1)) if own > 1e-15 else 0.0
    shared = ((means - means.mean(axis=0)) * (judged - judged.mean(axis=0))).mean(axis=0).sum()
    own = np.concatenate([judged, rest]).var(axis=0, ddof=1).sum()
    return float(np.clip(shared / (own * (1 + len(means) / len(rest))), 0, 1)) if own > 1e-15 else 0.0


def _prompt_influence(
    rest: Floats, prompt: NDArray[Any] | None, weight: float
) -> tuple[NDArray[Any] | None, Floats]:
    if not len(rest) or weight == 0:
        return None, np.zeros((0, rest.shape[1]))
    influence = weight * (rest - rest.mean(axis=0)) / len(rest)
    if prompt is None:
        return None, influence
    names, number = np.unique(prompt, return_inverse=True)
    return names, by_cluster.cluster_sums(number, influence, len(names))


def prompt_numbers(*models: tuple[NDArray[Any] | None, Integers]) -> Integers:
    """Return each response's prompt as a number; models share prompts, and without any each has its own."""
    names = [
        np.array([f"{number}-{row}" for row in rows]) if prompts is None else prompts.astype(str)
        for number, (prompts, rows) in enumerate(models)
    ]
    return np.unique(np.concatenate(names), return_inverse=True)[1]


def rated_difference(one: PpiEstimate, other: PpiEstimate) -> RatedEstimate:
    """Return one - other with Newcombe's interval, from the two intervals and their covariance.

    The error is that of the difference itself: two people who rated both models leave one degree of freedom
    between them. The interval never reaches less far than t times the standard error.
    """
    rated, rated_freedom = _rated_variance(one, other)
    unrated, unrated_freedom = _unrated_variance(one, other)
    variance = rated + unrated
    freedom = joint_freedom(variance, (rated, rated_freedom), (unrated, unrated_freedom))
    gap = one.value - other.value
    product = np.sqrt(one.variance * other.variance)
    common = (one.variance + other.variance - variance) / 2
    # Ratings that happen to be the same for both do not make their difference exact.
    varies = (product > 0) & (variance > 0)
    alike = np.clip(np.divide(common, product, out=np.zeros_like(gap), where=varies), -1, 1)
    (down, up), (other_down, other_up) = (_reach(item, freedom) for item in (one, other))
    least = by_cluster.t_quantile(freedom) * np.sqrt(variance)
    below = np.sqrt(np.maximum(down**2 + other_up**2 - 2 * alike * down * other_up, 0))
    above = np.sqrt(np.maximum(up**2 + other_down**2 - 2 * alike * up * other_down, 0))
    most = one.sample.bounds[1] - one.sample.bounds[0]
    return RatedEstimate(
        value=gap,
        low=np.maximum(gap - np.maximum(below, least), -most),
        high=np.minimum(gap + np.maximum(above, least), most),
        variance=variance,
        freedom=freedom,
    )


def _rated_variance(one: PpiEstimate, other: PpiEstimate) -> tuple[Floats, Floats]:
    """Return the variance of the difference by raters and prompts, and its degrees of freedom, by column.

    The variance over prompts is the least, and the degrees of freedom are those of raters or of prompts,
    whichever are fewer: a few raters may agree by chance.
    """
    influence = [item.influence * len(item.influence) for item in (one, other)]
    sizes = [len(item) for item in influence]
    feature = np.repeat([1.0, 0.0], sizes)
    strata = np.zeros(sum(sizes), dtype=np.intp)
    rated = one.sample, other.sample
    raters = np.unique(np.concatenate([item.cluster for item in rated]), return_inverse=True)[1]
    prompts = prompt_numbers(
        *((None if item.prompt is None else item.prompt[item.item], item.item) for item in rated)
    )
    columns = []
    for values in np.concatenate(influence).T:
        by_rater = contrast(values, feature, raters, strata=strata)
        by_prompt = contrast(values, feature, prompts, strata=strata)
        crossed = contrast(values, feature, raters, strata=strata, items=prompts)
        error = np.maximum(crossed.error, by_prompt.error)  # nan where either is undefined
        columns.append((error**2, np.minimum(by_rater.freedom, by_prompt.freedom)))
    variance, freedom = np.array(columns).T
    return variance, freedom


def _unrated_variance(one: PpiEstimate, other: PpiEstimate) -> tuple[Floats, Floats]:
    """Return the variance by unrated responses, which the judge scored, and its degrees of freedom."""
    total = sum_variance(one.prompt_influence) + sum_variance(other.prompt_influence)
    if one.prompts is not None and other.prompts is not None:
        both = by_cluster.shared_covariance(
            one.prompts, one.prompt_influence, other.prompts, other.prompt_influence
        )
        total = np.maximum(total - 2 * both, 0)
    prompts = min(filter(None, (len(item.prompt_influence) for item in (one, other))), default=1)
    return total, np.full(total.shape, max(1.0, prompts - 1.0))


def _reach(item: PpiEstimate, freedom: Floats) -> tuple[Floats, Floats]:
    """Return how far the interval reaches down and up with other degrees of freedom."""
    low, high = by_cluster.t_intervals(
        item.value, item.variance, freedom, item.sample.bounds, item.effective_n, item.max_effective_n
    )
    return item.value - low, high - item.value
