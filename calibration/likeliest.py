"""The likeliest rater model: the search for it, its errors, and the shares that follow from it."""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from calibration.intervals import Floats
from calibration.severity import Cells, Nodes, log_likelihood, place_nodes

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
        nodes = settle(cells, fit.parameters)

        def loss(parameters: Floats, nodes: Nodes = nodes) -> tuple[float, Floats]:
            value, gradient, _ = log_likelihood(cells, parameters, nodes)
            return -value / total, -gradient / total

        options = {"ftol": 1e-13, "gtol": 1e-8, "maxiter": 500}
        found: Any = minimize(
            loss, fit.parameters, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        value, gradient, severities = log_likelihood(cells, found.x, nodes)
        moved = abs(value - fit.log_likelihood)
        inside = (found.x > np.array(bounds)[:, 0]) & (found.x < np.array(bounds)[:, 1])
        converged = bool((np.abs(gradient[inside]) < 1e-4 * total).all())
        fit = Fit(found.x, value, nodes, severities, converged)
        if moved < 1e-4:
            break
    return fit


def settle(cells: Cells, parameters: Floats) -> Nodes:
    """Nodes where each rater's severity is found under these parameters."""
    raters = len(cells.starts)
    means, sds = np.zeros(raters), np.ones(raters)
    for _ in range(STEPS):
        means, found = log_likelihood(cells, parameters, place_nodes(means, sds))[2]
        # A peak narrower than the gap between nodes looks narrower still, so the nodes close in step by step.
        least, sds = sds / 2, np.maximum(found, sds / 2)
        if (found >= least).all():
            break
    return place_nodes(means, sds)


def covariance_of(cells: Cells, fit: Fit) -> Floats | None:
    """The inverse of minus the Hessian, by differences of the gradient; None where that is no covariance."""
    step, size = 1e-4, sum(cells.sizes)
    hessian = np.empty((size, size))
    for index in range(size):
        shift = np.zeros(size)
        shift[index] = step
        above = log_likelihood(cells, fit.parameters + shift, fit.nodes)[1]
        below = log_likelihood(cells, fit.parameters - shift, fit.nodes)[1]
        hessian[index] = (below - above) / (2 * step)
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

    meant = cells.unpack(parameters)
    location = meant.effects[:, None] + population @ meant.slopes
    wide = (meant.noises * np.sqrt(1 + meant.spreads**2))[:, None]
    below = ndtr((meant.thresholds[:, None, None] - location) / wide).mean(axis=2)
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
