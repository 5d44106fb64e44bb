"""The rows of one table, in the shape its first rows show, and what there is to say of how it was read."""

import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from gzip import BadGzipFile
from itertools import islice
from pathlib import Path
from typing import Final, NoReturn

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import MOST_BAD_ROWS, MOST_COLUMNS, MOST_PARTS
from empathy_judge.data.readers.chat_turns import CONVERSATIONS, PROMPTS, RESPONSES, turns_in
from empathy_judge.data.readers.column_shapes import (
    COLUMN_SHAPES,
    LAST_TURN,
    Fit,
    RowKind,
    Sample,
    prompts_under,
)
from empathy_judge.data.readers.conversations import join_turns
from empathy_judge.data.readers.file_formats import READERS, BadRow, Header, OnBad, Row
from empathy_judge.data.readers.tool_exports import TOOL_SHAPES
from empathy_judge.data.storage import Remote, Shards, Table, check_table, kind_of, store_errors

SHAPES: Final = (*TOOL_SHAPES, *COLUMN_SHAPES)  # the first that fits is taken
FIRST_ROWS: Final = 20  # by which a shape is recognized
SHOWN_COLUMNS: Final = 12  # named where none fits


def recognize(sample: Sample, table: object, *, needs_reply: bool = True) -> Fit | None:
    """Return how a table is read, None where it has our own columns; `needs_reply` refuses prompts alone."""
    named = sample.named
    for column in (named.prompt, *named.responses, named.model):
        if column is not None and column not in sample.columns and not sample.values(column):
            raise UserError(f"{table}: no column {column!r}; its columns are {_listed(sample.columns)}")
    if not named and {"prompt"} | ({"response"} if needs_reply else set()) <= set(sample.columns):
        firsts = [sample.first("prompt"), sample.first("response") if needs_reply else None]
        if not any(isinstance(value, dict | list) or turns_in(value) for value in firsts):
            return None
    shapes = [shape.recognize for shape in (COLUMN_SHAPES if named else SHAPES)]
    if not needs_reply:  # of a conversation its last question, whether it was answered or not
        questions = [] if named.prompt else [partial(prompts_under, names=CONVERSATIONS)]
        shapes = [*questions, *shapes, partial(prompts_under, names=PROMPTS)]
    fit = next((fit for recognizer in shapes if (fit := recognizer(sample)) is not None), None)
    if fit is None:
        raise UserError(f"{table}: {_missing(sample, needs_reply)}")
    return fit


def _missing(sample: Sample, needs_reply: bool) -> str:
    """Return what is missing, the columns there are, and the option that helps."""
    if not sample.columns:
        return "no row can be read as a table"
    prompt = sample.named.prompt or sample.find((*PROMPTS, *CONVERSATIONS))
    response = next(iter(sample.named.responses), None) or sample.find(RESPONSES)
    if prompt is not None:
        lacks = f"the prompt column is {prompt!r}, but no reply column was found"
        option = "--response-column (repeat it if each model has its own column)"
    elif not needs_reply:
        lacks, option = "no column for the prompt found", "--prompt-column"
    elif response is not None:
        lacks = f"the reply column is {response!r}, but no prompt column was found"
        option = "--prompt-column"
    else:
        lacks = "no column for the prompt or the reply found"
        option = "--prompt-column and --response-column"
    return f"{lacks}; its columns are {_listed(sample.columns)}; set {option}"


def _listed(columns: tuple[str, ...]) -> str:
    more = len(columns) - SHOWN_COLUMNS
    shown = ", ".join(str(column)[:60] for column in columns[:SHOWN_COLUMNS])
    return shown + (f" and {more} more" if more > 0 else "")


def stop_at_bad_row(bad: BadRow) -> NoReturn:
    """End the command at the first bad row."""
    raise UserError(f"{bad}\nFix the row, or skip bad rows with --skip-invalid.")


def read_rows(
    path: Table, *, on_bad: OnBad = stop_at_bad_row, header: Header | None = None
) -> Iterator[tuple[int, Row]]:
    """Raw rows with their line numbers, from any format; `header` receives the columns and notes."""
    check_table(path)
    try:
        with store_errors(path) if isinstance(path, Remote) else nullcontext():
            for line, row in READERS[kind_of(path)](path, on_bad, header or Header()):
                if len(row) > MOST_COLUMNS:
                    problem = f"row: {len(row):,} columns; at most {MOST_COLUMNS:,} are read"
                    on_bad(BadRow(path, line, problem, None))
                else:
                    yield line, row
    except (BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: not a gzip file, or damaged: {error}") from error
    except MemoryError as error:
        raise UserError(f"{path}: needs more memory than there is; split the file") from error


class TableRows:
    """The rows of one table of a source, recognized by the first of them, and the number of rows read."""

    def __init__(self, source: Shards, shard: int, *, on_bad: OnBad, needs_reply: bool = True) -> None:
        self.source, self.shard, self.on_bad, self.needs_reply = source, shard, on_bad, needs_reply
        self.read = self.count = 0
        self.has_renamed = self.lacks_model = False
        self.is_whole = False  # rows are judged as conversations
        self.header = Header()
        self.fit: Fit | None = None  # None for a table in our own columns
        self.requests: dict[str, Row] = {}
        self._head: list[tuple[int, Row] | BadRow] = []
        self._is_peeking = True
        self._rows = join_turns(read_rows(self.table, on_bad=self._bad, header=self.header), self.header)
        for row in islice(self._rows, FIRST_ROWS):
            self._head.append(row)
        if rows := tuple(item[1] for item in self._head if isinstance(item, tuple)):
            columns = self.header.columns or dict.fromkeys(key for row in rows for key in row)
            sample = Sample(tuple(map(str, columns)), rows, source.columns)
            self.fit = recognize(sample, self.name or self.table, needs_reply=needs_reply)
        self._is_peeking = False
        if self.fit is not None and self.fit.kind is RowKind.REPLIES_TO_REQUESTS:
            self._find_requests()

    @property
    def name(self) -> str:
        """The name of the table among several; empty if there is one."""
        return self.source.tables[self.shard][0]

    @property
    def table(self) -> Table:
        return self.source.tables[self.shard][1]

    @property
    def description(self) -> str:
        """The name of its shape."""
        return self.fit.description if self.fit else "prompt/response"

    @property
    def model(self) -> str:
        """The model of rows that name none: the file's name or its folder's."""
        if self.source.models and self.fit is not None and self.fit.kind is RowKind.BY_FOLDER:
            return Path(str(self.table)).absolute().parent.name
        return self.source.models[self.shard] if self.source.models else ""

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield all rows with their lines; rows that cannot be read are reported in order."""
        for item in self._head:
            if isinstance(item, BadRow):
                self._bad(item)
            else:
                yield item
        yield from self._rows

    def replies(self) -> Iterator[tuple[int, Row]]:
        """Return the rows that hold replies: all, except those of a batch's requests."""
        if self.fit is None or self.fit.kind is not RowKind.REQUESTS:
            return self.rows()
        if len(self.source.tables) == 1:
            raise UserError(
                f"{self.table}: batch requests without replies; pass the batch's output too, or generate "
                "replies with `respond`"
            )
        self.read += sum(1 for _ in self.rows())
        return iter(())

    def parts(self, line: int, row: Row) -> list[Row]:
        """Return what a row holds, in our own columns; `UserError` starts with the field that is wrong."""
        if self.fit is None:
            return [row]
        parts = self.fit.convert(row)
        if len(parts) > MOST_PARTS:
            raise UserError(f"row: {len(parts)} replies in one row; at most {MOST_PARTS} are read")
        if self.fit.kind is RowKind.REPLIES_TO_REQUESTS:
            parts = [self._request(part) | part for part in parts]
        for part in parts:
            if len(parts) > 1 and part.get("id") is None:
                part["id"] = f"{self.name}:{line}/{part['model']}" if self.name else f"{line}/{part['model']}"
        return parts

    def set_aside(self, line: int, problem: str, row: Row) -> None:
        """Report a row that cannot be read."""
        self._bad(BadRow(self.table, line, problem, row))

    def _bad(self, bad: BadRow) -> None:
        if not self._is_peeking:
            self.on_bad(replace(bad, shard=self.name) if self.name else bad)
            return
        self._head.append(bad)
        if len(self._head) > MOST_BAD_ROWS:
            first = next(item for item in self._head if isinstance(item, BadRow))
            few = f"Fewer than {FIRST_ROWS} of the first {MOST_BAD_ROWS:,} rows can be read."
            raise UserError(f"{first}\n{few}")

    def _find_requests(self) -> None:
        """Read the prompts of a batch from the other files passed with it."""
        for shard in range(len(self.source.tables)):
            if shard == self.shard:
                continue
            other = TableRows(self.source, shard, on_bad=lambda bad: None, needs_reply=False)
            if other.fit is not None and other.fit.kind is RowKind.REQUESTS:
                for line, row in other.rows():
                    self.requests.update({part["id"]: part for part in other.parts(line, row)})
        if not self.requests:
            problem = "the output of an OpenAI batch has no prompts; pass the file of its requests too"
            raise UserError(f"{self.table}: {problem}")

    def _request(self, part: Row) -> Row:
        if part["id"] not in self.requests:
            raise UserError(f"custom_id: {part['id']!r} is not among the requests")
        return self.requests[part["id"]]

    @property
    def needs_note(self) -> bool:
        """Whether to report how the table was read: not simply by its own columns."""
        return bool(self.fit or self.header.notes or self.lacks_model or self.has_renamed)

    def note(self, name: str, rows: int, count: int) -> str:
        """Return a line about how the table was read."""
        description = self.description.replace(LAST_TURN, "") if self.is_whole else self.description
        if not self.needs_reply:
            return f"Read {count:,} prompts of {name} as {description}"
        line = f"Read {rows:,} {'row' if rows == 1 else 'rows'} of {name} as {description}"
        if self.is_whole:
            line += ", whole conversations"
        elif count != rows and not (self.fit and self.fit.kind is RowKind.REQUESTS):
            line += f", {count:,} {'reply' if count == 1 else 'replies'}"
        if self.lacks_model:
            is_by_folder = self.fit is not None and self.fit.kind is RowKind.BY_FOLDER
            line += f", model named after the {'folder' if is_by_folder else 'file'}"
        if self.has_renamed:
            line += ", repeated ids extended by the model's name"
        return "; ".join([line, *self.header.notes])
