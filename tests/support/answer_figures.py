"""How often answers on unrated models are right: every figure with its limit.

`PYTHONPATH=. python tests/support/answer_figures.py` measures them and writes docs/figures/answers.json, from
which the docs take their tables.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from answer_worlds import BEYOND, WORLDS, measure
from rated_systems import RatedSystems, differences_held, levels_held, rated_systems, signs
from repository import ROOT

from empathy_judge.calibration.shares.transport import CalibratedModels

FILE: Final = ROOT / "docs" / "figures" / "answers.json"
DEFAULT: Final = "classifier"
RECORDED: Final = "recorded language models"
REAL_WORLDS: Final = (DEFAULT, RECORDED)
CERTAIN: Final = (0.95, 0.88)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A measured rate or count, of how many systems or pairs, and its limit; infinite where none applies."""

    check: str
    world: str
    measured: float
    of: int | None = None
    least: float = -math.inf
    most: float = math.inf

    @property
    def holds(self) -> bool:
        return self.holds_by(0.0)

    def holds_by(self, slack: float) -> bool:
        """Return whether the limit is kept with so much to spare."""
        return self.least + slack <= self.measured <= self.most - slack

    def row(self) -> dict[str, Any]:
        """Return the figure as the docs read it."""
        known = {"of": self.of, "at_least": self.least, "at_most": self.most}
        row = {"check": self.check, "world": self.world, "measured": round(self.measured, 4)}
        return row | {
            key: value for key, value in known.items() if value is not None and math.isfinite(value)
        }


def simulated_figures(world: str) -> list[Figure]:
    """Return the figures of a simulated world."""
    facts, measured = WORLDS[world], measure(world)
    is_wide = facts.deviation > 0.16
    # No set shows a flat curve. With slope 0.5 the judge overstates every difference: 14.5% are known.
    least = {"linear": 0.93, "twice": 0.93, "three times": 0.93, "half": 0.90, "flat": -math.inf}
    most_at_0 = math.inf if facts.slope < 1 else 0.08 if is_wide else 0.05
    return [
        Figure(check="level", world=world, measured=measured.level, least=0.90 if is_wide else 0.93),
        Figure(check="width", world=world, measured=measured.width, most=1.35),
        *(
            Figure(
                check=f"bound {target}, {curve}",
                world=world,
                measured=measured.bounds[target, curve],
                least=least[curve],
            )
            for target in BEYOND
            for curve in least
        ),
        Figure(check="better at gap 0", world=world, measured=measured.better_at_0, most=most_at_0),
        Figure(check="better wrong", world=world, measured=measured.wrong["better"], most=0.05),
        Figure(
            check="probably better wrong",
            world=world,
            measured=measured.wrong["probably better"],
            most=0.12,
        ),
        Figure(check="gap 20 found", world=world, measured=measured.found, least=0.70),
    ]


def real_figures(world: str) -> list[Figure]:
    """Return the figures of rated sets; the limits of 20 systems and 71 pairs are scaled to other numbers."""
    sets = _sets(world)
    pairs = [pair for item in sets for pair in signs(item, _calibration_of_another_set(item))]
    figures = []
    for certain, wrong, of in zip(CERTAIN, (1, 2), (9, 20), strict=True):
        is_right = [right for probability, right in pairs if probability >= certain]
        most = wrong if world != RECORDED else wrong / of * len(is_right)
        figures.append(
            Figure(
                check=f"signs wrong, P >= {certain}",
                world=world,
                measured=len(is_right) - sum(is_right),
                of=len(is_right),
                most=math.floor(most),
            )
        )
    covered: tuple[tuple[str, Callable[[RatedSystems], list[bool]], float], ...] = (
        ("levels covered", levels_held, 18 / 20),
        ("differences covered", differences_held, 62 / 71),
    )
    for check, held_of, rate in covered:
        held = [one for item in sets for one in held_of(item)]
        least = math.ceil(rate * len(held) - 1e-9)
        figures.append(Figure(check=check, world=world, measured=sum(held), of=len(held), least=least))
    return figures


def _sets(world: str) -> list[RatedSystems]:
    """Return the sets by recorded judges, or by the default judge."""
    return [item for item in rated_systems() if (item.judge == DEFAULT) == (world == DEFAULT)]


def _calibration_of_another_set(item: RatedSystems) -> CalibratedModels:
    """Return the study's calibration, as in the product; for the study itself that of DSTC9.

    A recorded judge is calibrated on the next attribute: its scores compare with no other judge's.
    """
    mine = [each for each in rated_systems() if each.judge == item.judge]
    if item.judge == DEFAULT:
        wanted = "dstc9" if item.set == "study" else "study"
        return next(each for each in mine if each.set == wanted).calibrated
    return mine[(mine.index(item) + 1) % len(mine)].calibrated


def all_figures() -> list[Figure]:
    """Measure everything."""
    simulated = [figure for world in WORLDS for figure in simulated_figures(world)]
    return simulated + [figure for world in REAL_WORLDS for figure in real_figures(world)]


def write(figures: Sequence[Figure]) -> None:
    """Write the figures for the docs, one a line."""
    rows = ",\n".join(json.dumps(figure.row()) for figure in figures)
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(f"[\n{rows}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    write(all_figures())
