"""The difference of two models by a crossed plan, which may be looked at after every rating.

In a crossed plan every rater reads both models' replies to the same prompts. The difference is the mean over
raters of each rater's own, with ratings weighted by 1 / chance where replies were drawn with known chances.

**Two errors.** *Noise* of replies, prompts and single ratings shrinks with every rating, and is looked at
again and again: it gets Robbins' normal mixture, which holds at all looks at once (Howard et al. 2021, arXiv
1810.08240), with t for few prompts. *Raters* are few and drawn once: their differences in preference do not
shrink with more ratings, and get Student's t. The squares of both are added.

**Assumed:** raters are a sample of the people of interest, prompts of the messages; who rates how much does
not depend on the labels. It is asymptotic: docs/explanation/verdicts.md has its measured error rates.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from empathy_judge.calibration.comparison.verdicts import ALPHA, SETTLED, Verdict, round_up
from empathy_judge.calibration.estimate import LEAST_RATERS, UNDEFINED, Estimate, Floats, estimate_of
from empathy_judge.calibration.monitoring.confidence_sequence import as_t, half_width
from empathy_judge.data.text import listed, percent

MARGIN: Final = 0.05  # the least difference of shares worth telling
RATERS_DIFFER: Final = 0.1  # taken for weights: SD of raters' preferences for one model: 10 points
RATING_VARIANCE: Final = 0.2  # taken for weights and first guesses: of one rating, Good or not
TUNED_AT: Final = 1 / 0.05**2  # the interval is narrowest where noise has a standard error of 5 points
RATERS_PART: Final = 0.8  # of the error is the raters'; looks at the noise use up little of the whole
LEAST_EFFECTIVE: Final = 1.5  # raters: one alone shows nothing of how they differ
MOST_TIMES: Final = 20.0  # times the ratings of now; beyond it no number is shown
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DifferenceSpread:
    """A difference and the variances it has, in many histories at once: arrays are (histories,)."""

    value: Floats
    noise: Floats  # of prompts and single ratings
    by_raters: Floats  # of raters' own differences
    cells: Floats  # the part of it that would be there were all raters of one mind
    raters: Floats  # the effective number
    prompts: Floats


def spread_of(value: Floats, seen: Mask, weight: Floats | float = 1.0) -> DifferenceSpread:
    """Return the second model less the first; `value` and `seen` are (histories, raters, prompts, 2).

    A rater counts once two replies of each model are rated. One more pair is added either way, so that a few
    equal ratings are not certain.
    """
    weights = np.where(seen, weight, 0.0)
    count, total, square = (part.sum(axis=2) for part in (seen, weights, weights**2))
    is_in = (count >= 2).all(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.nan_to_num((weights * value).sum(axis=2) / total)
        rarity = (square / total**2).sum(axis=2)  # 1 / replies of one model + 1 / those of the other
        part = np.where(is_in, 1 / (RATERS_DIFFER**2 + RATING_VARIANCE * rarity), 0.0)
        part /= part.sum(axis=1, keepdims=True)
        own = np.where(is_in, mean[..., 1] - mean[..., 0], 0.0)
        difference = (part * own).sum(axis=1)
        scale = np.where(is_in, part, 0.0)[..., None] * np.sqrt(count / (count - 1)) / total * (-1, 1)
        scale = np.where(is_in[..., None], scale, 0.0)
        influence = (weights * (value - mean[:, :, None]) * scale[:, :, None]).sum(axis=3)
        cells = (influence**2).sum(axis=(1, 2))
        by_prompt = (influence.sum(axis=1) ** 2).sum(axis=1)
        pairs = np.where(is_in, 2 / rarity, 0.0).sum(axis=1)
        return DifferenceSpread(
            value=np.where(is_in.sum(axis=1) > 0, difference, np.nan),
            noise=np.maximum(by_prompt, cells) + 2 / (pairs + 2) ** 2,
            by_raters=(part**2 * (own - difference[:, None]) ** 2 / (1 - part)).sum(axis=1),
            cells=cells,
            raters=1 / (part**2).sum(axis=1),
            prompts=seen.any(axis=(1, 3)).sum(axis=1).astype(float),
        )


def half_widths(
    spread: DifferenceSpread, *, alpha: float = ALPHA, times: float = 1.0, people: float = 1.0
) -> Floats:
    """Return half the interval in every history; nan with fewer than two raters.

    `times` is how it would be with so many times the ratings by the same raters, `people` with so many times
    the raters, who rate as much each.
    """
    noise = spread.noise / (times * people)
    shrinks = np.minimum(spread.cells, spread.by_raters)
    by_raters = (spread.by_raters - shrinks + shrinks / times) / people
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(noise)
        looks = half_width(1 / noise, alpha=alpha, tuned_at=TUNED_AT)  # of the noise alone
        freedom = np.maximum(spread.prompts * times * people - 1, 1.0)
        looks = as_t(looks / root, freedom) * root
        few = as_t(NormalDist().inv_cdf(1 - alpha * RATERS_PART / 2), spread.raters * people - 1)
        wide = np.hypot(looks, few * np.sqrt(by_raters))
    return np.where(spread.raters > LEAST_EFFECTIVE, wide, np.nan)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrossedRatings:
    """Ratings as columns, one row a rating; `value` is 1 for Good and 0 otherwise."""

    rater: NDArray[Any]
    prompt: NDArray[Any]
    model: NDArray[Any]
    value: Floats
    chance: Floats

    @property
    def few_raters(self) -> str | None:
        """The shares by raters too few for a verdict; None where they are enough, or there are no ratings."""
        shares = {}
        for name in np.unique(self.model).tolist():
            rows = self.model == name
            shares[name] = float(np.average(self.value[rows], weights=1 / self.chance[rows]))
        return describe_few_raters(len(np.unique(self.rater)), shares)

    def spread(self, one: str, other: str) -> DifferenceSpread:
        """Return `other` - `one`; of a rater's several replies to one prompt the mean counts."""
        rows = (self.model == one) | (self.model == other)
        raters, rater = np.unique(self.rater[rows], return_inverse=True)
        prompts, prompt = np.unique(self.prompt[rows], return_inverse=True)
        cell = (rater, prompt, (self.model[rows] == other).astype(np.intp))
        count, total, weight = np.zeros((3, len(raters), len(prompts), 2))
        for table, values in ((count, 1.0), (total, self.value[rows]), (weight, 1 / self.chance[rows])):
            np.add.at(table, cell, values)
        seen = count > 0
        return spread_of((total / np.maximum(count, 1))[None], seen[None], weight[None])


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The difference of two models, `other` minus `one`, and the verdict on `other`.

    The interval holds at all looks at once, over all pairs of models that are looked at.
    """

    one: str
    other: str
    ratings: int
    raters: int
    difference: Estimate
    margin: float
    verdict: Verdict
    more: int | None = None  # ratings by the same people that would settle it, if any number would
    people: int | None = None  # raters who rate as much each that would

    @property
    def better(self) -> str | None:
        """The better model, once that is settled."""
        return {"better": self.other, "worse": self.one}.get(self.verdict)

    @property
    def is_settled(self) -> bool:
        """Whether more ratings would change nothing."""
        return self.verdict in SETTLED

    def __str__(self) -> str:
        if self.better:
            return f"settled: {self.better} is better"
        if self.verdict == "similar":
            return f"settled: similar within {100 * self.margin:g} points"
        ways = [f"{self.people} more people who rate as many each"] if self.people else []
        ways += [f"{self.more} more ratings by these people"] if self.more else []
        return f"open; needed: about {' or '.join(ways)}" if ways else "open; too few ratings to plan by"


def standing(
    ratings: CrossedRatings, one: str, other: str, *, margin: float = MARGIN, pairs: int = 1
) -> Standing:
    """Compare two models by a crossed plan's ratings; the error rate is divided by the number of `pairs`."""
    rows = (ratings.model == one) | (ratings.model == other)
    raters = len(np.unique(ratings.rater[rows]))
    pair = Standing(
        one=one,
        other=other,
        ratings=int(rows.sum()),
        raters=raters,
        difference=UNDEFINED,
        margin=margin,
        verdict="inconclusive",
    )
    if not rows.any():
        return pair
    alpha, spread = ALPHA / pairs, ratings.spread(one, other)
    value, half = float(spread.value[0]), half_widths(spread, alpha=alpha)
    ends = np.clip([value - half[0], value + half[0]], -1, 1)
    if raters < LEAST_RATERS:
        return replace(pair, difference=Estimate(value, None), people=LEAST_RATERS - raters)
    is_better, is_same = is_settled(spread.value, half, margin)
    pair = replace(pair, difference=estimate_of(value, *ends))
    if is_better[0] or is_same[0]:
        better: Verdict = "better" if value > 0 else "worse"
        return replace(pair, verdict=better if is_better[0] else "similar")
    times, people = (_needed(spread, value, alpha, margin, kind) for kind in ("times", "people"))
    return replace(
        pair,
        more=None if times is None else round_up(max(1, pair.ratings * (times - 1))),
        people=None if people is None else round_up(max(1, raters * (people - 1))),
    )


def describe_few_raters(raters: int, shares: Mapping[str, float]) -> str | None:
    """Return the shares of Good by fewer than four raters, and that they decide nothing; else None."""
    if not 0 < raters < LEAST_RATERS:
        return None
    who = "1 rater is" if raters == 1 else f"{raters} raters are"
    figures = listed([f"{name} {percent(share)}%" for name, share in shares.items()])
    return f"{who} too few for a verdict; {LEAST_RATERS} are needed. Good share of these raters: {figures}."


def standings(
    ratings: CrossedRatings, *, margin: float = MARGIN, baseline: str | None = None
) -> list[Standing]:
    """Compare every two models, or each with a baseline; the error rate of all together is at most 5%."""
    models = np.unique(ratings.model).tolist()
    pairs = [pair for pair in combinations(models, 2) if baseline is None or baseline in pair]
    return [standing(ratings, *pair, margin=margin, pairs=len(pairs)) for pair in pairs]


def is_settled(value: Floats, half: Floats, margin: float) -> tuple[Mask, Mask]:
    """Return whether one is better, and whether both are alike within the margin, in every history."""
    return np.abs(value) > half, np.abs(value) + half < margin


def _needed(spread: DifferenceSpread, value: float, alpha: float, margin: float, kind: str) -> float | None:
    """Return how many times the ratings, or the raters, would settle it; None where no number would."""
    steps = np.geomspace(1.0, MOST_TIMES, 120)
    halves = np.array([half_widths(spread, alpha=alpha, **{kind: step})[0] for step in steps])
    enough = np.logical_or(*is_settled(np.full(len(steps), value), halves, margin))
    return float(steps[int(np.argmax(enough))]) if enough.any() else None
