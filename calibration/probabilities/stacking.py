"""Several judges as one: weights for their log-probabilities, fitted on ratings.

The logit of a label is its bias plus the weighted sum of the judges' log-probabilities of it: a multinomial
logistic regression in which a judge has one weight for all labels. With weights 1 / k and no biases that is
the geometric mean of the judges; the ridge draws the fit there, so that few ratings cannot lead it far away.
By hand, because scikit-learn's regression ties no weights across labels and shrinks to 0; the search is
scipy's. Judges that err together count as fewer: `panel_size` says as how many.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration.agreement.metrics import log_losses
from calibration.bootstrap import Statistic, ratio, resample_clusters, sample
from calibration.estimate import Estimate, Floats, Integers
from calibration.probabilities.maps import folds_of, log_probabilities, softmax
from data.errors import UserError
from data.records import LABELS, to_plain

DRAWS = 2000
FLAT = 1e-12  # of the squares' mean, what rounding leaves of a variance that is 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelSize:
    """The panel's `judges`, the mean `correlation` of their errors, and how many judges they are worth."""

    judges: int
    ratings: int
    correlation: Estimate
    effective: Estimate


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
    table = np.asarray(errors, dtype=float)
    if table.ndim != 2 or not table.shape[1]:
        raise UserError("errors of a panel: a table with one row a rating and one column a judge is needed")
    judges, correlation = table.shape[1], _correlation_of(table)

    def effective(counts: Floats) -> Floats:
        if judges == 1:
            return np.ones(len(counts))
        below = 1 + (judges - 1) * correlation(counts)
        return ratio(np.full(len(counts), float(judges)), np.where(below > FLAT, below, 0.0))

    names, number = np.unique(np.asarray(clusters), return_inverse=True)
    drawn = resample_clusters(len(names), rng=rng, draws=draws if len(names) > 1 else 0)
    samples = sample({"correlation": correlation, "effective": effective}, number, drawn)
    estimates = {name: found.estimate() for name, found in samples.items()}
    return PanelSize(judges=judges, ratings=len(table), **estimates)


def _correlation_of(errors: Floats) -> Statistic:
    """The mean of Pearson's r over all pairs of columns; undefined where any of them is, or there is none."""
    judges = errors.shape[1]
    # Less the first row: a constant is then 0 throughout, and large means cost no digits.
    shifted = errors - errors[:1]
    first, second = np.triu_indices(judges)
    products = shifted[:, first] * shifted[:, second]
    diagonal = np.flatnonzero(first == second)

    def correlation(counts: Floats) -> Floats:
        if judges < 2:
            return np.full(len(counts), np.nan)
        total = counts.sum(axis=1)[:, None]
        means = ratio(counts @ shifted, total)
        squares = ratio(counts @ products, total)
        spread = squares - means[:, first] * means[:, second]
        variance = spread[:, diagonal]
        variance = np.where(variance > FLAT * squares[:, diagonal], variance, 0.0)
        below = np.sqrt(variance[:, first] * variance[:, second])
        pairs = ratio(spread, below)[:, first != second]
        return np.asarray(pairs.mean(axis=1))

    return correlation


RIDGES: Final = (1.0, 10.0, 100.0, 1000.0)  # in ratings: how many it takes to outweigh the geometric mean
STACKED, MEAN, MEDIAN = "stacked", "mean", "median"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Fitted weights; `centres` is each judge's mean log-probability, which stands in where it gave none."""

    weights: tuple[float, ...]  # (judges,)
    biases: tuple[float, ...]  # (levels,)
    centres: tuple[tuple[float, ...], ...]  # (judges, levels)

    def apply(self, tables: ArrayLike) -> Floats:
        """(rows, levels) from the judges' probabilities, (rows, judges, levels); nan where there are none."""
        logs = log_probabilities(np.asarray(tables, dtype=float))
        logs = np.where(np.isnan(logs), np.array(self.centres), logs)
        return softmax(np.einsum("rjl,j->rl", logs, np.array(self.weights)) + np.array(self.biases))


@dataclass(frozen=True, slots=True, kw_only=True)
class StackChoice:
    """The stack fitted on everything with the chosen ridge, and log-losses on clusters not fitted on.

    `losses` has the stack (its ridge chosen anew inside each fold), the panel's mean and median, and each
    judge by its number; all on the same rows, a judge's own missing ones left out of its mean. Empty when
    there were too few clusters to hold any out.
    """

    stack: Stack
    ridge: float
    folds: int
    losses: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Put the stack's numbers beside how they were chosen."""
        return {**to_plain(self.stack), "ridge": self.ridge, "folds": self.folds, "losses": self.losses}


def fit_stack(tables: ArrayLike, ratings: ArrayLike, *, ridge: float = RIDGES[1]) -> Stack:
    """Weights from the judges' probabilities, (rows, judges, levels), and ratings 1 to `levels`.

    Where a judge gave none its row is nan. Without any rating the stack is the geometric mean.

    >>> rows = [[[0.8, 0.1, 0.1], [0.3, 0.4, 0.3]], [[0.1, 0.1, 0.8], [0.3, 0.4, 0.3]]] * 20
    >>> stack = fit_stack(rows, [1, 3] * 20)
    >>> stack.weights[0] > stack.weights[1]  # the first knows, the second says the same of everything
    True
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    table, given = _tables(tables), np.asarray(ratings, dtype=np.intp)
    _, judges, levels = table.shape
    start = np.append(np.full(judges, 1 / judges), np.zeros(levels))
    logs = log_probabilities(table)
    is_missing = np.isnan(logs)
    # Each judge's mean log-probabilities; of a judge that gave none, those of equal chances.
    centres = np.ma.array(logs, mask=is_missing).mean(axis=0).filled(-np.log(levels))
    logs = np.where(is_missing, centres, logs)
    hits = np.eye(levels)[given - 1]

    def loss(free: Floats) -> tuple[float, Floats]:
        chances = log_softmax(np.einsum("rjl,j->rl", logs, free[:judges]) + free[judges:], axis=1)
        off = (np.exp(chances) - hits) / len(given)
        pull = ridge * (free - start) / len(given)
        slope = np.append(np.einsum("rjl,rl->j", logs, off), off.sum(axis=0)) + pull
        value = -float((chances * hits).sum()) / len(given) + float(pull @ (free - start)) / 2
        return value, slope

    free = start
    if len(given):
        options = {"maxiter": 1000, "gtol": 1e-8}
        free = minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
    return Stack(
        weights=tuple(free[:judges].tolist()),
        biases=tuple(free[judges:].tolist()),
        centres=tuple(map(tuple, centres.tolist())),
    )


def choose_stack(
    tables: ArrayLike,
    ratings: ArrayLike,
    clusters: ArrayLike,
    *,
    rng: np.random.Generator,
) -> StackChoice:
    """The stack whose ridge has the least held-out log-loss, and how it does against simpler ways.

    A cluster (batch, rater) is never on both sides of a fold. With fewer than two clusters nothing can be
    held out and the strongest ridge is taken.
    """
    table, given = _tables(tables), np.asarray(ratings, dtype=np.intp)
    groups = np.asarray(clusters)
    ridge = _best_ridge(table, given, groups, rng)
    folds = folds_of(groups, rng=rng)
    stacked = np.empty((len(given), table.shape[2]))
    for inside in folds:
        others = table[~inside], given[~inside]
        best = _best_ridge(*others, groups[~inside], rng)
        stacked[inside] = fit_stack(*others, ridge=best).apply(table[inside])
    losses: dict[str, float] = {}
    if folds:
        ways = {STACKED: stacked, MEAN: mean_probabilities(table), MEDIAN: median_probabilities(table)}
        losses = {name: float(log_losses(given, chances).mean()) for name, chances in ways.items()}
        for judge in range(table.shape[1]):
            there = np.isfinite(table[:, judge, 0])
            rows = log_losses(given[there], table[there, judge])
            losses[str(judge)] = float(rows.mean()) if len(rows) else float("nan")
    stack = fit_stack(table, given, ridge=ridge)
    return StackChoice(stack=stack, ridge=ridge, folds=len(folds), losses=losses)


def mean_probabilities(tables: ArrayLike) -> Floats:
    """The mean over the judges that gave probabilities, (rows, levels); each row must have one."""
    found: Floats = np.nanmean(_tables(tables), axis=1)
    return found


def median_probabilities(tables: ArrayLike) -> Floats:
    """Probabilities from the medians of P(label or better), which are as ordered as the labels.

    >>> median_probabilities([[[1, 0, 0], [0, 1, 0], [0, 0, 1]]]).tolist()
    [[0.0, 1.0, 0.0]]
    """
    table = _tables(tables)
    above = np.nanmedian(table[:, :, ::-1].cumsum(axis=2)[:, :, ::-1], axis=1)
    above[:, 0] = 1.0
    found: Floats = -np.diff(above, axis=1, append=0.0)
    return np.maximum(found, 0.0)


def _best_ridge(table: Floats, ratings: Integers, clusters: NDArray[Any], rng: np.random.Generator) -> float:
    totals = dict.fromkeys(RIDGES, 0.0)
    for inside in folds_of(clusters, rng=rng):
        for ridge in RIDGES:
            fitted = fit_stack(table[~inside], ratings[~inside], ridge=ridge)
            totals[ridge] += float(log_losses(ratings[inside], fitted.apply(table[inside])).sum())
    # Of equally good ones, all without folds, the strongest: it stays closest to what needs no fitting.
    return max(RIDGES, key=lambda ridge: (-round(totals[ridge], 9), ridge))


def _tables(tables: ArrayLike) -> Floats:
    table = np.asarray(tables, dtype=float)
    if table.ndim != 3 or not table.shape[1]:
        table = table.reshape(0, 1, len(LABELS)) if not table.size else table
    if table.ndim != 3 or not table.shape[1]:
        raise UserError("stacking: probabilities by rating, judge and label are needed")
    return table
