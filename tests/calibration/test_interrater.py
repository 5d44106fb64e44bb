"""Reliability of ratings: published examples, the libraries on random data, and every metric's properties."""

import math
from typing import Any

import krippendorff
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.agreement.metrics import (
    TABLE_STATISTICS,
    Scaling,
    cohen_kappa,
    gwet_ac,
    icc,
    krippendorff_alpha,
    point_value,
    table_of,
)

SEEDS = range(5)
SCALINGS: tuple[Scaling, ...] = ("nominal", "ordinal", "interval")
_ = np.nan
# Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), section C: four observers, twelve units.
FOUR_OBSERVERS = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
        [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
    ]
)
# Shrout and Fleiss (1979), table 2: six targets, four judges.
SIX_TARGETS = np.array([[9, 6, 8, 7, 10, 6], [2, 1, 4, 1, 5, 2], [5, 3, 6, 2, 6, 4], [8, 2, 8, 6, 9, 7]])


@pytest.mark.parametrize(("scaling", "value"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_krippendorff_s_four_observers(scaling: Scaling, value: float) -> None:
    assert round(krippendorff_alpha(FOUR_OBSERVERS, scaling), 3) == value


def test_krippendorff_s_pairs_of_observers() -> None:
    """Sections A and B of the same text: ten binary units, and twelve nominal ones, by two observers."""
    binary = [[0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]]
    assert round(krippendorff_alpha(np.array(binary) + 1, "nominal"), 3) == 0.095
    nominal = ["aabbdcccedda", "babbbccceddd"]
    codes = [["abcde".index(letter) + 1 for letter in row] for row in nominal]
    assert round(krippendorff_alpha(codes, "nominal"), 3) == 0.692


def test_gwet_s_examples() -> None:
    """AC1 of Gwet (2008), table with 118, 5, 2 and 0; and of the four observers, from the Handbook."""
    table = [[1] * 118 + [1] * 5 + [2] * 2, [1] * 118 + [2] * 5 + [1] * 2]
    assert gwet_ac(table) == pytest.approx(0.9408, abs=5e-5)
    assert cohen_kappa(*table, weights=None) == pytest.approx(-0.0234, abs=5e-5)
    assert gwet_ac(FOUR_OBSERVERS) == pytest.approx(0.77544, abs=5e-6)


@pytest.mark.parametrize(("kind", "value"), [("1", 0.17), ("A1", 0.29), ("C1", 0.71)])
def test_shrout_and_fleiss_s_judges(kind: Any, value: float) -> None:
    assert round(icc(SIX_TARGETS, kind), 2) == value


@pytest.mark.parametrize("seed", SEEDS)
def test_alpha_of_many_raters_with_gaps_is_the_library_s(seed: int) -> None:
    rng = np.random.default_rng(seed)
    quality = rng.integers(1, 5, 40)
    table = np.clip(quality + rng.integers(-1, 2, (6, 40)), 1, 4).astype(float)
    table[rng.random(table.shape) < 0.4] = np.nan
    for scaling in SCALINGS:
        theirs = krippendorff.alpha(table, level_of_measurement=scaling, value_domain=[1, 2, 3, 4])
        assert krippendorff_alpha(table, scaling, levels=4) == pytest.approx(theirs, abs=1e-9)


# --- Properties over every metric of two parties.

ROWS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=25)


@pytest.mark.parametrize("name", TABLE_STATISTICS)
@settings(max_examples=40)
@given(rows=ROWS, seed=st.integers(0, 99))
def test_order_range_and_library(name: str, rows: list[tuple[int, int]], seed: int) -> None:
    first, second = np.array(rows).T
    value = point_value(name, first, second, 4)
    own = TABLE_STATISTICS[name](table_of(first, second, 4)[None])[0]
    assert value == pytest.approx(own, abs=1e-9, nan_ok=True), "the library and the table agree"
    shuffle = np.random.default_rng(seed).permutation(len(rows))
    again = point_value(name, first[shuffle], second[shuffle], 4)
    assert again == pytest.approx(value, abs=1e-9, nan_ok=True)
    low = -2.6 if name == "ac2" else -1  # with weights, four levels leave chance up to .72, so -.72 / .28
    assert math.isnan(value) or low - 1e-9 <= value <= 1 + 1e-9


@pytest.mark.parametrize("name", sorted(set(TABLE_STATISTICS) - {"balanced_accuracy"}))
@settings(max_examples=40)
@given(rows=ROWS)
def test_both_parties_count_alike(name: str, rows: list[tuple[int, int]]) -> None:
    first, second = np.array(rows).T
    there, back = (point_value(name, *pair, 4) for pair in ((first, second), (second, first)))
    assert there == pytest.approx(back, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize("name", TABLE_STATISTICS)
@settings(max_examples=40)
@given(values=st.lists(st.integers(1, 4), min_size=2, max_size=25))
def test_with_oneself_one_agrees(name: str, values: list[int]) -> None:
    """1, or undefined where nothing but one level was given; chance-free measures are 1 even then."""
    same = np.array(values)
    value = point_value(name, same, same, 4)
    if len(set(values)) > 1 or name in ("exact", "macro_f1", "ac1", "ac2"):
        assert value == pytest.approx(1)
    else:
        assert math.isnan(value)


@pytest.mark.parametrize("name", TABLE_STATISTICS)
def test_without_rows_every_metric_is_undefined(name: str) -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert math.isnan(point_value(name, nothing, nothing, 3))


@pytest.mark.parametrize(
    "table",
    [
        np.zeros((2, 0)),
        np.array([[1.0], [np.nan]]),
        np.array([[2.0, 2.0], [2.0, 2.0]]),
        np.array([[1.0, np.nan], [np.nan, 2.0]]),
        np.full((3, 4), np.nan),
    ],
)
def test_degenerate_tables_are_undefined(table: np.ndarray) -> None:
    for scaling in SCALINGS:
        assert math.isnan(krippendorff_alpha(table, scaling))
    for kind in ("1", "A1", "C1"):
        assert math.isnan(icc(table, kind))  # type: ignore[arg-type]
    is_shared = table.size and (np.isfinite(table).sum(axis=0) > 1).any()
    assert gwet_ac(table) == (1.0 if is_shared else pytest.approx(math.nan, nan_ok=True))
