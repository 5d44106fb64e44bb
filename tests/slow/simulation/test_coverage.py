"""Every procedure that promises an interval: a world whose truth is known, and how often it must hold it.

A draw makes new data and returns whether the interval contained the truth. Where the promise is "at least",
the upper end is 1: few raters, a line through few models and many nights err on the safe side.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from simulated_nights import SPREAD
from simulated_ratings import MIDDLE, Design, World, calibrated, draw_models, truth, two_models

from empathy_judge.calibration.agreement.judge_vs_people import agreement
from empathy_judge.calibration.agreement.metrics import TABLE_STATISTICS
from empathy_judge.calibration.bias import mean_change
from empathy_judge.calibration.bootstrap import mean_intervals, resample_clusters
from empathy_judge.calibration.cluster import clustered_share
from empathy_judge.calibration.comparison.differences import differences
from empathy_judge.calibration.comparison.judged_models import ComparisonSettings, compared_level
from empathy_judge.calibration.estimate import Estimate, Interval, estimate_of
from empathy_judge.calibration.monitoring.confidence_sequence import recent_change, sum_night
from empathy_judge.calibration.monitoring.drift import split_change
from empathy_judge.calibration.pairing import Paired
from empathy_judge.calibration.shares.correction import calibrated_models, correct
from empathy_judge.calibration.shares.ppi import ppi_estimate, rated_difference
from empathy_judge.data.records import LABELS

Hits = Mapping[str, bool]
DRAWS = 2000
CONFUSION = np.array([[0.10, 0.05, 0.03], [0.06, 0.16, 0.10], [0.04, 0.12, 0.34]])  # of ratings and labels


@dataclass(frozen=True, kw_only=True)
class Promise:
    """One draw of a procedure's intervals, by name, and between which rates each must hold the truth."""

    draw: Callable[[np.random.Generator], Hits]
    low: float = 0.93
    high: float = 0.975
    cost: int = 1  # how many draws of the others one of these takes

    def broken(self, draws: int, *, seed: int) -> dict[str, float]:
        """Name the intervals whose rate is outside the promise by more than chance would make it."""
        rng = np.random.default_rng(seed)
        times = max(1, draws // self.cost)
        held: dict[str, int] = {}
        for _ in range(times):
            for name, hit in self.draw(rng).items():
                held[name] = held.get(name, 0) + bool(hit)
        rates = {name: count / times for name, count in held.items()}
        # 3.5 standard errors: by chance once in some thousands of promises.
        below, above = (3.5 * math.sqrt(rate * (1 - rate) / times) for rate in (self.low, self.high))
        return {
            name: rate for name, rate in rates.items() if not self.low - below <= rate <= self.high + above
        }


def holds(ends: Interval | None, value: float) -> bool:
    return ends is not None and ends.low <= value <= ends.high


def bootstrap_mean(rng: np.random.Generator) -> Hits:
    """Ten responses to a prompt share its mood."""
    good = (rng.random((40, 10)) < rng.beta(2, 2, size=(40, 1))).astype(float)
    drawn = resample_clusters(40, rng=rng, draws=400)
    (ends,) = mean_intervals(good.sum(axis=1, keepdims=True), np.full(40, 10.0), drawn) or [None]
    return {"mean": holds(ends, 0.5)}


def bootstrap_kappa(rng: np.random.Generator) -> Hits:
    """Batches of ten ratings that have nothing in common but the batch."""
    cells = rng.choice(9, size=600, p=CONFUSION.ravel())
    number = np.arange(600)
    paired = Paired(
        id=number.astype(str),
        model=np.array(["ada", "bea"])[number % 2],
        rater=(number // 10).astype(str),
        batch=(number // 10).astype(str),
        prompt=number.astype(str),
        rating=1 + cells // 3,
        score=1.0 + cells % 3,
        label=1 + cells % 3,
    )
    found = agreement(paired, rng=rng, draws=300).metrics
    names = ("exact", "qwk", "alpha_ordinal", "balanced_accuracy")
    truths = {name: float(TABLE_STATISTICS[name](1e9 * CONFUSION[None])[0]) for name in names}
    return {name: holds(found[name].interval, truths[name]) for name in names}


def level_errors_of_models(batches: int) -> Callable[[np.random.Generator], Hits]:
    """How far the judge's level of each model is off; raters of a batch are severe or mild together."""
    people, judge = np.array([0.3, 0.5, 0.8]), np.array([0.4, 0.45, 0.75])
    batch, model, _ = (axis.ravel() for axis in np.indices((batches, 3, 4)))

    def draw(rng: np.random.Generator) -> Hits:
        mild = rng.uniform(-0.2, 0.2, batches)[batch]
        is_good = rng.random(len(batch)) < people[model] + mild
        judged = judge[model] + 0.5 * mild + rng.uniform(-0.1, 0.1, len(batch))
        number = np.arange(len(batch)).astype(str)
        paired = Paired(
            id=number,
            model=np.array(["ada", "bea", "cyd"])[model],
            rater=batch.astype(str),
            batch=batch.astype(str),
            prompt=number,
            rating=np.where(is_good, 3, 1 + rng.integers(2, size=len(batch))),
            score=1 + 2 * judged,
            label=np.where(judged > 0.5, 3, 1),
            probabilities=np.stack([(1 - judged) / 2, (1 - judged) / 2, judged], axis=1),
        )
        found = agreement(paired, rng=rng, draws=300).levels.models
        wanted = dict(zip(("ada", "bea", "cyd"), judge - people, strict=True))
        return {item.model: holds(item.error.interval, wanted[item.model]) for item in found}

    return draw


def clustered_wilson(rng: np.random.Generator) -> Hits:
    """Raters of eight replies each, who say yes with a chance of their own."""
    cluster = np.repeat(np.arange(30), 8)
    hits = rng.random(240) < rng.beta(8, 2, 30)[cluster]
    return {"share": holds(clustered_share(hits, cluster).interval, 0.8)}


def ppi(raters: int) -> Callable[[np.random.Generator], Hits]:
    def draw(rng: np.random.Generator) -> Hits:
        models, shares = draw_models(World(models=2), 100, raters, rng)
        one, other = (ppi_estimate(sample) for sample in models.values())
        gap = rated_difference(one, other)
        hits = {}
        for column, label in enumerate(LABELS):
            level = estimate_of(one.value[column], one.low[column], one.high[column])
            apart = estimate_of(gap.value[column], gap.low[column], gap.high[column])
            hits[f"share of {label}"] = holds(level.interval, shares[0, column])
            hits[f"difference of {label}"] = holds(apart.interval, shares[0, column] - shares[1, column])
        return hits

    return draw


def few_raters(world: World, *, ratings: int = 96) -> Callable[[np.random.Generator], Hits]:
    """The shares of a model by its own ratings, from few or uneven raters."""

    def draw(rng: np.random.Generator) -> Hits:
        models, shares = draw_models(world, ratings, 1, rng)
        found = ppi_estimate(next(iter(models.values()))).estimates()
        return {
            label: holds(item.interval, value)
            for label, item, value in zip(LABELS, found, shares[0], strict=True)
        }

    return draw


def shared_raters(raters: int) -> Callable[[np.random.Generator], Hits]:
    """The share of Good of a new model through twelve that the same people rated."""

    def draw(rng: np.random.Generator) -> Hits:
        world = World(models=13, responses=300, raters=raters, is_shared=True)
        models, shares = draw_models(world, 96, 1, rng)
        new = models.pop("model 0")
        empty = replace(new, item=new.item[:0], value=new.value[:0], cluster=new.cluster[:0])
        (found,) = correct({"new": empty}, calibrated=calibrated_models(models))
        return {"Good": found.how == "refused" or holds(found.corrected["Good"].interval, shares[0, -1])}

    return draw


def compared(
    raters: int,
    prompts: int,
    design: Design = "split",
    *,
    gap: float = 0.0,
    unrated: int = 0,
    lines: bool = False,
) -> Callable[[np.random.Generator], Hits]:
    """Two models that people rated, with a calibrated line or without."""
    wanted = float((truth(MIDDLE + gap / 2) - truth(MIDDLE - gap / 2))[2])

    def draw(rng: np.random.Generator) -> Hits:
        pair = two_models(raters, prompts, rng, gap=gap, design=design, unrated=unrated)
        settings = calibrated(rng) if lines else ComparisonSettings()
        (found,) = differences([pair], settings)
        # Where the line is refused, no interval is promised.
        return {"difference": found.how == "refused" or holds(found.good.interval, wanted)}

    return draw


def level_of_few_readers(raters: int) -> Callable[[np.random.Generator], Hits]:
    """Agreement of few people on 160 replies says little about the next few; below four no level is given."""

    def draw(rng: np.random.Generator) -> Hits:
        one, _ = two_models(raters, 160, rng, design="crossed")
        level = compared_level(one, ComparisonSettings()).shares["Good"]
        return {"level": holds(level.interval, truth(MIDDLE)[2])}

    return draw


def two_published(rng: np.random.Generator) -> Hits:
    """The difference of two independent shares, from their own intervals."""
    one, other = (clustered_share(rng.random(80) < rate, np.arange(80)) for rate in (0.9, 0.7))
    return {"difference": holds((one - other).interval, 0.2)}


def rewriting(rng: np.random.Generator) -> Hits:
    """Two rewritings a prompt, whose changes rise and fall together."""
    prompts = np.repeat(np.arange(20), 2)
    change = 0.1 + 0.2 * rng.normal(size=20)[prompts] + 0.1 * rng.normal(size=40)
    found = mean_change(np.full(40, 2.0), 2.0 + change, prompts)
    return {"change": holds(found.interval, 0.1)}


def drift_parts(rng: np.random.Generator) -> Hits:
    anchors = rng.uniform(0.2, 0.8, 40)
    after = anchors + 0.05 + rng.normal(0, 0.1, 40)
    found = split_change(0.02 + rng.normal(0, 0.2, 60), anchors_before=anchors, anchors_after=after)
    parts: dict[str, tuple[Estimate, float]] = {
        "total": (found.total, 0.02),
        "judge": (found.judge, 0.05),
        "model": (found.model, -0.03),
    }
    return {name: holds(part.interval, value) for name, (part, value) in parts.items()}


def every_night(rng: np.random.Generator) -> Hits:
    """The interval holds on all of sixty nights at once, though the baseline is a draw itself."""
    spread = SPREAD / math.sqrt(2)
    baseline = spread * rng.standard_normal(120)
    held, sums = True, [sum_night(spread * rng.standard_normal(120) - baseline) for _ in range(60)]
    for night in range(1, 61):
        held &= holds(recent_change(sums[:night]).interval, 0.0)
    return {"all nights": held}


PROMISES = {
    "bootstrap, mean over prompts": Promise(draw=bootstrap_mean, low=0.92),
    "bootstrap, agreement over batches": Promise(draw=bootstrap_kappa, low=0.91, cost=4),
    **{
        f"error of each model's level, {count} batches": Promise(
            draw=level_errors_of_models(count), low=0.92, cost=cost
        )
        for count, cost in ((8, 4), (40, 4), (150, 16))
    },
    "Wilson, share over clusters": Promise(draw=clustered_wilson),
    "PPI++, each reply by one rater": Promise(draw=ppi(1), high=0.985),
    "PPI++, each reply by three raters": Promise(draw=ppi(3), high=1.0),
    **{
        f"PPI++, {count} raters": Promise(draw=few_raters(World(models=2, raters=count)), high=0.99)
        for count in (4, 6)
    },
    "PPI++, one rater with half of the ratings": Promise(
        draw=few_raters(World(models=2, raters=8, is_uneven=True)), high=0.99
    ),
    "PPI++, 87% Good": Promise(
        draw=few_raters(World(models=2, raters=8, level=1.25, model_sd=0.0), ratings=48), high=1.0
    ),
    "line, the same 4 raters of all models": Promise(draw=shared_raters(4), high=1.0, cost=4),
    "difference, ratings split among raters": Promise(draw=compared(8, 64), high=1.0, cost=2),
    "difference, all raters read all": Promise(draw=compared(8, 64, "crossed"), high=1.0, cost=2),
    "difference, other raters a model": Promise(draw=compared(8, 64, "apart"), high=1.0, cost=2),
    "difference, few raters": Promise(draw=compared(4, 16, gap=0.4), high=1.0, cost=2),
    "difference, many replies only the judge read": Promise(
        draw=compared(8, 48, unrated=100), high=1.0, cost=2
    ),
    "difference, line and two raters": Promise(draw=compared(2, 16, lines=True), high=1.0, cost=4),
    "difference, line and raters who read all": Promise(
        draw=compared(3, 64, "crossed", gap=0.4, lines=True), high=1.0, cost=4
    ),
    "level, four people who read all": Promise(draw=level_of_few_readers(4), high=1.0, cost=2),
    "level, twenty people who read all": Promise(draw=level_of_few_readers(20), high=1.0, cost=2),
    "difference of independent shares": Promise(draw=two_published),
    "t, rewritings over prompts": Promise(draw=rewriting, high=0.985),
    "drift, judge's and model's part": Promise(draw=drift_parts),
    "confidence sequence, all nights at once": Promise(draw=every_night, low=0.95, high=1.0, cost=4),
}


@pytest.mark.parametrize("name", PROMISES)
def test_intervals_hold_the_truth_as_often_as_promised(name: str) -> None:
    assert not PROMISES[name].broken(DRAWS, seed=0)
