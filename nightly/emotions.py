"""A model's Good share under one emotion, pooled over the newest nights, since one night has few prompts."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from calibration.cluster import NORMAL, wilson_interval
from calibration.estimate import Interval
from data.records import LABELS
from nightly.schema import EmotionResult, JudgedResponse

POOLED_NIGHTS: Final = 7


@dataclass(frozen=True, slots=True)
class PooledShare:
    """A Good share over several nights; `prompts` is how many one night has."""

    share: float
    prompts: float

    def interval(self) -> Interval:
        """Wilson's interval of as many prompts as one night has: one asked again is not a new one."""
        low, high = wilson_interval(np.array(self.share), np.array(self.prompts), NORMAL)
        return Interval(float(low), float(high))


def pool(rows: Sequence[EmotionResult]) -> PooledShare | None:
    """One model's nights under one emotion; None where nothing was judged."""
    judged = sum(row.n for row in rows)
    return PooledShare(sum(row.good for row in rows) / judged, judged / len(rows)) if judged else None


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
