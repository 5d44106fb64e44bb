"""Results files of EmotionBench as sheets: models' answers, and the human table.

Missing values are counted, not guessed: a column that is empty or not there becomes a sheet without marks.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.file_formats import open_workbook, read_sheet
from empathy_judge.emotionbench import questionnaires
from empathy_judge.emotionbench.questionnaires import Questionnaire, Sheet
from empathy_judge.emotionbench.situations import FACTOR_NAMES, find_factor, read_cells

# Three digits at most: the cells a file lets expect are counted up to the largest number in it.
COLUMN: Final = re.compile(r"(.+?)_(?:scenario-([0-9]{1,3})_)?test-([0-9]{1,3})_order-([0-9]{1,3})")
PERSON: Final = re.compile(r"([A-Za-z]+)_F([0-9]{1,3})S([0-9]{1,3})")
GENERAL: Final = "General"
EMPTY, ABSENT = "empty column", "no such column"

Cell = tuple[str, int, int, int]  # factor (or General), scenario, test and order, all from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSheets:
    """The sheets of a results file, with `counts` of complete, incomplete, empty and missing ones."""

    sheets: tuple[Sheet, ...]
    counts: Mapping[str, int]


def import_files(paths: Sequence[Path], out: Path) -> dict[str, dict[str, int]]:
    """Write results files as one file of sheets, `out`; returns what each of them held."""
    results = {path: import_results(path) for path in paths}
    questionnaires.write_sheets(out, (sheet for result in results.values() for sheet in result.sheets))
    return {str(path): dict(result.counts) for path, result in results.items()}


def import_results(path: Path) -> ImportedSheets:
    """Read a results file by its kind: `*-testing.csv` of a model, or crowd.xlsx."""
    readers = {".csv": _import_testing, ".xlsx": _import_crowd}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"{path}: unknown file type; results are read from {', '.join(readers)}")
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    return reader(path)


def _import_testing(path: Path) -> ImportedSheets:
    model, key = _read_name(path)
    rows = read_cells(path)
    head = rows[0] if rows else []
    answers = rows[2:]  # the row between holds the prompt and the situations
    orders: dict[int, list[int]] = {}
    sheets: dict[Cell, Sheet] = {}
    strange = 0
    # Columns of orders first: those of answers are read by them.
    for column, name in sorted(enumerate(head), key=lambda item: not item[1].startswith("order-")):
        texts = [_at(row, column) for row in answers]
        if match := re.fullmatch("order-([0-9]{1,3})", name):
            numbers = [int(text.strip()) for text in texts if text.strip().isdecimal() and len(text) < 9]
            # It counts only where it names each item once.
            orders[int(match[1])] = numbers if sorted(numbers) == list(range(1, key.items + 1)) else []
        elif re.fullmatch("(question|order)-[0-9]+", name) or not name.strip():
            continue
        elif cell := _read_column(name):
            order = orders.get(cell[3]) or range(1, key.items + 1)
            sheets[cell] = _sheet(model, key, cell, zip(order, texts, strict=False))
        else:
            strange += 1
    if not sheets:
        raise UserError(f"{path}: no columns such as 'General_test-0_order-0'; expected a results file")
    for cell in _find_absent(sheets):
        sheets[cell] = _sheet(model, key, cell, None)
    places = [GENERAL, *FACTOR_NAMES]
    in_order = sorted(sheets, key=lambda cell: (places.index(cell[0]), *cell[1:]))
    return _count([sheets[cell] for cell in in_order], key, strange)


def _read_name(path: Path) -> tuple[str, Questionnaire]:
    """Return the model and the scale in the name of a file."""
    for name in questionnaires.questionnaire_names():
        key = questionnaires.read_questionnaire(name)
        for called in (key.name, *key.aliases):
            match = re.fullmatch(rf"(.+?)-{re.escape(called)}(-testing)?", path.stem, re.IGNORECASE)
            if match:
                return match[1], key
    raise UserError(
        f"{path}: the file name must have the model and the scale, such as gpt-4-PANAS-testing.csv"
    )


def _read_column(name: str) -> Cell | None:
    match = COLUMN.fullmatch(name.strip())
    if match is None:
        return None
    who, scenario, test, order = match[1], match[2], int(match[3]), int(match[4])
    if scenario is None:
        return (GENERAL, 0, test, order) if who == GENERAL else None
    factor = find_factor(who.rpartition("-")[0], who)
    return None if factor is None else (factor, int(scenario), test, order)


def _sheet(model: str, key: Questionnaire, cell: Cell, answers: Any) -> Sheet:
    factor, scenario, _, order = cell
    marks: dict[int, float] = {}
    given = 0
    for item, text in answers or ():
        given += bool(text.strip())
        mark = _number(text)
        if mark is not None and key.is_mark(mark):
            marks[item] = mark
    missing = key.items - len(marks)
    why = ABSENT if answers is None else EMPTY if not given else f"{missing} of {key.items} marks missing"
    is_default = factor == GENERAL
    return Sheet(
        model=model,
        scale=key.name,
        marks=marks,
        factor=None if is_default else factor,
        situation=None if is_default else f"{factor}/scenario-{scenario}",
        pair=f"order-{order}",
        missing=why if missing else None,
    )


def _find_absent(cells: Collection[Cell]) -> Iterator[Cell]:
    """Yield missing cells: every scenario of a factor has the same tests."""
    evoked = [cell for cell in cells if cell[0] != GENERAL]
    tests = 1 + max((cell[2] for cell in evoked), default=-1)
    orders = sorted({cell[3] for cell in evoked})
    for factor in dict.fromkeys(cell[0] for cell in evoked):
        scenarios = range(1 + max(cell[1] for cell in evoked if cell[0] == factor))
        yield from (cell for cell in product([factor], scenarios, range(tests), orders) if cell not in cells)


def _count(sheets: Sequence[Sheet], key: Questionnaire, strange: int = 0) -> ImportedSheets:
    kinds = Counter(
        "complete" if not sheet.missing else sheet.missing if not sheet.marks else "incomplete"
        for sheet in sheets
    )
    counts = {
        "sheets": len(sheets),
        "default": sum(sheet.factor is None for sheet in sheets),
        "complete": kinds["complete"],
        "incomplete": kinds["incomplete"],
        "empty columns": kinds[EMPTY] + kinds[f"{key.items} of {key.items} marks missing"],
        "missing columns": kinds[ABSENT],
        "unknown columns": strange,
    }
    return ImportedSheets(sheets=tuple(sheets), counts=counts)


def _import_crowd(path: Path) -> ImportedSheets:
    """Read one column per person; factors and situations count from 1 there."""
    with open_workbook(path) as book:
        if "Raw" not in book.sheetnames:
            raise UserError(f"{path}: no sheet 'Raw'; it has {', '.join(book.sheetnames)}")
        rows = [row for _, row in read_sheet(book["Raw"], path)]
    head = next((row for row in rows if "Info" in row[:2]), None)
    if head is None:
        raise UserError(f"{path}: sheet Raw: no row 'Info' with one person in each column")
    key = questionnaires.read_questionnaire("PANAS")
    # The rows of the default items and of the evoked ones, which come after them, by their words.
    numbers = {word: number for number, word in enumerate(key.texts, start=1)}
    blocks: tuple[dict[int, tuple[Any, ...]], ...] = ({}, {})
    for row in rows:
        word = str(_at(row, 1) or "").rpartition(" - ")[2].strip().casefold()
        if (item := numbers.get(word)) is not None:
            blocks[item in blocks[0]].setdefault(item, row)
    sheets: list[Sheet] = []
    strange = 0
    for column in range(2, len(head)):
        match = PERSON.fullmatch(str(head[column] or "").strip())
        factor = match and find_factor(match[1], str(int(match[2]) - 1))
        if not match or not factor:
            strange += head[column] is not None
            continue
        cell = (factor, int(match[3]) - 1, 0, 0)
        for block, place in zip(blocks, ((GENERAL, 0, 0, 0), cell), strict=True):
            given = [
                (item, "" if (mark := _at(row, column)) is None else str(mark))
                for item, row in sorted(block.items())
            ]
            sheet = _sheet(questionnaires.PEOPLE, key, place, given)
            sheets.append(replace(sheet, pair=f"person-{column - 1}"))
    if not sheets:
        raise UserError(f"{path}: sheet Raw: no person's column such as 'Angry_F1S1'")
    return _count(sheets, key, strange)


def _number(text: str) -> int | None:
    """Return a whole number, also as a spreadsheet writes it; None for anything else.

    >>> _number(" 4 "), _number("4.0"), _number("3.5"), _number("4/5")
    (4, 4, None, None)
    """
    match = re.fullmatch(r"\s*(-?[0-9]{1,3})(?:\.0*)?\s*", text)
    return int(match[1]) if match else None


def _at(row: Sequence[Any], column: int) -> Any:
    return row[column] if column < len(row) else ""
