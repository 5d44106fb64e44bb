"""The records that an importer reads from a public dataset, and what it set aside with the reason."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.file_formats import BadRow, Header, read_whole
from empathy_judge.data.readers.table_rows import read_rows
from empathy_judge.data.records import Exchange, Rating

Scale = tuple[float, float]


class SetAside(NamedTuple):
    """A part of a dataset that became no record, or an incomplete one: where, and why."""

    location: str
    reason: str


@dataclass(frozen=True, slots=True)
class Imported:
    """The records of a dataset; one published without texts has ratings without exchanges."""

    exchanges: tuple[Exchange, ...]
    ratings: tuple[Rating, ...]
    set_aside: tuple[SetAside, ...] = ()


class BadCell(Exception):
    """A value that cannot be read; the message starts with the name of its column."""


class Intake:
    """A collection of records from the files under one path, each of them once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.location = ""  # of the row that is read: file:line or file:key
        self._exchanges: dict[str, tuple[Exchange, str]] = {}
        self._ratings: dict[tuple[str, str, str], tuple[Rating, str]] = {}
        self._set_aside: list[SetAside] = []

    def find_files(self, *names: str) -> list[Path]:
        """Return the path itself where it is a file; else those of the named files that are in the folder."""
        if not self.path.exists():
            raise UserError(f"{self.path}: no such file or folder")
        if not self.path.is_dir():
            return [self.path]
        files = [self.path / name for name in names if (self.path / name).is_file()]
        if not files:
            raise UserError(f"{self.path}: expected a file {' or '.join(names)} in this folder")
        return files

    def rows(self, path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield every row of a CSV; empty cells are left out, unreadable rows set aside."""
        require_columns(path, columns)

        def on_bad(bad: BadRow) -> None:
            self.go_to(path, bad.line)
            self.set_aside(bad.problem)

        for line, row in read_rows(path, on_bad=on_bad):
            self.go_to(path, line)
            yield row

    def go_to(self, path: Path, where: int | str) -> None:
        """Set the location of what is read next, with the folders below the path of the import in front."""
        name = path.relative_to(self.path).as_posix() if self.path in path.parents else path.name
        self.location = f"{name}:{where}"

    def set_aside(self, reason: str, location: str = "") -> None:
        """Note a part that became no record, by default the row that is read."""
        self._set_aside.append(SetAside(location or self.location, reason))

    @contextmanager
    def setting_aside(self) -> Iterator[None]:
        """Record a bad cell and continue with the rest of the dataset."""
        try:
            yield
        except BadCell as problem:
            self.set_aside(str(problem))

    def add_exchange(self, exchange: Exchange) -> None:
        """Add an exchange; one known from another file with the same texts only adds its extra keys."""
        known, first = self._exchanges.setdefault(exchange.id, (exchange, self.location))
        if first == self.location:
            return
        if known.content_digest != exchange.content_digest or self._is_same_file(first):
            self.set_aside(f"id: {exchange.id!r} is already at {first}")
            return
        self._exchanges[exchange.id] = (replace(known, extra={**exchange.extra, **known.extra}), first)

    def add_rating(self, rating: Rating) -> None:
        """Add a rating; the same one in another file is no second rating."""
        key = (rating.id, rating.rater, rating.dimension)
        known, first = self._ratings.setdefault(key, (rating, self.location))
        if first != self.location and (known.rating != rating.rating or self._is_same_file(first)):
            who = f"{rating.rater!r} rated {rating.id!r} on {rating.dimension!r}"
            self.set_aside(f"rating: {who} already at {first}")

    def rate(self, row: Mapping[str, Any], column: str, scale: Scale, **fields: Any) -> float | None:
        """Add the rating in a cell, with these other fields, and return it; None where it was set aside."""
        with self.setting_aside():
            score = read_score(row, column, scale)
            self.add_rating(Rating(rating=score, **fields))
            return score
        return None

    def _is_same_file(self, location: str) -> bool:
        return location.rpartition(":")[0] == self.location.rpartition(":")[0]

    def has_exchange(self, identity: str) -> bool:
        """Return whether the texts of a rated id were found."""
        return identity in self._exchanges

    def finish(self) -> Imported:
        """Return the records; refuse a dataset that has none."""
        if not self._exchanges and not self._ratings:
            first = f"; first problem: {': '.join(self._set_aside[0])}" if self._set_aside else ""
            raise UserError(f"{self.path}: no row could be imported{first}")
        return Imported(
            exchanges=tuple(exchange for exchange, _ in self._exchanges.values()),
            ratings=tuple(rating for rating, _ in self._ratings.values()),
            set_aside=tuple(self._set_aside),
        )


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON file that holds one list of them."""
    try:
        objects = json.loads(read_whole(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    if not isinstance(objects, list) or not all(isinstance(item, dict) for item in objects):
        raise UserError(f"{path}: expected a list of objects")
    return objects


def read_header(path: Path) -> list[str]:
    """Return the column names of a CSV."""
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
    """Return a text without outer white space; EmpatheticDialogues writes its commas as `_comma_`."""
    value = row.get(column)
    text = "" if value is None else str(value).replace("_comma_", ",").strip()
    if not text:
        raise BadCell(f"{column}: empty")
    return text


def read_score(row: Mapping[str, Any], column: str, scale: Scale, *, whole: bool = False) -> float:
    """Return a number on a scale; with `whole`, not a mean of several raters."""
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
