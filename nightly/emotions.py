"""A model's Good share under one emotion, pooled over the newest nights, since one night has few prompts."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from calibration.cluster import wilson_interval
from calibration.estimate import Estimate, Interval
from calibration.monitoring.confidence_sequence import ALPHA, NIGHTS
from data.records import LABELS
from nightly.schema import EmotionResult, JudgedResponse

POOLED_NIGHTS: Final = 7
NOISE_NIGHTS: Final = 60  # used to estimate the night-to-night variation
LEAST_VARIANCE: Final = 1e-4  # of probabilities over prompts: all alike tonight is no proof that none differs
LEAST_STEPS: Final = 10  # differences of two nights, over all emotions, from which on these tell the noise


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSpread:
    """How far a model's Good probabilities vary, pooled over emotions.

    One prompt is `worth` so many that are Good or not, since a probability varies less; that is known with so
    many degrees of `freedom`. `night` is the variance of one answer's probability from night to night.
    """

    worth: float = 1.0
    freedom: float = math.inf
    night: float = 0.25


@dataclass(frozen=True, slots=True)
class PooledShare:
    """A Good share over several nights; `prompts` is how many one night has, `nights` how many there were."""

    share: float
    prompts: float
    nights: int = 1

    def interval(self) -> Interval:
        """Wilson's interval of as many prompts as one night has: one asked again is not a new one."""
        return self._wilson(self.prompts, 1 - ALPHA / 2, math.inf)

    def floor_estimates(self, known: PromptSpread, *, floors: int) -> tuple[Estimate, Estimate]:
        """Return the share with an interval for one night, and for all nights and so many floors at once.

        Which prompts are asked is drawn once, however many nights they are asked on: only the chance in
        answers is estimated again each night, and the two share the error between them.
        """
        worth = self.prompts * known.worth
        tonight = self._wilson(worth, 1 - ALPHA / 2, known.freedom)
        drawn = self._wilson(worth, 1 - ALPHA / (4 * floors), known.freedom)
        reach = _quantile(1 - ALPHA / (4 * floors * NIGHTS), math.inf)
        noise = reach * math.sqrt(known.night / (self.prompts * self.nights))
        always = Interval(max(0.0, drawn.low - noise), min(1.0, drawn.high + noise))
        return Estimate(self.share, tonight), Estimate(self.share, always)

    def _wilson(self, count: float, confidence: float, freedom: float) -> Interval:
        ends = wilson_interval(np.array(self.share), np.array(count), _quantile(confidence, freedom))
        low, high = map(float, ends)
        return Interval(low, high)


def _quantile(confidence: float, freedom: float) -> float:
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(freedom, confidence) if math.isfinite(freedom) else ndtri(confidence))


def prompt_spread(
    judged: Iterable[JudgedResponse], nights: Iterable[Sequence[EmotionResult]]
) -> PromptSpread:
    """From one model's responses tonight, and each emotion's nights in order, all of them."""
    groups: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for item in judged:
        if item.emotion is not None and item.good is not None:
            groups[item.emotion][item.prompt].append(item.good)
    means = [np.array([np.mean(good) for good in prompts.values()]) for prompts in groups.values()]
    freedom = sum(len(mean) - 1 for mean in means)
    if not freedom:
        return PromptSpread()
    squares = sum(float(((mean - mean.mean()) ** 2).sum()) for mean in means)
    labels = sum(len(mean) * float(mean.mean() * (1 - mean.mean())) for mean in means)
    variance = max(squares / freedom, LEAST_VARIANCE)
    worth = max(1.0, labels / sum(map(len, means)) / variance)
    # From each night to the next, so that a change hardly counts; two nights' noise is in a difference.
    steps = [
        (now.good / now.n - then.good / then.n) ** 2 / (1 / now.n + 1 / then.n)
        for rows in nights
        for then, now in pairwise(row for row in rows if row.n)
    ]
    night = float(np.mean(steps)) if len(steps) >= LEAST_STEPS else variance
    return PromptSpread(worth=worth, freedom=freedom, night=night)


def pool(rows: Sequence[EmotionResult]) -> PooledShare | None:
    """One model's nights under one emotion; None where nothing was judged."""
    judged = sum(row.n for row in rows)
    return (
        PooledShare(sum(row.good for row in rows) / judged, judged / len(rows), len(rows)) if judged else None
    )


def sum_emotions(judged: Iterable[JudgedResponse]) -> list[EmotionResult]:
    """Sums by model and emotion; responses without an emotion are in none."""
    groups: defaultdict[tuple[str, str], list[JudgedResponse]] = defaultdict(list)
    for item in judged:
        if item.emotion is not None and item.good is not None:
            groups[item.model, item.emotion].append(item)
    return [
        EmotionResult(
            model=model,
            emotion=emotion,
            n=len(items),
            **{name: round(sum(getattr(item, name) for item in items), 6) for name in map(str.lower, LABELS)},
        )
        for (model, emotion), items in sorted(groups.items())
    ]
