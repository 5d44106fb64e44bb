"""Rows in and out as JSONL, CSV or Parquet; a bad row names its file, line, field and the way out."""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from data.errors import UserError
from data.files import disk_errors, replacing
from data.records import LABELS, Exchange, Judgment, Rating

Record = TypeVar("Record", Exchange, Rating, Judgment)
Row = dict[str, Any]
SUFFIXES = (".jsonl", ".csv", ".parquet")
MAX_TEXT = 100_000  # characters; a longer text is a mistake far more often than a reply


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be read: where, why, and what it held."""

    path: Path
    line: int
    problem: str
    raw: Any

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}: {self.problem}"


OnBad = Callable[[BadRow], None]


def stop_at_bad_row(bad: BadRow) -> None:
    """The default: the first bad row ends the command."""
    raise UserError(f"{bad}\nMend the row, or set bad rows aside with --skip-invalid.")


def read_exchanges(path: Path, *, on_bad: OnBad = stop_at_bad_row) -> Iterator[Exchange]:
    """Every valid exchange of a file, in order; the rest go to `on_bad`."""
    first_seen: dict[str, int] = {}
    for line, exchange, raw in _read_records(path, Exchange, on_bad):
        earlier = first_seen.setdefault(exchange.id, line)
        if earlier != line:
            problem = f"id: {exchange.id!r} stands at line {earlier} already"
            on_bad(BadRow(path, line, f"{problem}; give each response its own id, or none", raw))
        else:
            yield exchange


def read_ratings(path: Path, *, on_bad: OnBad = stop_at_bad_row) -> Iterator[Rating]:
    """Every valid rating of a file, in order; Bad, Okay and Good are read as 1, 2 and 3."""
    for _, rating, _ in _read_records(path, Rating, on_bad):
        yield rating


def read_judgments(path: Path) -> Iterator[Judgment]:
    """Every judgment of a finished run, in order."""
    for _, judgment, _ in _read_records(path, Judgment, stop_at_bad_row):
        yield judgment


def read_rows(path: Path, *, on_bad: OnBad = stop_at_bad_row) -> Iterator[tuple[int, Row]]:
    """Raw rows with their line numbers, from any of the three formats."""
    check_table(path)
    readers = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}
    return readers[path.suffix.lower()](path, on_bad)


def check_table(path: Path) -> None:
    """Refuse at once what cannot be a table."""
    if not path.exists():
        raise UserError(f"{path}: no such file")
    if path.is_dir():
        raise UserError(f"{path}: is a folder, and a file was expected")
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path}: unknown kind of file; use one of {', '.join(SUFFIXES)}")


def write_rows(path: Path, rows: Iterable[Any]) -> int:
    """Write records or plain rows in the format the suffix asks for, atomically; returns the count."""
    writers = {".jsonl": _write_jsonl, ".csv": _write_csv, ".parquet": _write_parquet}
    writer = writers.get(path.suffix.lower())
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
        return row
    extra = row.pop("extra")
    if "dialogue" in row:
        row["dialogue"] = [asdict(turn) for turn in record.dialogue]
    return {key: value for key, value in row.items() if value not in (None, [])} | dict(extra)


def to_json(row: Mapping[str, Any]) -> str:
    """One line of JSON; a lone surrogate is written as its escape, since UTF-8 cannot hold it.

    A value JSON has no word for (Parquet knows dates and bytes) is written as its text.
    """
    text = json.dumps(row, ensure_ascii=False, default=str)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(row, default=str)
    return text


def _read_records(path: Path, kind: type[Record], on_bad: OnBad) -> Iterator[tuple[int, Record, Row]]:
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(kind)
    known = {item.name for item in fields(kind)} - {"extra"}
    for line, row in read_rows(path, on_bad=on_bad):
        try:
            yield line, adapter.validate_python(_shape(row, kind, known, line)), row
        except ValidationError as error:
            on_bad(BadRow(path, line, _say(error), row))


def _shape(row: Row, kind: type, known: set[str], line: int) -> Row:
    """What the record's type expects: texts as texts, unknown keys under `extra`, an id always."""
    shaped = {key: value for key, value in row.items() if key in known and value is not None}
    if kind is Judgment:
        return shaped
    shaped["extra"] = {key: value for key, value in row.items() if key not in known}
    if isinstance(identity := shaped.get("id", line), int):
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


def _read_jsonl(path: Path, on_bad: OnBad) -> Iterator[tuple[int, Row]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            try:
                row = json.loads(line.strip())
            except (ValueError, RecursionError) as error:
                on_bad(BadRow(path, number, _say_json(error), line.decode("utf-8", "replace")))
                continue
            if isinstance(row, dict):
                yield number, row
            else:
                on_bad(BadRow(path, number, f"a JSON object was expected, not {type(row).__name__}", row))


def _say_json(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error.msg} at column {error.colno}"  # its own line number is always 1
    return "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else f"not JSON: {error}"


def _read_csv(path: Path, on_bad: OnBad) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(sys.maxsize)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        # Strict: else a quote left open would swallow every row after it without a word.
        reader = csv.DictReader(stream, restkey="", strict=True)
        while True:
            line = max(reader.line_num + 1, 2)  # the header is read with the first row
            try:
                row = next(reader, None)
            except csv.Error as error:
                swallowed = f"lines {line} to {reader.line_num} of the file"
                on_bad(BadRow(path, line, f"not CSV: {error}; is a quote left open?", swallowed))
                continue
            if row is None:
                return
            if isinstance(row.get(""), list):
                on_bad(BadRow(path, line, f"row: has {len(row[''])} cells more than the header", row))
            else:
                # CSV has no null: an empty cell means that nothing was given.
                yield line, {key: _cell(key, value) for key, value in row.items() if value not in ("", None)}


def _cell(key: str, value: str) -> Any:
    """`dialogue` is the one column that is not flat: it holds its JSON."""
    if key != "dialogue":
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _read_parquet(path: Path, on_bad: OnBad) -> Iterator[tuple[int, Row]]:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    try:
        table = parquet.ParquetFile(path)
        number = 0
        for batch in table.iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except (arrow.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a Parquet file: {error}") from error


def _write_jsonl(path: Path, rows: Iterator[Row]) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as out:
        for row in rows:
            out.write(to_json(row) + "\n")
            count += 1
    return count


def _flat(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | tuple) else value


def _write_csv(path: Path, rows: Iterator[Row]) -> int:
    held = [{key: _flat(value) for key, value in row.items()} for row in rows]
    columns = list(dict.fromkeys(key for row in held for key in row))
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as out:
        writer = csv.DictWriter(out, columns)
        writer.writeheader()
        writer.writerows(held)
    return len(held)


def _write_parquet(path: Path, rows: Iterator[Row]) -> int:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    table = arrow.Table.from_pylist(list(rows))
    parquet.write_table(table, path)
    return int(table.num_rows)
