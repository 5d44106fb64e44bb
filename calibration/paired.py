"""The difference of two rated models: what raters and prompts they share cancels, and few raters stay few.

The error is taken of the difference itself, not of the two levels: two people who rated both models leave
one degree of freedom between them, however many replies each of them read.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.clustering import joint_freedom, shared_covariance, sum_variance
from calibration.contrasts import contrast
from calibration.intervals import Floats
from calibration.powered import NORMAL, Powered, intervals, t_quantile
from calibration.resampling import Integers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gap:
    """one - other by column, with its interval, its variance and the degrees of freedom of that.

    All but the value are nan where the raters cannot tell how much they differ.
    """

    value: Floats
    low: Floats
    high: Floats
    variance: Floats
    freedom: Floats

    @property
    def stated_variance(self) -> Floats:
        """The variance of a normal error whose interval is as wide as this one."""
        found: Floats = ((self.high - self.low) / 2 / NORMAL) ** 2
        return found


def difference(one: Powered, other: Powered) -> Gap:
    """one - other with its interval: Newcombe's, from the two intervals and what they share.

    It never reaches less far than t times the standard error, since with few raters either level's own
    interval may be short by chance.
    """
    own, own_freedom = _rated_variance(one, other)
    far, far_freedom = _unrated_variance(one, other)
    variance = own + far
    freedom = joint_freedom(variance, (own, own_freedom), (far, far_freedom))
    gap = one.value - other.value
    product = np.sqrt(one.variance * other.variance)
    common = (one.variance + other.variance - variance) / 2
    # Ratings that happen to be the same for both do not make their difference exact.
    known = (product > 0) & (variance > 0)
    alike = np.clip(np.divide(common, product, out=np.zeros_like(gap), where=known), -1, 1)
    (down, up), (other_down, other_up) = (_reach(item, freedom) for item in (one, other))
    least = t_quantile(freedom) * np.sqrt(variance)
    below = np.sqrt(np.maximum(down**2 + other_up**2 - 2 * alike * down * other_up, 0))
    above = np.sqrt(np.maximum(up**2 + other_down**2 - 2 * alike * up * other_down, 0))
    most = one.bounds[1] - one.bounds[0]
    return Gap(
        value=gap,
        low=np.maximum(gap - np.maximum(below, least), -most),
        high=np.minimum(gap + np.maximum(above, least), most),
        variance=variance,
        freedom=freedom,
    )


def _rated_variance(one: Powered, other: Powered) -> tuple[Floats, Floats]:
    """The variance of the difference through raters and prompts, and its degrees of freedom, by column.

    Prompts' is the least: a few raters look by chance as if they were of one mind. For the same reason the
    degrees of freedom are those of raters or of prompts, whichever are fewer.
    """
    pulls = [item.apart * len(item.apart) for item in (one, other)]
    sizes = [len(item) for item in pulls]
    feature = np.repeat([1.0, 0.0], sizes)
    strata = np.zeros(sum(sizes), dtype=np.intp)
    raters = _numbers(np.concatenate([one.raters, other.raters]))
    prompts = _numbers(np.concatenate([_names(one, "one"), _names(other, "other")]))
    found = []
    for values in np.concatenate(pulls).T:
        by_rater = contrast(values, feature, raters, strata=strata)
        by_prompt = contrast(values, feature, prompts, strata=strata)
        crossed = contrast(values, feature, raters, strata=strata, items=prompts)
        error = np.maximum(crossed.error, by_prompt.error)  # nan where either is undefined
        found.append((error**2, np.minimum(by_rater.freedom, by_prompt.freedom)))
    variance, freedom = np.array(found).T
    return variance, freedom


def _unrated_variance(one: Powered, other: Powered) -> tuple[Floats, Floats]:
    """The same through the responses nobody rated, which the judge stands in for."""
    total = sum_variance(one.prompt_pulls) + sum_variance(other.prompt_pulls)
    if one.prompts is not None and other.prompts is not None:
        both = shared_covariance(one.prompts, one.prompt_pulls, other.prompts, other.prompt_pulls)
        total = np.maximum(total - 2 * both, 0)
    prompts = min((len(item.prompt_pulls) for item in (one, other) if len(item.prompt_pulls)), default=1)
    return total, np.full(total.shape, max(1.0, prompts - 1.0))


def _reach(item: Powered, freedom: Floats) -> tuple[Floats, Floats]:
    """How far the interval goes down and up with another number of degrees of freedom."""
    low, high = intervals(item.value, item.variance, freedom, item.bounds, item.stand_in)
    return item.value - low, high - item.value


def _numbers(names: NDArray[Any]) -> Integers:
    found: Integers = np.unique(names, return_inverse=True)[1]
    return found


def _names(item: Powered, whose: str) -> NDArray[Any]:
    """What each rating's response answers; without prompts every response has one of its own."""
    if item.rated_prompts is not None:
        return item.rated_prompts.astype(str)
    return np.array([f"{whose}-{row}" for row in item.rows])
