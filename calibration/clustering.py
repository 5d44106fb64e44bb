"""Variances of sums whose terms come in clusters: the ratings of one rater, or of one item."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.intervals import Floats
from calibration.resampling import Integers


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
