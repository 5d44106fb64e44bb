"""A process that judges slices of the input, as the Ray engine starts it."""

import json
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, cast

from data.errors import UserError
from data.records import Exchange, Judgment
from data.runs import Run
from data.stores import Source, shards_of
from data.tables import BadRow, Row, make_record, read_rows, to_json, to_row
from judge.base import Judge, load_judge
from judge.members import endpoints_of
from judge.scoring import ask_all

FAILED: Final = -1  # the position of what is no judgment, but says why there is none


class Worker:
    """Reads its slices, judges them on a few threads, and gives the judgments as lines of JSON.

    An error is such a line as well, beside what was judged before it came.
    """

    def __init__(
        self, *, named: str, version: str, source: Source, folder: str, workers: int, threads: int
    ) -> None:
        self.named, self.version, self.folder, self.workers = named, version, folder, workers
        self.concurrency = threads  # our part of what the judge allows all of us
        self.reader = Reader(source)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Judge one slice: some lines of one shard, each with its position in the whole input."""
        kept, failures = Kept(), []
        try:
            judge = self.judge
            coming = self.reader.take(int(batch["shard"][0]), batch["line"].tolist())
            ask_all(self, judge.judge, coming, cast(Run, kept))
        except UserError as error:
            failures = [{"kind": type(error).__name__, "said": str(error)}]
        except Exception:
            failures = [{"kind": "bug", "said": traceback.format_exc()}]
        positions = [int(batch["position"][number]) for number in kept.lines]
        said = [*kept.lines.values(), *map(json.dumps, failures)]
        return {"position": positions + [FAILED] * len(failures), "said": said}

    def stop(self) -> None:
        """Forward the engine's word to a judge that waits for a server."""
        if hasattr(self.judge, "stop"):
            self.judge.stop()

    def close(self) -> None:
        """Between two slices connections are let go of, and what `stop` stopped may go on."""
        if hasattr(self.judge, "close"):
            self.judge.close()

    @cached_property
    def judge(self) -> Judge:
        """Loaded with the first slice, when what is wrong with it can be said."""
        try:
            os.chdir(self.folder)  # paths mean the same here as for the driver
        except OSError as error:
            raise UserError(f"{self.folder}: not there on a worker's machine: {error.strerror}") from error
        judge = load_judge(self.named)
        if judge.version != self.version:
            raise UserError(
                f"{self.named}: version {judge.version} on a worker's machine, {self.version} here; "
                "install the same everywhere"
            )
        for endpoint in endpoints_of(judge):
            endpoint.pace.share(self.workers)
        return judge


class Kept:
    """Stands for the run in a worker: holds the judgments of one slice, by their number in it."""

    has_more = False

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}

    def is_judged(self, position: int, exchange: Exchange) -> bool:
        """The driver sends only what is left."""
        return False

    def keep(self, position: int, judgment: Judgment | Mapping[str, Any]) -> None:
        """Hold a judgment, ready to be sent."""
        self.lines[position] = to_json(to_row(judgment))


class Reader:
    """Reads on through a shard from slice to slice; from its start again only for one that lies behind."""

    def __init__(self, source: Source) -> None:
        self.shards = shards_of(source)
        self.shard, self.line = -1, 0
        self.rows: Iterator[tuple[int, Row]] = iter(())
        self.make: Callable[[int, Row], Exchange]

    def take(self, shard: int, lines: Sequence[int]) -> Iterator[Exchange]:
        """The exchanges at these lines, which rise."""
        if shard != self.shard or lines[0] <= self.line:
            name, table = self.shards[shard]
            self.shard, self.line = shard, 0
            self.rows, self.make = read_rows(table, on_bad=_pass_over), make_record(Exchange, name)
        for wanted in lines:
            row = None
            while self.line < wanted:
                self.line, row = next(self.rows, (wanted, None))
            if row is None or self.line != wanted:
                raise UserError(f"{self.shards[shard][1]}:{wanted}: changed while it was read; start again")
            yield self.make(wanted, row)


def _pass_over(bad: BadRow) -> None:
    """The driver has said all there is to say of it."""
