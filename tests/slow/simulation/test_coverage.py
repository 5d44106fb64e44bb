"""Every interval holds the truth as often as it promises, over two thousand draws."""

import pytest
from coverage_table import PROMISES

DRAWS = 2000


@pytest.mark.parametrize("name", PROMISES)
def test_intervals_hold_the_truth_as_often_as_promised(name: str) -> None:
    assert not PROMISES[name].broken(DRAWS, seed=0)
