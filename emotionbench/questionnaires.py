"""Questionnaires about feelings and how each is scored; all but PANAS read their items from your copy."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Final, Literal

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import read_toml
from empathy_judge.data.readers.file_formats import read_whole
from empathy_judge.data.tables import validate

FOLDER: Final = Path(__file__).parent / "scales"
Rule = Literal["sum", "double"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchors:
    """What the lowest and the highest mark mean, for these items or for all."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    low: str
    high: str
    items: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Questionnaire:
    """A scoring key, and how its items are asked; items have the numbers 1 to `items`.

    A reversed item counts as low + high less its mark. The `score` of a sub-scale is the sum of its marks, or
    twice that. `texts` is empty where the items are not ours to give.
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
        """Changes with whatever is asked or reckoned."""
        asked = [self.name, self.items, self.low, self.high, self.score, self.ask, sorted(self.reversed)]
        scales = {name: list(items) for name, items in self.scales.items()}
        meant = [[*self.levels], [[item.low, item.high, [*item.items]] for item in self.anchors]]
        return sha256(json.dumps([asked, scales, meant, [*self.texts]]).encode()).hexdigest()[:16]

    def is_mark(self, number: float) -> bool:
        """Whether it stands on the scale."""
        return self.low <= number <= self.high

    def span(self, scale: str) -> tuple[float, float]:
        """The lowest and the highest score a sub-scale can have."""
        count = len(self.scales[scale])
        return self.total(count * self.low), self.total(count * self.high)

    def total(self, marks: float) -> float:
        """Return the score of a sum of marks."""
        return {"sum": 1.0, "double": 2.0}[self.score] * marks


@dataclass(frozen=True, slots=True)
class Score:
    """A sub-scale's score; where marks are missing it is None, and is between `low` and `high`."""

    value: float | None
    low: float
    high: float
    missing: int


def score_marks(questionnaire: Questionnaire, marks: Mapping[int, float]) -> dict[str, Score]:
    """Score every sub-scale from the marks of single items; a mark off the scale counts as missing.

    >>> panas = read_questionnaire("PANAS")
    >>> score_marks(panas, dict.fromkeys(range(1, 21), 2))["positive"]
    Score(value=20.0, low=20.0, high=20.0, missing=0)
    >>> score_marks(panas, dict.fromkeys(range(1, 19), 2))["negative"]
    Score(value=None, low=19.0, high=23.0, missing=1)
    """
    low, high = questionnaire.low, questionnaire.high
    valid = {item: mark for item, mark in marks.items() if questionnaire.is_mark(mark)}
    scores = {}
    for name, items in questionnaire.scales.items():
        scored = [
            low + high - valid[item] if item in questionnaire.reversed else valid[item]
            for item in items
            if item in valid
        ]
        missing = len(items) - len(scored)
        least, most = (questionnaire.total(sum(scored) + missing * end) for end in (low, high))
        scores[name] = Score(least if not missing else None, least, most, missing)
    return scores


def questionnaire_names() -> list[str]:
    """Name all questionnaires we have a key for, PANAS first."""
    return sorted((key.name for key in _keys()), key=lambda name: (name != "PANAS", name))


def read_questionnaire(name: str, *, copy: Path | None = None) -> Questionnaire:
    """Find a key by its name, with the items of `copy`, a benchmark's questionnaires.json.

    Without a copy, only PANAS has items.
    """
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
    """The key with the texts of somebody's copy; whose scoring, if it has one, must be the same."""
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
    """Fold a name to its letters and digits, so that spelling it otherwise finds the same."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())
