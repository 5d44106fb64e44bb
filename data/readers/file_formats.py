"""Raw rows out of files: JSON lines, JSON, CSV by any delimiter, Parquet, Excel sheets and Inspect logs."""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from itertools import chain
from typing import IO, Any, Final

from data.errors import UserError, install_hint
from data.readers.chat_turns import PROMPTS, RESPONSES, plain_name
from data.readers.tool_exports import rows_of_document
from data.storage import Table
from data.text import printable, rearm

Row = dict[str, Any]
LONGEST_LINE: Final = 16 << 20  # bytes; a row of ours has a few thousand
SKIP: Final = 1 << 20
MOST_DIGITS: Final = 308  # as many as a number with a decimal point can have before it
DELIMITERS: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# What Python makes of bytes that are not UTF-8, as Windows code page 1252 has them, if it does.
WINDOWS: Final = {
    0xDC00 + byte: text for byte in range(0x80, 0x100) if (text := bytes([byte]).decode("cp1252", "ignore"))
}
SAVE_AS: Final = "save the file as UTF-8"
TOO_LONG: Final = f"longer than {LONGEST_LINE >> 20} MB; is a line's end missing?"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that could not be read: where, why, and what it held."""

    path: Table
    line: int
    problem: str
    raw: Any
    shard: str = ""  # its file's name, where there are several

    def __str__(self) -> str:
        return printable(f"{self.shard or self.path.name}:{self.line}: {self.problem}")


OnBad = Callable[[BadRow], None]


@dataclass(slots=True)
class Header:
    """What a file tells before its rows: its columns, where it names them once, and how it had to be read."""

    columns: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Say once how the file is read where that is not plain."""
        if text not in self.notes:
            self.notes.append(text)


class BadValue(ValueError):
    """JSON that parsers read in different ways."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen = set[str]()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise BadValue(f"the key {twice[:40]!r} stands twice in one object")
    return table


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        is_word = text.lstrip("-").isalpha()  # NaN or Infinity
        raise BadValue(f"{text} is no number" if is_word else "a number is too large")
    return number


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise BadValue("a number is too large")
    return int(text)


DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_finite, parse_float=_finite, parse_int=_whole
)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON strictly; `ValueError` where it is none, or where two parsers could differ about it.

    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    data.readers.file_formats.BadValue: the key 'a' stands twice in one object
    >>> parse_json(b'{"a": 1e999}')
    Traceback (most recent call last):
    data.readers.file_formats.BadValue: a number is too large
    """
    if isinstance(text, bytes):
        text = text.strip().decode("utf-8", "surrogatepass")  # a lone surrogate is text too
    return DECODER.decode(text)


def read_lines(stream: IO[bytes], longest: int = LONGEST_LINE) -> Iterator[bytes | None]:
    """Yield the lines of a file; None for one that is too long, of which no more than this is in memory."""
    while line := stream.readline(longest + 1):
        if len(line) <= longest:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(SKIP)
        yield None


def _read_jsonl(path: Table, on_bad: OnBad, header: Header) -> Iterator[tuple[int, Row]]:
    with path.open("rb") as lines:
        for number, line in enumerate(read_lines(lines), start=1):
            if line is None:
                on_bad(BadRow(path, number, TOO_LONG, None))
                continue
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            try:
                row = parse_json(line)
            except (ValueError, RecursionError) as error:
                problem = f"not JSON: {error}"
                if isinstance(error, UnicodeDecodeError):
                    problem = f"not UTF-8 text; {SAVE_AS}"
                if isinstance(error, json.JSONDecodeError):  # its own line number is always 1
                    problem = f"not JSON: {error.msg} at column {error.colno}"
                    if number == 1 and line.strip() in (b"[", b"{"):
                        problem += "; one JSON value over many lines is a .json file: rename it"
                on_bad(BadRow(path, number, problem, line.decode("utf-8", "replace")))
                continue
            if isinstance(row, dict):
                yield number, row
            else:
                on_bad(BadRow(path, number, f"a JSON object was expected, not {type(row).__name__}", row))


def _read_json(path: Table, on_bad: OnBad, header: Header) -> Iterator[tuple[int, Row]]:
    """The rows of one JSON value; it is read whole, so a large file is better written as JSON lines."""
    with path.open("rb") as binary, io.TextIOWrapper(binary, encoding=_encoding(binary)) as stream:
        try:
            items = _documents(stream.read(), header)
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not UTF-8 text; {SAVE_AS}") from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: not JSON: {error}") from error
    for number, item in enumerate(items, start=1):
        if isinstance(item, dict):
            yield number, item
        else:
            on_bad(BadRow(path, number, f"a JSON object was expected, not {type(item).__name__}", item))


def _documents(text: str, header: Header) -> list[Any]:
    """The rows of a file that is one JSON value, or, whatever its name says, one in each line."""
    try:
        return rows_of_document(parse_json(text))
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
    header.note("one JSON object a line")
    return [parse_json(line) for line in text.splitlines() if line.strip()]


def _encoding(binary: IO[bytes]) -> str:
    """UTF-8, or UTF-16 where the file begins as Windows programs mark it."""
    start = binary.peek(2)[:2]  # type: ignore[attr-defined]
    return "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def _read_csv(path: Table, on_bad: OnBad, header: Header) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(LONGEST_LINE)
    with (
        path.open("rb") as binary,
        io.TextIOWrapper(binary, encoding=_encoding(binary), errors="surrogateescape", newline="") as stream,
    ):
        lines, skipped = _windows_lines(iter(lambda: stream.readline(LONGEST_LINE), ""), path, header), 0
        first = next(lines, "")
        if told := re.fullmatch(r"sep=(.)\s*", first):  # Excel's own way to name the delimiter
            first, skipped = next(lines, ""), 1
        delimiter = told[1] if told else _delimiter(first, path)
        if delimiter != {".tsv": "\t"}.get(path.suffix.lower(), ","):
            header.note(f"cells parted by {DELIMITERS.get(delimiter, repr(delimiter))}")
        # Strict: else a quote left open would swallow every row after it without a word.
        reader = csv.DictReader(chain([first], lines), restkey="", delimiter=delimiter, strict=True)
        while True:
            line = max(reader.line_num + 1, 2) + skipped  # the header is read with the first row
            try:
                if not header.columns and reader.fieldnames:
                    reader.fieldnames = [rearm(name.strip()) for name in reader.fieldnames]
                    header.columns = tuple(reader.fieldnames)
                row = next(reader, None)
            except csv.Error as error:
                swallowed = f"lines {line} to {reader.line_num + skipped} of the file"
                on_bad(BadRow(path, line, f"not CSV: {error}; is a quote left open?", swallowed))
                continue
            if row is None:
                return
            if isinstance(row.get(""), list):
                on_bad(BadRow(path, line, f"row: has {len(row[''])} cells more than the header", row))
            else:
                # CSV has no null: an empty cell means that nothing was given.
                yield line, {key: _cell(key, value) for key, value in row.items() if value not in ("", None)}


def _windows_lines(lines: Iterable[str], path: Table, header: Header) -> Iterator[str]:
    """The lines of a text; bytes that are not UTF-8 as Windows writes them, and a word about it."""
    try:
        for number, line in enumerate(lines, start=1):
            if len(line) == LONGEST_LINE:
                raise UserError(f"{path}:{number}: {TOO_LONG}")
            if not line.isascii() and not is_text(line):
                line = line.translate(WINDOWS)
                if not is_text(line):
                    raise UserError(f"{path}:{number}: text in neither UTF-8 nor Windows-1252; {SAVE_AS}")
                header.note("text that is not UTF-8 read as Windows-1252")
            yield line
    except UnicodeError as error:
        raise UserError(f"{path}: not the UTF-16 text it begins as; {SAVE_AS}") from error


def is_text(line: str) -> bool:
    """Tell text from what Python makes of bytes that are none; faster than to look for them."""
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True


def _delimiter(first: str, path: Table) -> str:
    """What parts the cells of a header: whatever gives most columns that we know, or else most columns."""
    known = {*PROMPTS, *RESPONSES, "id", "model", "rater", "rating"}

    def worth(delimiter: str) -> tuple[int, int]:
        try:
            names = next(csv.reader([first], delimiter=delimiter), [])
        except csv.Error:
            return 0, 0
        return sum(plain_name(name) in known for name in names), len(names)

    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    return max([usual, *DELIMITERS], key=worth)


def _cell(key: str, value: str) -> Any:
    """`dialogue` is the one column that is not flat: it holds its JSON."""
    value = rearm(value)
    if key != "dialogue":
        return value
    try:
        return parse_json(value)
    except (ValueError, RecursionError):
        return value


def load_parquet(path: Table) -> tuple[Any, Any]:
    """pyarrow and its part for Parquet; `path` is the file that asks for it."""
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        hint = f"{install_hint('parquet')}, or use JSON lines or CSV"
        raise UserError(f"{path}: Parquet needs the package pyarrow: {hint}") from error
    return arrow, parquet


def _read_parquet(path: Table, on_bad: OnBad, header: Header) -> Iterator[tuple[int, Row]]:
    arrow, parquet = load_parquet(path)
    try:
        with path.open("rb") as stream:
            number, file = 0, parquet.ParquetFile(stream)
            header.columns = tuple(file.schema_arrow.names)
            for batch in file.iter_batches(batch_size=1024):
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


def _read_excel(path: Table, on_bad: OnBad, header: Header) -> Iterator[tuple[int, Row]]:
    """The first sheet; its first row that is not empty has the columns' names."""
    try:
        import openpyxl
    except ImportError as error:
        hint = f"{install_hint('excel')}, or save the sheet as CSV UTF-8"
        raise UserError(f"{path}: reading .xlsx needs openpyxl: {hint}") from error
    with path.open("rb") as stream:
        try:
            yield from _sheet_rows(openpyxl.load_workbook(stream, read_only=True, data_only=True), header)
        except Exception as error:  # of a damaged file the library raises whatever it met there
            raise UserError(f"{path}: not an Excel file, or a damaged one: {error!r:.200}") from error


def _sheet_rows(book: Any, header: Header) -> Iterator[tuple[int, Row]]:
    rows = enumerate(book.worksheets[0].iter_rows(values_only=True), start=1)
    names = next((row for _, row in rows if any(value is not None for value in row)), ())
    if len(book.worksheets) > 1:
        header.note(f"the first of {len(book.worksheets)} sheets, {book.worksheets[0].title!r}")
    header.columns = tuple(str(name).strip() for name in names if name is not None)
    for number, row in rows:
        cells = zip(names, row, strict=False)
        given = {
            str(name).strip(): _cell(str(name).strip(), _as_text(value))
            for name, value in cells
            if name is not None and value not in (None, "")
        }
        if given:
            yield number, given


def _as_text(value: Any) -> str:
    """A cell of a sheet as CSV would have it."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, date) else str(value)


def _read_inspect(path: Table, on_bad: OnBad, header: Header) -> Iterator[tuple[int, Row]]:
    """The samples of an Inspect log in its own format, through its own package."""
    try:
        from inspect_ai.log import read_eval_log, read_eval_log_samples
    except ImportError as error:
        dump = f"inspect log dump {path.name} > {path.stem}.json"
        raise UserError(
            f"{path}: reading .eval needs inspect_ai: pip install inspect_ai, or write JSON: {dump}"
        ) from error
    kept = {"id", "epoch", "input", "messages", "output"}
    try:
        above = {"eval": {"model": read_eval_log(str(path), header_only=True).eval.model}}
        samples = read_eval_log_samples(str(path), all_samples_required=False)
        for number, sample in enumerate(samples, start=1):
            yield number, {**sample.model_dump(mode="json", include=kept), **above}
    except Exception as error:  # of a damaged file the library raises whatever it met there
        raise UserError(f"{path}: not a log of Inspect, or a damaged one: {error!r:.200}") from error


READERS: Final = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".xlsx": _read_excel,
    ".eval": _read_inspect,
}
