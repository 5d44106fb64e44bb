"""The largest gap between the means of several groups, and how large it would be by chance alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from calibration.estimate import CONFIDENCE, Estimate, Floats, Integers, Interval

DRAWS: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The highest mean less the lowest, and whose these are.

    `by_chance` is the mean gap where the same values are dealt to the groups at random: the best and the
    worst of many small groups always lie apart. `p` is how often such a gap is at least as large.
    """

    gap: Estimate
    highest: str
    lowest: str
    by_chance: float
    p: float


def largest_gap(
    groups: Mapping[str, Floats], *, most: float, rng: np.random.Generator, draws: int = DRAWS
) -> Gap | None:
    """Find the largest gap, which can be `most`; None with fewer than two groups that have values.

    The interval holds for all pairs of groups at once: whichever two lie farthest apart in truth, chance
    moves no difference by more than this 95 times of 100. A bootstrap of the gap itself would be too sure.
    """
    filled = {name: values for name, values in groups.items() if len(values)}
    if len(filled) < 2:
        return None
    values, names = np.concatenate(list(filled.values())), list(filled)
    sizes = np.array([len(group) for group in filled.values()])
    means = _means(values[None, :], sizes)[0]
    found = float(np.ptp(means))
    dealt = np.ptp(_means(rng.permuted(np.tile(values, (draws, 1)), axis=1), sizes), axis=1)
    margin = float(np.quantile(dealt, CONFIDENCE))
    return Gap(
        gap=Estimate(found, Interval(max(0.0, found - margin), min(most, found + margin))),
        highest=names[int(means.argmax())],
        lowest=names[int(means.argmin())],
        by_chance=float(dealt.mean()),
        p=float((1 + (dealt >= found - 1e-12).sum()) / (1 + draws)),
    )


def _means(values: Floats, sizes: Integers) -> Floats:
    """Means of groups that stand side by side, (draws, cases) -> (draws, groups)."""
    return np.asarray(np.add.reduceat(values, np.cumsum(sizes) - sizes, axis=1) / sizes)
