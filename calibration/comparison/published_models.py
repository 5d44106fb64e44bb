"""The crowd study's models as baselines: human shares, with intervals that count raters."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from empathy_judge.calibration.cluster import UNIT, t_intervals
from empathy_judge.calibration.estimate import Estimate, Floats, estimate_of
from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.table_rows import read_rows
from empathy_judge.data.records import LABELS

STUDY_COUNTS: Final = Path(__file__).parents[2] / "data" / "studies" / "empathy-study-counts.csv"
PREFIX: Final = "study:"
RATERS: Final = 200  # of each model, ten ratings each
# By label, from ICC(1) within raters; not computable from the counts; a test checks them.
DESIGN_EFFECTS: Final = {
    "human": (1.180, 0.856, 1.163),
    "gpt-4": (1.471, 1.450, 1.913),
    "gpt-4-plain": (1.692, 1.423, 2.040),
    "llama-2-70b-chat": (1.812, 1.513, 2.352),
    "gemini-1.0-pro": (3.088, 1.491, 2.603),
    "mixtral-8x7b-instruct": (2.547, 1.633, 2.809),
}
# For plans, where a calibration does not give its own: of language models' replies it is 1.8 to 2.5.
USUAL_DESIGN_EFFECT: Final = 2.2


def count_labels() -> dict[str, dict[str, int]]:
    """Return how often people gave each label to every model of the study, in file order.

    >>> count_labels()["human"]
    {'Bad': 342, 'Okay': 672, 'Good': 986}
    """
    study: dict[str, dict[str, int]] = {}
    for _, row in read_rows(STUDY_COUNTS):  # of one model and one emotion
        counts = study.setdefault(str(row["system"]), dict.fromkeys(LABELS, 0))
        for label in LABELS:
            counts[label] += int(str(row[label.lower()]))
    return study


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """A model of the study: human shares of each label, whose intervals count raters."""

    name: str
    shares: Mapping[str, Estimate]
    ratings: int


def is_published(name: str) -> bool:
    """Return whether a baseline names a model of the study."""
    return name.startswith(PREFIX)


def published(name: str) -> PublishedModel:
    """Return a model of the crowd study, by a name such as `study:human`.

    >>> human = published("study:human")
    >>> human.ratings, round(human.shares["Good"].value, 3)
    (2000, 0.493)
    """
    counts = count_labels().get(name.removeprefix(PREFIX))
    if counts is None:
        known = ", ".join(PREFIX + model for model in DESIGN_EFFECTS)
        raise UserError(f"--baseline: no {name!r} in the study; known: {known}")
    effects = np.array(DESIGN_EFFECTS[name.removeprefix(PREFIX)])
    row: Floats = np.array([counts[label] for label in LABELS], dtype=float)
    total = row.sum()
    value = row / total
    variance = value * (1 - value) / total * np.maximum(effects, 1.0)
    low, high = t_intervals(value, variance, np.full(len(LABELS), RATERS - 1.0), UNIT, total)
    return PublishedModel(
        name=name,
        shares=dict(zip(LABELS, map(estimate_of, value, low, high), strict=True)),
        ratings=int(total),
    )
