"""Questionnaires about emotions, how each is scored, and sheets: questionnaires that are filled in.

All but PANAS read their items from your copy of the benchmark.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import read_toml
from empathy_judge.data.readers.file_formats import read_whole
from empathy_judge.data.readers.table_rows import read_rows
from empathy_judge.data.tables import validate, write_rows

FOLDER: Final = Path(__file__).parent / "scales"
PEOPLE: Final = "people"  # the model of people's sheets
SHEETS: Final = "sheets.jsonl"
Rule = Literal["sum", "double"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchors:
    """The meaning of the lowest and the highest mark, for these items or for all."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    low: str
    high: str
    items: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Questionnaire:
    """A scoring key and the wording of its items, which have the numbers 1 to `items`.

    A reversed item counts as low + high less its mark. The `score` of a sub-scale is the sum of its marks, or
    twice that. `texts` is empty if the items are not included.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    name: str
    title: str
    items: int
    low: int
    high: int
    score: Rule
    ask: str
    scales: Mapping[str, tuple[int, ...]]
    emotion: str = ""
    aliases: tuple[str, ...] = ()
    reversed: frozenset[int] = frozenset()
    levels: tuple[str, ...] = ()
    anchors: tuple[Anchors, ...] = ()
    texts: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """A digest of all that decides the questions and the scores."""
        asked = [self.name, self.items, self.low, self.high, self.score, self.ask, sorted(self.reversed)]
        scales = {name: list(items) for name, items in self.scales.items()}
        meant = [[*self.levels], [[item.low, item.high, [*item.items]] for item in self.anchors]]
        return sha256(json.dumps([asked, scales, meant, [*self.texts]]).encode()).hexdigest()[:16]

    def is_mark(self, number: float) -> bool:
        """Return whether a number is on the scale."""
        return self.low <= number <= self.high

    def span(self, scale: str) -> tuple[float, float]:
        """Return the lowest and the highest score of a sub-scale."""
        count = len(self.scales[scale])
        return self.total(count * self.low), self.total(count * self.high)

    def total(self, marks: float) -> float:
        """Return the score of a sum of marks."""
        return marks * (2.0 if self.score == "double" else 1.0)


@dataclass(frozen=True, slots=True)
class Score:
    """A sub-scale's score; where marks are missing it is None, and is between `low` and `high`."""

    value: float | None
    low: float
    high: float
    missing: int


def score_marks(questionnaire: Questionnaire, marks: Mapping[int, float]) -> dict[str, Score]:
    """Score every sub-scale from the marks of single items; a mark off the scale counts as missing."""
    low, high = questionnaire.low, questionnaire.high
    valid = {item: mark for item, mark in marks.items() if questionnaire.is_mark(mark)}
    scores = {}
    for name, items in questionnaire.scales.items():
        known = [item for item in items if item in valid]
        scored = [low + high - valid[i] if i in questionnaire.reversed else valid[i] for i in known]
        missing = len(items) - len(scored)
        least, most = (questionnaire.total(sum(scored) + missing * end) for end in (low, high))
        scores[name] = Score(least if not missing else None, least, most, missing)
    return scores


def questionnaire_names() -> list[str]:
    """Return the names of all questionnaires, PANAS first."""
    return sorted((key.name for key in _keys()), key=lambda name: (name != "PANAS", name))


def read_questionnaire(name: str, *, copy: Path | None = None) -> Questionnaire:
    """Find a questionnaire by its name, with the items of `copy`, a benchmark's questionnaires.json."""
    for key in _keys():
        if _is_called(key, name):
            return key if copy is None else _with_items(key, copy)
    raise UserError(f"unknown questionnaire {name!r}; known: {', '.join(questionnaire_names())}")


@cache
def _keys() -> tuple[Questionnaire, ...]:
    return tuple(
        validate(Questionnaire, read_toml(path), str(path)) for path in sorted(FOLDER.glob("*.toml"))
    )


def _with_items(key: Questionnaire, copy: Path) -> Questionnaire:
    """Return the questionnaire with the items of a copy, which must have the same scoring."""
    if not copy.exists():
        raise UserError(f"{copy}: no such file; pass your copy of questionnaires.json")
    try:
        entries = json.loads(read_whole(copy))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{copy}: not JSON: {error}") from error
    if not isinstance(entries, list):
        raise UserError(f"{copy}: expected a list of questionnaires")
    tables = [entry for entry in entries if isinstance(entry, Mapping)]
    entry = next((table for table in tables if _is_called(key, str(table.get("name", "")))), None)
    if entry is None:
        raise UserError(f"{copy}: no questionnaire with the name {key.name!r}")
    questions = entry.get("questions")
    numbers = [str(number) for number in range(1, key.items + 1)]
    if not isinstance(questions, Mapping) or set(questions) != set(numbers):
        raise UserError(f"{copy}: {key.name}: questions: expected {key.items}, numbered from 1")
    reverse = entry.get("reverse", sorted(key.reversed))
    if not isinstance(reverse, list) or sorted(map(str, reverse)) != sorted(map(str, key.reversed)):
        raise UserError(f"{copy}: {key.name}: reverse: expected {sorted(key.reversed)}")
    return replace(key, texts=tuple(str(questions[number]).strip() for number in numbers))


def _is_called(key: Questionnaire, name: str) -> bool:
    return plain_name(name) in map(plain_name, (key.name, *key.aliases))


def plain_name(name: str) -> str:
    """Fold a name to its letters and digits, so that other spellings find the same."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One questionnaire, filled in by a model or a person; `marks` are by item.

    Without a `factor` it is the default measure. Sheets of one `pair` belong together: a person's two, or a
    model's two in the same order of items. `missing` is why marks are missing.
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
    """Write one line each, without empty fields, and return the count."""

    def to_row(sheet: Sheet) -> dict[str, Any]:
        row = {name: getattr(sheet, name) for name in sheet.__slots__ if getattr(sheet, name)}
        return row | {"marks": {str(item): mark for item, mark in sorted(sheet.marks.items())}}

    return write_rows(path, map(to_row, sheets))


def read_sheets(path: Path) -> list[Sheet]:
    """Read the sheets of a file, or of the folder of a run."""
    path = path / SHEETS if path.is_dir() else path
    sheets = [validate(Sheet, row, f"{path.name}:{line}") for line, row in read_rows(path)]
    if not sheets:
        raise UserError(f"{path}: no sheets; `align run` and `align import` write them")
    return sheets
