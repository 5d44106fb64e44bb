"""Looks at a model night after night: intervals and alarms whose error is counted over all the nights.

Each night a model answers the same prompts, and the judge's Good probability is set against that of a pinned
baseline, prompt by prompt. What is kept of a night is three sums: how many prompts, their differences and the
squares. Prompts are fixed; what varies from night to night is decoding.

**The baseline is a draw too.** Its noise is in every night's difference and no number of nights averages it
out, so a sequence that took the differences for independent would sooner or later alarm for certain. Here the
baseline is one more stretch of nights with its own variance: the mean of some nights less the mean of those
before has variance s²(1/after + 1/before), and its score is a Brownian motion in that information.

**Interval.** Robbins' normal mixture over that motion (Howard et al. 2021, arXiv 1810.08240): it holds at
every night at once.

**Alarm.** For every night a change may have begun at, an e-process against "nothing changed": the likelihood
ratio of a drop, averaged over a half-normal of scale `DROP`. Their sum is a Shiryaev-Roberts e-detector
(Shin, Ramdas and Rinaldo 2022, arXiv 2203.03532). Less the number of nights it is a martingale, so that it
passes `NIGHTS / alpha` within `NIGHTS` nights with a probability of at most `alpha`, and if nobody ever stops
it, not before `NIGHTS / alpha` nights on average.

**Moods.** Nights may differ by more than decoding explains. All information is divided by the dispersion of
the nights so far, and t takes the normal's place: see `night_variance`.

**Assumed:** about equal noise from night to night; enough prompts (100 or so) that a night's mean is near
normal. That is asymptotic, not exact: the tests measure it with heavy-tailed and skewed noise, with moods and
with moods that last. Moods that last for weeks are told from changes only in part.
**Not covered:** prompts as a sample of all prompts, for which see `drift`.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from calibration.estimate import CONFIDENCE, UNDEFINED, Estimate, Floats, Interval
from calibration.monitoring.night_variance import as_normal, as_t, night_variance

NOTHING: Final = 1e-9  # below this, means of equal numbers differ by rounding alone
LEAST_VARIANCE: Final = 1e-10  # of a prompt's difference: answers that never vary leave no division by 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Nights:
    """Sums over prompts of many histories' nights; `Watch` has those of one.

    Arrays are (histories, nights), so that a thousand simulated years are one call.
    """

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
    """What changed, by the night it may have begun at, (histories, nights); nan where nothing is known.

    `against_before` is the mean from that night on less that of the baseline and all nights before it,
    `level` is less the baseline alone; each comes with its information, 1 / variance. The variance holds the
    `dispersion` of nights, known with so many degrees of `freedom`.
    """

    against_before: Floats
    information: Floats
    level: Floats
    level_information: Floats
    dispersion: Floats
    freedom: Floats


def noise(nights: Nights) -> Floats:
    """One answer's variance by decoding, estimated for a change from each night on; nan with no two prompts.

    Prompts differ in difficulty, not in what they gain or lose while nothing changes, so the spread of
    differences over prompts is decoding's, tonight's and the baseline's. It is pooled over all nights, or
    over those since the change where it is larger then: answers that never varied would else make anything
    certain on the first night they do.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        residuals = np.where(nights.prompts > 0, nights.squares - nights.totals**2 / nights.prompts, 0.0)
        freedom = _from_each(np.maximum(nights.prompts - 1, 0.0)[None])
        since = _from_each(np.maximum(residuals, 0.0)) / freedom
    pooled = np.fmax(since, since[:, :1]) / (1 + 1 / nights.baseline_nights)
    return np.maximum(pooled, LEAST_VARIANCE)


def changes(nights: Nights) -> Changes:
    """The change from every night on, as seen on the last one."""
    later, after = _from_each(nights.prompts[None]), _from_each(nights.totals)
    pinned = nights.baseline_prompts
    earlier = pinned + nights.prompts.sum() - later
    before = nights.totals.sum(axis=1, keepdims=True) - after
    decoding = noise(nights)
    moods = night_variance(nights.prompts, nights.totals, decoding)
    variance = decoding * moods.dispersion
    with np.errstate(divide="ignore", invalid="ignore"):
        level = after / later
        gap = level - before / earlier
        return Changes(
            against_before=np.where(np.abs(gap) < NOTHING, 0.0, gap),
            information=1 / (variance * (1 / later + 1 / earlier)),
            level=level,
            level_information=1 / (variance * (1 / later + 1 / pinned)),
            dispersion=moods.dispersion,
            freedom=moods.freedom,
        )


def log_ratios(found: Changes, *, drop: float) -> Floats:
    """The log e-value of a drop from each night on, mixed over a half-normal of scale `drop`.

    With score S = information * change, a Brownian motion under no change, and prior precision r it is
    2 Phi(-x) sqrt(r / (r + information)) exp(x^2 / 2), x = S / sqrt(r + information), which is t and not
    normal since the dispersion is estimated. Where nothing is known the e-value is 1.
    """
    from scipy.special import log_ndtr

    prior = 1 / drop**2
    reach = found.against_before * found.information / np.sqrt(prior + found.information)
    reach = as_normal(reach, found.freedom)
    grown = math.log(2) - np.log(1 + found.information / prior) / 2 + reach**2 / 2 + log_ndtr(-reach)
    return np.where(np.isfinite(grown), grown, 0.0)


def log_evidence(ratios: Floats) -> Floats:
    """The logarithm of the Shiryaev-Roberts sum over all nights a change may have begun at, (histories,)."""
    # By hand: scipy's logsumexp is several times slower on these arrays.
    top = ratios.max(axis=1)
    total: Floats = top + np.log(np.exp(ratios - top[:, None]).sum(axis=1))
    return total


def half_width(information: Floats | float, *, alpha: float, tuned_at: float) -> Floats:
    """The half-width of a normal-mixture interval that holds at all times, narrowest at `tuned_at`.

    >>> float(half_width(1.0, alpha=0.05, tuned_at=1.0).round(2))  # a single look would have 1.96
    3.04
    """
    spent = -2 * math.log(alpha)
    prior = tuned_at / (spent + math.log1p(spent))
    total = information + prior
    return np.asarray(np.sqrt(total * (np.log(total / prior) + spent)) / information)


def _from_each(values: Floats) -> Floats:
    """The sums from each night to the last."""
    sums: Floats = values[:, ::-1].cumsum(axis=1)[:, ::-1]
    return sums


ALPHA: Final = 1 - CONFIDENCE
NIGHTS: Final = 365  # within which a false alarm has a probability of at most alpha
TUNED_NIGHTS: Final = 30  # at which the interval is narrowest
TUNED_CHANGE: Final = 3  # nights after a change at which its interval is narrowest
DROP: Final = 0.05  # of the Good share: what the alarm is quickest to find


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What is known of one model's nights, in order: sums of differences (tonight - baseline) over prompts.

    `baseline_nights` is over how many nights the baseline was averaged, prompt by prompt. A night on which no
    prompt has both judgments has 0 prompts: it was looked at and says nothing.
    """

    baseline_nights: int = 1
    prompts: tuple[int, ...] = ()
    totals: tuple[float, ...] = ()
    squares: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.baseline_nights < 1:
            raise ValueError("a baseline has at least one night")
        if not len(self.prompts) == len(self.totals) == len(self.squares):
            raise ValueError("every night has its prompts, total and squares")

    @property
    def nights(self) -> int:
        return len(self.prompts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Says whether a drop has shown by tonight.

    `evidence` is the e-detector over its limit, so 1 raises the alarm; nan while nothing is known. `since` is
    the night, from 1, at which a change most likely began, and `change` the mean since then less the mean
    before, with an interval that holds for all nights and all beginnings at once; both say little, and
    `since` may be any night, while no alarm is raised.
    """

    is_raised: bool
    evidence: float
    since: int | None
    change: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Moods:
    """What nights have in common beyond decoding; nan where too few nights tell.

    `dispersion` is the variance of nights over what decoding explains, `spread` what is left of it as a part
    of 1, and `widening` how many times as wide one night's interval is for it. Moods are shown where
    decoding alone would disperse nights as far in at most one of twenty histories.
    """

    nights: int
    dispersion: float
    spread: float
    widening: float
    is_shown: bool = False


def update(watch: Watch, differences: ArrayLike) -> Watch:
    """The watch after one more night, whose differences to the baseline are given by prompt.

    A rise that is bad (the Bad share) is watched as a drop of its negative.

    >>> update(Watch(), [0.25, -0.5, 0.0])
    Watch(baseline_nights=1, prompts=(3,), totals=(-0.25,), squares=(0.3125,))
    """
    values = np.asarray(differences, dtype=float)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError("one difference a prompt; leave out what is unscored on either side")
    return replace(
        watch,
        prompts=(*watch.prompts, len(values)),
        totals=(*watch.totals, float(values.sum())),
        squares=(*watch.squares, float((values**2).sum())),
    )


def interval(watch: Watch, *, alpha: float = ALPHA) -> Estimate:
    """The mean difference of all nights so far to the baseline, by a confidence sequence.

    With probability 1 - alpha the true one is within on *every* night, so the interval may be looked at each
    night and reported when one likes.

    >>> watch = Watch(prompts=(100,), totals=(-3.0,), squares=(4.0,))
    >>> found = interval(watch)
    >>> found.value, round(found.interval.low, 2), round(found.interval.high, 2)
    (-0.03, -0.11, 0.05)
    """
    if not watch.nights:
        return UNDEFINED
    nights = _nights(watch)
    found, pinned = changes(nights), float(nights.baseline_prompts)
    tuned = _information(nights, found, 0, TUNED_NIGHTS, pinned)
    information = float(found.level_information[0, 0])
    freedom = float(found.freedom[0, 0])
    return _estimate(float(found.level[0, 0]), information, freedom, alpha=alpha, tuned_at=tuned)


def current(watch: Watch, *, models: int = 1) -> Estimate:
    """How far the model is from where it was: what a gate should look at.

    Once the alarm is raised, the mean since the change less that of all nights before; else that of all
    nights less the baseline. Half of `ALPHA` goes to each, so the interval holds on every night of `NIGHTS`
    at once, whichever was taken.
    """
    found = alarm(watch, alpha=ALPHA / 2, models=models)
    return found.change if found.is_raised else interval(watch, alpha=ALPHA / 2 / models)


def alarm(watch: Watch, *, alpha: float = ALPHA, models: int = 1) -> Alarm:
    """Tell whether the Good share has dropped since some night; `alpha` bounds false alarms in a year.

    Each of several models watched at alpha has its own false alarms: of 20 models at 5 % about one a year
    could have one. With `models=20` it is 5 % of years in which *any* of them has one.
    """
    nights = _nights(watch)
    found = changes(nights)
    if not np.isfinite(found.information).any():
        return Alarm(is_raised=False, evidence=math.nan, since=None, change=UNDEFINED)
    ratios = log_ratios(found, drop=DROP)
    over = float(log_evidence(ratios)[0]) - math.log(NIGHTS * models / alpha)
    at = int(np.argmax(ratios[0]))
    earlier = float(nights.baseline_prompts + nights.prompts[:at].sum())
    tuned = _information(nights, found, at, TUNED_CHANGE, earlier)
    value, information, freedom = (
        float(row[0, at]) for row in (found.against_before, found.information, found.freedom)
    )
    return Alarm(
        is_raised=over >= 0,
        evidence=math.exp(min(over, 700.0)),
        since=at + 1,
        change=_estimate(value, information, freedom, alpha=alpha / (NIGHTS * models), tuned_at=tuned),
    )


def moods(watch: Watch, *, models: int = 1) -> Moods:
    """How far nights differ by more than decoding explains, as it widens `current`."""
    from scipy.special import chdtrc

    nights = _nights(watch)
    if not watch.nights:
        return Moods(nights=0, dispersion=math.nan, spread=math.nan, widening=1.0)
    found = alarm(watch, alpha=ALPHA / 2, models=models)
    at = found.since - 1 if found.is_raised and found.since else 0
    decoding = noise(nights)
    told = night_variance(nights.prompts, nights.totals, decoding)
    dispersion, widening = float(told.observed[0, at]), float(told.widening[0, at])
    freedom = max(watch.nights - at - 1, 0) + max(at - 1, 0)
    beyond = max(dispersion - 1, 0.0) * float(decoding[0, at] / nights.prompts.max(initial=1.0))
    return Moods(
        nights=watch.nights,
        dispersion=dispersion,
        spread=math.sqrt(beyond) if math.isfinite(beyond) else math.nan,
        widening=widening if math.isfinite(widening) else 1.0,
        is_shown=freedom > 0 and float(chdtrc(freedom, freedom * dispersion)) < ALPHA,
    )


def _information(nights: Nights, found: Changes, at: int, later: int, earlier: float) -> float:
    """The information of so many later nights against so many earlier answers."""
    count = later * float(nights.prompts.max())
    variance = noise(nights)[0, at] * found.dispersion[0, at]
    return float(1 / (variance * (1 / count + 1 / earlier))) if count else math.nan


def _estimate(value: float, information: float, freedom: float, *, alpha: float, tuned_at: float) -> Estimate:
    if not math.isfinite(value) or not math.isfinite(information):
        return Estimate(value, None)
    root = math.sqrt(information)
    wide = float(as_t(half_width(information, alpha=alpha, tuned_at=tuned_at) * root, freedom)) / root
    return Estimate(value, Interval(value - wide, value + wide))


def _nights(watch: Watch) -> Nights:
    return Nights(
        prompts=np.array(watch.prompts, dtype=float),
        totals=np.array([watch.totals], dtype=float),
        squares=np.array([watch.squares], dtype=float),
        baseline_nights=watch.baseline_nights,
    )
