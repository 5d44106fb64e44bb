"""How many judges a panel is worth, against errors whose correlation is known."""

import numpy as np
import pytest
from numpy.typing import ArrayLike

from calibration.probabilities.stacking import panel_size
from data.errors import UserError
from data.records import to_plain


def errors_with(correlation: float, *, rows: int, judges: int, rng: np.random.Generator) -> np.ndarray:
    """Errors of which every pair correlates by as much: one common part, and one of each judge's own."""
    common = rng.normal(size=(rows, 1))
    return np.sqrt(correlation) * common + np.sqrt(1 - correlation) * rng.normal(size=(rows, judges))


def effective_judges(errors: ArrayLike) -> float:
    rows = len(np.asarray(errors))
    return panel_size(errors, np.zeros(rows, dtype=int), rng=np.random.default_rng(0)).effective.value


def test_six_judges_of_correlation_042_are_worth_two() -> None:
    errors = errors_with(0.42, rows=200_000, judges=6, rng=np.random.default_rng(0))
    assert effective_judges(errors) == pytest.approx(6 / (1 + 5 * 0.42), abs=0.02)
    assert round(effective_judges(errors), 1) == 1.9


def test_the_number_is_that_of_the_variance_of_their_mean() -> None:
    errors = errors_with(0.3, rows=200_000, judges=4, rng=np.random.default_rng(1))
    assert effective_judges(errors) == pytest.approx(1 / errors.mean(axis=1).var(), rel=0.02)


def test_neither_scale_nor_bias_of_a_judge_changes_it() -> None:
    errors = errors_with(0.5, rows=300, judges=3, rng=np.random.default_rng(2))
    moved = errors * [1, 10, 0.01] + [0, 1e6, -3]
    assert effective_judges(moved) == pytest.approx(effective_judges(errors), rel=1e-6)


def test_the_value_beside_its_interval_is_the_plain_one() -> None:
    rng = np.random.default_rng(4)
    errors = errors_with(0.4, rows=400, judges=5, rng=rng)
    found = panel_size(errors, np.repeat(np.arange(40), 10), rng=rng, draws=300)
    assert found.effective.value == effective_judges(errors)
    assert found.effective.interval is not None
    assert found.effective.interval.low < found.effective.value < found.effective.interval.high
    assert to_plain(found)["judges"] == 5


@pytest.mark.parametrize(
    "errors", [np.zeros((0, 3)), np.zeros((1, 3)), np.full((5, 2), 0.1), [[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]]]
)
def test_where_errors_do_not_vary_it_is_undefined(errors: np.ndarray) -> None:
    assert np.isnan(effective_judges(errors))


def test_degenerate_panels() -> None:
    assert effective_judges([[1.0], [2.0]]) == 1.0
    assert effective_judges([[1.0, 1.0], [2.0, 2.0]]) == pytest.approx(1.0)
    assert np.isnan(effective_judges([[1.0, -1.0], [2.0, -2.0]])), "errors that cancel are worth any number"
    found = panel_size([[1.0, 2.0], [2.0, 1.0], [0.0, 0.0]], ["a"] * 3, rng=np.random.default_rng(0))
    assert found.effective.interval is None, "one cluster says nothing of how clusters differ"
    with pytest.raises(UserError, match="one column a judge"):
        effective_judges([1.0, 2.0])
