"""Tests of the change of a score between two measures: the published one, a paired and a clustered one."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan, sqrt

import numpy as np

from empathy_judge.calibration.cluster import cluster_sums, joint_freedom, sum_variance
from empathy_judge.calibration.estimate import CONFIDENCE, Floats

ALPHA = 0.01  # as published
TINY = 1e-8  # what the published test adds to both SDs, so that none is 0


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, SD and number of scores; nan where there are too few."""

    mean: float
    sd: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A two-sided test of no change; everything but `kind` is nan where it is undefined.

    `q` is p adjusted for the tests of all factors or emotions (Benjamini and Hochberg).
    """

    __test__ = False  # keeps pytest from collecting this class

    kind: str
    t: float = nan
    freedom: float = nan
    p: float = nan
    q: float = nan
    low: float = nan  # 95% interval of the change
    high: float = nan
    units: int = 0  # what was counted as independent


def spread(values: Sequence[float] | Floats) -> Spread:
    """Measure mean, SD and number of scores."""
    scores = np.asarray(values, dtype=float)
    mean = float(scores.mean()) if scores.size else nan
    return Spread(mean, float(scores.std(ddof=1)) if scores.size > 1 else nan, int(scores.size))


def published_test(evoked: Spread, default: Spread, *, alpha: float = ALPHA) -> Test:
    """Test the variances with an F-test at `alpha`, then the means with Student's or Welch's t-test."""
    from scipy import stats

    if min(evoked.n, default.n) < 2:
        return Test(kind="undefined")
    wide, narrow = sorted((evoked, default), key=lambda item: item.sd, reverse=True)
    ratio = ((wide.sd + TINY) / (narrow.sd + TINY)) ** 2
    is_equal = 2 * float(stats.f.sf(ratio, wide.n - 1, narrow.n - 1)) > alpha
    one, two = (evoked.sd + TINY) ** 2, (default.sd + TINY) ** 2
    change, freedom = evoked.mean - default.mean, float(evoked.n + default.n - 2)
    if is_equal:
        pooled = ((evoked.n - 1) * one + (default.n - 1) * two) / freedom
        error = sqrt(pooled * (1 / evoked.n + 1 / default.n))
    else:
        parts = one / evoked.n, two / default.n
        error = sqrt(sum(parts))
        freedom = sum(parts) ** 2 / (parts[0] ** 2 / (evoked.n - 1) + parts[1] ** 2 / (default.n - 1))
    kind = "Student" if is_equal else "Welch"
    return _test(kind, change, error, freedom, units=evoked.n + default.n)


def paired_test(changes: Sequence[float] | Floats) -> Test:
    """Test changes, one for each pair, with Student's t-test."""
    change = spread(changes)
    if change.n < 2:
        return Test(kind="paired", units=change.n)
    return _test("paired", change.mean, change.sd / sqrt(change.n), change.n - 1.0, units=change.n)


def clustered_test(
    values: Sequence[float] | Floats, clusters: Sequence[str], default: Sequence[float] | Floats = ()
) -> Test:
    """Test values in clusters, such as the runs of a situation, against a default that has none.

    Without a default the values are changes already. The units are the clusters.
    """
    scores, other = np.asarray(values, dtype=float), spread(default)
    names, cluster = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)
    if len(names) < 2 or other.n == 1:
        return Test(kind="clustered", units=len(names))
    residuals = ((scores - scores.mean()) / scores.size)[:, None]
    variance = sum_variance(cluster_sums(cluster, residuals, len(names)))
    total, parts = variance, [(variance, np.array([len(names) - 1.0]))]
    change = float(scores.mean())
    if other.n:
        of_default = np.array([other.sd**2 / other.n])
        total, parts = total + of_default, [*parts, (of_default, np.array([other.n - 1.0]))]
        change -= other.mean
    freedom = float(joint_freedom(total, *parts)[0])
    return _test("clustered", change, sqrt(float(total[0])), freedom, units=len(names))


def arrow(change: float, p: float, *, alpha: float = ALPHA) -> str:
    """Return up or down for a significant change, else a dash; empty if undefined."""
    if np.isnan(p) or np.isnan(change):
        return ""
    return "-" if p > alpha else "↑" if change > 0 else "↓"


def _test(kind: str, change: float, error: float, freedom: float, *, units: int) -> Test:
    from scipy import stats

    if not error > 0:
        return Test(kind=kind, freedom=freedom, units=units)
    t = change / error
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    p = 2 * float(stats.t.sf(abs(t), freedom))
    return Test(kind=kind, t=t, freedom=freedom, p=p, low=change - reach, high=change + reach, units=units)
