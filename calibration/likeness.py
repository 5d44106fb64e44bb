"""Whether a model's feelings move as people's do: in the same order over factors, and to the same level."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import atanh, nan, sqrt, tanh
from typing import Any

import numpy as np

from calibration.agreement import spearman
from calibration.intervals import finite_or_none

FEWEST = 4  # factors, below which an order says nothing
SPLITS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """Over the factors both have: `rank` is Spearman's correlation of the changes with its 95 % interval,
    `level_error` the mean distance of the evoked means, `change_error` that of the changes.

    `ceiling` is how well two halves of the people agree in their changes; one cannot ask for more.
    """

    factors: int
    rank: float
    low: float
    high: float
    level_error: float
    level_bias: float  # the model above people, on average
    change_error: float
    ceiling: float | None

    def as_dict(self) -> dict[str, Any]:
        names = ("rank", "low", "high", "level_error", "level_bias", "change_error")
        found = {name: finite_or_none(getattr(self, name)) for name in names}
        return {"factors": self.factors, **found, "ceiling": self.ceiling}


def likeness(
    model: Mapping[str, tuple[float, float]],
    people: Mapping[str, tuple[float, float]],
    *,
    ceiling: float | None = None,
) -> Likeness:
    """From each factor's evoked mean and change.

    >>> people = {"a": (20.0, 1.0), "b": (30.0, 2.0), "c": (31.0, 3.0), "d": (40.0, 4.0)}
    >>> model = {name: (evoked + 5, 10 * change) for name, (evoked, change) in people.items()}
    >>> found = likeness(model, people)
    >>> round(found.rank, 6), found.level_error, found.change_error
    (1.0, 5.0, 22.5)
    """
    shared = [name for name in people if name in model and np.isfinite([*model[name], *people[name]]).all()]
    ours, theirs = (np.array([side[name] for name in shared]).reshape(-1, 2) for side in (model, people))
    rank = spearman(ours[:, 1], theirs[:, 1]) if len(shared) >= FEWEST else nan
    low, high = _interval(rank, len(shared))
    apart = ours - theirs
    known = len(shared) > 0
    return Likeness(
        factors=len(shared),
        rank=rank,
        low=low,
        high=high,
        level_error=float(np.abs(apart[:, 0]).mean()) if known else nan,
        level_bias=float(apart[:, 0].mean()) if known else nan,
        change_error=float(np.abs(apart[:, 1]).mean()) if known else nan,
        ceiling=ceiling,
    )


def split_half(changes: Mapping[str, Sequence[float]], *, seed: int = 0) -> float:
    """How well two halves of the people agree in the factors' mean changes, as all of them would.

    The mean over random halves of Pearson's correlation, stepped up by Spearman and Brown; nan where a factor
    has fewer than two people.
    """
    values = [np.asarray(item, dtype=float) for item in changes.values()]
    if len(values) < FEWEST or min(map(len, values)) < 2:
        return nan
    chance = np.random.default_rng(seed)
    found = []
    for _ in range(SPLITS):
        orders = [chance.permutation(item) for item in values]
        halves = [[item[part::2].mean() for item in orders] for part in (0, 1)]
        found.append(float(np.corrcoef(halves[0], halves[1])[0, 1]))
    half = float(np.mean(found))
    return 2 * half / (1 + half)


def _interval(rank: float, count: int) -> tuple[float, float]:
    """Fisher's z with the variance of Bonett and Wright (2000); by hand, as scipy has none for ranks."""
    if not abs(rank) < 1 or count <= FEWEST:
        return nan, nan
    reach = 1.959964 * sqrt((1 + rank**2 / 2) / (count - 3))
    return tanh(atanh(rank) - reach), tanh(atanh(rank) + reach)
