"""The likelihood of ordinal ratings by raters of differing severity: cumulative probit, severity integrated.

By hand: statsmodels has ordered models without random effects and random effects without ordered outcomes,
scipy and scikit-learn have neither. What the model says of ratings is told in `rater_model`.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from calibration.estimate import Floats, Integers

NODES: Final = 21
LEAST: Final = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cells:
    """Equal ratings counted once: by rater, model and covariates; sorted by rater.

    A vector of parameters is the first threshold, the logarithms of the gaps to the next ones, the effects of
    all models but the first, the slopes of the covariates, then the spread of severity. Where models spread
    by themselves, the logarithms of the noise of all but the first come before the spreads of all of them,
    each in units of the model's noise. A rater of several models has one standardised severity for all.
    """

    rater: Integers
    model: Integers
    level: Integers  # 0 to levels - 1
    count: Floats
    slopes: Floats  # (cells, covariates)
    starts: Integers  # where each rater's cells begin
    models: int
    levels: int
    by_model: bool  # models have their own noise and spread

    @property
    def spreads(self) -> int:
        """How many spreads there are."""
        return self.models if self.by_model else 1

    @property
    def spread(self) -> Integers:
        """Which spread a cell has."""
        return self.model if self.by_model else np.zeros_like(self.model)

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """How many parameters of each kind there are."""
        noises = self.models - 1 if self.by_model else 0
        return self.levels - 1, self.models - 1, self.slopes.shape[1], noises, self.spreads

    def split(self, parameters: Floats) -> list[Floats]:
        """The parameters by kind."""
        return np.split(parameters, np.cumsum(self.sizes)[:-1])

    def unpack(self, parameters: Floats) -> "Parameters":
        """What the parameters stand for; the first model's effect is 0, its noise 1."""
        gaps, effects, slopes, noises, spreads = self.split(parameters)
        ones = np.ones(self.models)
        return Parameters(
            thresholds=gaps[0] + np.concatenate([[0.0], np.exp(gaps[1:]).cumsum()]),
            effects=np.append(0.0, effects),
            slopes=slopes,
            noises=np.exp(np.append(0.0, noises)) if self.by_model else ones,
            spreads=spreads * ones,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parameters:
    """Thresholds, slopes, and of each model the effect, the noise and, in units of that, the spread."""

    thresholds: Floats
    effects: Floats
    slopes: Floats
    noises: Floats
    spreads: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Where each rater's severity, in units of its spread, is looked at; both (raters, nodes)."""

    places: Floats
    log_weights: Floats


def count_cells(
    rater: Integers,
    model: Integers,
    level: Integers,
    slopes: Floats,
    *,
    models: int,
    levels: int,
    by_model: bool = False,
) -> Cells:
    """The cells of these ratings."""
    rows = np.column_stack([rater, model, level, slopes])
    cells, count = np.unique(rows, axis=0, return_counts=True)
    raters, starts = np.unique(cells[:, 0].astype(np.intp), return_index=True)
    return Cells(
        rater=np.searchsorted(raters, cells[:, 0]).astype(np.intp),
        model=cells[:, 1].astype(np.intp),
        level=cells[:, 2].astype(np.intp),
        count=count.astype(float),
        slopes=cells[:, 3:],
        starts=starts,
        models=models,
        levels=levels,
        by_model=by_model,
    )


def place_nodes(means: Floats, sds: Floats) -> Nodes:
    """Gauss-Hermite nodes for a standard normal severity, centred where each rater's own lies.

    Left at 0 and 1 they would miss the narrow peak of a rater who gave hundreds of ratings.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(NODES)
    places = means[:, None] + sds[:, None] * points
    scale = np.log(weights / weights.sum()) + points**2 / 2
    return Nodes(places, scale + np.log(sds)[:, None] - places**2 / 2)


def log_likelihood(
    cells: Cells, parameters: Floats, nodes: Nodes
) -> tuple[float, Floats, tuple[Floats, Floats]]:
    """The log-likelihood, its gradient, and each rater's mean and deviation of the standardised severity."""
    from scipy.special import logsumexp, ndtr

    unpacked = cells.unpack(parameters)
    edges = np.concatenate([[-np.inf], unpacked.thresholds, [np.inf]])
    location = unpacked.effects[cells.model] + cells.slopes @ unpacked.slopes
    noise = unpacked.noises[cells.model]
    harsh = unpacked.spreads[cells.model][:, None] * nodes.places[cells.rater]
    low = ((edges[cells.level] - location) / noise)[:, None] + harsh
    high = ((edges[cells.level + 1] - location) / noise)[:, None] + harsh
    # Above the middle the difference is taken between upper tails, where it loses no digits.
    upper = low + high > 0
    inside = ndtr(np.where(upper, -low, high)) - ndtr(np.where(upper, -high, low))
    inside = np.maximum(inside, LEAST)
    joint = nodes.log_weights + np.add.reduceat(cells.count[:, None] * np.log(inside), cells.starts, axis=0)
    per_rater = logsumexp(joint, axis=1)
    posterior = np.exp(joint - per_rater[:, None])
    weight = cells.count[:, None] * posterior[cells.rater] / inside
    mean = (posterior * nodes.places).sum(axis=1)
    variance = (posterior * (nodes.places - mean[:, None]) ** 2).sum(axis=1)
    # How much each cell gains when its edges move, in units of its noise.
    gains = [weight * (np.exp(-(edge**2) / 2) / np.sqrt(2 * np.pi)) for edge in (low, high)]
    by_spread = ((gains[1] - gains[0]) * nodes.places[cells.rater]).sum(axis=1)
    at_low, at_high = (gain.sum(axis=1) for gain in gains)
    raised = np.bincount(cells.level, at_high / noise, cells.levels)[:-1]
    lowered = np.bincount(cells.level, at_low / noise, cells.levels)[1:]
    above = (raised - lowered)[::-1].cumsum()[::-1]  # a gap moves every threshold above it
    by_location = (at_low - at_high) / noise
    edges[[0, -1]] = 0.0  # infinite, and gain nothing
    by_noise = (
        at_low * (edges[cells.level] - location) - at_high * (edges[cells.level + 1] - location)
    ) / noise
    gradient = np.concatenate(
        [
            above[:1],
            above[1:] * np.exp(cells.split(parameters)[0][1:]),
            np.bincount(cells.model, by_location, cells.models)[1:],
            by_location @ cells.slopes,
            np.bincount(cells.model, by_noise, cells.models)[1:] if cells.by_model else [],
            np.bincount(cells.spread, by_spread, cells.spreads),
        ]
    )
    return float(per_rater.sum()), gradient, (mean, np.sqrt(variance))


ROUNDS: Final = 3  # of putting the nodes where the severities are, and fitting again
STEPS: Final = 8  # of moving the nodes in; 2^-8 is the peak of tens of thousands of ratings
LARGEST: Final = 30.0  # no threshold, effect or spread is further out, in units of the rating noise


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """Parameters of the highest likelihood, and where it was computed."""

    parameters: Floats
    log_likelihood: float
    nodes: Nodes
    severities: tuple[Floats, Floats]  # mean and deviation of each rater's standardised severity
    converged: bool


def start_of(cells: Cells) -> Fit:
    """A plain beginning: the thresholds of the overall shares, no effects, some severity."""
    shares = np.bincount(cells.level, cells.count, cells.levels).cumsum() / cells.count.sum()
    from scipy.special import ndtri

    thresholds = np.asarray(ndtri(shares[:-1])) * np.sqrt(1.25)
    parameters = np.zeros(sum(cells.sizes))
    parameters[0], parameters[1 : cells.levels - 1] = thresholds[0], np.log(np.diff(thresholds))
    parameters[-cells.spreads :] = 0.5
    raters = len(cells.starts)
    nodes = place_nodes(np.zeros(raters), np.ones(raters))
    return Fit(parameters, -np.inf, nodes, (np.zeros(raters), np.ones(raters)), False)


def maximise(cells: Cells, start: Fit, *, held: tuple[int, float] | None = None) -> Fit:
    """The highest likelihood, all free or one parameter held at a value; the nodes follow the severities."""
    from scipy.optimize import minimize

    total = cells.count.sum()
    bounds = [(-LARGEST, LARGEST)] * (sum(cells.sizes) - cells.spreads) + [(0.0, LARGEST)] * cells.spreads
    fit = start
    if held is not None:
        bounds[held[0]] = (held[1], held[1])
        fit = replace(fit, parameters=np.clip(start.parameters, *np.array(bounds).T))
    for _ in range(ROUNDS):
        nodes = place_at_severities(cells, fit.parameters)

        def loss(parameters: Floats, nodes: Nodes = nodes) -> tuple[float, Floats]:
            value, gradient, _ = log_likelihood(cells, parameters, nodes)
            return -value / total, -gradient / total

        options = {"ftol": 1e-13, "gtol": 1e-8, "maxiter": 500}
        best: Floats = minimize(
            loss, fit.parameters, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        ).x
        value, gradient, severities = log_likelihood(cells, best, nodes)
        moved = abs(value - fit.log_likelihood)
        inside = (best > np.array(bounds)[:, 0]) & (best < np.array(bounds)[:, 1])
        converged = bool((np.abs(gradient[inside]) < 1e-4 * total).all())
        fit = Fit(best, value, nodes, severities, converged)
        if moved < 1e-4:
            break
    return fit


def place_at_severities(cells: Cells, parameters: Floats) -> Nodes:
    """Nodes where each rater's severity is found under these parameters."""
    raters = len(cells.starts)
    means, sds = np.zeros(raters), np.ones(raters)
    for _ in range(STEPS):
        means, deviations = log_likelihood(cells, parameters, place_nodes(means, sds))[2]
        # A peak narrower than the gap between nodes looks narrower still, so the nodes close in step by step.
        least, sds = sds / 2, np.maximum(deviations, sds / 2)
        if (deviations >= least).all():
            break
    return place_nodes(means, sds)


def covariance_of(cells: Cells, fit: Fit) -> Floats | None:
    """The inverse of minus the Hessian, by differences of the gradient; None where that is no covariance."""
    step, size = 1e-4, sum(cells.sizes)
    hessian = np.stack(
        [
            log_likelihood(cells, fit.parameters - shift, fit.nodes)[1]
            - log_likelihood(cells, fit.parameters + shift, fit.nodes)[1]
            for shift in step * np.eye(size)
        ]
    ) / (2 * step)
    hessian = (hessian + hessian.T) / 2
    if not np.isfinite(hessian).all() or np.linalg.eigvalsh(hessian)[0] <= 1e-8:
        return None
    covariance: Floats = np.linalg.inv(hessian).astype(np.float64)
    return covariance


def spread_interval(cells: Cells, best: Fit, which: int, *, drop: float) -> tuple[float, float]:
    """Where a spread's profile log-likelihood is within `drop` of the best; right even near 0.

    The lower end is 0 when no spread at all is as likely as that; the upper is at most `LARGEST`.
    """
    from scipy.optimize import brentq

    index = sum(cells.sizes) - cells.spreads + which
    middle, low = float(best.parameters[index]), 0.0

    def excess(spread: float) -> float:
        return best.log_likelihood - maximise(cells, best, held=(index, spread)).log_likelihood - drop

    if middle > 0 and excess(0.0) > 0:
        low = float(brentq(excess, 0.0, middle, xtol=1e-3))
    far = max(2 * middle, 0.25)
    while excess(far) < 0:
        far *= 2
        if far > LARGEST:
            return low, LARGEST
    return low, float(brentq(excess, middle, far, xtol=1e-3))


def standard_shares(cells: Cells, parameters: Floats, population: Floats) -> Floats:
    """Each model's shares of the levels, (models, levels), had all of the population met it.

    `population` is the raters' covariates, (raters, covariates); severities come from the fitted normal.
    """
    from scipy.special import ndtr

    unpacked = cells.unpack(parameters)
    location = unpacked.effects[:, None] + population @ unpacked.slopes
    wide = (unpacked.noises * np.sqrt(1 + unpacked.spreads**2))[:, None]
    below = ndtr((unpacked.thresholds[:, None, None] - location) / wide).mean(axis=2)
    shares: Floats = np.diff(np.vstack([0 * below[:1], below, 0 * below[:1] + 1]), axis=0).T
    return shares


def share_errors(cells: Cells, parameters: Floats, population: Floats, covariance: Floats | None) -> Floats:
    """The standard errors of these shares by the delta method, its derivatives by differences."""
    if covariance is None:
        return np.full((cells.models, cells.levels), np.nan)
    step = 1e-5
    slopes = np.stack(
        [
            standard_shares(cells, parameters + shift, population)
            - standard_shares(cells, parameters - shift, population)
            for shift in step * np.eye(sum(cells.sizes))
        ]
    ) / (2 * step)
    errors: Floats = np.sqrt(np.einsum("aml,ab,bml->ml", slopes, covariance, slopes))
    return errors
