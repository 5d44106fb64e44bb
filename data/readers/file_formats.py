"""Raw rows of files: JSON lines, JSON, CSV with any delimiter, Parquet, Excel sheets and Inspect logs."""

import csv
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from itertools import chain
from typing import IO, Any, Final

from empathy_judge.data.errors import UserError, install_hint
from empathy_judge.data.files import (
    LARGEST_ARCHIVE,
    LARGEST_BATCH,
    LARGEST_WHOLE,
    LONGEST_LINE,
    LONGEST_RAW,
    MB,
    MOST_CELLS,
    MOST_COLUMNS,
    MOST_EXPANSION,
    MOST_ROWS,
    parse_json,
)
from empathy_judge.data.readers.chat_turns import PROMPTS, RESPONSES, plain_name
from empathy_judge.data.readers.tool_exports import rows_of_document
from empathy_judge.data.storage import Table, kind_of, open_table
from empathy_judge.data.text import SURROGATE, printable, rearm

Row = dict[str, Any]
BATCH_ROWS: Final = 256  # of Parquet, decoded at once
DELIMITERS: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SAVE_AS: Final = "save the file as UTF-8"
TOO_LONG: Final = f"longer than {LONGEST_LINE // MB} MB; check for a missing line break"


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
    """The header of a file: its columns, if it names them once, and how it was read."""

    columns: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a note on how the file is read, once."""
        if text not in self.notes:
            self.notes.append(text)


def read_lines(stream: IO[bytes], longest: int = LONGEST_LINE) -> Iterator[bytes | None]:
    """Yield the lines of a file; None for one that is too long, of which no more than this is in memory."""
    while line := stream.readline(longest + 1):
        if len(line) <= longest:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(MB)
        yield None


def _read_jsonl(path: Table, on_bad: OnBad, header: Header) -> Iterator[tuple[int, Row]]:
    with open_table(path) as lines:
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
                on_bad(BadRow(path, number, problem, line[:LONGEST_RAW].decode("utf-8", "replace")))
                continue
            if isinstance(row, dict):
                yield number, row
            else:
                problem = f"expected a JSON object, not {type(row).__name__}"
                on_bad(BadRow(path, number, problem, row if len(line) <= LONGEST_RAW else None))


def _read_json(path: Table, on_bad: OnBad, header: Header) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a file that is one JSON value, or, whatever its name is, one in each line."""
    try:
        text = read_whole(path)
        try:
            items = rows_of_document(parse_json(text))
        except json.JSONDecodeError as error:
            if error.msg != "Extra data":
                raise
            header.note("one JSON object per line")
            items = [parse_json(line) for line in text.splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text; {SAVE_AS}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    for number, item in enumerate(items, start=1):
        if isinstance(item, dict):
            yield number, item
        else:
            on_bad(BadRow(path, number, f"expected a JSON object, not {type(item).__name__}", item))


def read_whole(path: Table) -> str:
    """Return the text of a file, without the mark of its encoding; refuse one that is too large."""
    with open_table(path) as binary:
        encoding, content = _encoding(binary), binary.read(LARGEST_WHOLE + 1)
    if len(content) > LARGEST_WHOLE:
        limit = f"{LARGEST_WHOLE // MB} MB, the most of a file that is read whole"
        raise UserError(f"{path}: larger than {limit}; JSON lines may be larger")
    return content.decode(encoding)


def _encoding(binary: IO[bytes]) -> str:
    """Return UTF-8, or UTF-16 where the file begins as Windows programs mark it."""
    start = binary.peek(2)[:2]  # type: ignore[attr-defined]
    return "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"


def _read_csv(path: Table, on_bad: OnBad, header: Header) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(LONGEST_LINE)
    with (
        open_table(path) as binary,
        io.TextIOWrapper(binary, encoding=_encoding(binary), errors="surrogateescape", newline="") as stream,
    ):
        lines, skipped = _text_lines(stream, path, header), 0
        first = next(lines, "")
        if told := re.fullmatch(r"sep=(.)\s*", first):  # Excel's own way to name the delimiter
            first, skipped = next(lines, ""), 1
        check_columns(path, 1 + max(map(first.count, DELIMITERS)))
        delimiter = told[1] if told else _delimiter(first, path)
        if delimiter != {".tsv": "\t"}.get(kind_of(path), ","):
            header.note(f"cells separated by {DELIMITERS.get(delimiter, repr(delimiter))}")
        # Strict: else a quote left open would swallow every row after it silently.
        reader = csv.DictReader(chain([first], lines), restkey="", delimiter=delimiter, strict=True)
        while True:
            line = max(reader.line_num + 1, 2) + skipped  # the header is read with the first row
            try:
                if not header.columns and reader.fieldnames:
                    reader.fieldnames = [rearm(name.strip()) for name in reader.fieldnames]
                    header.columns = tuple(reader.fieldnames)
                    check_columns(path, len(header.columns))
                row = next(reader, None)
            except csv.Error as error:
                swallowed = f"lines {line} to {reader.line_num + skipped} of the file"
                on_bad(BadRow(path, line, f"not CSV: {error}; check for an unclosed quote", swallowed))
                continue
            if row is None:
                return
            if isinstance(row.get(""), list):
                more = len(row.pop(""))
                on_bad(BadRow(path, line, f"row: has {more} cells more than the header", row))
            else:
                # CSV has no null: an empty cell means that nothing was given.
                yield line, {key: _cell(key, value) for key, value in row.items() if value not in ("", None)}


def check_columns(path: object, count: int) -> None:
    """Refuse a table with more columns than are read."""
    if count > MOST_COLUMNS:
        raise UserError(f"{path}: {count:,} columns; at most {MOST_COLUMNS:,} are read")


def _text_lines(stream: IO[str], path: Table, header: Header) -> Iterator[str]:
    """Yield the lines of a text; one that is not UTF-8 is read as Windows-1252, with a note."""
    try:
        for number, line in enumerate(iter(lambda: stream.readline(LONGEST_LINE), ""), start=1):
            if len(line) == LONGEST_LINE:
                raise UserError(f"{path}:{number}: {TOO_LONG}")
            if not line.isascii() and SURROGATE.search(line):  # bytes that are not UTF-8
                try:
                    line = line.encode("utf-8", "surrogateescape").decode("cp1252")
                except UnicodeError:
                    problem = f"text in neither UTF-8 nor Windows-1252; {SAVE_AS}"
                    raise UserError(f"{path}:{number}: {problem}") from None
                header.note("text that is not UTF-8 read as Windows-1252")
            yield line
    except UnicodeError as error:
        raise UserError(f"{path}: starts as UTF-16 text but is not; {SAVE_AS}") from error


def _delimiter(first: str, path: Table) -> str:
    """Return the delimiter that gives most columns that we know, or else most columns."""
    known = {*PROMPTS, *RESPONSES, "id", "model", "rater", "rating"}

    def worth(delimiter: str) -> tuple[int, int]:
        try:
            names = next(csv.reader([first], delimiter=delimiter), [])
        except csv.Error:
            return 0, 0
        return sum(plain_name(name) in known for name in names), len(names)

    usual = "\t" if kind_of(path) == ".tsv" else ","
    return max([usual, *DELIMITERS], key=worth)


def _cell(key: str, value: str) -> Any:
    value = rearm(value)
    if key == "dialogue":  # the one column that is not flat: it holds its JSON
        with suppress(ValueError, RecursionError):
            return parse_json(value)
    return value


def load_parquet(path: Table) -> tuple[Any, Any]:
    """Return pyarrow and its module for Parquet; `path` is the file that needs it."""
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
            number = 0
            for batch in _parquet_batches(parquet, stream, path, header):
                yield from _rows_of(batch, number, path, on_bad)
                number += batch.num_rows
    except (arrow.ArrowException, OSError, UnicodeError, LookupError) as error:  # or a damaged name
        raise UserError(f"{path}: not a Parquet file: {error}") from error


def _parquet_batches(parquet: Any, stream: IO[bytes], path: Table, header: Header) -> Iterator[Any]:
    """Yield the rows of a file in batches whose size is known to be within the limits.

    A text that many rows repeat is stored once, so columns of text are decoded as dictionaries: their size is
    known before any row is made of them.
    """
    most = max(LARGEST_BATCH, MOST_EXPANSION * stream.seek(0, io.SEEK_END))
    about = parquet.ParquetFile(stream)
    header.columns = tuple(about.schema_arrow.names)
    check_columns(path, len(header.columns))
    groups = [about.metadata.row_group(group) for group in range(about.num_row_groups)]
    columns = [group.column(column) for group in groups for column in range(group.num_columns)]
    sizes = [max(8 * column.num_values, column.total_uncompressed_size) for column in columns]
    texts = {column.path_in_schema for column in columns if column.physical_type == "BYTE_ARRAY"}
    file = parquet.ParquetFile(stream, read_dictionary=sorted(texts))
    expanded, is_bomb = 0, max(sizes, default=0) > most
    for group in range(len(groups)):  # one at a time: nested texts of two groups do not fit in one batch
        for batch in () if is_bomb else file.iter_batches(batch_size=BATCH_ROWS, row_groups=[group]):
            size = sum(map(_expanded_size, batch.columns))
            expanded += size
            if is_bomb := size > LARGEST_BATCH or expanded > most:
                break
            yield batch
    if is_bomb:
        limit = f"{LARGEST_BATCH // MB} MB in {BATCH_ROWS} rows, or to {MOST_EXPANSION:,} times its size"
        raise UserError(f"{path}: expands to more than {limit}; write JSON lines or CSV")


def _expanded_size(array: Any) -> int:
    """Return the bytes of an array in which every repeated text is written out."""
    import pyarrow as arrow
    import pyarrow.compute as compute

    if hasattr(array, "flatten"):  # a list, a map or a table
        parts = [array.keys, array.items] if isinstance(array, arrow.MapArray) else array.flatten()
        return sum(map(_expanded_size, parts if isinstance(parts, list) else [parts]))
    texts = (arrow.string(), arrow.large_string(), arrow.binary(), arrow.large_binary())
    if not isinstance(array, arrow.DictionaryArray) or array.dictionary.type not in texts:
        return int(array.nbytes)
    lengths = compute.cast(compute.binary_length(array.dictionary), "int64")
    return int(compute.sum(lengths.take(array.indices)).as_py() or 0)


def _rows_of(batch: Any, before: int, path: Table, on_bad: OnBad) -> Iterator[tuple[int, Row]]:
    """Yield a batch's rows with their numbers; one by one where a value has no type in Python."""
    try:
        yield from enumerate(batch.to_pylist(), start=before + 1)
        return
    except (ValueError, OverflowError):  # a day past the calendar's end, bytes that are no text
        pass
    for number in range(batch.num_rows):
        try:
            yield before + number + 1, batch.slice(number, 1).to_pylist()[0]
        except (ValueError, OverflowError) as error:
            on_bad(BadRow(path, before + number + 1, f"row: has a value that cannot be read: {error}", None))


def _read_excel(path: Table, on_bad: OnBad, header: Header) -> Iterator[tuple[int, Row]]:
    """Yield the rows of the first sheet; its first row that is not empty has the columns' names."""
    with open_workbook(path) as book:
        sheet = book.worksheets[0]
        if len(book.worksheets) > 1:
            header.note(f"the first of {len(book.worksheets)} sheets, {sheet.title!r}")
        rows = read_sheet(sheet, path)
        head = next((row for _, row in rows if any(value is not None for value in row)), ())
        names = [None if name is None else str(name).strip() for name in head]
        header.columns = tuple(name for name in names if name is not None)
        for number, row in rows:
            cells = zip(names, row, strict=False)
            given = {
                name: _cell(name, _as_text(value))
                for name, value in cells
                if name is not None and value not in (None, "")
            }
            if given:
                yield number, given


@contextmanager
def _library_errors(path: Table, kind: str) -> Iterator[None]:
    """Turn any error of a library that reads a damaged file into a `UserError`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path}: not {kind}, or damaged: {error!r:.200}") from error


@contextmanager
def open_workbook(path: Table) -> Iterator[Any]:
    """Open an Excel file; whatever is wrong with it, then or later, is a `UserError`."""
    try:
        import openpyxl
    except ImportError as error:
        hint = f"{install_hint('excel')}, or save the sheet as CSV UTF-8"
        raise UserError(f"{path}: reading .xlsx needs openpyxl: {hint}") from error
    with _library_errors(path, "an Excel file"), path.open("rb") as stream:
        _check_archive(stream, path)
        yield openpyxl.load_workbook(stream, read_only=True, data_only=True)


def read_sheet(sheet: Any, path: Table) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the rows of a sheet with their numbers; a file may claim any row and any number of cells."""
    cells = 0
    for number, row in enumerate(sheet.iter_rows(values_only=True, max_row=MOST_ROWS + 1), start=1):
        cells += len(row)
        if number > MOST_ROWS or cells > MOST_CELLS:
            limit = f"{MOST_ROWS:,} rows or {MOST_CELLS:,} cells, empty ones included"
            raise UserError(f"{path}: the sheet has more than {limit}; save it as CSV UTF-8")
        yield number, row


def _check_archive(stream: IO[bytes], path: Table) -> None:
    """Refuse an archive that is too large without its compression."""
    with zipfile.ZipFile(stream) as archive:
        if sum(part.file_size for part in archive.infolist()) > LARGEST_ARCHIVE:
            raise UserError(f"{path}: larger than {LARGEST_ARCHIVE // MB} MB without its compression")
    stream.seek(0)


def _as_text(value: Any) -> str:
    """Return a cell of a sheet as CSV would have it."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.isoformat() if isinstance(value, date) else str(value)


def _read_inspect(path: Table, on_bad: OnBad, header: Header) -> Iterator[tuple[int, Row]]:
    """Yield the samples of an Inspect log in its own format, through its own package."""
    try:
        from inspect_ai.log import read_eval_log, read_eval_log_samples
    except ImportError as error:
        dump = f"inspect log dump {path.name} > {path.name.removesuffix('.eval')}.json"
        hint = f"{install_hint('inspect_ai')}, or write JSON: {dump}"
        raise UserError(f"{path}: reading .eval needs inspect_ai: {hint}") from error
    kept = {"id", "epoch", "input", "messages", "output"}
    with _library_errors(path, "an Inspect log"):
        with path.open("rb") as stream:
            _check_archive(stream, path)
        above = {"eval": {"model": read_eval_log(str(path), header_only=True).eval.model}}
        samples = read_eval_log_samples(str(path), all_samples_required=False)
        for number, sample in enumerate(samples, start=1):
            yield number, {**sample.model_dump(mode="json", include=kept), **above}


READERS: Final = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".xlsx": _read_excel,
    ".eval": _read_inspect,
}
