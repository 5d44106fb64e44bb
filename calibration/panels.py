"""How many independent judges a panel is worth: judges that err together count as fewer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from calibration.intervals import Estimate, Floats, resample_clusters
from calibration.resampling import Statistic, ratio, sample
from data.errors import UserError

DRAWS = 2000
FLAT = 1e-12  # of the squares' mean, what rounding leaves of a variance that is 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelSize:
    """The panel's `judges`, the mean `correlation` of their errors, and how many judges they are worth."""

    judges: int
    rows: int
    correlation: Estimate
    effective: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        return {
            "judges": self.judges,
            "ratings": self.rows,
            "correlation": self.correlation.as_dict(),
            "effective": self.effective.as_dict(),
        }


def panel_size(
    errors: ArrayLike, clusters: ArrayLike, *, rng: np.random.Generator, draws: int = DRAWS
) -> PanelSize:
    """How many independent judges a panel is worth: k / (1 + (k - 1) r), r the mean correlation of errors.

    The mean of so many judges with independent errors would vary as much as the mean of these k. From 1,
    where all err alike, to k; above k where errors cancel. Undefined without rows, and where a judge errs by
    the same amount throughout. Intervals are over clusters (rating batches, raters); there are none with
    fewer than two of these.

    An error is a score less a person's rating. What the person was off by is in the errors of all judges, so
    against single ratings the errors of judges with nothing in common correlate too: read r as an upper and
    the number of judges as a lower limit, and compare panels on the same ratings only.

    >>> two_alike = [[1, 1, -1], [-1, -1, -1], [1, 1, 1], [-1, -1, 1]]
    >>> round(panel_size(two_alike, [1, 2, 3, 4], rng=np.random.default_rng(0)).effective.value, 6)
    1.8
    """
    table = _table(errors)
    names, number = np.unique(np.asarray(clusters), return_inverse=True)
    drawn = resample_clusters(len(names), rng=rng, draws=draws if len(names) > 1 else 0)
    found = sample({"r": correlation_of(table), "effective": effective_of(table)}, number, drawn)
    return PanelSize(
        judges=table.shape[1],
        rows=len(table),
        correlation=found["r"].estimate(),
        effective=found["effective"].estimate(),
    )


def correlation_of(errors: Floats) -> Statistic:
    """The mean of Pearson's r over all pairs of columns; undefined where any of them is, or there is none."""
    judges = errors.shape[1]
    # Less the first row: a constant is then 0 throughout, and large means cost no digits.
    apart = errors - errors[:1]
    first, second = np.triu_indices(judges)
    products = apart[:, first] * apart[:, second]
    diagonal = np.flatnonzero(first == second)

    def correlation(counts: Floats) -> Floats:
        if judges < 2:
            return np.full(len(counts), np.nan)
        total = counts.sum(axis=1)[:, None]
        means = ratio(counts @ apart, total)
        squares = ratio(counts @ products, total)
        spread = squares - means[:, first] * means[:, second]
        variance = spread[:, diagonal]
        variance = np.where(variance > FLAT * squares[:, diagonal], variance, 0.0)
        below = np.sqrt(variance[:, first] * variance[:, second])
        pairs = ratio(spread, below)[:, first != second]
        return np.asarray(pairs.mean(axis=1))

    return correlation


def effective_of(errors: Floats) -> Statistic:
    """How many independent judges the columns are worth."""
    judges, correlation = errors.shape[1], correlation_of(errors)

    def effective(counts: Floats) -> Floats:
        if judges == 1:
            return np.ones(len(counts))
        below = 1 + (judges - 1) * correlation(counts)
        return ratio(np.full(len(counts), float(judges)), np.where(below > FLAT, below, 0.0))

    return effective


def _table(errors: ArrayLike) -> Floats:
    table = np.asarray(errors, dtype=float)
    if table.ndim != 2 or not table.shape[1]:
        raise UserError("errors of a panel: a table with one row a rating and one column a judge is needed")
    return table
