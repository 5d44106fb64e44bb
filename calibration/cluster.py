"""Variances, intervals and contrasts of data that come in clusters: ratings of one rater, or of one item."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from empathy_judge.calibration.estimate import CONFIDENCE, UNDEFINED, Estimate, Floats, Integers, Interval

UNIT = (0.0, 1.0)  # the scale of shares
MIN_COUNT: Final = 0.5  # of a rating: the least share a label is taken to have where a variance is wanted
NORMAL: Final = 1.959964  # standard errors to either side of a 95% interval with known variance


def sum_variance(sums: Floats) -> Floats:
    """Return the variance of a total from its clusters' sums, which add up to 0; 0 without any."""
    groups = len(sums)
    total: Floats = (sums**2).sum(axis=0)
    return total * groups / (groups - 1) if groups > 1 else total


def cluster_sums(cluster: Integers, values: Floats, groups: int) -> Floats:
    """Sum the rows of each cluster, (rows, columns) -> (groups, columns)."""
    columns = [np.bincount(cluster, column, groups) for column in values.T]
    return np.stack(columns, axis=1).astype(float) if columns else np.zeros((groups, 0))


def joint_freedom(total: Floats, *parts: tuple[Floats, Floats]) -> Floats:
    """Return the degrees of freedom of a variance made of parts; those of the first if all are 0.

    With Welch's 2s: a square of an estimated variance is too large on average, and more so with few degrees.
    """
    below = sum((part**2 / (freedom + 2) for part, freedom in parts), np.zeros(total.shape))
    least = parts[0][1]
    freedom: Floats = np.divide(total**2, below, out=least + 2, where=below > 0) - 2
    return np.maximum(freedom, np.minimum(least, 1.0))


def shared_covariance(names: NDArray[Any], sums: Floats, others: NDArray[Any], other_sums: Floats) -> Floats:
    """Return the covariance of two totals through the clusters both have."""
    _, here, there = np.intersect1d(names, others, return_indices=True)
    total: Floats = (sums[here] * other_sums[there]).sum(axis=0)
    union = len(names) + len(others) - len(here)
    return total * union / (union - 1) if union > 1 else total


def t_quantile(freedom: ArrayLike, confidence: float = CONFIDENCE) -> Floats:
    """Return the standard errors from an estimate to its ends; nan without degrees of freedom.

    >>> t_quantile([4, 1e9, 0]).round(2).tolist()
    [2.78, 1.96, nan]
    """
    from scipy.special import stdtrit

    degrees = np.asarray(freedom, dtype=float)
    return np.asarray(stdtrit(np.where(degrees > 0, degrees, np.nan), (1 + confidence) / 2))


def wilson_interval(share: Floats, count: Floats, quantile: Floats | float) -> tuple[Floats, Floats]:
    """Return Wilson's interval of a share of so many independent rows; the count need not be whole.

    >>> low, high = wilson_interval(np.array([0.0]), np.array([10.0]), NORMAL)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.0], [0.278])
    """
    squared = quantile**2 / count
    middle = (share + squared / 2) / (1 + squared)
    half = np.sqrt(np.maximum(squared * share * (1 - share) + squared**2 / 4, 0)) / (1 + squared)
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)


def widen_certain(share: Estimate, count: int) -> Estimate:
    """Return Wilson's interval where all of so many rows are alike, which does not make a share exact.

    >>> widen_certain(Estimate(0.0, Interval(0.0, 0.0)), 10).interval.high.__round__(2)
    0.28
    """
    if share.interval is None or 0 < share.value < 1:
        return share
    low, high = wilson_interval(np.array(share.value), np.array(float(count)), NORMAL)
    return replace(share, interval=Interval(float(low), float(high)))


def t_intervals(
    value: Floats,
    variance: Floats,
    freedom: Floats,
    bounds: tuple[float, float],
    ratings: float,
    max_effective_n: Floats | float = np.inf,
) -> tuple[Floats, Floats]:
    """Return intervals by t, clipped to the scale; Wilson's for shares, nan if the variance is unknown.

    `ratings` replaces the effective number of ratings where a share is 0 or 1 and shows no variance;
    `max_effective_n` is the upper bound of that number.
    """
    quantile = t_quantile(freedom)
    if bounds != UNIT:
        wide = quantile * np.sqrt(variance)
        return np.clip(value - wide, *bounds), np.clip(value + wide, *bounds)
    # A share within half a rating of 0 or 1 is taken as that far off: else its variance, which is never 0,
    # would make it worth no rating at all, and its interval all of the scale.
    share = np.clip(value, min(0.5, MIN_COUNT / ratings), max(0.5, 1 - MIN_COUNT / ratings))
    is_known = (value > 0) & (value < 1) & (variance > 0)
    count = np.divide(share * (1 - share), variance, out=np.full(value.shape, float(ratings)), where=is_known)
    count[np.isnan(variance)] = np.nan
    return wilson_interval(value, np.minimum(count, max_effective_n), quantile)


def clustered_share(hits: NDArray[np.bool_] | Floats, clusters: Integers) -> Estimate:
    """Return the share of hits with Wilson's interval at the effective number of rows.

    That is their count over the design effect, and at most their count. Undefined without rows; with one
    cluster there is no interval.

    >>> clustered_share(np.array([True, True, False, False]), np.arange(4)).value
    0.5
    """
    rows = len(hits)
    if not rows:
        return UNDEFINED
    share = float(hits.mean())
    found = contrast(hits.astype(float), np.ones(rows), clusters)
    if not found.is_defined:
        return Estimate(share, None)
    binomial = share * (1 - share) / rows
    worth = rows * min(1.0, binomial / found.error**2) if found.error > 1e-9 else float(rows)
    # Student's, not the normal, quantile: the variance is estimated from the clusters, which may be few.
    low, high = wilson_interval(np.array(share), np.array(worth), t_quantile(found.freedom))
    return Estimate(share, Interval(float(low), float(high)))


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

    def estimate(self, confidence: float = CONFIDENCE) -> Estimate:
        """Return the effect with its interval by t, if that is defined."""
        if not self.is_defined:
            return Estimate(self.effect, None)
        wide = float(t_quantile(self.freedom, confidence)) * self.error
        return Estimate(self.effect, Interval(self.effect - wide, self.effect + wide))

    def p_value(self) -> float:
        """Return how often chance alone would give as large an effect, either way."""
        from scipy.special import stdtr

        if not self.is_defined:
            return math.nan
        if self.error == 0:
            return float(abs(self.effect) < 1e-12)
        return float(2 * stdtr(self.freedom, -abs(self.effect / self.error)))

    def detectable(self) -> float:
        """Return the least effect that is found with the power `POWER` at 95% confidence."""
        return self.error * reach(self.freedom) if self.is_defined else math.nan


UNDEFINED_CONTRAST: Final = Contrast(effect=math.nan, error=math.nan, freedom=math.nan)


def contrast(
    values: Floats,
    feature: Floats,
    clusters: Integers,
    *,
    strata: Integers | None = None,
    items: Integers | None = None,
    weights: Floats | None = None,
) -> Contrast:
    """Return the slope of `values` on `feature` within strata: for a feature of 0s and 1s a difference.

    Without `strata` there is no intercept: a feature of 1s then gives the mean. `items` may cross clusters
    (prompts that several raters saw): the variance is then clusters + items - both (Cameron, Gelbach and
    Miller 2011). Undefined where the effect depends on one cluster. `weights` are those of rows, such as
    1 / chance where they were drawn with unequal chances.
    """
    if not len(values):
        return UNDEFINED_CONTRAST
    root = np.ones(len(values)) if weights is None else np.sqrt(weights)
    values = root * values
    basis, size = _basis(feature, strata, root)
    if size < 1e-9:
        return UNDEFINED_CONTRAST
    effect = float(basis[:, -1] @ values) / size
    rest = values - basis @ (basis.T @ values)
    variance, freedom = _variance(basis, size, rest, clusters)
    if items is not None and (cells := _cross(clusters, items)) is not None:
        by_item, item_freedom = _variance(basis, size, rest, items)
        by_both, _ = _variance(basis, size, rest, cells)
        # Few clusters may look of one mind, or as if they cancelled each other, by chance: the items' is the
        # least variance, and agreement buys no degrees of freedom.
        freedom = min(freedom, item_freedom)
        variance = max(variance + by_item - by_both, by_item)
    if not math.isfinite(variance + freedom) or freedom <= 0:
        return UNDEFINED_CONTRAST
    return Contrast(effect=effect, error=math.sqrt(variance), freedom=freedom)


def reach(freedom: float) -> float:
    """Return how many standard errors an effect must have to be found with the power `POWER`.

    >>> round(reach(1000), 2), round(reach(9), 2)
    (2.8, 3.15)
    """
    from scipy.special import nctdtrinc

    # The center of a t whose draws pass the quantile that often; beyond 1e5 degrees all is normal.
    return float(nctdtrinc(min(freedom, 1e5), 1 - POWER, float(t_quantile(freedom))))


def _basis(feature: Floats, strata: Integers | None, root: Floats) -> tuple[Floats, float]:
    """Return the regression's orthonormal columns, the feature's last, and its length within strata."""
    whole = root * feature
    if strata is None:
        size = float(np.linalg.norm(whole))
        return whole[:, None] / (size or 1.0), size
    names, stratum = np.unique(strata, return_inverse=True)
    totals = np.bincount(stratum, root**2)
    within = root * (feature - (np.bincount(stratum, root * whole) / totals)[stratum])
    size = float(np.linalg.norm(within))
    if size < 1e-9 * max(1.0, float(np.linalg.norm(whole))):
        size = 0.0
    levels = (stratum[:, None] == np.arange(len(names))) * root[:, None] / np.sqrt(totals)
    return np.column_stack([levels, within / (size or 1.0)]), size


def _variance(basis: Floats, size: float, rest: Floats, clusters: Integers) -> tuple[float, float]:
    """Return the last coefficient's variance, bias-reduced, and its degrees of freedom.

    After Bell and McCaffrey (2002): the plain cluster variance is too small with few or uneven clusters.
    `parts` are the leverages of each cluster along its own directions; those wholly in one cluster are lost.
    """
    cluster = np.unique(clusters, return_inverse=True)[1]
    groups, columns = int(cluster.max()) + 1, basis.shape[1]
    if groups < 2:
        return math.nan, math.nan
    squares = [cluster_sums(cluster, basis * basis[:, [column]], groups) for column in range(columns)]
    parts, directions = np.linalg.eigh(np.stack(squares, axis=1))
    parts = np.clip(parts, 0, 1)
    along = directions[:, -1, :]
    is_lost = parts > ALL_OF_IT
    if (np.abs(along[is_lost]) > 1e-6).any():
        return math.nan, math.nan
    left = np.where(is_lost, 1.0, 1 - parts)
    grown = np.where(is_lost, 0.0, along / np.sqrt(left))
    scores = np.einsum("gcd,gc->gd", directions, cluster_sums(cluster, basis * rest[:, None], groups))
    sums = (grown * scores).sum(axis=1) / size
    alone = (grown**2 * parts).sum(axis=1)
    shared = np.einsum("gcd,gd->gc", directions, grown * parts)
    overlap = (shared**2).sum(axis=1)
    first = float((alone - overlap).sum())
    second = float((alone**2 - 2 * alone * overlap).sum() + ((shared.T @ shared) ** 2).sum())
    return float((sums**2).sum()), first**2 / second if second > 0 else math.nan


def _cross(clusters: Integers, items: Integers) -> Integers | None:
    """Return which cluster and item each row belongs to; None where every item is in one cluster."""
    pairs = np.column_stack([clusters, items])
    cells = np.unique(pairs, axis=0, return_inverse=True)[1].ravel()
    return cells if int(cells.max()) + 1 > len(np.unique(items)) else None
