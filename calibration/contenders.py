"""Judged models as they enter a comparison: what each one's level rests on, and how sure it is.

A level rests on the model's own ratings, on the calibrated line, or on both. Where neither is at hand it is
the judge's own, and said to be.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from calibration.contrasts import UNDEFINED, Contrast, contrast
from calibration.correction import correct
from calibration.intervals import Estimate, Interval
from calibration.powered import Powered, Rated, power
from calibration.transport import Between
from data.records import LABELS

How = Literal["ratings", "line", "both", "judge", "refused"]
HOW: Final[Mapping[str, How]] = {
    "ratings": "ratings",
    "judge": "line",
    "both": "both",
}  # a correction's, here
MARGIN: Final = 0.05  # the least difference of shares worth telling
GOOD: Final = LABELS[-1]
NO_LINE: Final = tuple(Between(models=(), judge=(), crowd=(), noise=()) for _ in LABELS)


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgedModel:
    """One model's scored responses, with ratings of some or none, and how many the judge did not score.

    `name` tells it from the others compared; `model` is what a calibration knows it by, if that differs.
    """

    name: str
    rated: Rated
    unscored: int = 0
    model: str = ""

    @property
    def known_as(self) -> str:
        return self.model or self.name

    @property
    def responses(self) -> int:
        return len(self.rated.judged) + self.unscored

    @property
    def missing(self) -> float:
        """The part of its responses that was not scored."""
        return self.unscored / self.responses if self.responses else 0.0

    @cached_property
    def powered(self) -> Powered | None:
        """What its own ratings say, if they also say how exact they are."""
        if not len(self.rated.item):
            return None
        found = power(self.rated)
        return found if np.isfinite(found.variance).all() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A study's model: people's shares of each label, their intervals counting raters."""

    name: str
    shares: Mapping[str, Estimate]
    ratings: int
    design_effect: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What corrections rest on: a calibration's models by label, or None, and its raters' design effect.

    `margin` is the least difference of shares of Good worth telling.
    """

    between: tuple[Between, ...] | None = None
    design_effect: float = 1.0
    margin: float = MARGIN

    def freedom(self, *names: str) -> float:
        """A line through k models leaves k - 2 degrees of freedom to tell how far models stray from it."""
        models = line_without(self.between[-1], *names).models if self.between else ()
        return max(1.0, len(models) - 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One model's shares; `how` says on what they rest, `reason` why the line was refused, if it was.

    `extremes` is where the share of Good could lie, interval and all, were every unscored response not Good,
    or every one Good.
    """

    model: str
    how: How
    reason: str | None
    shares: Mapping[str, Estimate]
    judged: int
    unscored: int
    ratings: int
    extremes: Interval | None

    @property
    def good(self) -> float:
        """The share of Good; nan where undefined."""
        return self.shares[GOOD].value if GOOD in self.shares else math.nan

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        return {
            "model": self.model,
            "how": self.how,
            "reason": self.reason,
            "shares": {label: share.as_dict() for label, share in self.shares.items()},
            "judged": self.judged,
            "unscored": self.unscored,
            "ratings": self.ratings,
            "extremes": [self.extremes.low, self.extremes.high] if self.extremes else None,
        }


def level_of(model: JudgedModel, ground: Ground) -> Level:
    """The model's shares: corrected, or the judge's own where nothing can correct them."""
    corrected = correct({model.known_as: model.rated}, between=ground.between or NO_LINE)[0]
    how = HOW.get(corrected.how, "judge")
    shares, reason = corrected.levels, corrected.reason if ground.between else None
    if how == "judge":
        shares = judge_shares(model.rated)
        how, reason = (how, reason) if shares else ("refused", "no response was scored")
    return Level(
        model=model.name,
        how=how,
        reason=reason,
        shares=shares,
        judged=len(model.rated.judged),
        unscored=model.unscored,
        ratings=len(model.rated.item),
        extremes=_extremes(shares.get(GOOD), model.missing),
    )


def in_order(levels: Sequence[Level]) -> list[Level]:
    """The largest share of Good first; those without one last."""
    return sorted(levels, key=lambda level: (-level.good if math.isfinite(level.good) else 2.0, level.model))


def line_without(between: Between, *names: str) -> Between:
    """The line through all models but these."""
    for name in names:
        between = between.without(name)
    return between


def judge_shares(rated: Rated) -> dict[str, Estimate]:
    """The judge's own means, with intervals over prompts."""
    if not len(rated.judged):
        return {}
    prompts = np.unique(_prompts(rated, "one"), return_inverse=True)[1]
    ones = np.ones(len(rated.judged))
    found = {}
    for column, label in enumerate(LABELS):
        item = contrast(rated.judged[:, column], ones, prompts).estimate()
        # An interval by t may leave the scale where shares are near its ends.
        ends = item.interval and Interval(max(0.0, item.interval.low), min(1.0, item.interval.high))
        found[label] = Estimate(float(rated.judged[:, column].mean()), ends)
    return found


def judge_contrast(one: Rated, other: Rated) -> dict[str, Contrast]:
    """one - other by the judge alone, prompts as clusters: those both answered are paired."""
    if not len(one.judged) or not len(other.judged):
        return dict.fromkeys(LABELS, UNDEFINED)
    judged = np.concatenate([one.judged, other.judged])
    feature = np.concatenate([np.ones(len(one.judged)), np.zeros(len(other.judged))])
    names = np.concatenate([_prompts(one, "one"), _prompts(other, "other")])
    clusters = np.unique(names, return_inverse=True)[1]
    strata = np.zeros(len(judged), dtype=np.intp)
    return {
        label: contrast(judged[:, column], feature, clusters, strata=strata)
        for column, label in enumerate(LABELS)
    }


def shared_prompts(one: Rated, other: Rated) -> int:
    """How many prompts both answered."""
    if one.prompt is None or other.prompt is None:
        return 0
    return len(np.intersect1d(one.prompt, other.prompt))


def _prompts(rated: Rated, whose: str) -> NDArray[Any]:
    if rated.prompt is not None:
        return rated.prompt.astype(str)
    return np.array([f"{whose}-{number}" for number in range(len(rated.judged))])


def _extremes(share: Estimate | None, missing: float) -> Interval | None:
    if share is None or not math.isfinite(share.value):
        return None
    low, high = (share.interval.low, share.interval.high) if share.interval else (share.value, share.value)
    return Interval(low * (1 - missing), high * (1 - missing) + missing)
