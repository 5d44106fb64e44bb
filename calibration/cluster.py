"""A difference within clustered data: its interval with few clusters, and what it could have found."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibration.bootstrap import Integers
from calibration.estimate import CONFIDENCE, Estimate, Floats, Interval

# Variances of sums whose terms come in clusters: the ratings of one rater, or of one item.


def clustered_variance(apart: Floats, owner: Integers, item: Integers) -> tuple[Floats, Floats]:
    """The variance of the sum of `apart`, and its degrees of freedom; nan with one cluster or one item.

    Raters and items cross where several raters share an item: then it is rater + item - both (Cameron,
    Gelbach and Miller 2011), and where items lie within clusters that is the clusters' alone.
    """
    groups, items = int(owner.max()) + 1, int(item.max()) + 1
    if groups < 2 or items < 2:
        return np.full(apart.shape[1], np.nan), np.zeros(apart.shape[1])
    by_cluster = sum_variance(cluster_sums(owner, apart, groups))
    freedom = np.full(apart.shape[1], groups - 1.0)
    cells, cell = np.unique(owner * items + item, return_inverse=True)
    if len(cells) == items:  # every item has one cluster
        return by_cluster, freedom
    by_item = sum_variance(cluster_sums(item, apart, items))
    by_both = sum_variance(cluster_sums(cell, apart, len(cells)))
    # Raters of one mind can only by chance look as if they cancelled each other: the items' is the least.
    both: Floats = np.maximum(by_cluster + by_item - by_both, by_item)
    # Few raters may look of one mind by chance, so their agreement buys no degrees of freedom.
    return both, np.full(freedom.shape, min(groups, items) - 1.0)


def sum_variance(pulls: Floats) -> Floats:
    """The variance of a sum of independent pulls that add up to 0; 0 without any."""
    groups = len(pulls)
    total: Floats = (pulls**2).sum(axis=0)
    return total * groups / (groups - 1) if groups > 1 else total


def cluster_sums(owner: Integers, values: Floats, groups: int) -> Floats:
    """The sums of rows by owner, (groups, columns)."""
    columns = [np.bincount(owner, column, groups) for column in values.T]
    return np.stack(columns, axis=1) if columns else np.zeros((groups, 0))


def joint_freedom(total: Floats, *parts: tuple[Floats, Floats]) -> Floats:
    """The degrees of freedom of a variance made of parts; those of the first part if all are 0.

    With Welch's 2s: a square of an estimated variance is too large on average, and more so with few degrees.
    """
    below = sum((part**2 / (freedom + 2) for part, freedom in parts), np.zeros(total.shape))
    least = parts[0][1]
    found: Floats = np.divide(total**2, below, out=least + 2, where=below > 0) - 2
    return np.maximum(found, np.minimum(least, 1.0))


def shared_covariance(
    names: NDArray[Any], pulls: Floats, others: NDArray[Any], other_pulls: Floats
) -> Floats:
    """The covariance of two sums through the clusters both have."""
    _, here, there = np.intersect1d(names, others, return_indices=True)
    total: Floats = (pulls[here] * other_pulls[there]).sum(axis=0)
    union = len(names) + len(others) - len(here)
    return total * union / (union - 1) if union > 1 else total


POWER: Final = 0.8
ALL_OF_IT: Final = 1 - 1e-9  # a cluster with this much of a direction's leverage holds all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """An effect with its standard error and degrees of freedom; all nan where undefined."""

    effect: float
    error: float
    freedom: float

    @property
    def is_defined(self) -> bool:
        return math.isfinite(self.effect) and math.isfinite(self.error)

    def estimate(self) -> Estimate:
        """The effect with its 95 % interval by t."""
        if not self.is_defined:
            return Estimate(math.nan, None)
        wide = _quantile(self.freedom, (1 + CONFIDENCE) / 2) * self.error
        return Estimate(self.effect, Interval(self.effect - wide, self.effect + wide))

    def p_value(self) -> float:
        """How often chance alone would give as large an effect, either way."""
        from scipy.special import stdtr

        if not self.is_defined:
            return math.nan
        if self.error == 0:
            return float(abs(self.effect) < 1e-12)
        return float(2 * stdtr(self.freedom, -abs(self.effect / self.error)))

    def detectable(self, *, looks: int = 1) -> float:
        """The least effect that is found with the power `POWER` at 95 % confidence.

        Where one of several `looks` has an effect, that one must pass at 5 % divided by their number.
        """
        if not self.is_defined:
            return math.nan
        return self.error * reach(self.freedom, looks=looks)


UNDEFINED: Final = Contrast(effect=math.nan, error=math.nan, freedom=math.nan)


def contrast(
    values: Floats,
    feature: Floats,
    clusters: Integers,
    *,
    strata: Integers | None = None,
    items: Integers | None = None,
) -> Contrast:
    """The slope of `values` on `feature` within strata; for a feature of 0s and 1s that is a difference.

    Without `strata` there is no intercept: a feature of 1s then gives the mean. `items` cross the clusters
    (prompts that several raters saw): the variance is then clusters + items - both. Undefined where one
    cluster, left out, would take the effect with it: how much clusters differ cannot be seen then.
    """
    if not len(values):
        return UNDEFINED
    basis, size = _basis(feature, strata)
    if size < 1e-9:
        return UNDEFINED
    effect = float(basis[:, -1] @ values) / size
    rest = values - basis @ (basis.T @ values)
    variance, freedom = _variance(basis, size, rest, clusters)
    if items is not None and (cells := _cross(clusters, items)) is not None:
        by_item, item_freedom = _variance(basis, size, rest, items)
        by_both, _ = _variance(basis, size, rest, cells)
        # The items' is the least, as in `calibration.clustering`; degrees lie between as each weighs.
        weighs = variance / (variance + by_item) if variance + by_item else 1.0
        freedom = weighs * freedom + (1 - weighs) * item_freedom
        variance = max(variance + by_item - by_both, by_item)
    if not math.isfinite(variance + freedom) or freedom <= 0:
        return UNDEFINED
    return Contrast(effect=effect, error=math.sqrt(variance), freedom=freedom)


def reach(freedom: float, *, looks: int = 1, power: float = POWER) -> float:
    """How many standard errors an effect must have to be found with this power.

    >>> round(reach(1000), 2), round(reach(9), 2), round(reach(1000, looks=32), 2)
    (2.8, 3.15, 4.01)
    """
    from scipy.special import nctdtrinc

    least = _quantile(freedom, 1 - (1 - CONFIDENCE) / 2 / looks)
    # The centre of a t whose draws pass `least` that often; beyond 1e5 degrees all is normal.
    return float(nctdtrinc(min(freedom, 1e5), 1 - power, least))


def _quantile(freedom: float, level: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, level))


def _basis(feature: Floats, strata: Integers | None) -> tuple[Floats, float]:
    """Orthonormal columns of the regression, the feature's own last, and the length of what strata leave."""
    if strata is None:
        size = float(np.linalg.norm(feature))
        return feature[:, None] / (size or 1.0), size
    names, owner = np.unique(strata, return_inverse=True)
    counts = np.bincount(owner)
    own = feature - (np.bincount(owner, feature) / counts)[owner]
    size = float(np.linalg.norm(own))
    if size < 1e-9 * max(1.0, float(np.linalg.norm(feature))):
        size = 0.0
    levels = (owner[:, None] == np.arange(len(names))) / np.sqrt(counts)
    return np.column_stack([levels, own / (size or 1.0)]), size


def _variance(basis: Floats, size: float, rest: Floats, clusters: Integers) -> tuple[float, float]:
    """The last coefficient's variance, bias-reduced, and its degrees of freedom (Bell and McCaffrey 2002).

    By hand: statsmodels has the plain cluster variance only, which few or uneven clusters make too small.
    `parts` are the leverages of each cluster along its own directions; those wholly in one cluster are lost.
    """
    owner = np.unique(clusters, return_inverse=True)[1]
    groups, columns = int(owner.max()) + 1, basis.shape[1]
    if groups < 2:
        return math.nan, math.nan
    sums = [cluster_sums(owner, basis * basis[:, [column]], groups) for column in range(columns)]
    parts, directions = np.linalg.eigh(np.stack(sums, axis=1))
    parts = np.clip(parts, 0, 1)
    along = directions[:, -1, :]
    is_lost = parts > ALL_OF_IT
    if (np.abs(along[is_lost]) > 1e-6).any():
        return math.nan, math.nan
    left = np.where(is_lost, 1.0, 1 - parts)
    grown = np.where(is_lost, 0.0, along / np.sqrt(left))
    scores = np.einsum("gcd,gc->gd", directions, cluster_sums(owner, basis * rest[:, None], groups))
    pulls = (grown * scores).sum(axis=1) / size
    own = (grown**2 * parts).sum(axis=1)
    shared = np.einsum("gcd,gd->gc", directions, grown * parts)
    overlap = (shared**2).sum(axis=1)
    first = float((own - overlap).sum())
    second = float((own**2 - 2 * own * overlap).sum() + ((shared.T @ shared) ** 2).sum())
    return float((pulls**2).sum()), first**2 / second if second > 0 else math.nan


def _cross(clusters: Integers, items: Integers) -> Integers | None:
    """Which cluster and item each row belongs to; None where every item lies in one cluster."""
    pairs = np.column_stack([clusters, items])
    cells = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    return cells if int(cells.max()) + 1 > len(np.unique(items)) else None
