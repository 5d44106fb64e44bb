"""Scoring in several processes, on this machine or on a cluster, with Ray.

Workers judge slices, and their judgments go into the run's journal, from which a run resumes; the slice of a
worker that dies is judged again. The files are byte for byte those of one process.
"""

import io
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, islice
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import Exchange, Judgment
from empathy_judge.data.runs import Run
from empathy_judge.data.tables import to_line, to_row
from empathy_judge.judge.base import CUDA, DEVICE, Judge, load_judge
from empathy_judge.judge.engine import in_threads, still_to_judge

SLICE: Final = 250  # exchanges that a worker judges between two checkpoints
PAID_SLICE: Final = 32  # likewise where each costs money: less is paid twice when a worker dies
GPU_SLICE: Final = 4_096  # likewise on a GPU, which judges them in batches of similar length
STORE_BYTES: Final = 256 << 20  # of shared memory, where Ray would take a third of the machine
# The folder to import the package from: the checkout, or site-packages.
ROOT: Final = next(path for path in Path(__file__).parents if (path / "empathy_judge/__init__.py").exists())
QUIET: Final = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
Slice = Sequence[tuple[int, Exchange]]  # with their positions in the input


@dataclass(kw_only=True, eq=False)
class Worker:
    """A process that judges slices on a few threads; the judge is loaded with the first slice."""

    spec: str
    unit: str
    version: str
    device: str
    folder: str
    workers: int
    threads: int

    def judge_slice(self, exchanges: Slice) -> tuple[list[int], list[bytes], Exception | None]:
        """Return positions and lines of the judgments, and the error that ended the slice early, if any."""
        judged: dict[int, Judgment] = {}
        failure: Exception | None = None
        try:
            if exchanges and self.device == CUDA:
                positions, texts = zip(*exchanges, strict=True)
                judged = dict(zip(positions, self.judge.judge_many(texts), strict=True))
            elif exchanges:
                in_threads(
                    self.threads,
                    iter(exchanges),
                    lambda item: self.judge.judge(item[1]),
                    lambda item, judgment: judged.update({item[0]: judgment}),
                    asked=self.judge,
                )
        except UserError as error:
            failure = error
        except Exception:  # which may not be picklable
            failure = RuntimeError(f"a worker failed:\n{traceback.format_exc()}")
        return [*judged], [to_line(to_row(judgment)) for judgment in judged.values()], failure

    @cached_property
    def judge(self) -> Judge:
        """The judge, as the driver loaded it."""
        try:
            os.chdir(self.folder)  # paths mean the same here as for the driver
        except OSError as error:
            raise UserError(f"{self.folder}: missing on a worker's machine: {error.strerror}") from error
        DEVICE.set(self.device)
        judge = load_judge(self.spec, unit=self.unit)
        if judge.version != self.version:
            raise UserError(
                f"{self.spec}: version {judge.version} on a worker's machine, {self.version} here; "
                "install the same everywhere"
            )
        for endpoint in judge.endpoints:
            endpoint.pace.share(self.workers)
        return judge


def score_ray(
    judge: Judge, exchanges: Iterable[Exchange], run: Run, *, workers: int, limit: int | None = None
) -> None:
    """Judge what `run` does not hold yet, by `workers` that load the judge by its spec."""
    size = PAID_SLICE if judge.endpoints else GPU_SLICE if DEVICE.get() == CUDA else SLICE
    coming = still_to_judge(exchanges, run, limit)
    slices = iter(lambda: list(islice(coming, size)), [])
    if (first := next(slices, None)) is None:
        return
    slices = chain([first], slices)
    # Ray reports on stdout that a worker died; stdout has results only.
    with start_ray(workers), redirect_stdout(sys.stderr):
        import ray

        # A worker that dies is replaced, and its slice is judged again.
        gpus = int(DEVICE.get() == CUDA)
        actor: Any = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=-1, max_task_retries=-1)(Worker)
        results: dict[Any, Any] = {}  # the worker of each result
        for _ in range(workers):
            worker = actor.remote(
                spec=judge.spec,
                unit=judge.unit,
                version=judge.version,
                device=DEVICE.get(),
                folder=os.getcwd(),
                workers=workers,
                threads=-(-judge.concurrency // workers),
            )
            # The first slice is empty: no other waits for a worker that finds no free core.
            results[worker.judge_slice.remote([])] = worker
        left, under_way = next(slices, None), set[Any]()
        while left or under_way:
            (result, *_), _ = ray.wait([*results])
            worker = results.pop(result)
            under_way.discard(result)
            positions, lines, failure = ray.get(result)
            run.keep_lines(positions, lines)
            if failure:
                raise failure
            if left:
                result = worker.judge_slice.remote(left)
                results[result], left = worker, next(slices, None)
                under_way.add(result)


@cache
def own_token() -> dict[str, str]:
    """Return the variables that keep other users of this machine from having Ray run their code."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token_hex(32)}


@contextmanager
def start_ray(workers: int) -> Iterator[None]:
    """Use Ray on this machine alone, the cluster at RAY_ADDRESS, or one that runs; disconnect at the end."""
    is_local = not os.environ.get("RAY_ADDRESS")
    before = dict(os.environ)
    # Before the import, which reads some of them; but a Ray that runs already knows its own token.
    if "ray" not in sys.modules or not sys.modules["ray"].is_initialized():
        os.environ.update(QUIET)
        if is_local:  # what keeps a Ray of our own to this machine and to us; its workers inherit these
            paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
            os.environ["PYTHONPATH"] = os.pathsep.join(paths)
            # Despite its name: listen on the loopback alone.
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
            os.environ.update(own_token())
    import ray

    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    # Logs and what outgrows its memory go with it; in /tmp, since the names of sockets must be short.
    with TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as scratch:
        if is_local:
            options |= {"address": "local", "num_cpus": workers, "include_dashboard": False}
            options |= {"object_store_memory": STORE_BYTES, "_temp_dir": scratch}
        try:
            with _silent():
                ray.init(**options)
            yield
        finally:
            with redirect_stdout(io.StringIO()):  # which reports that the workers end
                ray.shutdown()
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def _silent() -> Iterator[None]:
    """Drop what Ray's processes write past Python to our stderr while they start."""
    saved = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
