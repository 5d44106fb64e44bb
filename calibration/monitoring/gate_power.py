"""What would tell a change from its limit: more prompts, or more nights, and whether any would.

How far beyond its limit a change truly lies is not known: it may lie anywhere about where it seems to lie.
What is promised is told with the power `POWER` over all of that, whichever way it falls out. Many nights do
not do what many prompts do: each is set against the same baseline, whose own noise they never average out,
and a gate passes by one night alone. So nights are promised only where the watch would fail the gate by then.
"""

import math
from bisect import bisect_left
from dataclasses import replace
from typing import Final

import numpy as np

from calibration.cluster import NORMAL, POWER
from calibration.estimate import Interval
from calibration.monitoring.confidence_sequence import Watch, current, moods
from calibration.shares.transport import normal_below

MOST: Final = 20.0  # times tonight's prompts: what is further off is no advice
AHEAD: Final = (1, 2, 3, 5, 7, 10, 14, 21, 30)  # nights to look ahead by
LIKELY: Final = 0.8416  # standard errors that a normal falls short of with the power of 80 %
ALMOST_SURE: Final = 1.2816  # of 90 %: where a change is taken to have begun varies too, which costs the rest


def prompts_needed(
    beyond: float,
    interval: Interval,
    prompts: float,
    *,
    sure: Interval,
    watch: Watch | None = None,
    models: int = 1,
) -> int | None:
    """With how many prompts a night a gate tells; None where it would take more than `MOST` times tonight's.

    `beyond` is how much more harm there seems to be than the limit, negative for less. `interval`, by which a
    gate passes, and `sure`, by which it fails, are as wide as tonight's with so many `prompts`; the latter by
    a `watch`, if there is one, in which what nights have in common is not the prompts' and stays.

    >>> prompts_needed(-0.04, Interval(-0.05, 0.05), 100, sure=Interval(-0.08, 0.08))
    810
    >>> prompts_needed(0.0, Interval(-0.05, 0.05), 100, sure=Interval(-0.08, 0.08)) is None
    True
    """
    error = (interval.high - interval.low) / 2 / NORMAL
    if not error > 0 or not prompts > 0 or not math.isfinite(beyond):
        return None
    # In standard errors of tonight: where the truth may lie, and how likely.
    truth = beyond / error + np.linspace(-4, 4, 161)
    weight = np.exp(-((truth - beyond / error) ** 2) / 2)
    weight /= weight.sum()

    def is_enough(factor: float) -> bool:
        root = math.sqrt(factor)
        to_fail = max(NORMAL / root, half_width_with(factor, sure, watch, models) / error)
        least = np.where(truth > 0, to_fail, NORMAL / root)
        return float(weight @ normal_below(root * (np.abs(truth) - least))) >= POWER

    factors = np.geomspace(1.0, MOST, 64).tolist()
    enough = bisect_left(factors, True, key=is_enough)  # the more prompts, the likelier
    return round(prompts * factors[enough]) if enough < len(factors) else None


def told_from(
    interval: Interval, *, sure: Interval, more: float = 1.0, watch: Watch | None = None, models: int = 1
) -> float:
    """How far from the limit a change must truly lie to be told, with `more` times tonight's prompts.

    >>> round(told_from(Interval(-0.05, 0.05), sure=Interval(-0.08, 0.08), more=4), 3)
    0.051
    """
    error = (interval.high - interval.low) / 2 / NORMAL / math.sqrt(more)
    return max(NORMAL * error, half_width_with(more, sure, watch, models)) + LIKELY * error


def half_width_with(more: float, sure: Interval, watch: Watch | None, models: int) -> float:
    """The half-width by which a gate fails, had all nights `more` times their prompts, as they went."""
    if watch is None or more == 1:
        return (sure.high - sure.low) / 2 / math.sqrt(more)
    larger = replace(
        watch,
        prompts=tuple(round(more * count) for count in watch.prompts),
        totals=tuple(more * total for total in watch.totals),
        squares=tuple(more * square for square in watch.squares),
    )
    ends = current(larger, models=models).interval
    return math.inf if ends is None else (ends.high - ends.low) / 2


def nights_needed(watch: Watch, limit: float, *, models: int = 1) -> int | None:
    """After how many more nights like these a drop beyond `limit` fails its gate; None where none is sure to.

    The watch is of drops, after tonight. Nights to come are taken to be better than it seems, by as much as
    nine in ten are not.
    """
    now = current(watch, models=models)
    looked = [number for number, count in enumerate(watch.prompts) if count]
    if not looked or not math.isfinite(now.value) or -now.value <= limit:
        return None
    nights, prompts = len(looked), sum(watch.prompts) / len(looked)
    level = sum(watch.totals) / sum(watch.prompts)
    rest = sum(watch.squares[at] - watch.totals[at] ** 2 / watch.prompts[at] for at in looked) / nights
    spread = moods(watch, models=models).dispersion
    # A night's own variance: half of that of its differences, the other half being the baseline's.
    variance = rest / prompts**2 / (1 + 1 / watch.baseline_nights) * max(1.0, np.nan_to_num(spread))
    for more in AHEAD:
        # What the mean of all nights may still do, from here on.
        stray = math.sqrt(variance * more / (nights * (nights + more)))
        mean = level + ALMOST_SURE * stray * (nights + more) / more
        # Nights to come differ by as much as a night does, else they would seem to have no moods.
        apart = math.sqrt(variance) * np.resize([1.0, -1.0], more)
        totals = (prompts * (mean + apart - apart.mean())).tolist()
        later = replace(
            watch,
            prompts=(*watch.prompts, *(round(prompts),) * more),
            totals=(*watch.totals, *totals),
            squares=(*watch.squares, *(rest + total**2 / prompts for total in totals)),
        )
        ends = current(later, models=models).interval
        if ends is not None and -ends.high > limit:
            return more
    return None
