"""Records in and out of tables of any shape; a bad row names its file, line, field and the fix."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, TextIO, TypeVar

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import LONGEST_TEXT, MOST_ITEMS, disk_errors, replacing
from empathy_judge.data.readers.column_shapes import RowKind
from empathy_judge.data.readers.conversations import conversation_id, has_earlier_replies, join_conversations
from empathy_judge.data.readers.file_formats import BadRow, OnBad, Row, load_parquet
from empathy_judge.data.readers.table_rows import TableRows, read_rows, stop_at_bad_row
from empathy_judge.data.records import CONVERSATION, LABELS, REPLY, Exchange, Judgment, Rating
from empathy_judge.data.storage import Columns, Source, Table, as_shards, find_sources
from empathy_judge.data.text import disarm

WRITTEN: Final = (".jsonl", ".csv", ".parquet")
SELDOM_GIVEN: Final = (
    "flag",
    "components",
    "decided_by",
    "features",
    "curve",
    "identity",
    "reused",
)  # else left out
TO_JSON = json.JSONEncoder(ensure_ascii=False, default=str).encode  # made once: there are many lines


def to_json(row: Mapping[str, Any]) -> str:
    """Return one line of JSON; a value without a JSON type, such as a date, is written as its text."""
    return to_line(row)[:-1].decode()


def to_line(row: Mapping[str, Any]) -> bytes:
    """Return a line of JSON with its line break; a lone surrogate, which UTF-8 cannot hold, is escaped."""
    try:
        return f"{TO_JSON(row)}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(row, default=str)}\n".encode()


def write_text(out: TextIO, rows: Iterable[Row], *, suffix: str, line_end: str = "\n") -> int:
    """Write plain rows to an open stream, as JSONL or CSV, and return their number."""
    if suffix == ".jsonl":
        return sum(bool(out.write(to_json(row) + "\n")) for row in rows)
    flat = [{disarm(key): _as_cell(value) for key, value in row.items()} for row in rows]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    writer = csv.DictWriter(out, columns, lineterminator=line_end)
    writer.writeheader()
    writer.writerows(flat)
    return len(flat)


def _as_cell(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    return disarm(value) if isinstance(value, str) else value


Record = TypeVar("Record", Exchange, Rating, Judgment)
Checked = TypeVar("Checked")
SHOWN_TABLES: Final = 4  # each with a line of its own; of more, equal lines are merged


def read_exchanges(source: Source, *, on_bad: OnBad = stop_at_bad_row) -> Iterator[Exchange]:
    """Yield every valid exchange of a source, in order; the rest go to `on_bad`."""
    return iter(Exchanges(source, on_bad=on_bad))


def read_responses(
    paths: Iterable[str | Path],
    columns: Columns | None = None,
    *,
    on_bad: OnBad = stop_at_bad_row,
    unit: str = REPLY,
) -> "Exchanges":
    """Return the exchanges of files in any known shape, as one; once iterated over, they have `notes`.

    `columns` are those that the user named. Models without a name get that of their file.
    """
    return Exchanges(find_sources(list(paths), columns), on_bad=on_bad, unit=unit)


FIRST_ROWS: Final = 200  # by which a source is known to hold conversations


def notice_unit(source: Source) -> str:
    """Return what the rows of a source are judged as: replies, or whole conversations.

    Conversations are rows that name one together with others, or a column that holds all turns, if most of
    its first rows hold several replies. A reply with its `dialogue` beside it stays a reply.
    """
    exchanges = Exchanges(source, on_bad=lambda bad: None)
    first = list(islice(exchanges, FIRST_ROWS))
    named = Counter((row.model, name) for row in first if (name := conversation_id(row)) is not None)
    fit = exchanges.tables[-1].fit if exchanges.tables else None
    is_whole = fit is not None and fit.kind is RowKind.CONVERSATIONS
    is_whole = is_whole and 2 * sum(map(has_earlier_replies, first)) > len(first)
    return CONVERSATION if is_whole or max(named.values(), default=0) > 1 else REPLY


class Exchanges:
    """Every valid exchange of a source, in order.

    A row may hold several exchanges. With `unit` a whole conversation, rows that belong to one are joined.

    The id of a row without one is its line; where there are several shards, name and line. An id that
    another model's response has already gets its own model's name behind it.

    If `needs_reply` is false, these are prompts: exchanges with an empty response and no model. A prompt that
    several models answered comes once, unless the table has our own columns.
    """

    def __init__(
        self,
        source: Source,
        *,
        on_bad: OnBad = stop_at_bad_row,
        unit: str = REPLY,
        needs_reply: bool = True,
    ) -> None:
        self.source, self._on_bad, self._unit = as_shards(source), on_bad, unit
        self._needs_reply = needs_reply
        self.tables: list[TableRows] = []

    def __iter__(self) -> Iterator[Exchange]:
        return join_conversations(self._rows()) if self._unit == CONVERSATION else self._rows()

    def _rows(self) -> Iterator[Exchange]:
        seen: dict[str, _FirstSeen] = {}
        self.tables = []
        for shard, (name, _) in enumerate(self.source.tables):
            rows = TableRows(self.source, shard, on_bad=self._on_bad, needs_reply=self._needs_reply)
            rows.is_whole = self._unit == CONVERSATION
            self.tables.append(rows)
            for line, exchange, raw in _exchanges(rows) if self._needs_reply else _prompts(rows):
                here = _FirstSeen(exchange.model, shard, line)
                earlier = seen.setdefault(exchange.id, here)
                if earlier.model != exchange.model:
                    exchange = replace(exchange, id=f"{exchange.id}/{exchange.model}")
                    rows.has_renamed = True
                    earlier = seen.setdefault(exchange.id, here)
                if earlier is here:
                    rows.count += 1
                    yield exchange
                    continue
                there = f"line {earlier.line}" + (
                    f" of {self.source.tables[earlier.shard][0]}" if name else ""
                )
                what = "reply" if self._needs_reply else "prompt"
                problem = f"id: {exchange.id!r} is already at {there}"
                rows.set_aside(line, f"{problem}; give each {what} a unique id, or none", raw)

    def notes(self) -> list[str]:
        """Return how the tables iterated over were read, where it is not by our own columns."""
        tables = [rows for rows in self.tables if rows.needs_note]
        groups: dict[str, list[TableRows]] = {}
        for rows in tables:
            alike = rows.note("", 0, 0) if len(tables) > SHOWN_TABLES else str(rows.shard)
            groups.setdefault(alike, []).append(rows)
        lines = [
            group[0].note(
                f"{len(group)} files" if len(group) > 1 else group[0].name or group[0].table.name,
                sum(rows.read for rows in group),
                sum(rows.count for rows in group),
            )
            for group in groups.values()
        ]
        return [*self.source.warnings, *lines]


class _FirstSeen(NamedTuple):
    """The model and position of the first exchange with some id."""

    model: str
    shard: int
    line: int


Found = tuple[int, Exchange, Row]  # an exchange with its line and its row


def _exchanges(rows: TableRows) -> Iterator[Found]:
    """Yield every exchange of a table that is valid by itself."""
    make = make_record(Exchange, rows.name, rows.model)
    for line, row in rows.replies():
        rows.read += 1
        try:
            parts = rows.parts(line, row)
        except UserError as problem:
            rows.set_aside(line, f"{problem} (the file is read as {rows.description})", row)
            continue
        for part in parts:
            if rows.model and part.get("model") is None:
                rows.lacks_model = True
            try:
                exchange = make(line, part)
            except UserError as problem:
                rows.set_aside(line, str(problem), row)
            else:
                yield line, exchange, row


def _prompts(rows: TableRows) -> Iterator[Found]:
    make, asked = make_record(Exchange, rows.name), set[str]()
    for line, row in rows.rows():
        rows.read += 1
        try:
            for part in rows.parts(line, row)[:1]:
                kept = {key: item for key, item in part.items() if key not in ABOUT_ANOTHER_RESPONSE}
                # Checked as any exchange is, with some text in place of the response to come.
                prompt = replace(make(line, {**kept, "response": "to come"}), response="")
                if rows.fit is not None:
                    prompt = replace(prompt, id=prompt.id.removesuffix(f"/{part.get('model')}"))
                if rows.fit is None or prompt.content_digest not in asked:
                    asked.add(prompt.content_digest)
                    yield line, prompt, row
        except UserError as problem:
            rows.set_aside(line, str(problem), row)


def read_ratings(path: Path, *, on_bad: OnBad = stop_at_bad_row) -> Iterator[Rating]:
    """Yield every valid rating of a file, in order; Bad, Okay and Good are read as 1, 2 and 3."""
    return _read_records(path, Rating, on_bad)


def _stop_at_bad_judgment(bad: BadRow) -> None:
    raise UserError(
        f"{bad.path}:{bad.line}: {bad.problem}\n"
        "The run is damaged: delete its folder, and run its `score` command again."
    )


def read_judgments(path: Path, *, on_bad: OnBad = _stop_at_bad_judgment) -> Iterator[Judgment]:
    """Yield every judgment of a run, in order."""
    return _read_records(path, Judgment, on_bad)


def is_judgment(row: Row) -> bool:
    """Return whether a row is a judgment, and not an older version's."""
    try:
        make_record(Judgment)(0, row)
    except UserError:
        return False
    return True


def write_rows(path: Path, rows: Iterable[Any]) -> int:
    """Write records or plain rows in the format of the suffix, and return their number."""
    suffix = path.suffix.lower()
    if suffix not in WRITTEN:
        raise UserError(f"{path}: unknown file type; use one of {', '.join(WRITTEN)}")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            if suffix == ".parquet":
                arrow, parquet = load_parquet(path)
                flat = [to_row(row) for row in rows]
                columns = dict.fromkeys(key for row in flat for key in row)  # Arrow takes those of the first
                table = arrow.Table.from_pylist([{key: row.get(key) for key in columns} for row in flat])
                parquet.write_table(table, partial)
                return int(table.num_rows)
            with partial.open("w", encoding="utf-8", errors="surrogateescape", newline="") as out:
                return write_text(out, map(to_row, rows), suffix=suffix, line_end="\r\n")


def to_row(record: Any) -> Row:
    """Return a record as a flat row: without empty optional fields, with its unknown keys."""
    if isinstance(record, Mapping):
        return dict(record)
    row = {name: getattr(record, name) for name in record.__slots__}
    if isinstance(record, Judgment):
        return {name: value for name, value in row.items() if value is not None or name not in SELDOM_GIVEN}
    extra = row.pop("extra")
    if "dialogue" in row:
        row["dialogue"] = [asdict(turn) for turn in record.dialogue]
    return {key: value for key, value in row.items() if value not in (None, [])} | dict(extra)


def _read_records(path: Table, kind: type[Record], on_bad: OnBad) -> Iterator[Record]:
    make = make_record(kind)
    for line, row in read_rows(path, on_bad=on_bad):
        try:
            yield make(line, row)
        except UserError as problem:
            on_bad(BadRow(path, line, str(problem), row))


def make_record(kind: type[Record], shard: str = "", model: str = "") -> Callable[[int, Row], Record]:
    """Return what makes a record of a line and its row; its `UserError` starts with the wrong field.

    A row that names no model has `model`.
    """
    from pydantic import ValidationError

    make_valid = _adapter(kind).validator.validate_python
    names = {item.name for item in fields(kind)} - {"extra"}

    def make(line: int, row: Row) -> Record:
        shaped = _shape(row, kind, names, f"{shard}:{line}" if shard else line)
        if model:
            shaped.setdefault("model", model)
        for name, value in shaped.items():
            if isinstance(value, list | dict) and len(value) > MOST_ITEMS and name != "extra":
                raise UserError(f"{name}: {len(value):,} items; at most {MOST_ITEMS:,} are allowed")
            if name in ("prompt", "response") and isinstance(value, str) and len(value) > LONGEST_TEXT:
                raise UserError(f"{name}: {len(value):,} characters; at most {LONGEST_TEXT:,} are allowed")
        try:
            record: Record = make_valid(shaped)
        except ValidationError as error:
            (field, problem), first = first_problem(error), error.errors(include_url=False)[0]
            problem += f", not {str(first['input'])[:40]!r}"
            if first["type"] == "missing":
                problem = "missing or empty; every row needs it"
            raise UserError(f"{field}: {problem}") from error
        return record

    return make


def read_exchange(row: Row, *, line: int) -> Exchange:
    """Return one exchange that is not from a file; `UserError` starts with the wrong field."""
    return make_record(Exchange)(line, row)


def _shape(row: Row, kind: type, names: set[str], line: int | str) -> Row:
    """Return a row as its record needs it: texts as texts, unknown keys under `extra`, an id always."""
    shaped = {key: value for key, value in row.items() if key in names and value is not None}
    if kind is Judgment:
        return shaped
    shaped["extra"] = {key: value for key, value in row.items() if key not in names}
    shaped.setdefault("id", line)
    if kind is Exchange:
        for key in ("prompt", "response"):
            if isinstance(text := shaped.get(key), str) and not text.strip():
                del shaped[key]  # an empty text is reported as missing
    elif isinstance(rating := shaped.get("rating"), str):
        title = rating.strip().title()
        label = "Okay" if title == "Ok" else title
        shaped["rating"] = LABELS.index(label) + 1 if label in LABELS else rating
    for key in ("id", *(("rater", "batch") if kind is Rating else ())):
        if isinstance(shaped.get(key), int):
            shaped[key] = str(shaped[key])
    return shaped


def first_problem(error: Any) -> tuple[str, str]:
    """Return the field of the first problem that pydantic finds, and the problem."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"] if part != "[key]") or "row"
    if first["type"] == "unexpected_keyword_argument":
        return field, "unknown key"
    message = first["msg"].removeprefix("Value error, ")
    return field, f"{message[0].lower()}{message[1:]}"


_ADAPTERS: Final[dict[type[Any], Any]] = {}


def _adapter(kind: type[Any]) -> Any:
    from pydantic import TypeAdapter

    return _ADAPTERS.get(kind) or _ADAPTERS.setdefault(kind, TypeAdapter(kind))


def validate(kind: type[Checked], table: Any, path: str, /, **named: str | int) -> Checked:
    """Return a record of a table in a file that the user wrote; an error names the file and the field."""
    from pydantic import ValidationError

    if not isinstance(table, dict):
        raise UserError(f"{path}: expected a table")
    try:
        record: Checked = _adapter(kind).validate_python({**table, **named})
        return record
    except ValidationError as error:
        raise UserError(f"{path}: {': '.join(first_problem(error))}") from error


SAMPLE_RESPONSES: Final = Path(__file__).parent / "samples" / "responses.jsonl"
SAMPLE_PROMPTS: Final = Path(__file__).parent / "samples" / "prompts.jsonl"  # 160, five for each emotion
ABOUT_ANOTHER_RESPONSE: Final = frozenset({"response", "model", "served"})


def read_prompts(source: Source) -> Exchanges:
    """Return every prompt of a source; the first bad row ends the command."""

    def stop(bad: BadRow) -> NoReturn:
        raise UserError(f"{bad}\nFix the row, or remove it.")

    return Exchanges(source, on_bad=stop, needs_reply=False)
