"""Do the intervals keep their word? Data with a known answer, from a model of raters and a biased judge.

A response has a latent quality, a model an effect on it, a rater a severity; two thresholds cut what a rater
feels into Bad, Okay and Good. The judge sees the quality through noise, is too kind to everyone, and kinder
to some models than to others: its own interval, which knows nothing of that, is shown beside the corrected
ones. True shares are known in closed form.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from calibration.cluster import NORMAL, contrast
from calibration.comparison.rated_differences import rated_difference
from calibration.coverage_cells import coverage_cells
from calibration.estimate import Estimate, Floats
from calibration.shares.ppi import RatedModel, judge_means, one_hot, ppi_estimate
from calibration.shares.transport import CalibratedModels, Target, transport
from data.records import LABELS

RATINGS: Final = (50, 100, 200)
RATERS: Final = (1, 3)
PROMISED: Final = (0.93, 0.97)
CUTS: Final = np.array([-1.4, -0.3])
GOOD: Final = LABELS.index("Good")
POWER: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What the data are drawn from; standard deviations are in units of a rating's own noise."""

    models: int = 10
    responses: int = 400
    per_rater: int = 10
    quality_sd: float = 0.7
    model_sd: float = 0.3
    severity_sd: float = 0.5
    judge_slope: float = 0.6  # within a model; between models the judge follows them at 0.8
    judge_noise: float = 0.4
    kindness: float = 0.4
    kindness_sd: float = 0.15  # how much kinder to one model than to another

    def shares(self, effects: Floats) -> Floats:
        """The crowd's true shares of models with these effects, (models, labels)."""
        return _label_shares(effects, math.sqrt(self.quality_sd**2 + self.severity_sd**2 + 1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Planted:
    """RatedModel responses whose judge favours those with a feature by a planted number of points."""

    rating: Floats  # (rows,), 1 to 3
    score: Floats  # (rows,), the judge's
    feature: Floats  # (rows,), 0 or 1
    cluster: np.ndarray[Any, Any]  # (rows,): the rater


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a bias audit says: the bias's interval, and the least bias it finds with a power of .8."""

    low: float
    high: float
    detectable: float


Audit = Callable[[Planted], Verdict]


def audit_planted(planted: Planted) -> Verdict:
    """Audit a planted feature as `calibration.bias.audits` audits any."""
    rows = np.zeros(len(planted.rating), dtype=np.intp)
    clusters = np.unique(planted.cluster, return_inverse=True)[1]
    answer = contrast(planted.score - planted.rating, planted.feature, clusters, strata=rows)
    low, high = _ends(answer.estimate())
    return Verdict(low=low, high=high, detectable=answer.detectable())


def self_test(
    *,
    rng: np.random.Generator,
    draws: int = 240,
    ratings: Sequence[int] = RATINGS,
    raters: Sequence[int] = RATERS,
    audit: Audit = audit_planted,
    world: World | None = None,
) -> dict[str, Any]:
    """Coverage of nominal 95 % intervals, by ratings of each model and raters of each response.

    Every draw has `world.models` models, so 240 draws of 10 make 2,400 shares: one standard error of a
    coverage is half a point. `problems` names what is outside `PROMISED`, or not visible; empty is passed.
    """
    world = world or World()
    rows = [_coverage(world, number, per_item, draws, rng) for number in ratings for per_item in raters]
    bias = _bias_power(world, audit, draws, rng)
    cells = coverage_cells(rng=rng, draws=draws) if ratings else ()
    problems = [problem for row in rows for problem in _problems(row)]
    problems += [cell.problem for cell in cells if cell.problem]
    samples = bias["samples"]
    if abs(bias["found"] - POWER) > 0.05 + 2 * math.sqrt(POWER * (1 - POWER) / samples):
        problems.append(f"a bias of {bias['effect']:.3f} is found in {bias['found']:.0%}, not in {POWER:.0%}")
    if bias["false_alarms"] > 0.07 + 2 * math.sqrt(0.05 * 0.95 / samples):
        problems.append(f"a bias is found in {bias['false_alarms']:.0%} of draws without one")
    return {
        "draws": draws,
        "models": world.models,
        "rows": rows,
        "cells": [asdict(cell) for cell in cells],
        "bias": bias,
        "problems": problems,
    }


def draw_models(
    world: World, ratings: int, per_item: int, rng: np.random.Generator
) -> tuple[dict[str, RatedModel], Floats]:
    """Models with that many ratings each, `per_item` people to a response, and their true shares."""
    effects = world.model_sd * rng.standard_normal(world.models)
    kindness = world.kindness + world.kindness_sd * rng.standard_normal(world.models)
    # Which response and which rater each rating is of and by; raters of several to a response take turns.
    item = np.repeat(np.arange(-(-ratings // per_item)), per_item)
    turn, raters = np.arange(len(item)), max(per_item, round(len(item) / world.per_rater))
    rater = turn % raters if per_item > 1 else turn * raters // len(item)
    models = {}
    for number, (effect, kind) in enumerate(zip(effects, kindness, strict=True)):
        quality = world.quality_sd * rng.standard_normal(world.responses)
        seen = world.judge_slope * quality + world.judge_noise * rng.standard_normal(world.responses)
        severity = world.severity_sd * rng.standard_normal(int(rater.max()) + 1)
        felt = effect + quality[item] - severity[rater] + rng.standard_normal(len(item))
        models[f"model {number}"] = RatedModel(
            judged=_label_shares(0.8 * effect + kind + seen, 1.1),
            item=item,
            value=one_hot(1 + (felt[:, None] > CUTS).sum(axis=1), len(LABELS)),
            cluster=rater + 1000 * number,
        )
    return models, world.shares(effects)


def draw_planted(world: World, ratings: int, effect: float, rng: np.random.Generator) -> Planted:
    """One model's ratings where the judge gives `effect` points more to half of the responses."""
    models, _ = draw_models(replace(world, models=1), ratings, 1, rng)
    (rated,) = models.values()
    feature = rng.integers(2, size=len(rated.item)).astype(float)
    scale = np.arange(1.0, len(LABELS) + 1)
    return Planted(
        rating=rated.value @ scale,
        score=rated.judged[rated.item] @ scale + effect * feature,
        feature=feature,
        cluster=rated.cluster,
    )


def _label_shares(effects: Floats, spread: float) -> Floats:
    from scipy.special import ndtr

    under = ndtr((CUTS - effects[:, None]) / spread)
    shares: Floats = np.stack([under[:, 0], under[:, 1] - under[:, 0], 1 - under[:, 1]], axis=1)
    return shares


def _coverage(
    world: World, ratings: int, per_item: int, draws: int, rng: np.random.Generator
) -> dict[str, Any]:
    by_label = ("shares", "differences", "naive_shares", "naive_differences")
    hits: dict[str, list[Any]] = {name: [] for name in (*by_label, "unrated_good", "both_good")}
    widths: list[list[float]] = []
    for _ in range(draws):
        _count_hits(*draw_models(world, ratings, per_item, rng), hits, widths)
    rates = {name: np.mean(hit, axis=0).tolist() for name, hit in hits.items()}
    rates |= {name: dict(zip(LABELS, rates[name], strict=True)) for name in by_label}
    width = np.mean(widths, axis=0).tolist()
    return {
        "ratings": ratings,
        "raters": per_item,
        "samples": len(hits["shares"]),
        **rates,
        "width_good": dict(zip(("ratings", "judge", "both"), width, strict=True)),
    }


def _count_hits(
    models: dict[str, RatedModel],
    truth: Floats,
    hits: dict[str, list[Any]],
    widths: list[list[float]],
) -> None:
    """Note whether each interval holds the truth, one entry a model; differences are to the next model."""
    estimates = [ppi_estimate(rated) for rated in models.values()]
    judged = [judge_means(rated) for rated in models.values()]
    good = CalibratedModels(
        models=tuple(models),
        judge=tuple(float(mean[GOOD]) for mean, _ in judged),
        crowd=tuple(float(item.value[GOOD]) for item in estimates),
        noise=tuple(float(item.least_variance[GOOD]) for item in estimates),
    )
    for index, name in enumerate(models):
        rated, after = estimates[index], (index + 1) % len(estimates)
        hits["shares"].append((rated.low <= truth[index]) & (truth[index] <= rated.high))
        difference = rated_difference(rated, estimates[after])
        gap = truth[index] - truth[after]
        hits["differences"].append((difference.low <= gap) & (gap <= difference.high))
        (mean, noise), (other, other_noise) = judged[index], judged[after]
        hits["naive_shares"].append(np.abs(mean - truth[index]) <= NORMAL * np.sqrt(noise))
        hits["naive_differences"].append(np.abs(mean - other - gap) <= NORMAL * np.sqrt(noise + other_noise))
        unrated = Target(judge=float(mean[GOOD]), judge_noise=float(noise[GOOD]))
        both = replace(unrated, crowd=float(rated.value[GOOD]), noise=float(rated.stated_variance[GOOD]))
        width = [float(rated.high[GOOD] - rated.low[GOOD])]
        for kind, target in (("unrated_good", unrated), ("both_good", both)):
            low, high = _ends(transport(good.without(name), target))
            hits[kind].append(low <= truth[index, GOOD] <= high)
            width.append(high - low)
        widths.append(width)


def _ends(estimate: Estimate) -> tuple[float, float]:
    return (estimate.interval.low, estimate.interval.high) if estimate.interval else (math.nan, math.nan)


def _problems(row: dict[str, Any]) -> list[str]:
    place = f"{row['ratings']} ratings, {row['raters']} to a response"
    rates = {f"{kind}, {label}": row[kind][label] for kind in ("shares", "differences") for label in LABELS}
    rates["Good by line and ratings"] = row["both_good"]
    low, high = PROMISED
    slack = 2 * math.sqrt(0.95 * 0.05 / row["samples"])  # of a coverage counted in so many samples
    # Few raters of many prompts, or of both models, hold more often: that they agree is not counted as
    # knowledge of how far people differ.
    wide = [name for name in rates if name.startswith("differences") or row["raters"] > 1]
    problems = [
        f"{place}: {name} covered in {rate:.1%}"
        for name, rate in rates.items()
        if rate < low - slack or (rate > high + slack and name not in wide)
    ]
    # An unrated model's may hold more often: where calibrated models have few ratings, their noise and the
    # judge's strays cannot be told apart, and the interval allows for the larger.
    if row["unrated_good"] < low - slack:
        problems.append(f"{place}: Good of an unrated model covered in {row['unrated_good']:.1%}")
    if row["naive_shares"]["Good"] > 0.8:
        problems.append(f"{place}: the judge's own interval does not visibly fail")
    return problems


def _bias_power(world: World, audit: Audit, draws: int, rng: np.random.Generator) -> dict[str, float]:
    """How often an audit finds no bias at all, and one as large as it says it finds with a power of .8."""
    number, samples = RATINGS[-1], 4 * draws
    without = [audit(draw_planted(world, number, 0.0, rng)) for _ in range(samples)]
    effect = float(np.mean([verdict.detectable for verdict in without]))
    planted = [audit(draw_planted(world, number, effect, rng)) for _ in range(samples)]
    return {
        "ratings": number,
        "samples": samples,
        "effect": effect,
        "stated": POWER,
        "false_alarms": float(np.mean([verdict.low > 0 or verdict.high < 0 for verdict in without])),
        "found": float(np.mean([verdict.low > 0 or verdict.high < 0 for verdict in planted])),
    }
