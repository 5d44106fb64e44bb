"""The difference of two rated models by their ratings: Newcombe's interval with shared raters and prompts."""

from dataclasses import dataclass

import numpy as np

from calibration.cluster import (
    NORMAL,
    contrast,
    joint_freedom,
    shared_covariance,
    sum_variance,
    t_intervals,
    t_quantile,
)
from calibration.comparison.judged_models import prompt_numbers
from calibration.estimate import Estimate, Floats, estimate_of
from calibration.shares.ppi import PpiEstimate
from data.records import LABELS


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatedDifference:
    """The difference one - other by column, with its interval, variance and degrees of freedom.

    The error is that of the difference itself, not of the two levels: two people who rated both models leave
    one degree of freedom between them, however many replies each of them read. All but the value are nan
    where the variance between raters is unknown.
    """

    value: Floats
    low: Floats
    high: Floats
    variance: Floats
    freedom: Floats

    def shares(self) -> dict[str, Estimate]:
        """Return the difference of every label's share."""
        return dict(zip(LABELS, map(estimate_of, self.value, self.low, self.high), strict=True))

    @property
    def stated_variance(self) -> Floats:
        """The variance of a normal error whose interval is as wide as this one."""
        variance: Floats = ((self.high - self.low) / 2 / NORMAL) ** 2
        return variance


def rated_difference(one: PpiEstimate, other: PpiEstimate) -> RatedDifference:
    """Return one - other with Newcombe's interval, from the two intervals and their covariance.

    It never reaches less far than t times the standard error, since with few raters either level's own
    interval may be short by chance.
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
    least = t_quantile(freedom) * np.sqrt(variance)
    below = np.sqrt(np.maximum(down**2 + other_up**2 - 2 * alike * down * other_up, 0))
    above = np.sqrt(np.maximum(up**2 + other_down**2 - 2 * alike * up * other_down, 0))
    most = one.bounds[1] - one.bounds[0]
    return RatedDifference(
        value=gap,
        low=np.maximum(gap - np.maximum(below, least), -most),
        high=np.minimum(gap + np.maximum(above, least), most),
        variance=variance,
        freedom=freedom,
    )


def _rated_variance(one: PpiEstimate, other: PpiEstimate) -> tuple[Floats, Floats]:
    """Return the variance of the difference by raters and prompts, and its degrees of freedom, by column.

    Prompts' is the least: a few raters look by chance as if they were of one mind. For the same reason the
    degrees of freedom are those of raters or of prompts, whichever are fewer.
    """
    influence = [item.influence * len(item.influence) for item in (one, other)]
    sizes = [len(item) for item in influence]
    feature = np.repeat([1.0, 0.0], sizes)
    strata = np.zeros(sum(sizes), dtype=np.intp)
    raters = np.unique(np.concatenate([one.raters, other.raters]), return_inverse=True)[1]
    prompts = prompt_numbers(*((item.rated_prompts, item.rows) for item in (one, other)))
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
        both = shared_covariance(one.prompts, one.prompt_influence, other.prompts, other.prompt_influence)
        total = np.maximum(total - 2 * both, 0)
    prompts = min(
        (len(item.prompt_influence) for item in (one, other) if len(item.prompt_influence)), default=1
    )
    return total, np.full(total.shape, max(1.0, prompts - 1.0))


def _reach(item: PpiEstimate, freedom: Floats) -> tuple[Floats, Floats]:
    """Return how far the interval reaches down and up with other degrees of freedom."""
    low, high = t_intervals(item.value, item.variance, freedom, item.bounds, item.stand_in, most=item.most)
    return item.value - low, high - item.value
