"""How often answers on unrated models are right: every figure with its limit.

`PYTHONPATH=. python tests/support/answer_figures.py` measures them and writes docs/figures/answers.json, from
which the docs take their tables.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import answer_worlds as simulated
import numpy as np
import rated_systems as rated
from repository import ROOT

from empathy_judge.calibration.comparison.differences import VARIANT_CORRELATION
from empathy_judge.calibration.comparison.verdicts import LIKELY, SURE
from empathy_judge.calibration.shares.transport import CalibratedModels
from empathy_judge.training.rated_sets import EXTERNAL_SETS

FILE: Final = ROOT / "docs" / "figures" / "answers.json"
DEFAULT: Final = "classifier"
EXTERNAL: Final = "classifier, external sets"  # decide nothing
RECORDED: Final = "recorded language models"
OUTLIERS: Final = "rated models misjudged by 15 points"
OWN: Final = "own calibration"
VARIANTS: Final = "variants without a correlation"
OTHER_WORLDS: Final = (OUTLIERS, OWN, VARIANTS)
ALL_WORLDS: Final = (*simulated.WORLDS, *OTHER_WORLDS, DEFAULT, EXTERNAL, RECORDED)
GOOD_SHARES: Final = ("study", "ieval")  # sets on which people gave labels
USUAL: Final = simulated.AnswerWorld().deviation
BINS: Final = (0.5, 0.6, 0.75, LIKELY, SURE, 1.01)
ALL: Final = (0.5, 1.01)
COVERED: Final = (
    ("levels covered", rated.levels_held, 18 / 20),
    ("differences covered", rated.differences_held, 62 / 71),
)


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
    is_large, is_plain = simulated.WORLDS[world].deviation > USUAL, simulated.WORLDS[world].is_plain
    limits = {"level": (0.90 if is_large else 0.93, 1.0), "better wrong": (0.0, 0.05)}
    limits["probably better wrong"] = 0.0, 0.12
    limits |= {
        f"bound {beyond}, {curve}": (0.90 if curve == "half" else 0.93, 1.0)
        for beyond in simulated.BEYOND
        for curve in simulated.CURVES
    }
    if simulated.WORLDS[world].slope >= 1:  # else the judge overstates every difference
        limits |= {"better at 0": (0.0, 0.05), "better at 20": (0.70, 1.0)}
    if is_plain:
        limits["at least as good at -10"] = 0.0, 0.10 if is_large else 0.05
        limits |= {"at least as good at 0": (0.35, 1.0), "at least as good at 5": (0.65, 1.0)}
    return _limited(world, simulated.measure(world), limits)


def other_figures(world: str) -> list[Figure]:
    """Return figures of a misjudged model with ratings, of own ratings, or of variants."""
    if world == OWN:
        return _limited(
            world, simulated.own_calibration(), {"new model covered": (0.93, 1.0), "width": (0.0, 1.0)}
        )
    if world == VARIANTS:
        rates = {
            f"{each} assumed": simulated.variants_called_better(each) for each in (VARIANT_CORRELATION, 0.5)
        }
        return _limited(world, rates, {f"{VARIANT_CORRELATION} assumed": (0.0, 0.05)})
    rates = {f"{count} ratings": simulated.outlier_covered(count) for count in (30, 50, 100, 200)}
    return _limited(world, rates, {"50 ratings": (0.84, 1.0), "100 ratings": (0.85, 1.0)})


def _limited(
    world: str, measured: Mapping[str, float], limits: Mapping[str, tuple[float, float]]
) -> list[Figure]:
    figures = []
    for check, value in measured.items():
        least, most = limits.get(check, (-math.inf, math.inf))
        figures.append(Figure(check=check, world=world, measured=value, least=least, most=most))
    return figures


def real_figures(world: str) -> list[Figure]:
    """Return the figures of rated sets; the limits of 20 systems and 71 pairs are scaled to other numbers."""
    sets, figure = _sets(world), partial(Figure, world=world)
    stated = {item.set: rated.stated_pairs(item, partial(_line_for, item)) for item in sets}
    figures = _probability_figures([*stated.values()], figure, is_limited=world == DEFAULT)
    if world == EXTERNAL:
        return figures
    if world == DEFAULT:
        pairs = stated["study"]
        models = [pair for pair in pairs if "human" not in pair.names]
        wrong = [
            pair
            for name in GOOD_SHARES
            for pair in stated[name]
            for is_said, ahead in zip(pair.as_good, (pair.gap, -pair.gap), strict=True)
            if is_said and ahead < -rated.DROP
        ]
        said, between = (sum(sum(pair.as_good) for pair in each) for each in (pairs, models))
        orders, sure = [pair.holds for pair in models], [pair.stated for pair in models]
        figures += [
            figure(check="at least as good", measured=said, of=30, least=10),
            figure(check="at least as good, language models", measured=between, of=20, least=6),
            figure(check="at least as good, wrong", measured=len(wrong), most=0),
            figure(check="stated, language models", measured=float(np.mean(sure)), of=len(sure)),
            figure(check="order right, language models", measured=sum(orders), of=len(orders)),
        ]
    for check, held_of, rate in COVERED:
        held = [one for item in sets for one in held_of(item)]
        least = math.ceil(rate * len(held) - 1e-9)
        figures.append(figure(check=check, measured=sum(held), of=len(held), least=least))
    for item in sets if world == DEFAULT else ():
        for guess, error in rated.level_errors(item, "human").items():
            figures.append(figure(check=f"level error, {item.set}, {guess}", measured=error))
    return figures


def _probability_figures(
    sets: Sequence[Sequence[rated.StatedPair]], figure: Callable[..., Figure], *, is_limited: bool
) -> list[Figure]:
    """Return how stated probabilities agree with people, over all pairs and in bins; sets weigh equally."""
    pairs = [pair for each in sets for pair in each]
    weight = np.concatenate([np.full(len(each), 1 / len(each) / len(sets)) for each in sets])
    stated = np.array([pair.stated for pair in pairs])
    held = np.array([pair.holds for pair in pairs], dtype=float)
    figures = []
    for low, high in (ALL, *pairwise(BINS)):
        mine = (low <= stated) & (stated < high)
        if not mine.any():
            continue
        part = weight[mine] / weight[mine].sum()
        mean = float(part @ stated[mine])
        error = math.sqrt(float(part**2 @ (stated[mine] * (1 - stated[mine]))))
        slack = (0.05 if (low, high) == ALL else max(0.10, 2 * error)) if is_limited else math.inf
        name = "all" if (low, high) == ALL else f"{low} to {min(high, 1)}"
        figures += [
            figure(check=f"stated, {name}", measured=mean, of=int(mine.sum())),
            figure(
                check=f"observed, {name}",
                measured=float(part @ held[mine]),
                of=int(mine.sum()),
                least=mean - slack,
                most=mean + slack,
            ),
        ]
    surely_wrong = sum(
        sure and pair.is_significant and not pair.holds
        for sure, pair in zip(stated >= SURE, pairs, strict=True)
    )
    brier = float(weight @ (stated - held) ** 2)
    figures += [
        figure(check="Brier score", measured=brier, of=len(pairs), most=0.17 if is_limited else math.inf),
        figure(check="better, significantly wrong", measured=int(surely_wrong), most=0),
    ]
    return figures


def _sets(world: str) -> list[rated.RatedSystems]:
    """Return the sets by recorded judges, or by the default judge."""
    by_default = [item for item in rated.rated_systems() if item.judge == DEFAULT]
    if world == RECORDED:
        return [item for item in rated.rated_systems() if item.judge != DEFAULT]
    return [item for item in by_default if (item.set in EXTERNAL_SETS) == (world == EXTERNAL)]


def _line_for(item: rated.RatedSystems, names: tuple[str, str]) -> CalibratedModels:
    """Return the line that knows neither system: of the study without them, else the shipped one.

    A recorded judge is calibrated on the next attribute: its scores compare with no other judge's.
    """
    if item.judge == DEFAULT:
        return item.calibrated.without(*names) if item.set == "study" else simulated.layout()
    mine = [each for each in rated.rated_systems() if each.judge == item.judge]
    return mine[(mine.index(item) + 1) % len(mine)].calibrated


def figures_of(world: str) -> list[Figure]:
    """Measure one world."""
    if world in simulated.WORLDS:
        return simulated_figures(world)
    return other_figures(world) if world in OTHER_WORLDS else real_figures(world)


if __name__ == "__main__":
    rows = ",\n".join(json.dumps(figure.row()) for world in ALL_WORLDS for figure in figures_of(world))
    FILE.write_text(f"[\n{rows}\n]\n", encoding="utf-8")
