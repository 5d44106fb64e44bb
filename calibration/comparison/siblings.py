"""Siblings, the versions, prompts or decodings of one model: how alike the judge errs on them.

A judge strays from people by another amount on each model. On two siblings it strays much the same way, and
what is the same cancels in their difference. How much that is, is the correlation of their strays: measured
where a calibration has siblings, or stated by whoever compares; without either two models are strangers.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np

from calibration.shares.transport import SLOPE, SLOPE_SD, CalibratedModels

VARIANT: Final = "@"  # gpt-4@short and gpt-4@long are siblings
# Of the crowd study: one model, with and without instructions to be empathetic.
SAME_MODEL: Final = {"gpt-4-plain": "gpt-4"}
CORRELATIONS: Final = np.linspace(0.0, 0.95, 20)
SPREADS: Final = 60
LEAST_PAIRS: Final = 3  # fewer say nearly nothing: what comes out is what was put in


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """How alike the judge errs on siblings: correlations with their weights, and where they are from.

    `pairs` is how many pairs of calibrated siblings it was measured on.
    """

    source: Literal["stated", "measured"]
    weights: tuple[tuple[float, float], ...]
    pairs: int = 0

    @cached_property
    def mean(self) -> float:
        return sum(value * weight for value, weight in self.weights)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Where 95 % of the weight lies."""
        values, weights = np.array(self.weights).T
        low, high = np.interp((0.025, 0.975), np.cumsum(weights), values)
        return float(low), float(high)


def stated(correlation: float) -> Likeness:
    """The correlation that somebody states."""
    return Likeness(source="stated", weights=((correlation, 1.0),))


def family_of(model: str) -> str:
    """The model that this is a version, a prompt or a decoding of.

    >>> family_of("mistral@short"), family_of("gpt-4-plain"), family_of("gpt-4o")
    ('mistral', 'gpt-4', 'gpt-4o')
    """
    return SAME_MODEL.get(model, model.partition(VARIANT)[0])


def measure_likeness(calibrated: CalibratedModels) -> Likeness | None:
    """Measure how alike strays of siblings are; None with fewer than `LEAST_PAIRS` pairs of them.

    Every correlation from 0 to .95 is as likely beforehand. A few pairs leave many of them possible, and that
    whole width goes into the interval of a difference.
    """
    families = [family_of(name) for name in calibrated.models]
    related = np.array([[one == other for other in families] for one in families])
    pairs = int(np.triu(related, 1).sum())
    if pairs < LEAST_PAIRS:
        return None
    judge, crowd, noise = (np.array(getattr(calibrated, name)) for name in ("judge", "crowd", "noise"))
    across = judge - judge.mean()
    residuals = crowd - SLOPE * across
    scale = residuals.std() + np.sqrt(noise.mean()) + 1e-6
    spread = scale * np.geomspace(1e-2, 1e2, SPREADS)
    alike = np.where(np.eye(len(judge), dtype=bool), 1.0, related * CORRELATIONS[:, None, None])
    variance = spread[:, None, None, None] ** 2 * alike + np.diag(noise)
    likelihood = _line_likelihood(variance, across, crowd)
    # The prior of spreads is that of `transport`, on a grid even in their logarithm.
    prior = 0.5 * np.log(((spread[:, None] / (spread[:, None] ** 2 + noise)) ** 2).sum(axis=1))
    log = likelihood + (prior + np.log(spread))[:, None]
    weight = np.exp(log - log.max()).sum(axis=0)
    weight = weight / weight.sum()
    return Likeness(
        source="measured",
        weights=tuple(zip(CORRELATIONS.tolist(), weight.tolist(), strict=True)),
        pairs=pairs,
    )


def _line_likelihood(variance: np.ndarray, across: np.ndarray, crowd: np.ndarray) -> np.ndarray:
    """The log-likelihood of each covariance of models, the line integrated out."""
    inverse = np.linalg.inv(variance)
    design = np.stack([np.ones_like(across), across], axis=1)
    prior = np.diag([0.0, SLOPE_SD**-2])
    curvature = design.T @ inverse @ design + prior
    right = (design.T @ inverse @ crowd) + prior @ np.array([0.0, SLOPE])
    line = np.linalg.solve(curvature, right[..., None])[..., 0]
    total = np.einsum("i,...ij,j->...", crowd, inverse, crowd) + SLOPE_SD**-2 * SLOPE**2
    distance = total - (right * line).sum(axis=-1)
    likelihood: np.ndarray = -0.5 * (
        np.linalg.slogdet(variance)[1] + np.linalg.slogdet(curvature)[1] + distance
    )
    return likelihood
