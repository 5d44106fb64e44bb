"""Ratings drawn from the rater model itself, with severities that are known."""

import math
from typing import Any

import numpy as np
from scipy import stats

THRESHOLDS = np.array([-1.0, 0.2])


EFFECTS = {"a": 0.0, "b": 0.5, "c": -0.3}


def some_ratings(
    seed: int,
    *,
    raters: int = 100,
    each: int = 10,
    sd: float = 0.6,
    slope: float = 0.0,
    crossed: bool = False,
    noise: dict[str, float] | None = None,
) -> dict[str, Any]:
    """Ratings drawn from the model: `raters` for each of three models, or all of them for all three."""
    rng = np.random.default_rng(seed)
    people = raters if crossed else raters * len(EFFECTS)
    severity, trait = sd * rng.standard_normal(people), rng.normal(48, 8, people)
    person = np.repeat(np.arange(people), each)
    model = rng.integers(3, size=len(person)) if crossed else person % 3
    names = np.array(list(EFFECTS))[model]
    spread = np.array([(noise or {}).get(name, 1.0) for name in EFFECTS])[model]
    liking = np.array(list(EFFECTS.values()))[model] + slope * (trait[person] - 48)
    liking += spread * (rng.standard_normal(len(person)) - severity[person])
    return {
        "rating": 1 + (liking[:, None] > THRESHOLDS).sum(axis=1),
        "rater": person.astype(str),
        "model": names,
        "severity": severity,
        "trait": trait[person],
    }


def true_share(effect: float, sd: float) -> list[float]:
    cumulative = stats.norm.cdf((THRESHOLDS - effect) / math.hypot(1, sd))
    return [float(part) for part in np.diff([0, *cumulative, 1])]
