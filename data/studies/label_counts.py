"""Published figures of the crowd study: how often each label was given, per emotion and model."""

import csv
from collections.abc import Iterable
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
    bad: int
    okay: int
    good: int


def read_study() -> tuple[StudyCell, ...]:
    """The cells of the study, in file order; the file's `system` is our model."""
    with EMPATHY_STUDY.open(encoding="utf-8", newline="") as stream:
        return tuple(
            StudyCell(
                emotion=row["emotion"],
                sentiment=row["sentiment"],
                model=row["system"],
                bad=int(row["bad"]),
                okay=int(row["okay"]),
                good=int(row["good"]),
            )
            for row in csv.DictReader(stream)
        )


def count_labels(cells: Iterable[StudyCell]) -> dict[str, int]:
    """How often each label was given over all the cells.

    >>> cell = StudyCell(emotion="proud", sentiment="positive", model="m", bad=1, okay=2, good=3)
    >>> count_labels([cell, cell])
    {'Bad': 2, 'Okay': 4, 'Good': 6}
    """
    totals = dict.fromkeys(LABELS, 0)
    for cell in cells:
        for label, count in zip(LABELS, (cell.bad, cell.okay, cell.good), strict=True):
            totals[label] += count
    return totals


def count_labels_by_model(cells: Iterable[StudyCell]) -> dict[str, dict[str, int]]:
    """How often each label was given to every model, in order of first appearance."""
    by_model: dict[str, list[StudyCell]] = {}
    for cell in cells:
        by_model.setdefault(cell.model, []).append(cell)
    return {model: count_labels(held) for model, held in by_model.items()}
