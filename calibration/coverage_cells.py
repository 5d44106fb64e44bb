"""Where intervals are hard to keep: few or unequal raters, rare labels, shared raters, few replies.

Each cell is a world whose truth is known and one estimator. Beside how often its 95 % intervals hold stands
how wide they are against an oracle's, who knows the estimate's standard deviation and takes 1.96 of it.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np

from calibration.agreement.judge_vs_people import agreement
from calibration.agreement.metrics import TABLE_STATISTICS, table_of
from calibration.bias.audits import audit
from calibration.cluster import NORMAL
from calibration.estimate import Estimate, Floats
from calibration.pairing import Paired
from calibration.shares.correction import calibrated_models, correct
from calibration.shares.ppi import RatedModel, one_hot, ppi_estimate
from data.records import LABELS

CUTS: Final = np.array([-1.4, -0.3])
JUDGE_CUTS: Final = np.array([2.15, 2.55])  # of its scores
QUALITY, SEVERITY, BLUR, KINDNESS, STRAY = 0.7, 0.5, 0.4, 0.4, 0.15
REPLIES: Final = 300
LEAST: Final = 0.93  # of the times a 95 % interval holds
AGREEMENT: Final = ("exact", "balanced_accuracy", "macro_f1", "ac2")
MANY: Final = 100_000  # ratings that tell what agreement and bias are in truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What was found of one estimator in one world; without intervals, all were refused."""

    world: str
    estimator: str
    draws: int
    refused: float
    coverage: float | None
    against_oracle: float | None

    @property
    def problem(self) -> str | None:
        """Say that it holds too seldom, if more than chance makes it so."""
        if self.coverage is None:
            return None
        known = self.draws * (1 - self.refused)
        if self.coverage >= LEAST - 3 * math.sqrt(LEAST * (1 - LEAST) / known):
            return None
        return f"{self.world}: {self.estimator} covered in {self.coverage:.1%}"


Drawn = dict[str, tuple[Estimate, float]]  # by estimator: what was found, and the truth
Draw = Callable[[np.random.Generator], Drawn]


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Who rates what: `half` gives one rater half of the ratings, `shared` all models the same raters."""

    raters: int = 8
    ratings: int = 96
    half: bool = False
    shared: bool = False
    level: float | None = None  # of every model; drawn where it is not given
    stray: float = STRAY  # of the judge, from model to model
    strays: float = 0.0  # the chance that the judge misjudges a model by four times its usual stray

    def models(self, count: int, rng: np.random.Generator) -> tuple[dict[str, RatedModel], Floats]:
        """So many models with their ratings, and their true shares."""
        turn = np.arange(self.ratings)
        rater = (
            np.where(2 * turn < self.ratings, 0, 1 + turn % (self.raters - 1))
            if self.half
            else turn % self.raters
        )
        common = SEVERITY * rng.standard_normal(self.raters)
        models, truths = {}, []
        for number in range(count):
            effect = 0.3 * rng.standard_normal() if self.level is None else self.level
            stray = self.stray * rng.standard_normal() * (4 if rng.random() < self.strays else 1)
            severity = common if self.shared else SEVERITY * rng.standard_normal(self.raters)
            quality = QUALITY * rng.standard_normal(REPLIES)
            seen = 0.6 * quality + BLUR * rng.standard_normal(REPLIES)
            felt = effect + quality[turn] - severity[rater] + rng.standard_normal(self.ratings)
            models[f"model {number}"] = RatedModel(
                judged=_shares(0.8 * effect + KINDNESS + stray + seen, 1.1),
                item=turn,
                value=one_hot(1 + (felt[:, None] > CUTS).sum(axis=1), len(LABELS)),
                cluster=rater + (0 if self.shared else 1000 * number),
            )
            truths.append(_shares(np.array([effect]), math.hypot(QUALITY, SEVERITY, 1.0))[0])
        return models, np.array(truths)


def _shares(level: Floats, spread: float) -> Floats:
    from scipy.special import ndtr

    under = ndtr((CUTS - level[:, None]) / spread)
    shares: Floats = np.stack([under[:, 0], under[:, 1] - under[:, 0], 1 - under[:, 1]], axis=1)
    return shares


def by_ratings(design: Design) -> Draw:
    """The shares of a model by its own ratings and the judge's word on the rest."""

    def draw(rng: np.random.Generator) -> Drawn:
        models, truth = design.models(1, rng)
        found = ppi_estimate(models["model 0"]).estimates()
        return {
            f"{name}, by ratings": pair
            for name, pair in zip(LABELS, zip(found, truth[0], strict=True), strict=True)
        }

    return draw


def by_line(design: Design, *, count: int = 12, replies: int | None = None, rated: bool = False) -> Draw:
    """The share of Good of a new model through `count` rated ones, from some of its replies."""

    def draw(rng: np.random.Generator) -> Drawn:
        models, truth = design.models(count + 1, rng)
        new = models.pop("model 0")
        if not rated:
            none: dict[str, Any] = {"item": new.item[:0], "value": new.value[:0], "cluster": new.cluster[:0]}
            new = replace(new, judged=new.judged[:replies], **none)
        (found,) = correct({"new": new}, calibrated=calibrated_models(models))
        says = "Good, by line and ratings" if rated else "Good of a new model"
        good = found.corrected.get("Good", Estimate(math.nan, None))
        return {
            says: (
                good if found.how == ("both" if rated else "judge") else replace(good, interval=None),
                truth[0, -1],
            )
        }

    return draw


def _labels(judged: Floats) -> tuple[Floats, Floats]:
    """The judge's scores and labels, cut about as often as people give them."""
    score = judged @ np.arange(1.0, 4.0)
    return score, 1 + (score[:, None] > JUDGE_CUTS).sum(axis=1)


def beside_people(design: Design) -> Draw:
    """Agreement with people on one model's replies, and the judge's level against theirs."""
    design = replace(design, level=0.0, stray=0.0)

    def draw(rng: np.random.Generator) -> Drawn:
        (model,) = design.models(1, rng)[0].values()
        score, label = _labels(model.judged[model.item])
        number, rater = model.item.astype(str), model.cluster.astype(str)
        paired = Paired(
            id=number,
            model=np.full(len(number), "one"),
            rater=rater,
            batch=rater,
            prompt=number,
            rating=1 + model.value.argmax(axis=1),
            score=score,
            label=label.astype(np.intp),
        )
        metrics, truth = agreement(paired, rng=rng, draws=200).metrics, _truth()
        found = {f"agreement, {name}": (metrics[name], truth[name]) for name in AGREEMENT}
        return found | {"level bias": (audit(paired)[0].effect, truth["level"])}

    return draw


@cache
def _truth() -> dict[str, float]:
    """What agreement and bias are when each of many replies has a rater of its own."""
    rng = np.random.default_rng(0)
    quality = QUALITY * rng.standard_normal(MANY)
    score, label = _labels(_shares(KINDNESS + 0.6 * quality + BLUR * rng.standard_normal(MANY), 1.1))
    rating = 1 + (quality[:, None] + math.hypot(SEVERITY, 1.0) * rng.standard_normal((MANY, 1)) > CUTS).sum(
        axis=1
    )
    table = table_of(rating, label, len(LABELS))[None]
    truth = {name: float(TABLE_STATISTICS[name](table)[0]) for name in AGREEMENT}
    return truth | {"level": float((score - rating).mean())}


FEW: Final = (4, 6, 8)
QUICK: Final[dict[str, Draw]] = {
    **{f"{count} raters": by_ratings(Design(raters=count)) for count in FEW},
    "8 raters, one with half": by_ratings(Design(half=True)),
    "87 % Good, 8 raters, 48 ratings": by_ratings(Design(ratings=48, level=1.25)),
    **{f"{count} raters, judge beside people": beside_people(Design(raters=count)) for count in FEW},
}
WORLDS: Final[dict[str, Draw]] = {
    **QUICK,
    "8 raters of all 12 models": by_line(Design(shared=True)),
    "4 raters of all 12 models": by_line(Design(raters=4, shared=True)),
    "12 models, one in ten misjudged": by_line(Design(strays=0.1), rated=True),
    **{f"12 models, {count} replies": by_line(Design(), replies=count) for count in (1, 5, 20)},
}
REFUSED: Final = ("12 models, 1 replies", "12 models, 5 replies")


def coverage_cells(
    *, rng: np.random.Generator, draws: int, worlds: Collection[str] = tuple(WORLDS)
) -> tuple[Cell, ...]:
    """Every cell of these worlds; those of one model are quick, and drawn five times as often.

    Where all is refused a few draws show it. A world's draws are its own, whichever others are asked for.
    """
    streams = dict(zip(WORLDS, rng.spawn(len(WORLDS)), strict=True))
    draws_of = {
        world: 5 * draws if world in QUICK else min(draws, 10) if world in REFUSED else draws
        for world in worlds
    }
    return tuple(
        cell for world in worlds for cell in _cells(world, WORLDS[world], streams[world], draws_of[world])
    )


def _cells(world: str, draw: Draw, rng: np.random.Generator, draws: int) -> list[Cell]:
    drawn = [draw(rng) for _ in range(draws)]
    cells = []
    for name in drawn[0]:
        pairs = [item[name] for item in drawn]
        known = [(found, truth) for found, truth in pairs if found.interval is not None]
        # The oracle knows how far the estimate lies from the truth, draw after draw.
        error = math.sqrt(float(np.mean([(found.value - truth) ** 2 for found, truth in known] or [0.0])))
        held = [
            found.interval.low <= truth <= found.interval.high for found, truth in known if found.interval
        ]
        width = [found.interval.high - found.interval.low for found, _ in known if found.interval]
        cells.append(
            Cell(
                world=world,
                estimator=name,
                draws=draws,
                refused=1 - len(known) / draws,
                coverage=float(np.mean(held)) if held else None,
                against_oracle=float(np.mean(width)) / (2 * NORMAL * error) if held and error else None,
            )
        )
    return cells
