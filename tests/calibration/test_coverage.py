"""Every interval holds the truth about as often as it promises: sixty draws here, many in the slow tests."""

import pytest
from coverage_table import PROMISES

pytestmark = pytest.mark.slow  # half a minute of simulations

DRAWS = 60
QUICK = [name for name, promise in PROMISES.items() if promise.cost <= 4]


@pytest.mark.parametrize("name", QUICK)
def test_intervals_hold_the_truth_as_often_as_promised(name: str) -> None:
    assert not PROMISES[name].broken(DRAWS, seed=1)
