"""Rows in and out as JSONL, CSV or Parquet; a bad row names its file, line, field and the way out."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, NoReturn, TextIO, TypeVar

from data.errors import UserError
from data.files import disk_errors, replacing
from data.places import Places
from data.records import LABELS, Exchange, Judgment, Rating
from data.storage import (
    BLOCK,
    SUFFIXES,
    Digesting,
    Remote,
    Source,
    Table,
    check_table,
    digest_file,
    digest_source,
    shards_of,
    store_errors,
)

Row = dict[str, Any]
TO_JSON = json.JSONEncoder(ensure_ascii=False, default=str).encode  # made once: there are many lines


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be read: where, why, and what it held."""

    path: Table
    line: int
    problem: str
    raw: Any
    shard: str = ""  # its file's name, where there are several

    def __str__(self) -> str:
        return f"{self.shard or self.path.name}:{self.line}: {self.problem}"


OnBad = Callable[[BadRow], None]
Digests = list[str] | None  # of the tables read so far, where they are asked for


def to_json(row: Mapping[str, Any]) -> str:
    """One line of JSON; a lone surrogate is written as its escape, since UTF-8 cannot hold it.

    A value JSON has no word for (Parquet knows dates and bytes) is written as its text.
    """
    text = TO_JSON(row)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(row, default=str)
    return text


@contextmanager
def _open(path: Table, digests: Digests) -> Iterator[IO[bytes]]:
    """The bytes of a table; once all are read, their digest is among `digests`."""
    if digests is None:
        with path.open("rb") as stream:
            yield stream
        return
    with Digesting(path) as raw, io.BufferedReader(raw, BLOCK) as buffered:
        yield buffered
        digests.append(raw.digest)


def _read_jsonl(path: Table, on_bad: OnBad, digests: Digests) -> Iterator[tuple[int, Row]]:
    with _open(path, digests) as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            try:
                row = json.loads(line.strip().decode("utf-8", "surrogatepass"))
            except (ValueError, RecursionError) as error:
                problem = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else f"not JSON: {error}"
                if isinstance(error, json.JSONDecodeError):  # its own line number is always 1
                    problem = f"not JSON: {error.msg} at column {error.colno}"
                on_bad(BadRow(path, number, problem, line.decode("utf-8", "replace")))
                continue
            if isinstance(row, dict):
                yield number, row
            else:
                on_bad(BadRow(path, number, f"a JSON object was expected, not {type(row).__name__}", row))


def _read_csv(path: Table, on_bad: OnBad, digests: Digests) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(sys.maxsize)
    with (
        _open(path, digests) as binary,
        io.TextIOWrapper(binary, encoding="utf-8-sig", errors="surrogateescape", newline="") as stream,
    ):
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
    except (ValueError, RecursionError):
        return value


def _read_parquet(path: Table, on_bad: OnBad, digests: Digests) -> Iterator[tuple[int, Row]]:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    if digests is not None:
        digests.append(digest_file(path))  # Parquet is not read from its start to its end
    try:
        with path.open("rb") as stream:
            number = 0
            for batch in parquet.ParquetFile(stream).iter_batches(batch_size=1024):
                yield from _rows_of(batch, number, path, on_bad)
                number += batch.num_rows
    except (arrow.ArrowException, OSError, UnicodeError) as error:  # a column's name may be no text
        raise UserError(f"{path}: not a Parquet file: {error}") from error


def _rows_of(batch: Any, before: int, path: Table, on_bad: OnBad) -> Iterator[tuple[int, Row]]:
    """A batch's rows with their numbers; one by one where Python has no word for one of its values."""
    try:
        yield from enumerate(batch.to_pylist(), start=before + 1)
        return
    except (ValueError, OverflowError):  # a day past the calendar's end, bytes that are no text
        pass
    for place in range(batch.num_rows):
        try:
            (row,) = batch.slice(place, 1).to_pylist()
        except (ValueError, OverflowError) as error:
            on_bad(BadRow(path, before + place + 1, f"row: holds what cannot be read: {error}", None))
        else:
            yield before + place + 1, row


def write_text(out: TextIO, rows: Iterable[Row], *, suffix: str, line_end: str = "\n") -> int:
    """Write plain rows to an open stream, as JSONL or CSV; returns the count."""
    if suffix == ".jsonl":
        count = 0
        for row in rows:
            out.write(to_json(row) + "\n")
            count += 1
        return count
    flat = [
        {
            key: json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list | tuple) else value
            for key, value in row.items()
        }
        for row in rows
    ]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    writer = csv.DictWriter(out, columns, lineterminator=line_end)
    writer.writeheader()
    writer.writerows(flat)
    return len(flat)


READERS = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}

Record = TypeVar("Record", Exchange, Rating, Judgment)
Kind = TypeVar("Kind")
MAX_TEXT = 100_000  # characters; a longer text is a mistake far more often than a reply
SHARD = 1 << 40  # a place is a shard's number times this, and the line


def stop_at_bad_row(bad: BadRow) -> NoReturn:
    """The default: the first bad row ends the command."""
    raise UserError(f"{bad}\nMend the row, or set bad rows aside with --skip-invalid.")


def read_exchanges(source: Source, *, on_bad: OnBad = stop_at_bad_row) -> Iterator[Exchange]:
    """Every valid exchange of a source, in order; the rest go to `on_bad`."""
    return iter(Exchanges(source, on_bad=on_bad))


def survey_exchanges(
    source: Source, *, limit: int | None = None, on_bad: OnBad = stop_at_bad_row
) -> tuple[str, int]:
    """The digest of a source and how many exchanges it has, none counted beyond `limit`; reads it once."""
    if limit is not None:
        count = sum(1 for _ in islice(read_exchanges(source, on_bad=on_bad), limit))
        return digest_source(source), count
    digests: list[str] = []
    count = sum(1 for _ in Exchanges(source, on_bad=on_bad, digests=digests))
    return digest_source(source, digests), count


class Exchanges:
    """Every valid exchange of a source, in order, and where the last that came stood: its shard and line.

    Rows without an id are known by their line; where there are several shards, by name and line.
    """

    def __init__(self, source: Source, *, on_bad: OnBad = stop_at_bad_row, digests: Digests = None) -> None:
        self.source, self._on_bad, self._digests = source, on_bad, digests
        self.shard = self.line = 0

    def __iter__(self) -> Iterator[Exchange]:
        shards, seen = shards_of(self.source), Places()
        for shard, (name, table) in enumerate(shards):
            on_bad = _in_shard(name, self._on_bad)
            for line, exchange, raw in _read_records(table, Exchange, on_bad, name, self._digests):
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


def read_ratings(path: Path, *, on_bad: OnBad = stop_at_bad_row) -> Iterator[Rating]:
    """Every valid rating of a file, in order; Bad, Okay and Good are read as 1, 2 and 3."""
    for _, rating, _ in _read_records(path, Rating, on_bad):
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
    make = make_record(Judgment)

    def is_judgment(row: Row) -> bool:
        try:
            make(0, row)
        except UserError:
            return False
        return True

    return is_judgment


def read_rows(
    path: Table, *, on_bad: OnBad = stop_at_bad_row, digests: Digests = None
) -> Iterator[tuple[int, Row]]:
    """Raw rows with their line numbers, from any of the three formats."""
    check_table(path)
    with store_errors(path) if isinstance(path, Remote) else nullcontext():
        yield from READERS[path.suffix.lower()](path, on_bad, digests)


def write_rows(path: Path, rows: Iterable[Any]) -> int:
    """Write records or plain rows in the format the suffix asks for, atomically; returns the count."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{path}: unknown kind of file; use one of {', '.join(SUFFIXES)}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            if suffix == ".parquet":
                import pyarrow as arrow
                import pyarrow.parquet as parquet

                table = arrow.Table.from_pylist([to_row(row) for row in rows])
                parquet.write_table(table, partial)
                return int(table.num_rows)
            with partial.open("w", encoding="utf-8", errors="surrogateescape", newline="") as out:
                return write_text(out, map(to_row, rows), suffix=suffix, line_end="\r\n")


def to_row(record: Any) -> Row:
    """A record as a flat row: empty optional fields left out, unknown keys back in their place."""
    if isinstance(record, Mapping):
        return dict(record)
    # By hand, since `asdict` copies every value and would take longer than a quick judge.
    row = {name: getattr(record, name) for name in record.__slots__}
    if isinstance(record, Judgment):
        for name in ("flag", "components", "decided_by"):
            if row[name] is None:
                del row[name]  # few judgments have one
        return row
    extra = row.pop("extra")
    if "dialogue" in row:
        row["dialogue"] = [asdict(turn) for turn in record.dialogue]
    return {key: value for key, value in row.items() if value not in (None, [])} | dict(extra)


def _read_records(
    path: Table, kind: type[Record], on_bad: OnBad, shard: str = "", digests: Digests = None
) -> Iterator[tuple[int, Record, Row]]:
    make = make_record(kind, shard)
    for line, row in read_rows(path, on_bad=on_bad, digests=digests):
        try:
            yield line, make(line, row), row
        except UserError as problem:
            on_bad(BadRow(path, line, str(problem), row))


def make_record(kind: type[Record], shard: str = "") -> Callable[[int, Row], Record]:
    """What makes a record of a line and its row; its `UserError` starts with the field that is wrong."""
    from pydantic import TypeAdapter, ValidationError

    validate = TypeAdapter(kind).validator.validate_python
    names = {item.name for item in fields(kind)} - {"extra"}

    def make(line: int, row: Row) -> Record:
        try:
            record: Record = validate(_shape(row, kind, names, f"{shard}:{line}" if shard else line))
        except ValidationError as error:
            field, problem = first_problem(error)
            first = error.errors(include_url=False)[0]
            problem += f", not {str(first['input'])[:40]!r}"
            if first["type"] == "missing":
                problem = "missing or empty; every row needs it"
            raise UserError(f"{field}: {problem}") from error
        if isinstance(record, Exchange):
            for name, text in (("prompt", record.prompt), ("response", record.response)):
                if len(text) > MAX_TEXT:
                    raise UserError(f"{name}: {len(text):,} characters, and at most {MAX_TEXT:,} are allowed")
        return record

    return make


@cache
def _make_exchange() -> Callable[[int, Row], Exchange]:
    return make_record(Exchange)  # once: making it takes longer than reading a row


def read_exchange(row: Row, *, line: int) -> Exchange:
    """One exchange that came otherwise than in a file; `UserError` starts with the field that is wrong."""
    return _make_exchange()(line, row)


def _shape(row: Row, kind: type, names: set[str], line: int | str) -> Row:
    """What the record's type expects: texts as texts, unknown keys under `extra`, an id always."""
    shaped = {key: value for key, value in row.items() if key in names and value is not None}
    if kind is Judgment:
        return shaped
    shaped["extra"] = {key: value for key, value in row.items() if key not in names}
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
    return shaped


def first_problem(error: Any) -> tuple[str, str]:
    """The field of the first thing that pydantic finds wrong, and what is wrong with it."""
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"])) or "row"
    return field, f"{first['msg'][0].lower()}{first['msg'][1:]}"


def validate(kind: type[Kind], table: Any, place: str, **named: str) -> Kind:
    """A record of a table that a person wrote; what is wrong is said with its place and field."""
    from pydantic import TypeAdapter, ValidationError

    if not isinstance(table, dict):
        raise UserError(f"{place}: a table was expected")
    try:
        return TypeAdapter(kind).validate_python({**table, **named})
    except ValidationError as error:
        raise UserError(f"{place}: {': '.join(first_problem(error))}") from error


SAMPLE_PROMPTS: Final = Path(__file__).parent / "samples" / "prompts.jsonl"  # 160, five for each emotion
ABOUT_ANOTHER_RESPONSE: Final = frozenset({"response", "model", "served"})


def stop_at_bad_prompt(bad: BadRow) -> None:
    """The default: the first bad row ends the command."""
    raise UserError(f"{bad}\nMend the row, or take it out.")


def read_prompts(path: Path, *, on_bad: OnBad = stop_at_bad_prompt) -> Iterator[Exchange]:
    """Every prompt of a file, in order, as an exchange whose response is still empty.

    A response and its model are left out where a row has them; other unknown keys are kept.
    """
    make, first_seen = make_record(Exchange), dict[str, int]()
    for line, row in read_rows(path, on_bad=on_bad):
        asked = {key: value for key, value in row.items() if key not in ABOUT_ANOTHER_RESPONSE}
        try:
            # Checked as any exchange is, with some word in place of the response that is still to come.
            prompt = replace(make(line, {**asked, "response": "to come"}), response="")
            if (earlier := first_seen.setdefault(prompt.id, line)) != line:
                there = f"{prompt.id!r} stands at line {earlier} already"
                raise UserError(f"id: {there}; give each prompt its own id, or none")
        except UserError as problem:
            on_bad(BadRow(path, line, str(problem), row))
        else:
            yield prompt
