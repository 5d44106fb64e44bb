"""Do the intervals keep their word? Data with a known answer, from a model of raters and a biased judge.

A response has a latent quality, a model an effect on it, a rater a severity; two thresholds cut what a rater
feels into Bad, Okay and Good. The judge sees the quality through noise, is too kind to everyone, and kinder
to some models than to others: its own interval, which knows nothing of that, is shown beside the corrected
ones. True shares are known in closed form.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from calibration.cluster import NORMAL, contrast
from calibration.comparison.differences import rated_difference
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
    interval = answer.estimate().interval
    low, high = (interval.low, interval.high) if interval else (math.nan, math.nan)
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
    problems = [problem for row in rows for problem in _problems(row)]
    problems += _bias_problems(bias)
    return {"draws": draws, "models": world.models, "rows": rows, "bias": bias, "problems": problems}


def draw_models(
    world: World, ratings: int, per_item: int, rng: np.random.Generator
) -> tuple[dict[str, RatedModel], Floats]:
    """Models with that many ratings each, `per_item` people to a response, and their true shares."""
    effects = world.model_sd * rng.standard_normal(world.models)
    kindness = world.kindness + world.kindness_sd * rng.standard_normal(world.models)
    found = {}
    for number, (effect, kind) in enumerate(zip(effects, kindness, strict=True)):
        quality = world.quality_sd * rng.standard_normal(world.responses)
        seen = world.judge_slope * quality + world.judge_noise * rng.standard_normal(world.responses)
        item, rater = _assign(ratings, per_item, world.per_rater)
        severity = world.severity_sd * rng.standard_normal(int(rater.max()) + 1)
        felt = effect + quality[item] - severity[rater] + rng.standard_normal(len(item))
        found[f"model {number}"] = RatedModel(
            judged=_label_shares(0.8 * effect + kind + seen, 1.1),
            item=item,
            value=one_hot(1 + (felt[:, None] > CUTS).sum(axis=1), len(LABELS)),
            cluster=rater + 1000 * number,
        )
    return found, world.shares(effects)


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


def _assign(ratings: int, per_item: int, per_rater: int) -> tuple[Any, Any]:
    """Deal ratings out to responses and raters; raters of several to a response take turns."""
    items = -(-ratings // per_item)
    item = np.repeat(np.arange(items), per_item)
    raters = max(per_item, round(len(item) / per_rater))
    turn = np.arange(len(item))
    return item, turn % raters if per_item > 1 else turn * raters // len(item)


def _label_shares(effects: Floats, spread: float) -> Floats:
    from scipy.special import ndtr

    under = ndtr((CUTS - effects[:, None]) / spread)
    shares: Floats = np.stack([under[:, 0], under[:, 1] - under[:, 0], 1 - under[:, 1]], axis=1)
    return shares


def _coverage(
    world: World, ratings: int, per_item: int, draws: int, rng: np.random.Generator
) -> dict[str, Any]:
    hits: dict[str, list[Any]] = {}
    widths: list[tuple[float, float, float]] = []
    for _ in range(draws):
        models, truth = draw_models(world, ratings, per_item, rng)
        for name, hit in _hits(models, truth, widths).items():
            hits.setdefault(name, []).extend(hit)
    rates = {name: np.mean(hit, axis=0) for name, hit in hits.items()}
    width = np.mean(widths, axis=0)
    return {
        "ratings": ratings,
        "raters": per_item,
        "samples": len(hits["ratings"]),
        "shares": dict(zip(LABELS, rates["ratings"].tolist(), strict=True)),
        "differences": dict(zip(LABELS, rates["differences"].tolist(), strict=True)),
        "naive_shares": dict(zip(LABELS, rates["naive"].tolist(), strict=True)),
        "naive_differences": dict(zip(LABELS, rates["naive differences"].tolist(), strict=True)),
        "unrated_good": float(rates["judge"]),
        "both_good": float(rates["both"]),
        "width_good": dict(zip(("ratings", "judge", "both"), width.tolist(), strict=True)),
    }


def _hits(
    models: dict[str, RatedModel], truth: Floats, widths: list[tuple[float, float, float]]
) -> dict[str, list[Any]]:
    """Tell of each interval whether it holds the truth; differences are to the next model."""
    estimates = [ppi_estimate(rated) for rated in models.values()]
    judged = [judge_means(rated) for rated in models.values()]
    good = CalibratedModels(
        models=tuple(models),
        judge=tuple(float(mean[GOOD]) for mean, _ in judged),
        crowd=tuple(float(item.value[GOOD]) for item in estimates),
        noise=tuple(float(item.least_variance[GOOD]) for item in estimates),
    )
    hits: dict[str, list[Any]] = {
        name: [] for name in ("ratings", "differences", "naive", "naive differences", "judge", "both")
    }
    for index, name in enumerate(models):
        own, after = estimates[index], (index + 1) % len(estimates)
        hits["ratings"].append((own.low <= truth[index]) & (truth[index] <= own.high))
        ends = rated_difference(own, estimates[after])
        gap = truth[index] - truth[after]
        hits["differences"].append((ends.low <= gap) & (gap <= ends.high))
        (mean, noise), (other, other_noise) = judged[index], judged[after]
        hits["naive"].append(np.abs(mean - truth[index]) <= NORMAL * np.sqrt(noise))
        hits["naive differences"].append(np.abs(mean - other - gap) <= NORMAL * np.sqrt(noise + other_noise))
        rest, target = good.without(name), Target(judge=float(mean[GOOD]), judge_noise=float(noise[GOOD]))
        alone = transport(rest, target)
        rated = Target(
            judge=target.judge,
            judge_noise=target.judge_noise,
            crowd=float(own.value[GOOD]),
            noise=float(own.stated_variance[GOOD]),
        )
        both = transport(rest, rated)
        hits["judge"].append(_holds(alone, truth[index, GOOD]))
        hits["both"].append(_holds(both, truth[index, GOOD]))
        widths.append((float(own.high[GOOD] - own.low[GOOD]), _width(alone), _width(both)))
    return hits


def _holds(estimate: Estimate, truth: float) -> bool:
    return estimate.interval is not None and estimate.interval.low <= truth <= estimate.interval.high


def _width(estimate: Estimate) -> float:
    return estimate.interval.high - estimate.interval.low if estimate.interval else math.nan


def _problems(row: dict[str, Any]) -> list[str]:
    place = f"{row['ratings']} ratings, {row['raters']} to a response"
    found = {f"{kind}, {label}": row[kind][label] for kind in ("shares", "differences") for label in LABELS}
    found["Good by line and ratings"] = row["both_good"]
    low, high = PROMISED
    slack = 2 * math.sqrt(0.95 * 0.05 / row["samples"])  # of a coverage counted in so many samples
    # Few raters of many prompts, or of both models, hold more often: that they agree is not counted as
    # knowledge of how far people differ.
    wide = [name for name in found if name.startswith("differences") or row["raters"] > 1]
    problems = [
        f"{place}: {name} covered in {rate:.1%}"
        for name, rate in found.items()
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


def _bias_problems(bias: dict[str, float]) -> list[str]:
    found, alarms, samples = bias["found"], bias["false_alarms"], bias["samples"]
    problems = []
    if abs(found - POWER) > 0.05 + 2 * math.sqrt(POWER * (1 - POWER) / samples):
        problems.append(f"a bias of {bias['effect']:.3f} is found in {found:.0%}, not in {POWER:.0%}")
    if alarms > 0.07 + 2 * math.sqrt(0.05 * 0.95 / samples):
        problems.append(f"a bias is found in {alarms:.0%} of draws without one")
    return problems
