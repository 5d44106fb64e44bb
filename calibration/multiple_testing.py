"""P-values adjusted for the number of tests."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from empathy_judge.calibration.estimate import Floats, Integers


def holm(p_values: ArrayLike) -> Floats:
    """Adjusted so that any false finding at all among those below .05 has a chance of 5%.

    By hand: scipy has none. An undefined one (nan) stays so and is not counted as a test.

    >>> holm([0.01, 0.04, np.nan, 0.03]).round(2).tolist()
    [0.03, 0.06, nan, 0.06]
    """
    return _adjust(p_values, lambda ordered, ranks: np.maximum.accumulate(ordered * ranks[::-1]))


def benjamini_hochberg(p_values: ArrayLike) -> Floats:
    """Adjusted so that of those below .05 at most one in twenty is expected to be false.

    By hand, since nights load nothing else of scipy.stats, which takes seconds; the tests hold it to scipy's.

    >>> benjamini_hochberg([0.01, 0.04, np.nan, 0.03]).round(2).tolist()
    [0.03, 0.04, nan, 0.04]
    """
    return _adjust(
        p_values,
        lambda ordered, ranks: np.minimum.accumulate((ordered * len(ranks) / ranks)[::-1])[::-1],
    )


def _adjust(p_values: ArrayLike, rule: Callable[[Floats, Integers], Floats]) -> Floats:
    """Adjust the defined ones; `rule` takes them in ascending order, with their ranks from 1."""
    values = np.asarray(p_values, dtype=float)
    adjusted: Floats = np.full(values.shape, np.nan)
    order = np.argsort(values, kind="stable")[: np.isfinite(values).sum()]  # nan sorts last
    adjusted[order] = np.minimum(rule(values[order], np.arange(1, len(order) + 1)), 1.0)
    return adjusted
