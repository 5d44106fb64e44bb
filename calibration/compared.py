"""What a comparison by people's ratings found; `calibration.comparison` makes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from calibration.chisquare import ChiSquare
from calibration.intervals import Estimate, finite_or_none
from calibration.raterlevel import Handfuls, RaterTest
from data.records import LABELS

Group = Literal["all", "positive", "negative"]
ALPHA: Final = 0.05
Counts = Mapping[str, Mapping[str, tuple[int, int, int]]]  # model -> emotion ("" if unknown) -> by label


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RatingColumns:
    """Ratings as columns, one row a rating: 1 to 3; the emotion is "" where unknown."""

    model: NDArray[np.str_]
    rater: NDArray[np.str_]
    rating: NDArray[np.int64]
    emotion: NDArray[np.str_]

    def take(self, rows: NDArray[Any]) -> "RatingColumns":
        """These rows only."""
        columns = ("model", "rater", "rating", "emotion")
        return RatingColumns(**{name: getattr(self, name)[rows] for name in columns})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One model within a group of emotions, against the baseline; the baseline's own row has no tests.

    `shares` count raters. `relative` is the gain in the share of Good as a part of the baseline's,
    `points` in parts of all. `yates` is the published 2x2 test of Good, `full` the 2x3 one.
    """

    model: str
    counts: tuple[int, int, int]
    shares: Mapping[str, Estimate]
    mean: float
    relative: float
    points: float
    h: float
    yates: ChiSquare | None
    full: ChiSquare | None
    raters: RaterTest | None
    p_holm: float  # of the raters' test over all models of the group

    @property
    def ratings(self) -> int:
        return sum(self.counts)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        numbers = ("mean", "relative", "points", "h", "p_holm")
        return {
            "model": self.model,
            "ratings": self.ratings,
            "counts": dict(zip(LABELS, self.counts, strict=True)),
            "shares": {label: share.as_dict() for label, share in self.shares.items()},
            **{name: finite_or_none(getattr(self, name)) for name in numbers},
            "yates": self.yates.as_dict() if self.yates else None,
            "full": self.full.as_dict() if self.full else None,
            "raters": self.raters.as_dict() if self.raters else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two models within a group: the 2x3 test, and the raters' test of Good with Holm over all pairs."""

    one: str
    other: str
    points: float
    full: ChiSquare
    raters: RaterTest
    p_holm: float  # of the raters' test

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        return {
            "one": self.one,
            "other": self.other,
            "points": finite_or_none(self.points),
            "full": self.full.as_dict(),
            "raters": self.raters.as_dict(),
            "p_holm": finite_or_none(self.p_holm),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTable:
    """All models within a group of emotions; `letters` are the order's ties after Holm over all pairs."""

    group: Group
    rows: tuple[ModelRow, ...]
    omnibus: ChiSquare  # models by labels
    omnibus_good: ChiSquare  # models by Good or not
    pairs: tuple[Pair, ...]
    letters: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        return {
            "group": self.group,
            "models": [row.as_dict() for row in self.rows],
            "omnibus": self.omnibus.as_dict(),
            "omnibus_good": self.omnibus_good.as_dict(),
            "pairs": [pair.as_dict() for pair in self.pairs],
            "letters": dict(self.letters),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EmotionCell:
    """One model on one emotion against the baseline; `q` is Benjamini and Hochberg's, over all cells."""

    emotion: str
    model: str
    ratings: int
    good: int
    baseline_ratings: int
    baseline_good: int
    relative: float
    yates: ChiSquare
    q: float
    p_holm: float

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        counts = ("emotion", "model", "ratings", "good", "baseline_ratings", "baseline_good")
        numbers = ("relative", "q", "p_holm")
        return {
            **{name: getattr(self, name) for name in counts},
            **{name: finite_or_none(getattr(self, name)) for name in numbers},
            "yates": self.yates.as_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All of it; `cell_power` is a single emotion's power, by model, were its effect the overall one."""

    baseline: str
    models: tuple[str, ...]
    groups: tuple[GroupTable, ...]
    counts: Counts
    cells: tuple[EmotionCell, ...]
    cell_power: Mapping[str, float]
    clusters: Mapping[str, Handfuls]

    def count_cells(self, kind: Literal["p", "q", "p_holm"]) -> int:
        """How many cells are below .05."""
        values = (item.yates.p if kind == "p" else getattr(item, kind) for item in self.cells)
        return sum(1 for value in values if value < ALPHA)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; null is undefined."""
        return {
            "baseline": self.baseline,
            "models": list(self.models),
            "groups": [item.as_dict() for item in self.groups],
            "clusters": {name: item.as_dict() for name, item in self.clusters.items()},
            "emotions": {
                "cells": [item.as_dict() for item in self.cells],
                "tests": len(self.cells),
                "below": self.count_cells("p"),
                "below_after_bh": self.count_cells("q"),
                "below_after_holm": self.count_cells("p_holm"),
                "under_baseline": sum(1 for item in self.cells if item.relative < 0),
                "power": {name: finite_or_none(value) for name, value in self.cell_power.items()},
            },
        }
