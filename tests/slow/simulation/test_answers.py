"""Levels and verdicts of models without human ratings keep their limits, in simulation and on rated sets.

The size of the judge's deviations, 0.19, was pooled from the same sets by an earlier judge; here they are
scored by the default's trials. `python tests/support/system_means.py` renews these scores for a new judge.
"""

import json

import pytest
from answer_figures import FILE, REAL_WORLDS, Figure, real_figures, simulated_figures
from answer_worlds import WORLDS

DRAW_OR_TWO = 0.005  # on another processor some may fall on the other side
LARGE = "deviations are larger than the prior, and six models hardly correct it"
OVERSTATED = "the judge overstates differences, and the slope's prior has a median of 1"
# Limits that are missed, and why. A limit that is kept again must leave this table.
MISSED: dict[str, dict[str, str]] = {
    "deviations 0.10": {
        "width": "deviations are smaller than the prior, and six models hardly correct it",
        "bound 0.3 above, three times": "the bound hardly allows for so steep a curve there",
    },
    "deviations 0.25": {
        "bound 0.3 above, half": LARGE,
        "bound 0.5 below, half": LARGE,
        "bound 1 below, half": LARGE,
        "better wrong": LARGE,
        "probably better wrong": LARGE,
        "gap 20 found": LARGE,
    },
    "slope 0.5": {
        "bound 0.3 above, half": OVERSTATED,
        "bound 0.5 below, half": OVERSTATED,
        "bound 1 below, half": OVERSTATED,
        "probably better wrong": OVERSTATED,
    },
    "slope 2": {"gap 20 found": "20 human points are 10 of the judge's, as many as its deviations explain"},
}


def check(figures: list[Figure], world: str) -> None:
    known = set(MISSED.get(world, ()))
    assert {figure.check for figure in figures if not figure.holds} <= known
    assert known <= {figure.check for figure in figures if not figure.holds_by(DRAW_OR_TWO)}
    stored = [row for row in json.loads(FILE.read_text(encoding="utf-8")) if row["world"] == world]
    assert [row["check"] for row in stored] == [figure.check for figure in figures]
    assert [row["measured"] for row in stored] == pytest.approx(
        [figure.measured for figure in figures], abs=DRAW_OR_TWO
    )


@pytest.mark.parametrize("world", WORLDS)
def test_in_simulated_worlds(world: str) -> None:
    check(simulated_figures(world), world)


@pytest.mark.parametrize("world", REAL_WORLDS)
def test_on_rated_sets(world: str) -> None:
    check(real_figures(world), world)
