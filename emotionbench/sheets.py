"""Questionnaires as somebody filled them in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.tables import read_rows, validate, write_rows

PEOPLE: Final = "people"  # what the crowd is called where a model's name stands
SHEETS: Final = "sheets.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One questionnaire, filled in by a model or a person; `marks` holds the items that have one.

    Without a `factor` it is the default measure. Sheets of one `pair` belong together: a person's two, or a
    model's two in the same order of items. `missing` says why marks are missing.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    model: str
    scale: str
    marks: Mapping[int, float] = field(default_factory=dict)
    factor: str | None = None
    situation: str | None = None
    pair: str | None = None
    variant: str = ""
    missing: str | None = None


def write_sheets(path: Path, sheets: Iterable[Sheet]) -> int:
    """Write one line each, without what is empty; returns the count."""

    def to_row(sheet: Sheet) -> dict[str, Any]:
        row = {name: getattr(sheet, name) for name in sheet.__slots__}
        row = {key: value for key, value in row.items() if value not in (None, "", False)}
        return row | {"marks": {str(item): mark for item, mark in sorted(sheet.marks.items())}}

    return write_rows(path, map(to_row, sheets))


def read_sheets(path: Path) -> list[Sheet]:
    """Read what `write_sheets` wrote; a folder is read by the file in it."""
    if path.is_dir():
        path = path / SHEETS
    sheets = [validate(Sheet, row, f"{path.name}:{line}") for line, row in read_rows(path)]
    if not sheets:
        raise UserError(f"{path}: no sheets; `align run` and `align import` write them")
    return sheets
