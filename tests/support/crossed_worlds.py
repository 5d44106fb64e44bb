"""Raters who read two models' replies, with a known truth: how often the stop rule is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy.special import ndtri

from empathy_judge.calibration.comparison.stop_rule import MARGIN, half_widths, is_settled, spread_of
from empathy_judge.calibration.estimate import Floats

LOOKS: Final = 40  # at most, in a world as large as plans are
GOOD, SEVERITY, DIFFICULTY = 0.55, 0.7, 0.5


@dataclass(frozen=True, kw_only=True)
class World:
    """A plan of two models and what its people are like; standard deviations are on a normal scale.

    A rating has a noise of 1 beside: how severe a rater is, how hard a prompt, and how far each rater and
    each prompt favours a model of its own. `uneven` raters are up to three times as fast as others. With
    `strata`, prompts that suit the second model were drawn five times as often as the others.
    """

    raters: int
    prompts: int
    each: int  # prompts that a rater reads, both models' replies to each
    gap: float = 0.0  # of the shares of Good
    taste: float = 0.3
    fit: float = 0.3
    uneven: bool = False
    strata: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a world's histories; `wrong` are settled the wrong way, `covered` hold the truth."""

    wrong: float
    covered: float


def draw(world: World, histories: int, rng: np.random.Generator) -> tuple[Floats, Floats, Floats, Floats]:
    """Values, when each is rated (inf if never), and weights; and every history's true difference.

    Prompts are dealt in turns, so raters share them where there are fewer than all could read.
    """
    shape = (histories, world.raters, world.prompts, 2)
    sds = np.array([SEVERITY, DIFFICULTY, world.taste, world.fit])
    total = np.sqrt(1 + (sds**2).sum())
    level = np.array([ndtri(GOOD - world.gap / 2), ndtri(GOOD + world.gap / 2)]) * total
    stands = [(0, 1), (0, 2), (0, 1, 3), (0, 2, 3)]  # which axes an effect has
    latent = level + rng.standard_normal(shape, dtype=np.float32)
    weight = np.ones((histories, 1, world.prompts, 1))
    for sd, axes in zip(sds, stands, strict=True):
        effect = sd * rng.standard_normal([size if axis in axes else 1 for axis, size in enumerate(shape)])
        if world.strata and axes == (0, 2, 3):
            effect, weight = _drawn(effect, sd, rng)
        latent += effect
    reads = np.zeros((world.raters, world.prompts), dtype=bool)
    for rater in range(world.raters):
        reads[rater, (rater * world.each + np.arange(world.each)) % world.prompts] = True
    order = rng.random(shape, dtype=np.float32)
    order[:, ~reads] = np.inf
    order = order.reshape(histories, world.raters, -1).argsort(axis=2).argsort(axis=2)
    pace = rng.uniform(1, 3, (histories, world.raters, 1)) if world.uneven else 1.0
    when = ((order + rng.random((histories, world.raters, 1))) / pace).reshape(shape)
    when[:, ~reads] = np.inf
    return (latent > 0).astype(np.float32), when, weight, np.full(histories, world.gap)


def _drawn(effect: Floats, sd: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Prompts that suit the second model better, drawn five times as often as others, and 1 / chance."""
    histories, _, prompts, _ = effect.shape
    many = sd * rng.standard_normal((histories, 4 * prompts, 2))
    is_large = many[..., 1] > many[..., 0]  # unweighted, the second model would look far better than it is
    chance = np.where(is_large, 5.0, 1.0)
    keys = rng.random(chance.shape) ** (1 / chance)
    taken = np.argsort(-keys, axis=1)[:, :prompts]
    rows = np.arange(histories)[:, None]
    large = is_large[rows, taken]
    # Chances by stratum, as a plan knows them: how many were drawn of those there were.
    drawn, there = (
        np.where(large, part.sum(axis=1, keepdims=True), (~part).sum(axis=1, keepdims=True))
        for part in (large, is_large)
    )
    return many[rows, taken][:, None], (there / drawn)[:, None, :, None]


def run(
    world: World, histories: int, *, seed: int = 0, looks: int = LOOKS, margin: float = MARGIN
) -> Outcome:
    """Rate until it is settled or all is rated, with a look after every few ratings, or after each."""
    rng = np.random.default_rng(seed)
    value, when, weight, truth = draw(world, histories, rng)
    ends = np.sort(np.where(np.isfinite(when), when, np.inf).reshape(histories, -1), axis=1)
    total = 2 * world.each * world.raters
    counts = np.unique(np.linspace(4, total, min(looks, total - 3)).astype(int))
    found, half = np.zeros(histories), np.full(histories, np.nan)
    wrong, is_open = np.zeros(histories, dtype=bool), np.ones(histories, dtype=bool)
    for count in counts:
        live = np.flatnonzero(is_open)
        if not len(live):
            break
        seen = when[live] <= ends[live, count - 1][:, None, None, None]
        spread = spread_of(value[live], seen, weight[live])
        found[live], half[live] = spread.value, half_widths(spread)
        better, same = is_settled(found[live], half[live], margin)
        true = truth[live]
        wrong[live] = (better & (found[live] * true <= 0)) | (same & (np.abs(true) >= margin))
        is_open[live] = ~(better | same)
    return Outcome(wrong=float(wrong.mean()), covered=float((np.abs(found - truth) <= half).mean()))


WORLDS: Final[Mapping[str, World]] = {
    "4 raters, 20 prompts shared": World(raters=4, prompts=20, each=20),
    "6 raters, 60 prompts shared": World(raters=6, prompts=60, each=60),
    "8 raters, 160 prompts": World(raters=8, prompts=160, each=20),
    "8 raters, 40 prompts shared": World(raters=8, prompts=40, each=40),
    "12 raters, 200 prompts": World(raters=12, prompts=200, each=25),
}
PEOPLE: Final[Mapping[str, dict[str, Any]]] = {
    "of one mind": {"taste": 0.0},
    "as most": {},
    "strong preferences": {"taste": 0.6},
    "uneven pace": {"uneven": True},
    "drawn by chances": {"strata": True, "fit": 0.6},
}
