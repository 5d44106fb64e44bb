"""How far nights differ beyond decoding, and for how long: what widens the watch where nights have moods.

An endpoint may serve another build each night, or a load that comes and goes: all answers of a night are then
a little better or worse together, and what prompts tell of decoding is too narrow. The variance of nightly
means over what decoding explains is the *dispersion*. Where good nights follow good ones the mean of several
tells less still: with a lag-one correlation r of the moods their part counts (1 + r) / (1 - r) times.

Both are taken within the nights before a change and within those since it, so that a change is no mood. A few
nights tell little of either, so moods of one point are assumed with the weight of `BELIEF` nights, and t
takes the normal's place.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from calibration.estimate import Floats

ASSUMED: Final = 0.01  # moods of the Good share, until nights have told
BELIEF: Final = 8.0  # nights' worth of it
LEAST_FREEDOM: Final = 30.0  # less finds a change later, more takes moods of three points for changes
MOST_MEMORY: Final = 0.9  # of the moods' correlation from night to night: beyond, they are no moods


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NightVariance:
    """By the night a change may have begun at, (histories, nights): see the module.

    `observed` is the dispersion without what is assumed and without memory, nan where no two nights tell, and
    `widening` how far it is believed of one night, in standard errors.
    """

    dispersion: Floats
    freedom: Floats
    observed: Floats
    widening: Floats


def night_variance(prompts: Floats, totals: Floats, decoding: Floats) -> NightVariance:
    """From each night's prompts, its total difference and one answer's variance by decoding."""
    # A night's total over the root of its prompts has decoding's variance, whatever their number.
    root = np.sqrt(prompts)[None]
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.where(prompts > 0, totals / root, 0.0)
        since = _from_each(totals) / _from_each(prompts[None])
        until = _until_each(totals) / _until_each(prompts[None])
    since, until = (np.nan_to_num(mean, nan=0.0, posinf=0.0, neginf=0.0) for mean in (since, until))
    squares, pairs, mixed, roots = (
        scaled**2,
        scaled[:, 1:] * scaled[:, :-1],
        root[:, 1:] * scaled[:, :-1] + root[:, :-1] * scaled[:, 1:],
        root[:, 1:] * root[:, :-1],
    )
    spread = _from_each(squares) - since**2 * _from_each(prompts[None])
    spread += _until_each(squares) - until**2 * _until_each(prompts[None])
    together = _pairs_since(pairs) - since * _pairs_since(mixed) + since**2 * _pairs_since(roots)
    together += _pairs_until(pairs) - until * _pairs_until(mixed) + until**2 * _pairs_until(roots)
    looked = (prompts > 0)[None].astype(float)
    later, earlier = _from_each(looked), _until_each(looked)
    freedom = np.maximum(later - 1, 0.0) + np.maximum(earlier - 1, 0.0)
    spread, together = np.maximum(spread, 0.0) / decoding, together / decoding
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = np.where(freedom > 0, spread / freedom, np.nan)
    assumed = 1 + ASSUMED**2 * prompts.max(initial=0.0) / decoding
    plain = (BELIEF * assumed + spread) / (BELIEF + freedom)
    # A mean taken off makes neighbours look unlike each other, by the spread over the number of nights.
    lag = (together + spread / np.maximum(later + earlier, 1.0)) / (BELIEF + freedom)
    moods = np.maximum(plain - 1, 0.0)
    memory = np.clip(lag / np.maximum(moods, 1e-3), 0.0, MOST_MEMORY)
    return NightVariance(
        dispersion=1 + moods * (1 + memory) / (1 - memory),
        freedom=np.broadcast_to(LEAST_FREEDOM + freedom, plain.shape),
        observed=observed,
        widening=np.sqrt(np.maximum(1.0, (BELIEF + spread) / (BELIEF + freedom))),
    )


def as_normal(reach: Floats, freedom: Floats) -> Floats:
    """A t statistic as a normal one of about the same tail (Wallace 1959)."""
    bend: Floats = np.sqrt(freedom * np.log1p(reach**2 / freedom)) * (8 * freedom + 1) / (8 * freedom + 3)
    return np.copysign(bend, reach)


def as_t(reach: Floats | float, freedom: Floats | float) -> Floats:
    """The other way round.

    >>> as_t(1.96, np.array([10.0, 1e6])).round(2).tolist()  # as in tables
    [2.23, 1.96]
    """
    bent = reach * (8 * freedom + 3) / (8 * freedom + 1)
    return np.sqrt(freedom * np.expm1(np.minimum(bent**2 / freedom, 700.0)))


def _from_each(values: Floats) -> Floats:
    sums: Floats = values[:, ::-1].cumsum(axis=1)[:, ::-1]
    return sums


def _until_each(values: Floats) -> Floats:
    """The sums of the nights before each."""
    return np.concatenate([np.zeros_like(values[:, :1]), values[:, :-1].cumsum(axis=1)], axis=1)


def _pairs_since(values: Floats) -> Floats:
    """Sums over neighbours that both lie at or after each night; the last night has none."""
    return np.concatenate([_from_each(values), np.zeros((len(values), 1))], axis=1)


def _pairs_until(values: Floats) -> Floats:
    """Sums over neighbours that both lie before each night; the first two nights have none."""
    padded = np.concatenate([np.zeros((len(values), 1)), values.cumsum(axis=1)], axis=1)
    return np.concatenate([np.zeros((len(values), 1)), padded[:, :-1]], axis=1)
