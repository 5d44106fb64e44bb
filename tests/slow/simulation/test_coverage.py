"""Every interval holds the truth as often as it promises, over two thousand draws."""

import numpy as np
import pytest
from coverage_table import PROMISES

from calibration.coverage_cells import WORLDS, coverage_cells

DRAWS = 2000


@pytest.mark.parametrize("name", PROMISES)
def test_intervals_hold_the_truth_as_often_as_promised(name: str) -> None:
    assert not PROMISES[name].broken(DRAWS, seed=0)


@pytest.mark.parametrize("world", WORLDS)
def test_few_raters_rare_labels_and_few_replies_hold_too(world: str) -> None:
    """The cells of docs/explanation/calibration.md."""
    cells = coverage_cells(rng=np.random.default_rng(1), draws=400, worlds=[world])
    assert [cell.problem for cell in cells if cell.problem] == []
    assert all((cell.coverage is None) == world.endswith((" 1 replies", " 5 replies")) for cell in cells)
