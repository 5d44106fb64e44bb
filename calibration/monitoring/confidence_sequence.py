"""Repeated looks at a model, night after night, with an error rate that counts over all the nights.

Each night a model answers the same prompts, and the judge's Good probability is compared with that of a
pinned baseline, prompt by prompt. Four sums are stored for a night: the number of prompts, their
differences, the squares, and the baseline's variance. Prompts are fixed; decoding varies from night to night.

**The baseline is a sample too.** Its noise is in every night's difference, and no number of nights averages
it out. Only the baseline's answers to the prompts of these nights count, however many others it has: two
nights share the baseline's noise of at most all prompts of the smaller one.

**Interval.** The mean of the newest `RECENT` nights, with a confidence level that holds on every night of a
year at once: Bonferroni over the windows of a year that overlap by half at most, which suffices since all
share the baseline. A window and not all nights: a drop after a hundred quiet nights must show within days.

**Overdispersion.** Nights may differ by more than decoding explains, since an endpoint may serve another
build each night. The variance of nightly means over what decoding explains is the *overdispersion*. It is
estimated from steps between consecutive nights. A few nights do not suffice for this estimate, so variation
of one point is assumed with the weight of `PRIOR_NIGHTS` nights, and t replaces the normal.

**Earlier regressions.** A regression of one night makes two large steps, a large variance between prompts,
and pulls the mean of the newest nights. So the three largest steps, the third of which may be tonight's
change, are cut to the fourth, and all to `MOST_STEP` medians: a history of two weeks shows about half of
the variation. The variance is the median night's, or tonight's if larger. A night counts as at most
`MOST_SINGLE` standard errors beyond its neighbors, so neither a lasting drop nor tonight is cut.

**Assumed:** about equal noise from night to night, enough prompts (100 or so) for a nearly normal mean, and
night-to-night variation without memory. Tests measure the rate of false alarms with heavy-tailed and skewed
noise and with overdispersed nights.
**Not covered:** prompts as a sample of all prompts; see `drift`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from empathy_judge.calibration.estimate import CONFIDENCE, UNDEFINED, Estimate, Floats, Interval

ALPHA: Final = 1 - CONFIDENCE
NIGHTS: Final = 365  # looks over which an interval holds at once
RECENT: Final = 7  # nights whose mean is compared with the baseline
LEAST_VARIANCE: Final = 1e-10  # of a prompt's difference: answers that never vary leave no division by 0
ASSUMED_SPREAD: Final = 0.01  # night-to-night variation of the Good share, until nights show theirs
PRIOR_NIGHTS: Final = 8.0  # the weight of that assumption
LEAST_FREEDOM: Final = 30.0  # degrees of freedom of the overdispersion on the first night
MOST_STEP: Final = 9.0  # medians of squared steps; chance exceeds it in one step of 25
MOST_SINGLE: Final = 3.0  # standard errors


class NightSums(NamedTuple):
    """The sums over the prompts of one night of a model.

    `baseline` adds up the baseline's variance as a multiple of one night's (1/7 if averaged over seven).
    """

    prompts: float
    differences: float
    squares: float
    baseline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NightVariance:
    """Night-to-night variation of one model."""

    nights: int
    decoding: float  # one answer's variance by decoding
    overdispersion: float  # the variance of nightly means over what decoding explains, with the prior
    freedom: float
    spread: float  # the standard deviation of nights beyond decoding, as observed
    widening: float  # the factor on one night's interval for it
    is_shown: bool = False  # decoding alone would vary as far in at most one of twenty histories


def sum_night(differences: ArrayLike, baseline: ArrayLike = 1.0) -> NightSums:
    """Return the sums of a night, from its differences to the baseline by prompt and the baseline's variance.

    Pass the negatives where a rise is for the worse (the Bad share).

    >>> sum_night([0.25, -0.5, 0.0])
    NightSums(prompts=3, differences=-0.25, squares=0.3125, baseline=3.0)
    """
    values = np.asarray(differences, dtype=float)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError("one difference per prompt; leave out prompts that are unscored on either side")
    shared = np.broadcast_to(np.asarray(baseline, dtype=float), values.shape)
    return NightSums(len(values), float(values.sum()), float((values**2).sum()), float(shared.sum()))


def night_variance(nights: Sequence[NightSums]) -> NightVariance:
    """Estimate how far nights differ, by decoding and beyond it; nan where no night has two prompts."""
    from scipy.special import chdtrc

    prompts, totals, squares, shared = _asked(nights)
    if not (prompts > 1).any():
        return NightVariance(
            nights=0, decoding=math.nan, overdispersion=math.nan, freedom=math.nan, spread=0.0, widening=1.0
        )
    # Prompts differ in difficulty, not in what they gain or lose while nothing changes: the spread of
    # differences over prompts is decoding's, tonight's and the baseline's.
    each = np.maximum(squares - totals**2 / prompts, 0.0) / np.maximum(prompts - 1, 1)
    # Tonight counts if it varies more: answers that never varied would make any change certain.
    spread = max(float(np.median(each)), float(each[-1]))
    decoding = max(spread / (1 + float(shared.sum() / prompts.sum())), LEAST_VARIANCE)
    steps = np.sort(np.diff(totals / prompts) ** 2 / (1 / prompts[1:] + 1 / prompts[:-1])) / decoding
    steps = np.minimum(steps, min(steps[-4], MOST_STEP * np.median(steps))) if len(steps) > 3 else steps[:0]
    observed, count = float(steps.sum()), len(steps)
    assumed = 1 + ASSUMED_SPREAD**2 * float(prompts.max()) / decoding
    ratio = observed / count if count else 1.0
    return NightVariance(
        nights=len(prompts),
        decoding=decoding,
        overdispersion=max(1.0, (PRIOR_NIGHTS * assumed + observed) / (PRIOR_NIGHTS + count)),
        freedom=LEAST_FREEDOM + count,
        spread=math.sqrt(max(ratio - 1, 0.0) * decoding / float(prompts.max())),
        widening=math.sqrt(max(1.0, (PRIOR_NIGHTS + observed) / (PRIOR_NIGHTS + count))),
        is_shown=count > 0 and float(chdtrc(count, observed)) < ALPHA,
    )


def recent_change(nights: Sequence[NightSums], *, models: int = 1) -> Estimate:
    """Return the mean difference of the newest nights to the baseline.

    With probability 95% the truth is within the interval on every night of a year, for all `models` at once.

    >>> found = recent_change([NightSums(100, -3.0, 4.0, 100.0)])
    >>> found.value, round(found.interval.low, 2), round(found.interval.high, 2)
    (-0.03, -0.13, 0.07)
    """
    from scipy.special import stdtrit

    prompts, totals, _, shared = (sums[-RECENT:] for sums in _asked(nights))
    variance = night_variance(nights)
    asked = float(prompts.sum())
    if not asked or not math.isfinite(variance.decoding):
        return UNDEFINED if not asked else Estimate(float(totals.sum()) / asked, None)
    means = totals / prompts
    reach = MOST_SINGLE * np.sqrt(variance.decoding * variance.overdispersion / prompts[1:-1])
    sides = means[:-2], means[2:]
    means[1:-1] = np.clip(means[1:-1], np.minimum(*sides) - reach, np.maximum(*sides) + reach)
    value = float(means @ prompts) / asked
    baseline = float(np.minimum.outer(shared, shared).sum()) / asked**2
    error = math.sqrt(variance.decoding * variance.overdispersion * (1 / asked + baseline))
    looks = models * 2 * NIGHTS / RECENT
    half = float(stdtrit(variance.freedom, 1 - ALPHA / (2 * looks))) * error
    return Estimate(value, Interval(value - half, value + half))


def half_width(information: Floats | float, *, alpha: float, tuned_at: float) -> Floats:
    """Return the half-width of Robbins' normal mixture, which holds at all times, narrowest at `tuned_at`.

    Howard et al. 2021, arXiv 1810.08240.

    >>> float(half_width(1.0, alpha=0.05, tuned_at=1.0).round(2))  # a single look would have 1.96
    3.04
    """
    spent = -2 * math.log(alpha)
    prior = tuned_at / (spent + math.log1p(spent))
    total = information + prior
    return np.asarray(np.sqrt(total * (np.log(total / prior) + spent)) / information)


def as_t(reach: Floats | float, freedom: Floats | float) -> Floats:
    """Turn a normal statistic into a t statistic of about the same tail (Wallace 1959).

    >>> as_t(1.96, np.array([10.0, 1e6])).round(2).tolist()  # as in tables
    [2.23, 1.96]
    """
    bent = reach * (8 * freedom + 3) / (8 * freedom + 1)
    return np.sqrt(freedom * np.expm1(np.minimum(bent**2 / freedom, 700.0)))


def _asked(nights: Sequence[NightSums]) -> Floats:
    """Return the four sums of the nights that have prompts, a row for each sum."""
    return np.array([night for night in nights if night.prompts > 0], dtype=float).reshape(-1, 4).T
