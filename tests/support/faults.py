"""Faults on purpose: the command line in a process that dies, or whose disk fails, at a chosen step.

A step is whatever the command does to its folder: opening a file to write, a line of a journal, a sync, a
rename, a removal, a statement to the database. Undisturbed runs tell how many there are; a fault is then put
at any of them. The processes are forked from one that has loaded everything, so that a hundred kills take
seconds and not minutes.

`python tests/support/faults.py MODULE...` is that process: orders are lines of JSON, each answered by one.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from typing import IO, Any

from repository import ROOT

from empathy_judge.data.records import digest_json

SEEDS = int(os.environ.get("FAULT_SEEDS", "0"))  # how many faults of a kind; 0 is each test's own few
TIMEOUT = 120.0
LOADED = (
    *("numpy", "pydantic", "rich", "openai.resources.chat.completions", "h2.connection", "httpcore"),
    *("sqlalchemy.dialects.sqlite", "empathy_judge.judge.llm.endpoint", "empathy_judge.judge.scoring"),
    *("empathy_judge.reports.progress", "empathy_judge.reports.share_table"),
)
SPENDS = ("open", "write", "os.mkdir")  # what a full disk refuses; it lets names change and files go
NAMES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")  # as audit hooks call them
UNTIMED = ("wall_seconds", "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended: `code` is minus the signal where one ended it, `steps` how far it came."""

    code: int
    out: str
    err: str
    steps: int
    last: str

    @property
    def is_killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Nursery:
    """The process from which all others are forked."""

    def __init__(self, *modules: str) -> None:
        hidden = ("COLUMNS", "FORCE_COLOR", "PYTHONWARNINGS")
        env = {key: value for key, value in os.environ.items() if key not in hidden}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), *LOADED, *modules],
            env=env | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, folder: Path, *arguments: object, fault: Mapping[str, Any] | None = None) -> Ended:
        """The command in `folder`; `fault` has a `kind`, kill or the name of an errno, and `at`, the step.

        With `after`, so many seconds, in the place of `at` it is killed from outside, whatever it is doing.
        """
        order = {"folder": str(folder), "arguments": [str(item) for item in arguments], "fault": fault or {}}
        return Ended(**self._order(order))

    @contextmanager
    def started(self, folder: Path, *arguments: object) -> Iterator[None]:
        """The command, a server, while the `with` block lasts; then it is killed without a warning."""
        words = [str(item) for item in arguments]
        child = self._order({"start": True, "folder": str(folder), "arguments": words, "fault": {}})
        try:
            yield
        finally:
            assert self._order({"kill": child}) == -signal.SIGKILL, f"{words[0]} ended by itself"

    def _order(self, order: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the nursery has died"
        return json.loads(answer)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=TIMEOUT)


@contextmanager
def open_nursery(*modules: str) -> Iterator[Nursery]:
    """A nursery that has loaded these modules besides; it ends with the `with` block."""
    nursery = Nursery(*modules)
    try:
        yield nursery
    finally:
        nursery.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A command, the files it makes, and what a server saw of it.

    `prepare` fills a new folder. `calls` counts requests so far, of which `in_flight` may be lost by a kill.
    """

    arguments: Sequence[object]
    results: Sequence[str]
    name: str = ""
    prepare: Callable[[Path], object] = lambda folder: None
    calls: Callable[[], int] = lambda: 0
    in_flight: int = 0
    codes: Sequence[int] = (0,)
    read: Mapping[str, Callable[[Path], str]] = field(default_factory=dict)  # instead of a file's bytes

    def found(self, folder: Path) -> dict[str, str]:
        """Every result as text, but for times and what differs by design."""
        files: dict[str, str] = {}
        for name in self.results:
            start = folder / name
            for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
                if path.is_file() and path.name not in ("lock", "batch.json"):
                    place = str(path.relative_to(folder))
                    files[place] = self.read[place](path) if place in self.read else read_untimed(path)
        return files


def read_untimed(path: Path) -> str:
    """A file without the times in it, nor the digest that covers them, which has to be right."""
    raw = path.read_bytes()
    if path.suffix != ".json":
        return raw.decode("latin-1")
    content = json.loads(raw)
    if isinstance(content, dict):
        timed = [key for key in UNTIMED if key in content]
        if timed and "digest" in content:
            assert content.pop("digest") == digest_json(content), f"{path}: wrong digest"
        content = {key: value for key, value in content.items() if key not in timed}
    return json.dumps(content)


class Harm(AssertionError):
    """A fault that changed the result: what was lost and what was doubled by it."""

    def __init__(self, story: str, *, lost: int, doubled: int) -> None:
        super().__init__(f"{story}: {lost} lost, {doubled} doubled")
        self.lost, self.doubled = lost, doubled


@dataclass(slots=True)
class Campaign:
    """One case, undisturbed once and then disturbed as often as asked."""

    case: Case
    nursery: Nursery
    place: Path
    whole: dict[str, str] = field(default_factory=dict)
    steps: int = 0
    asked: int = 0
    seconds: float = 0.0
    number: int = 0

    def __post_init__(self) -> None:
        folder, before, started = self.new_folder(), self.case.calls(), monotonic()
        ended = self.run(folder)
        self.seconds = monotonic() - started
        assert ended.code in self.case.codes, ended.out + ended.err
        self.whole, self.steps = self.case.found(folder), ended.steps
        self.asked = self.case.calls() - before
        assert self.whole and self.steps

    def new_folder(self) -> Path:
        folder = self.place / f"{self.case.name}-{self.number}"
        self.number += 1
        folder.mkdir(parents=True)
        self.case.prepare(folder)
        return folder

    def run(self, folder: Path, fault: Mapping[str, Any] | None = None) -> Ended:
        return self.nursery.run(folder, *self.case.arguments, fault=fault)

    def kill_often(self, few: int, *, times: int = 2) -> None:
        """Kill it so often as this run wants, each time at another place, `times` in a row."""
        killed, wanted = 0, SEEDS or few
        for seed in range(10 * wanted):
            killed += self.kill(seed, times=min(times, wanted - killed))
            if killed == wanted:
                return
        raise AssertionError(f"{self.case.name}: killed {killed} times, not {wanted}")

    def race(self, other: Nursery) -> None:
        """Run it twice at once in one folder: each ends well or with a message."""
        folder, before = self.new_folder(), self.case.calls()
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(one.run, folder, *self.case.arguments) for one in (self.nursery, other)]
        ends = [future.result() for future in both]
        said = [f"exit {ended.code}: {ended.err[-600:]}" for ended in ends]
        assert all(ended.code in self.case.codes or is_clear(ended) for ended in ends), said
        self.finish(folder, said, before=before, spare=0)

    def kill(self, seed: int, *, times: int = 2) -> int:
        """Kill it here and there; then the same command has to end as the undisturbed one did.

        Every other seed kills from outside at some time, so within what no step marks, such as a commit of
        the database. Returns how often it was killed.
        """
        chance, before, kills, said = Random(f"{self.case.name} {seed}"), self.case.calls(), 0, []
        folder, left = self.new_folder(), 1.0  # how much of the whole is still to do, if all is taken up
        for _ in range(times):
            place = chance.random() * left
            when = {"after": place * self.seconds} if seed % 2 else {"at": int(place * self.steps)}
            ended = self.run(folder, {"kind": "kill", "torn": chance.random(), **when})
            if not ended.is_killed:
                break  # so much was done before that this step did not come any more
            kills, left = kills + 1, left - place
            said.append(ended.last)
        spare = kills * self.case.in_flight
        self.finish(folder, said, before=before, spare=spare)
        return kills

    def fail(self, seed: int, kind: str) -> None:
        """Let the disk fail from some step on; the message must help, and the same command go on."""
        chance, before = Random(f"{self.case.name} {kind} {seed}"), self.case.calls()
        folder = self.new_folder()
        ended = self.run(folder, {"kind": kind, "at": chance.randrange(self.steps), "torn": chance.random()})
        said = [f"{kind} {ended.last}: exit {ended.code}: {ended.err[-600:]}"]
        is_helpful = ended.code in self.case.codes or is_clear(ended)
        assert is_helpful, said
        self.finish(folder, said, before=before, spare=self.case.in_flight)

    def finish(self, folder: Path, said: Sequence[str], *, before: int, spare: int) -> None:
        """Give the command again, undisturbed, and hold what is there against what ought to be."""
        ended = self.run(folder)
        story = f"{self.case.name}: {' then '.join(said)}"
        if ended.code not in self.case.codes:
            raise Harm(f"{story}\n{ended.out}{ended.err}", lost=1, doubled=0)
        expected, found = (
            Counter((name, line) for name, text in files.items() for line in text.split("\n"))
            for files in (self.whole, self.case.found(folder))
        )
        lost, more = expected - found, found - expected
        again = max(0, self.case.calls() - before - self.asked - spare)  # calls beyond those in flight
        if lost or more or again:
            names = sorted({name for name, _ in (*lost, *more)})
            doubled = more.total() + again
            raise Harm(f"{story}: {', '.join(names)}, {again} calls", lost=lost.total(), doubled=doubled)


def is_clear(ended: Ended) -> bool:
    """Tell whether a failure ended with a message and an exit code of ours, without a traceback."""
    is_reported = "error: " in ended.err or ": failed: " in ended.out  # a night reports a model that failed
    return ended.code in (2, 4, 5) and is_reported and "Traceback" not in ended.err


def seeds(few: int) -> range:
    """So many as this run wants: a few in `make test`, more in `make trust`."""
    return range(SEEDS or few)


# The nursery's own side: all below runs in a process of its own.


class Steps:
    """Counts what a process does to its folder, and puts the fault where it was asked for."""

    def __init__(self, folder: str, fault: Mapping[str, Any], log: int) -> None:
        self.folder, self.fault, self.log = folder, fault, log
        self.count = 0
        self.is_off = False  # while the fault itself is being made

    def install(self) -> None:
        self._write, self._fsync = os.write, os.fsync
        os.write, os.fsync = self._count_write, self._count_fsync
        sys.addaudithook(self._hear)
        if "sqlalchemy" in sys.modules:
            from sqlalchemy import Engine, event

            event.listen(Engine, "before_cursor_execute", lambda *_: self.take("sql", "statement"))

    def take(self, what: str, about: str, stream: int = -1, data: bytes = b"") -> None:
        if self.is_off:
            return
        number, self.count = self.count, self.count + 1
        os.pwrite(self.log, f"{self.count} {what} {about}\n".encode()[:400].ljust(400), 0)
        kind, at = self.fault.get("kind"), self.fault.get("at", -1)
        if kind == "kill" and number == at:
            self._tear(stream, data)
            os.kill(os.getpid(), signal.SIGKILL)
        if kind in (None, "kill") or number < at or what == "sql":
            return
        import errno

        code = getattr(errno, kind)
        if code in (errno.ENOSPC, errno.EDQUOT) and what not in SPENDS:
            return
        if code == errno.EIO and number > at:
            return  # once
        if number == at:
            self._tear(stream, data)
        raise OSError(code, os.strerror(code), about)

    def _tear(self, stream: int, data: bytes) -> None:
        """Write a part of what was to be written: a line torn at any byte."""
        if data:
            self._write(stream, data[: int(self.fault.get("torn", 0.0) * len(data))])

    def _count_write(self, stream: int, data: bytes) -> int:
        if stream > 2:
            self.take("write", f"{len(data)} bytes", stream, data)
        return self._write(stream, data)

    def _count_fsync(self, stream: int) -> None:
        self.take("fsync", str(stream))
        self._fsync(stream)

    def _hear(self, name: str, given: tuple[Any, ...]) -> None:
        if name == "open":
            path, _, flags = given
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and self._is_ours(path):
                self.take("open", str(path))
        elif name in NAMES and (isinstance(given[0], int) or self._is_ours(given[0])):
            self.take(name, str(given[0]))

    def _is_ours(self, path: object) -> bool:
        return isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(self.folder)


def _live(order: Mapping[str, Any], log: int) -> int:
    """The child's whole life; returns its exit code."""
    import traceback

    os.chdir(order["folder"])
    from empathy_judge.commands import main as cli

    steps = Steps(order["folder"], order["fault"], log)
    steps.install()
    try:
        cli.main(order["arguments"], prog_name="cli.py")
    except SystemExit as ended:
        return int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
        return 70
    return 0


def _bear(order: Mapping[str, Any], out: IO[bytes], err: IO[bytes], log: IO[bytes]) -> int:
    """A child that runs the command; its number."""
    child = os.fork()
    if child == 0:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        code = _live(order, log.fileno())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return child


def _kill_after(child: int, seconds: float) -> None:
    """Kill it when the time is up, unless it has ended."""
    import select

    ended = os.pidfd_open(child)
    if not select.select([ended], [], [], seconds)[0]:
        os.kill(child, signal.SIGKILL)
    os.close(ended)


def _serve(orders: Iterator[str]) -> None:
    from tempfile import TemporaryFile

    for line in orders:
        order = json.loads(line)
        if "kill" in order:
            os.kill(order["kill"], signal.SIGKILL)
            print(os.waitstatus_to_exitcode(os.waitpid(order["kill"], 0)[1]), flush=True)
            continue
        if "start" in order:
            with open(os.devnull, "wb") as nowhere:
                print(_bear(order, nowhere, nowhere, nowhere), flush=True)
            continue
        with TemporaryFile() as out, TemporaryFile() as err, TemporaryFile() as log:
            child = _bear(order, out, err, log)
            if "after" in order["fault"]:
                _kill_after(child, order["fault"]["after"])
            status = os.waitpid(child, 0)[1]
            last = os.pread(log.fileno(), 400, 0).decode("utf-8", "replace").strip()
            for stream in (out, err):
                stream.seek(0)
            answer = {
                "code": os.waitstatus_to_exitcode(status),
                "out": out.read().decode("utf-8", "replace"),
                "err": err.read().decode("utf-8", "replace"),
                "steps": int(last.partition(" ")[0] or 0),
                "last": last,
            }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    from importlib import import_module

    for module in ("empathy_judge.commands.main", *sys.argv[1:]):
        import_module(module)
    _serve(iter(sys.stdin.readline, ""))
