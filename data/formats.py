"""The rows of a file in each of the three formats, and a row that could not be read."""

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.errors import UserError
from data.stores import Table

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


def _read_jsonl(path: Table, on_bad: OnBad) -> Iterator[tuple[int, Row]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line.strip():
                continue
            try:
                row = json.loads(line.strip().decode("utf-8", "surrogatepass"))
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


def _read_csv(path: Table, on_bad: OnBad) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(sys.maxsize)
    with (
        path.open("rb") as binary,
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


def _read_parquet(path: Table, on_bad: OnBad) -> Iterator[tuple[int, Row]]:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

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


READERS = {".jsonl": _read_jsonl, ".csv": _read_csv, ".parquet": _read_parquet}
WRITERS = {".jsonl": _write_jsonl, ".csv": _write_csv, ".parquet": _write_parquet}
