"""Published figures of the crowd study: how often each label was given, per emotion and model."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from data.errors import UserError
from data.records import LABELS

EMPATHY_STUDY = Path(__file__).parent / "studies" / "empathy-study-counts.csv"
COLUMNS = ("emotion", "sentiment", "system", "bad", "okay", "good")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCell:
    """How often people gave each label to one model's responses about one emotion."""

    emotion: str
    sentiment: str
    model: str
    bad: int
    okay: int
    good: int


def read_study(path: Path = EMPATHY_STUDY) -> tuple[StudyCell, ...]:
    """The cells of a study, in file order; the file's `system` is our model."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream)
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise UserError(f"{path}: expected a column {missing[0]!r}; a study has {', '.join(COLUMNS)}")
        cells: dict[tuple[str, str], StudyCell] = {}
        for row in reader:
            cell = _read_cell(row, f"{path.name}:{reader.line_num}")
            if cells.setdefault((cell.emotion, cell.model), cell) is not cell:
                raise UserError(
                    f"{path.name}:{reader.line_num}: system: {cell.model!r} has a row for"
                    f" {cell.emotion!r} already; keep one of the two"
                )
    return tuple(cells.values())


def _read_cell(row: dict[str, str | None], place: str) -> StudyCell:
    counts = {}
    for column in ("bad", "okay", "good"):
        text = (row[column] or "").strip()
        if not (text.isascii() and text.isdigit()):
            raise UserError(f"{place}: {column}: expected a count, not {text[:40]!r}")
        counts[column] = int(text)
    words = {column: (row[column] or "").strip() for column in ("emotion", "sentiment", "system")}
    for column, text in words.items():
        if not text:
            raise UserError(f"{place}: {column}: empty; every row needs it")
    return StudyCell(emotion=words["emotion"], sentiment=words["sentiment"], model=words["system"], **counts)


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
    """The same for every model, in order of first appearance."""
    by_model: dict[str, list[StudyCell]] = {}
    for cell in cells:
        by_model.setdefault(cell.model, []).append(cell)
    return {model: count_labels(held) for model, held in by_model.items()}
