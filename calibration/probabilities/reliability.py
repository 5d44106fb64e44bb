"""Reliability curves: whether probabilities match observed frequencies.

`calibration.agreement.metrics.calibration_error` is the error over the same bins.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from calibration.agreement.metrics import BINS, positions
from calibration.cluster import clustered_share
from calibration.estimate import Estimate


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Responses of similar probability: the mean predicted probability and the observed frequency."""

    count: int
    predicted: float
    observed: Estimate

    def as_dict(self) -> dict[str, float | None]:
        """Return count, prediction, and the observed frequency with its interval."""
        return {"count": self.count, "predicted": self.predicted, **self.observed.as_dict()}


def reliability_curve(
    positive: ArrayLike, probabilities: ArrayLike, *, clusters: ArrayLike | None = None, bins: int = BINS
) -> tuple[ReliabilityBin, ...]:
    """Return bins of equal count, the lowest probability first; equal probabilities share a bin.

    With `clusters` (batches, raters) the intervals allow for correlated responses within a cluster.

    >>> curve = reliability_curve([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9], bins=2)
    >>> [(item.count, item.observed.value) for item in curve]
    [(2, 0.0), (2, 1.0)]
    """
    outcome, predicted = np.asarray(positive, dtype=bool), np.asarray(probabilities, dtype=float)
    groups = np.arange(len(outcome)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    number = (positions(predicted) * bins).astype(np.intp)
    return tuple(
        ReliabilityBin(
            int(inside.sum()),
            float(predicted[inside].mean()),
            clustered_share(outcome[inside], groups[inside]),
        )
        for inside in (number == index for index in np.unique(number))
    )
