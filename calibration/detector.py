"""An e-detector of drops over many nights, and the width of an interval that holds on all of them.

Arithmetic for `calibration.sequences`, which says what is assumed. Arrays are (histories, nights), so that a
thousand simulated years are one call.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from calibration.intervals import Floats

NOTHING: Final = 1e-9  # below this, means of equal numbers differ by rounding alone
LEAST_VARIANCE: Final = 1e-10  # of a prompt's difference: answers that never vary leave no division by 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Nights:
    """Sums over prompts of many histories' nights; see `calibration.sequences.Watch` for one."""

    prompts: Floats  # (nights,)
    totals: Floats  # (histories, nights)
    squares: Floats  # (histories, nights)
    baseline_nights: int = 1

    @property
    def baseline_prompts(self) -> np.float64:
        """How many answers the baseline rests on: no fewer than were compared on any night."""
        return np.float64(self.baseline_nights * self.prompts.max(initial=0.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Changes:
    """By the night a change may have begun at, (histories, nights); nan where nothing is known.

    `against_before` is the mean from that night on less that of the baseline and all nights before it,
    `level` is less the baseline alone; each comes with its information, 1 / variance.
    """

    against_before: Floats
    information: Floats
    level: Floats
    level_information: Floats


def noise(nights: Nights) -> Floats:
    """One answer's variance by decoding, estimated for a change from each night on; nan with no two prompts.

    Prompts differ in difficulty, not in what they gain or lose while nothing changes, so the spread of
    differences over prompts is decoding's, tonight's and the baseline's. It is pooled over all nights, or
    over those since the change where it is larger then: answers that never varied would else make anything
    certain on the first night they do.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.where(nights.prompts > 0, nights.squares - nights.totals**2 / nights.prompts, 0.0)
        freedom = _from_each(np.maximum(nights.prompts - 1, 0.0)[None])
        since = _from_each(np.maximum(apart, 0.0)) / freedom
    pooled = np.fmax(since, since[:, :1]) / (1 + 1 / nights.baseline_nights)
    return np.maximum(pooled, LEAST_VARIANCE)


def changes(nights: Nights) -> Changes:
    """The change from every night on, as seen on the last one."""
    later, after = _from_each(nights.prompts[None]), _from_each(nights.totals)
    pinned = nights.baseline_prompts
    earlier = pinned + nights.prompts.sum() - later
    before = nights.totals.sum(axis=1, keepdims=True) - after
    variance = noise(nights)
    with np.errstate(divide="ignore", invalid="ignore"):
        level = after / later
        gap = level - before / earlier
        return Changes(
            against_before=np.where(np.abs(gap) < NOTHING, 0.0, gap),
            information=1 / (variance * (1 / later + 1 / earlier)),
            level=level,
            level_information=1 / (variance * (1 / later + 1 / pinned)),
        )


def log_ratios(found: Changes, *, drop: float) -> Floats:
    """The log e-value of a drop from each night on, mixed over a half-normal of scale `drop`.

    With score S = information * change, a Brownian motion under no change, and prior precision r it is
    2 Phi(-x) sqrt(r / (r + information)) exp(x^2 / 2), x = S / sqrt(r + information). Where nothing is known
    the e-value is 1.
    """
    from scipy.special import log_ndtr

    prior = 1 / drop**2
    reach = found.against_before * found.information / np.sqrt(prior + found.information)
    grown = math.log(2) - np.log(1 + found.information / prior) / 2 + reach**2 / 2 + log_ndtr(-reach)
    return np.where(np.isfinite(grown), grown, 0.0)


def log_evidence(ratios: Floats) -> Floats:
    """The logarithm of the Shiryaev-Roberts sum over all nights a change may have begun at, (histories,)."""
    # By hand: scipy's logsumexp is several times slower on these arrays.
    top = ratios.max(axis=1)
    total: Floats = top + np.log(np.exp(ratios - top[:, None]).sum(axis=1))
    return total


def half_width(information: float, *, alpha: float, tuned_at: float) -> float:
    """Of a normal-mixture interval that holds at all times; it is narrowest where information is `tuned_at`.

    >>> round(half_width(1.0, alpha=0.05, tuned_at=1.0), 2)  # a single look would have 1.96
    3.04
    """
    spent = -2 * math.log(alpha)
    prior = tuned_at / (spent + math.log1p(spent))
    total = information + prior
    return math.sqrt(total * (math.log(total / prior) + spent)) / information


def _from_each(values: Floats) -> Floats:
    """The sums from each night to the last."""
    sums: Floats = values[:, ::-1].cumsum(axis=1)[:, ::-1]
    return sums
