"""Takes exchanges past a judge in several processes, here or on a cluster, with Ray Data.

The driver reads and checks the input as one process does, and cuts what is left to judge into slices: which
lines of which shard. A worker opens the shard itself, judges its slice and sends the judgments back, and
each goes into the run's journal as it comes. The journal is the checkpoint: a driver that is killed resumes
there, and of a worker that is killed the slice under way alone is judged again. Order, limits and rows
set aside stay with the driver, so that the files are the same, byte for byte, however many workers there are.
"""

import io
import json
import os
import sys
import traceback
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any, Final, NoReturn

from empathy_judge.data import errors
from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.table_rows import TableRows
from empathy_judge.data.records import Exchange, Judgment
from empathy_judge.data.runs import Run
from empathy_judge.data.storage import Shards
from empathy_judge.data.tables import Exchanges, make_record, to_json, to_row
from empathy_judge.judge.base import CUDA, DEVICE, Judge, load_judge
from empathy_judge.judge.engine import in_threads, still_to_judge

FAILED: Final = -1  # the position of what is no judgment, but says why there is none


@dataclass(kw_only=True, eq=False)
class Worker:
    """Reads its slices, judges them on a few threads, and gives the judgments as lines of JSON.

    An error is such a line as well, beside what was judged before it came.
    """

    spec: str
    version: str
    device: str
    source: Shards
    folder: str
    workers: int
    threads: int  # our part of what the judge allows all of us

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Judge one slice: some places of one shard, each with its position in the whole input."""
        judged, failures = dict[int, Judgment](), []
        positions = batch["position"].tolist()
        try:
            judge = self.judge
            coming = self.reader.take(
                int(batch["shard"][0]), zip(batch["line"].tolist(), batch["part"].tolist(), strict=True)
            )
            if self.device == CUDA:
                judged = dict(zip(positions, judge.judge_many(list(coming)), strict=True))
            else:  # what is done before an error stays
                in_threads(
                    self.threads,
                    zip(positions, coming, strict=True),
                    lambda item: judge.judge(item[1]),
                    lambda item, judgment: judged.update({item[0]: judgment}),
                    asked=judge,
                )
        except UserError as error:
            failures = [{"kind": type(error).__name__, "text": str(error)}]
        except Exception:
            failures = [{"kind": "bug", "text": traceback.format_exc()}]
        lines = [to_json(to_row(judgment)) for judgment in judged.values()]
        lines += map(json.dumps, failures)
        return {"position": [*judged] + [FAILED] * len(failures), "json": lines}

    @cached_property
    def reader(self) -> "Reader":
        return Reader(self.source)

    @cached_property
    def judge(self) -> Judge:
        """Loaded with the first slice, when what is wrong with it can be said."""
        try:
            os.chdir(self.folder)  # paths mean the same here as for the driver
        except OSError as error:
            raise UserError(f"{self.folder}: missing on a worker's machine: {error.strerror}") from error
        DEVICE.set(self.device)
        judge = load_judge(self.spec)
        if judge.version != self.version:
            raise UserError(
                f"{self.spec}: version {judge.version} on a worker's machine, {self.version} here; "
                "install the same everywhere"
            )
        for endpoint in judge.endpoints:
            endpoint.share_rates(self.workers)
        return judge


class Reader:
    """Reads on through a shard from slice to slice; from its start again only for one that lies behind."""

    def __init__(self, source: Shards) -> None:
        self.source = source
        self.shard, self.line, self.row = -1, 0, dict[str, Any]()

    def take(self, shard: int, positions: Iterable[tuple[int, int]]) -> Iterator[Exchange]:
        """Yield the exchanges at these lines and parts, which rise."""
        positions = list(positions)
        if shard != self.shard or positions[0][0] < self.line:
            # Of bad rows the driver has said all there is to say.
            self.table = TableRows(self.source, shard, on_bad=lambda bad: None)
            self.shard, self.line, self.rows = shard, 0, self.table.rows()
            self.make = make_record(Exchange, self.table.name, self.table.model)
        for wanted, part in positions:
            while self.line < wanted:
                self.line, self.row = next(self.rows, (wanted + 1, {}))
            parts = self.table.parts(wanted, self.row) if self.line == wanted else []
            if part >= len(parts):
                raise UserError(f"{self.table.table}:{wanted}: changed while it was read; start again")
            yield self.make(wanted, parts[part])


SLICE: Final = 1000  # exchanges at most, judged between two checkpoints of a worker
PAID_SLICE: Final = 64  # likewise where each costs money: less is paid twice when a worker dies
SLICES_EACH: Final = 16  # for every worker at least, so that all of them end at about the same time
STORE_BYTES: Final = 256 << 20  # of shared memory, where Ray would take a third of the machine
INIT_DEATHS: Final = 16  # of workers, one after the other, before a cluster is given up
ROOT: Final = Path(__file__).parent.parent
QUIET: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DATA_LOG_LEVEL": "ERROR",
}


def score_ray(
    judge: Judge, exchanges: Exchanges, run: Run, *, workers: int, limit: int | None = None
) -> None:
    """Judge what `run` does not hold yet, by `workers` that load the judge by its spec.

    The judge given here only describes it: it judges nothing itself.
    """
    for _, table in exchanges.source.tables:
        if str(table).startswith("memory://"):
            raise UserError(f"{table}: exists in this process only, so workers cannot read it")
    renamed: dict[int, str] = {}
    slices = _cut(exchanges, run, limit, renamed, is_paid=bool(judge.endpoints), workers=workers)
    if not slices:
        return
    # Ray says on stdout that a worker died; there stand results alone.
    with start_ray(workers), redirect_stdout(sys.stderr):
        for batch in _judged(judge, exchanges.source, slices, workers=workers):
            said = dict(zip(batch["position"].tolist(), batch["json"].tolist(), strict=True))
            failure = said.pop(FAILED, None)
            for position in renamed.keys() & said.keys():  # a worker does not know which ids came before
                judgment = Judgment(**json.loads(said[position]))
                said[position] = to_json(to_row(replace(judgment, id=renamed[position])))
            run.keep_lines(list(said), [f"{line}\n".encode() for line in said.values()])
            if failure is not None:  # what was judged before it is kept by now
                _raise(**json.loads(failure))


def _raise(kind: str, text: str) -> NoReturn:
    """What failed in a worker, as it would have been raised here; a bug comes with its traceback."""
    error = getattr(errors, kind, None)
    if isinstance(error, type) and issubclass(error, UserError):
        raise error(text)
    raise RuntimeError(f"a worker failed:\n{text}")


def _cut(
    exchanges: Exchanges,
    run: Run,
    limit: int | None,
    renamed: dict[int, str],
    *,
    is_paid: bool,
    workers: int,
) -> list[Any]:
    """Slices as Arrow tables: never of two shards, and none too large to be lost; notes what is `renamed`."""
    import pyarrow as arrow

    shards, lines, parts, positions = array("q"), array("q"), array("q"), array("q")
    for position, exchange in still_to_judge(exchanges, run, limit):
        shards.append(exchanges.shard)
        lines.append(exchanges.line)
        parts.append(exchanges.part)
        positions.append(position)
        if exchanges.is_renamed:
            renamed[position] = exchange.id
    most = PAID_SLICE if is_paid else SLICE
    size = max(1, min(most, len(lines) // (SLICES_EACH * workers)))
    slices, start = [], 0
    for end in range(1, len(lines) + 1):
        if end == len(lines) or end - start == size or shards[end] != shards[start]:
            names, columns = ["shard", "line", "part", "position"], (shards, lines, parts, positions)
            slices.append(arrow.table([arrow.array(column[start:end]) for column in columns], names=names))
            start = end
    return slices


def _judged(judge: Judge, source: Shards, slices: list[Any], *, workers: int) -> Iterator[dict[str, Any]]:
    """What the workers say, slice by slice, in whatever order they come."""
    import ray.data

    device = DEVICE.get()
    # Blocks, not Arrow tables: for those Ray first starts a task a table, only to ask how long it is.
    judged = ray.data.from_blocks(slices).map_batches(
        Worker,
        fn_constructor_kwargs={
            "spec": judge.spec,
            "version": judge.version,
            "device": device,
            "source": source,
            "folder": os.getcwd(),
            "workers": workers,
            "threads": -(-judge.concurrency // workers),
        },
        batch_size=None,  # a slice is a batch
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=1,
        num_gpus=1 if device == CUDA else None,
    )
    yield from judged.iter_batches(batch_size=None, prefetch_batches=0, batch_format="numpy")


@cache
def own_token() -> dict[str, str]:
    """What keeps other users of this machine from having Ray run their code.

    One for all that this process starts: Ray reads it once, and refuses a process that has another.
    """
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex(32)}


@contextmanager
def start_ray(workers: int) -> Iterator[None]:
    """Ray on this machine alone, or the cluster at RAY_ADDRESS, let go of afterwards; or one that runs."""
    is_local = not os.environ.get("RAY_ADDRESS")
    before = dict(os.environ)
    # Before the import, which reads some of them; but a Ray that runs already knows its own token.
    if "ray" not in sys.modules or not sys.modules["ray"].is_initialized():
        os.environ.update(QUIET)
        if is_local:  # what keeps a Ray of our own to this machine and to us; its workers inherit these
            os.environ["PYTHONPATH"] = os.pathsep.join(
                filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
            )
            # Despite its name: listen on the loopback alone.
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
            os.environ.update(own_token())
    import ray
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    # At its start a worker does nothing that could fail: one that dies then is replaced, whatever befell it.
    context.max_consecutive_actor_init_deaths = INIT_DEATHS
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if is_local:
        options |= {
            "address": "local",
            "num_cpus": workers + 1,  # one for the rest: Ray waits for ever for cores it does not have
            "include_dashboard": False,
            "object_store_memory": STORE_BYTES,
        }
    # Logs and what outgrows its memory go with it; in /tmp, since the names of sockets must be short.
    with TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as scratch:
        try:
            with _silent():
                ray.init(**options | ({"_temp_dir": scratch} if is_local else {}))
            yield
        finally:
            with redirect_stdout(io.StringIO()):  # that we end its workers is no news
                ray.shutdown()
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def _silent() -> Iterator[None]:
    """Without what Ray's processes write past Python to our stderr while they start."""
    held = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(held, 2)
        os.close(held)
