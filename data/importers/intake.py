"""What an importer takes in from a public dataset: records, and what it set aside and why."""

import ast
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.file_formats import Header, read_whole
from empathy_judge.data.records import Exchange, Rating
from empathy_judge.data.tables import BadRow, read_rows

Scale = tuple[float, float]


class SetAside(NamedTuple):
    """Something a dataset holds that became no record, or only part of one: where, and why."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Imported:
    """All that a dataset gave; ratings may outnumber exchanges where a dataset is published without texts."""

    exchanges: tuple[Exchange, ...]
    ratings: tuple[Rating, ...]
    set_aside: tuple[SetAside, ...] = ()


class BadCell(Exception):
    """A value that cannot be read; the message starts with the name of its column."""


class Intake:
    """Gathers records from the files under one path; what is already there is taken once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._exchanges: dict[str, tuple[Exchange, str]] = {}
        self._ratings: dict[tuple[str, str, str], tuple[Rating, str]] = {}
        self._set_aside: list[SetAside] = []

    def find_files(self, *names: str) -> list[Path]:
        """The path itself where it is a file; else those of the named files that lie in the folder."""
        if not self.path.exists():
            raise UserError(f"{self.path}: no such file or folder")
        if not self.path.is_dir():
            return [self.path]
        files = [self.path / name for name in names if (self.path / name).is_file()]
        if not files:
            raise UserError(f"{self.path}: expected a file {' or '.join(names)} in this folder")
        return files

    def rows(self, path: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every row of a CSV with its place; empty cells are left out, unreadable rows set aside."""
        require_columns(path, columns)

        def on_bad(bad: BadRow) -> None:
            self.set_aside(self.place(path, bad.line), bad.problem)

        for line, row in read_rows(path, on_bad=on_bad):
            yield self.place(path, line), row

    def place(self, path: Path, where: int | str) -> str:
        """`file:line` or `file:key`, with the folders below the path of the import in front."""
        name = path.relative_to(self.path).as_posix() if self.path in path.parents else path.name
        return f"{name}:{where}"

    def set_aside(self, place: str, reason: str) -> None:
        """Note what became no record."""
        self._set_aside.append(SetAside(place, reason))

    @contextmanager
    def setting_aside(self, place: str) -> Iterator[None]:
        """Record a bad cell and continue with the rest of the dataset."""
        try:
            yield
        except BadCell as problem:
            self.set_aside(place, str(problem))

    def add_exchange(self, exchange: Exchange, place: str) -> None:
        """Take an exchange; one known from another file with the same texts only brings its extras."""
        known, first = self._exchanges.setdefault(exchange.id, (exchange, place))
        if first == place:
            return
        if known.content_digest != exchange.content_digest or _is_same_file(first, place):
            self.set_aside(place, f"id: {exchange.id!r} is already at {first}")
            return
        self._exchanges[exchange.id] = (replace(known, extra={**exchange.extra, **known.extra}), first)

    def add_rating(self, rating: Rating, place: str) -> None:
        """Take a rating; the same one in another file is no second rating."""
        key = (rating.id, rating.rater, rating.dimension)
        known, first = self._ratings.setdefault(key, (rating, place))
        if first != place and (known.rating != rating.rating or _is_same_file(first, place)):
            problem = (
                f"rating: {rating.rater!r} rated {rating.id!r} on {rating.dimension!r} already at {first}"
            )
            self.set_aside(place, problem)

    def rate(
        self, place: str, row: Mapping[str, Any], column: str, scale: Scale, **fields: Any
    ) -> float | None:
        """Take the rating in a cell, with these other fields, and return it; None where it was set aside."""
        with self.setting_aside(place):
            score = read_score(row, column, scale)
            self.add_rating(Rating(rating=score, **fields), place)
            return score
        return None

    def has_exchange(self, identity: str) -> bool:
        """Whether the texts of a rated id were found."""
        return identity in self._exchanges

    def finish(self) -> Imported:
        """All that was taken in; a dataset that gave nothing at all is the wrong dataset."""
        if not self._exchanges and not self._ratings:
            first = f"; first problem: {': '.join(self._set_aside[0])}" if self._set_aside else ""
            raise UserError(f"{self.path}: no row could be imported{first}")
        return Imported(
            exchanges=tuple(exchange for exchange, _ in self._exchanges.values()),
            ratings=tuple(rating for rating, _ in self._ratings.values()),
            set_aside=tuple(self._set_aside),
        )


def read_objects(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON file that holds one list of them."""
    try:
        objects = json.loads(read_whole(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    if not isinstance(objects, list) or not all(isinstance(item, dict) for item in objects):
        raise UserError(f"{path}: expected a list of objects")
    return objects


def read_header(path: Path) -> list[str]:
    """The column names of a CSV."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if path.suffix.lower() != ".csv":
        raise UserError(f"{path}: expected a .csv file")
    header = Header()
    next(read_rows(path, on_bad=lambda bad: None, header=header), None)
    return list(header.columns)


def require_columns(path: Path, columns: Sequence[str]) -> None:
    """Stop at a file of another shape, naming what was expected and what is there."""
    header = read_header(path)
    for column in columns:
        if column not in header:
            there = shorten(", ".join(header), 200) or "nothing"
            raise UserError(f"{path}: expected a column {column!r}; its header has {there}")


def read_text(row: Mapping[str, Any], column: str) -> str:
    """A text without the white space around it; EmpatheticDialogues writes its commas as `_comma_`."""
    value = row.get(column)
    text = "" if value is None else str(value).replace("_comma_", ",").strip()
    if not text:
        raise BadCell(f"{column}: empty")
    return text


def read_score(row: Mapping[str, Any], column: str, scale: Scale, *, whole: bool = False) -> float:
    """A number on a scale; means of several raters are on it too, unless `whole` is asked for."""
    text = read_text(row, column)
    try:
        score = float(text)
    except ValueError:
        raise BadCell(f"{column}: {text[:40]!r} is not a number") from None
    low, high = scale
    # Written so that nan, which compares with nothing, fails as well.
    if not low <= score <= high or (whole and score != math.floor(score)):
        raise BadCell(f"{column}: {text} is not on the scale {low:g}-{high:g}")
    return score


def read_teq(row: Mapping[str, Any], column: str) -> int:
    """A rater's score on the Toronto Empathy Questionnaire: 16 items of 0 to 4."""
    return int(read_score(row, column, (0, 64), whole=True))


def read_list(row: Mapping[str, Any], column: str) -> list[Any]:
    """A list written as a Python literal; nothing in it is run."""
    text = read_text(row, column)
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, list):
        raise BadCell(f"{column}: {text[:40]!r} is not a list")
    return value


def _is_same_file(place: str, other: str) -> bool:
    return place.rpartition(":")[0] == other.rpartition(":")[0]
