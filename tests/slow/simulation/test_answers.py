"""Levels and verdicts of models without human ratings keep their limits, in simulation and on rated sets.

The size of the judge's deviations, 0.19, was pooled from the same sets by an earlier judge; here they are
scored by the default's trials. `python tests/support/system_means.py` renews these scores for a new judge.
"""

import json

import pytest
from answer_figures import ALL_WORLDS, FILE, figures_of

DRAW_OR_TWO = 0.005  # on another processor some may fall on the other side
LARGE = "deviations are larger than the prior, and six models hardly correct it"
OVERSTATED = "the judge overstates differences, and the slope's prior has a median of 1"
EFFECT = "at a design effect of 1 instead of 1.8 it is 0.83 and 0.86"
# Limits that are missed, and why. A limit that is kept again must leave this table.
MISSED: dict[str, dict[str, str]] = {
    "deviations 0.25": dict.fromkeys(
        (
            "bound 0.3 above, half",
            "bound 0.5 below, half",
            "bound 1 below, half",
            "better at 0",
            "better at 20",
            "at least as good at 0",
            "at least as good at 5",
            "better wrong",
            "probably better wrong",
        ),
        LARGE,
    ),
    "slope 0.5": dict.fromkeys(
        (
            "bound 0.3 above, linear",
            "bound 0.3 above, half",
            "bound 0.5 below, linear",
            "bound 0.5 below, half",
            "bound 1 below, half",
            "better wrong",
            "probably better wrong",
        ),
        OVERSTATED,
    ),
    "slope 2": {
        "bound 0.3 above, three times": "the bound hardly allows for so steep a curve there",
        "better at 20": "20 human points are 10 of the judge's, as many as its deviations explain",
    },
    "rated models misjudged by 15 points": {"50 ratings": EFFECT, "100 ratings": EFFECT},
}


@pytest.mark.parametrize("world", ALL_WORLDS)
def test_figures_keep_their_limits(world: str) -> None:
    figures, known = figures_of(world), set(MISSED.get(world, ()))
    assert {figure.check for figure in figures if not figure.holds} <= known
    assert known <= {figure.check for figure in figures if not figure.holds_by(DRAW_OR_TWO)}
    stored = [row for row in json.loads(FILE.read_text(encoding="utf-8")) if row["world"] == world]
    assert [row["check"] for row in stored] == [figure.check for figure in figures]
    assert [row["measured"] for row in stored] == pytest.approx(
        [figure.measured for figure in figures], abs=DRAW_OR_TWO
    )
