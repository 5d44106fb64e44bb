"""Rows in and out as JSONL, CSV or Parquet; a bad row names its file, line, field and the way out."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from data.errors import UserError
from data.files import disk_errors, replacing
from data.formats import READERS, WRITERS
from data.formats import BadRow as BadRow  # said again, as are those below: others look for them here
from data.formats import OnBad as OnBad
from data.formats import Row as Row
from data.formats import to_json as to_json
from data.places import Places
from data.records import LABELS, Exchange, Judgment, Rating
from data.stores import SUFFIXES, Remote, Source, Table, shards_of, store_errors
from data.stores import check_table as check_table

Record = TypeVar("Record", Exchange, Rating, Judgment)
MAX_TEXT = 100_000  # characters; a longer text is a mistake far more often than a reply
SHARD = 1 << 40  # a place is a shard's number times this, and the line


def stop_at_bad_row(bad: BadRow) -> None:
    """The default: the first bad row ends the command."""
    raise UserError(f"{bad}\nMend the row, or set bad rows aside with --skip-invalid.")


def read_exchanges(source: Source, *, on_bad: OnBad = stop_at_bad_row) -> Iterator[Exchange]:
    """Every valid exchange of a source, in order; the rest go to `on_bad`."""
    return iter(Exchanges(source, on_bad=on_bad))


class Exchanges:
    """Every valid exchange of a source, in order, and where the last that came stood: its shard and line.

    Rows without an id are known by their line; where there are several shards, by name and line.
    """

    def __init__(self, source: Source, *, on_bad: OnBad = stop_at_bad_row) -> None:
        self.source, self._on_bad = source, on_bad
        self.shard = self.line = 0

    def __iter__(self) -> Iterator[Exchange]:
        shards, seen = shards_of(self.source), Places()
        for shard, (name, table) in enumerate(shards):
            on_bad = _in_shard(name, self._on_bad)
            for line, exchange, raw in _read_records(table, Exchange, on_bad, name):
                place = shard * SHARD + line
                earlier = seen.note(exchange.id, place)
                if earlier == place:
                    self.shard, self.line = shard, line
                    yield exchange
                    continue
                there = f"line {earlier % SHARD}"
                if name:
                    there += f" of {shards[earlier // SHARD][0]}"
                problem = f"id: {exchange.id!r} stands at {there} already"
                on_bad(BadRow(table, line, f"{problem}; give each response its own id, or none", raw))


def _in_shard(name: str, on_bad: OnBad) -> OnBad:
    return (lambda bad: on_bad(replace(bad, shard=name))) if name else on_bad


def read_ratings(path: Path) -> Iterator[Rating]:
    """Every valid rating of a file, in order; Bad, Okay and Good are read as 1, 2 and 3."""
    for _, rating, _ in _read_records(path, Rating, stop_at_bad_row):
        yield rating


def read_judgments(path: Path) -> Iterator[Judgment]:
    """Every judgment of a finished run, in order."""
    for _, judgment, _ in _read_records(path, Judgment, _stop_at_bad_judgment):
        yield judgment


def _stop_at_bad_judgment(bad: BadRow) -> None:
    raise UserError(
        f"{bad.path}:{bad.line}: {bad.problem}\n"
        "The run is damaged: delete its folder, and give its `score` command again."
    )


def judgment_check() -> Callable[[Row], bool]:
    """Tells rows that are judgments from those that are not, such as an older version's."""
    from pydantic import ValidationError

    make = make_record(Judgment)

    def is_judgment(row: Row) -> bool:
        try:
            make(0, row)
        except ValidationError:
            return False
        return True

    return is_judgment


def read_rows(path: Table, *, on_bad: OnBad = stop_at_bad_row) -> Iterator[tuple[int, Row]]:
    """Raw rows with their line numbers, from any of the three formats."""
    check_table(path)
    rows = READERS[path.suffix.lower()](path, on_bad)
    return _watched(rows, path) if isinstance(path, Remote) else rows


def _watched(rows: Iterator[tuple[int, Row]], path: Remote) -> Iterator[tuple[int, Row]]:
    with store_errors(path):
        yield from rows


def write_rows(path: Path, rows: Iterable[Any]) -> int:
    """Write records or plain rows in the format the suffix asks for, atomically; returns the count."""
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise UserError(f"{path}: unknown kind of file; use one of {', '.join(SUFFIXES)}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            return writer(partial, (to_row(row) for row in rows))


def to_row(record: Any) -> Row:
    """A record as a flat row: empty optional fields left out, unknown keys back in their place."""
    if isinstance(record, Mapping):
        return dict(record)
    # By hand, since `asdict` copies every value and would take longer than a quick judge.
    row = {name: getattr(record, name) for name in record.__slots__}
    if isinstance(record, Judgment):
        if record.flag is None:
            del row["flag"]  # few have one, and lines from before there were flags stay the same
        return row
    extra = row.pop("extra")
    if "dialogue" in row:
        row["dialogue"] = [asdict(turn) for turn in record.dialogue]
    return {key: value for key, value in row.items() if value not in (None, [])} | dict(extra)


def _read_records(
    path: Table, kind: type[Record], on_bad: OnBad, shard: str = ""
) -> Iterator[tuple[int, Record, Row]]:
    from pydantic import ValidationError

    make = make_record(kind, shard)
    for line, row in read_rows(path, on_bad=on_bad):
        try:
            yield line, make(line, row), row
        except ValidationError as error:
            on_bad(BadRow(path, line, _say(error), row))


def make_record(kind: type[Record], shard: str = "") -> Callable[[int, Row], Record]:
    """What makes a record of a line and its row, or raises pydantic's `ValidationError`."""
    from pydantic import TypeAdapter

    validate = TypeAdapter(kind).validator.validate_python
    known = {item.name for item in fields(kind)} - {"extra"}

    def make(line: int, row: Row) -> Record:
        record: Record = validate(_shape(row, kind, known, f"{shard}:{line}" if shard else line))
        return record

    return make


def read_exchange(row: Row, *, line: int) -> Exchange:
    """One exchange that came otherwise than in a file; `UserError` starts with the field that is wrong."""
    from pydantic import ValidationError

    try:
        return _make_exchange()(line, row)
    except ValidationError as error:
        raise UserError(_say(error)) from error


@cache
def _make_exchange() -> Callable[[int, Row], Exchange]:
    return make_record(Exchange)  # once: making it takes longer than reading a row


def _shape(row: Row, kind: type, known: set[str], line: int | str) -> Row:
    """What the record's type expects: texts as texts, unknown keys under `extra`, an id always."""
    shaped = {key: value for key, value in row.items() if key in known and value is not None}
    if kind is Judgment:
        return shaped
    shaped["extra"] = {key: value for key, value in row.items() if key not in known}
    if isinstance(identity := shaped.setdefault("id", line), int):
        shaped["id"] = str(identity)
    if kind is Rating:
        rating = shaped.get("rating")
        if isinstance(rating, str) and rating.strip().title() in LABELS:
            shaped["rating"] = LABELS.index(rating.strip().title()) + 1
        for key in ("rater", "batch"):
            if isinstance(shaped.get(key), int):
                shaped[key] = str(shaped[key])
        return shaped
    for key in ("prompt", "response"):
        text = shaped.get(key)
        if isinstance(text, str) and not text.strip():
            del shaped[key]  # an empty text is a missing one, and is said to be
        elif isinstance(text, str) and len(text) > MAX_TEXT:
            shaped[key] = _TooLong(len(text))
    return shaped


@dataclass(frozen=True, slots=True)
class _TooLong:
    """Stands where a text was; fails validation and tells its length."""

    length: int


def _say(error: Any) -> str:
    """One line for the first thing wrong, with the field in front."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "row"
    if isinstance(first["input"], _TooLong):
        return f"{place}: {first['input'].length:,} characters, and at most {MAX_TEXT:,} are allowed"
    if first["type"] == "missing":
        return f"{place}: missing or empty; every row needs it"
    return f"{place}: {first['msg'][0].lower()}{first['msg'][1:]}, not {str(first['input'])[:40]!r}"
