"""Whether probabilities mean what they say: reliability curves and the parts of the Brier error.

The calibration error that goes with the curve is `calibration.agreement.metrics.calibration_error`, of the
same bins.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calibration.agreement.metrics import BINS, brier_error, positions
from calibration.cluster import clustered_share
from calibration.estimate import Estimate, Floats, Integers


@dataclass(frozen=True, slots=True)
class Bin:
    """Responses of like probability: what the judge said on average, and how often it was so."""

    count: int
    predicted: float
    observed: Estimate

    def as_dict(self) -> dict[str, float | None]:
        """Put the observed part's value and ends beside the count."""
        return {"count": self.count, "predicted": self.predicted, **self.observed.as_dict()}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrierParts:
    """Murphy's parts: brier = reliability - resolution + uncertainty + within_bins.

    `reliability` is how far said and seen are apart in the bins (smaller is better), `resolution` how far the
    bins differ in what is seen (more is better), `uncertainty` what a judge that only knows the shares has.
    `within_bins` is what the bins hide of the probabilities; the first three alone would not add up.
    """

    brier: float
    reliability: float
    resolution: float
    uncertainty: float
    within_bins: float


def reliability_curve(
    positive: ArrayLike, probabilities: ArrayLike, *, clusters: ArrayLike | None = None, bins: int = BINS
) -> tuple[Bin, ...]:
    """Bins of equal count, the lowest probability first; equal probabilities stay together, empty bins go.

    With `clusters` (batches, raters) the intervals allow for responses of one rising and falling together.

    >>> curve = reliability_curve([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9], bins=2)
    >>> [(item.count, item.observed.value) for item in curve]
    [(2, 0.0), (2, 1.0)]
    """
    outcome, said = np.asarray(positive, dtype=bool), np.asarray(probabilities, dtype=float)
    groups = np.arange(len(outcome)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    number = _bins(said, bins)
    return tuple(
        Bin(int(inside.sum()), float(said[inside].mean()), clustered_share(outcome[inside], groups[inside]))
        for inside in (number == index for index in np.unique(number))
    )


def brier_parts(ratings: ArrayLike, probabilities: ArrayLike, *, bins: int = BINS) -> BrierParts:
    """The parts of `brier_error`, summed over the labels, each with bins of its own; nan without ratings.

    >>> parts = brier_parts([1, 1, 2, 2], [[0.5, 0.5]] * 4)
    >>> parts.brier, parts.uncertainty, parts.resolution, parts.reliability
    (0.5, 0.5, 0.0, 0.0)
    """
    given, table = np.asarray(ratings), np.asarray(probabilities, dtype=float)
    if not table.size:
        nothing = dict.fromkeys(BrierParts.__slots__, math.nan)
        return BrierParts(**nothing)
    reliability = resolution = uncertainty = 0.0
    for rating, said in enumerate(table.T, start=1):
        hits, number = (given == rating).astype(float), _bins(said, bins)
        counts = np.bincount(number, minlength=bins)
        held = counts > 0
        weights = counts[held] / len(hits)
        seen = np.bincount(number, hits, bins)[held] / counts[held]
        expected = np.bincount(number, said, bins)[held] / counts[held]
        share = float(hits.mean())
        reliability += float(weights @ (expected - seen) ** 2)
        resolution += float(weights @ (seen - share) ** 2)
        uncertainty += share * (1 - share)
    brier = brier_error(given, table)
    return BrierParts(
        brier=brier,
        reliability=reliability,
        resolution=resolution,
        uncertainty=uncertainty,
        within_bins=brier - (reliability - resolution + uncertainty),
    )


def _bins(probabilities: Floats, bins: int) -> Integers:
    """Number each row's bin as `calibration_error` cuts them."""
    return (positions(probabilities) * bins).astype(np.intp)
