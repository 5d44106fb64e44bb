"""Published figures of the crowd study: how often each label was given, per emotion and model."""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from data.records import LABELS

EMPATHY_STUDY = Path(__file__).parent / "empathy-study-counts.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCell:
    """How often people gave each label to one model's responses about one emotion."""

    emotion: str
    sentiment: str
    model: str
    counts: Mapping[str, int]


def read_study() -> tuple[StudyCell, ...]:
    """Return the cells of the study, in file order; the file's `system` is our model."""
    with EMPATHY_STUDY.open(encoding="utf-8", newline="") as stream:
        return tuple(
            StudyCell(
                emotion=row["emotion"],
                sentiment=row["sentiment"],
                model=row["system"],
                counts={label: int(row[label.lower()]) for label in LABELS},
            )
            for row in csv.DictReader(stream)
        )


def count_labels(cells: Iterable[StudyCell]) -> dict[str, int]:
    """Return how often each label was given over all the cells.

    >>> cell = StudyCell(emotion="proud", sentiment="positive", model="m", counts=dict.fromkeys(LABELS, 2))
    >>> count_labels([cell, cell])
    {'Bad': 4, 'Okay': 4, 'Good': 4}
    """
    every = list(cells)
    return {label: sum(cell.counts[label] for cell in every) for label in LABELS}


def count_labels_by_model(cells: Iterable[StudyCell]) -> dict[str, dict[str, int]]:
    """Return how often each label was given to every model, in order of first appearance."""
    every = list(cells)
    models = dict.fromkeys(cell.model for cell in every)
    return {model: count_labels(cell for cell in every if cell.model == model) for model in models}
