"""Faults on purpose: the command line in a process that dies, or whose disk fails, at a chosen step.

A step is whatever the command does to its folder: opening a file to write, a line of a journal, a sync, a
rename, a removal, a statement to the database. The processes are forked from one that has loaded everything,
`python tests/support/faults.py MODULE...`: its orders are lines of JSON, each answered by one.
"""

import errno
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from time import monotonic
from typing import Any, Final, NamedTuple

from repository import ROOT

from empathy_judge.data.files import digest_json

SEEDS: Final = int(os.environ.get("FAULT_SEEDS", "0"))  # how many faults of a kind; 0 is each test's own few
LOADED: Final = (
    *("numpy", "pydantic", "rich", "openai.resources.chat.completions", "h2.connection", "httpcore"),
    *("sqlalchemy.dialects.sqlite", "empathy_judge.commands.main", "empathy_judge.judge.llm.endpoint"),
    *("empathy_judge.judge.scoring", "empathy_judge.reports.progress", "empathy_judge.reports.score_output"),
)
SPENDS: Final = ("open", "write", "os.mkdir")  # what a full disk refuses; it lets names change and files go
NAMES: Final = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")  # as audit hooks call them
UNTIMED: Final = ("wall_seconds", "seconds")
HIDDEN: Final = ("COLUMNS", "FORCE_COLOR", "PYTHONWARNINGS")
Fault = Mapping[str, Any]  # `kind`, kill or the name of an errno, and `at`, the step; or `after`, seconds


def seeds(few: int) -> range:
    """Return as many seeds as this run wants: a few in `make check`, more in `make trust`."""
    return range(SEEDS or few)


class Ended(NamedTuple):
    """How a process ended: `code` is minus the signal where one ended it, `steps` how far it came."""

    code: int
    out: str
    err: str
    steps: int
    last: str

    @property
    def is_clear(self) -> bool:
        """Whether it failed with a message and an exit code of ours, without a traceback."""
        is_reported = "error: " in self.err or ": failed: " in self.out  # a night reports a model that failed
        return self.code in (2, 4, 5) and is_reported and "Traceback" not in self.err


class Nursery(AbstractContextManager["Nursery"]):
    """The process from which all others are forked; it ends with its `with` block."""

    def __init__(self, *modules: str) -> None:
        env = {key: value for key, value in os.environ.items() if key not in HIDDEN}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), *LOADED, *modules],
            env=env | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, folder: Path, *arguments: object, fault: Fault | None = None) -> Ended:
        """Run the command in `folder`; with `after` it is killed from outside, whatever it is doing."""
        words = list(map(str, arguments))
        return Ended(**self._order({"folder": str(folder), "arguments": words, "fault": fault or {}}))

    @contextmanager
    def started(self, folder: Path, *arguments: object) -> Iterator[None]:
        """Run the command, a server, while the `with` block lasts; then kill it without a warning."""
        words = list(map(str, arguments))
        child = self._order({"start": True, "folder": str(folder), "arguments": words, "fault": {}})
        try:
            yield
        finally:
            assert self._order({"kill": child}) == -signal.SIGKILL, f"{words[0]} ended by itself"

    def _order(self, order: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the nursery has died"
        return json.loads(answer)

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate(timeout=120)


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
        """Return every result as text, but for times and what differs by design."""
        paths = [path for name in self.results for path in (folder / name, *(folder / name).rglob("*"))]
        files = [path for path in paths if path.is_file() and path.name not in ("lock", "batch.json")]
        named = {str(path.relative_to(folder)): path for path in files}
        return {name: self.read.get(name, read_untimed)(path) for name, path in named.items()}


def read_untimed(path: Path) -> str:
    """Read a file without the times in it, nor the digest that covers them, which has to be right."""
    raw = path.read_bytes()
    content = json.loads(raw) if path.suffix == ".json" else None
    if not isinstance(content, dict):
        return raw.decode("latin-1")
    if "digest" in content and any(key in content for key in UNTIMED):
        assert content.pop("digest") == digest_json(content), f"{path}: wrong digest"
    return json.dumps({key: value for key, value in content.items() if key not in UNTIMED})


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
        ended = self.nursery.run(folder, *self.case.arguments)
        self.seconds = monotonic() - started
        assert ended.code in self.case.codes, ended.out + ended.err
        self.whole, self.steps = self.case.found(folder), ended.steps
        self.asked = self.case.calls() - before
        assert self.whole and self.steps, ended.out + ended.err

    def new_folder(self) -> Path:
        """Make a folder and fill it."""
        folder = self.place / f"{self.case.name}-{self.number}"
        self.number += 1
        folder.mkdir(parents=True)
        self.case.prepare(folder)
        return folder

    def kill_often(self, few: int, *, times: int = 2) -> None:
        """Kill it so often as this run wants, each time at another place, `times` in a row."""
        killed, wanted = 0, len(seeds(few))
        for seed in range(10 * wanted):
            killed += self.kill(seed, times=min(times, wanted - killed))
            if killed == wanted:
                return
        raise AssertionError(f"{self.case.name}: killed {killed} times, not {wanted}")

    def kill(self, seed: int, *, times: int = 2) -> int:
        """Kill it here and there, then run it undisturbed; return how often it was killed.

        Every other seed kills from outside at some time, so within what no step marks, such as a commit.
        """
        chance, before, story = Random(f"{self.case.name} {seed}"), self.case.calls(), list[str]()
        folder, left = self.new_folder(), 1.0  # how much of the whole is still to do, if all is resumed
        for _ in range(times):
            part = chance.random() * left
            when = {"after": part * self.seconds} if seed % 2 else {"at": int(part * self.steps)}
            fault = {"kind": "kill", "torn": chance.random(), **when}
            ended = self.nursery.run(folder, *self.case.arguments, fault=fault)
            if ended.code != -signal.SIGKILL:
                break  # so much was done before that this step did not come any more
            left -= part
            story.append(ended.last)
        self.finish(folder, story, before=before, spare=len(story) * self.case.in_flight)
        return len(story)

    def fail(self, seed: int, kind: str) -> None:
        """Let the disk fail from some step on; the message must help, and the same command resume."""
        chance, before = Random(f"{self.case.name} {kind} {seed}"), self.case.calls()
        folder = self.new_folder()
        fault = {"kind": kind, "at": chance.randrange(self.steps), "torn": chance.random()}
        ended = self.nursery.run(folder, *self.case.arguments, fault=fault)
        story = f"{kind} {ended.last}: exit {ended.code}: {ended.err[-600:]}"
        assert ended.code in self.case.codes or ended.is_clear, story
        self.finish(folder, [story], before=before, spare=self.case.in_flight)

    def race(self, other: Nursery) -> None:
        """Run it twice at once in one folder: each ends well or with a message."""
        folder, before = self.new_folder(), self.case.calls()
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(one.run, folder, *self.case.arguments) for one in (self.nursery, other)]
        ends = [future.result() for future in both]
        story = [f"exit {ended.code}: {ended.err[-600:]}" for ended in ends]
        assert all(ended.code in self.case.codes or ended.is_clear for ended in ends), story
        self.finish(folder, story, before=before, spare=0)

    def finish(self, folder: Path, story: Sequence[str], *, before: int, spare: int) -> None:
        """Run the command again, undisturbed: nothing may be lost, doubled or asked again."""
        ended = self.nursery.run(folder, *self.case.arguments)
        assert ended.code in self.case.codes, (story, ended.out, ended.err)
        expected, found = (
            Counter((name, line) for name, text in files.items() for line in text.split("\n"))
            for files in (self.whole, self.case.found(folder))
        )
        lost, more = expected - found, found - expected
        assert not lost and not more, (self.case.name, story, lost, more)
        again = self.case.calls() - before - self.asked - spare  # calls beyond those in flight
        assert again <= 0, f"{self.case.name}: {story}: {again} calls are made again"


class Steps:
    """Counts what a forked process does to its folder, and puts the fault where it was asked for."""

    def __init__(self, folder: str, fault: Fault, log: int) -> None:
        self.folder, self.fault, self.log, self.count = folder, fault, log, 0
        self._write, self._fsync = os.write, os.fsync
        os.write, os.fsync = self._count_write, self._count_fsync
        sys.addaudithook(self._hear)
        if "sqlalchemy" in sys.modules:
            from sqlalchemy import Engine, event

            event.listen(Engine, "before_cursor_execute", lambda *_: self.take("sql", "statement"))

    def take(self, what: str, about: str, stream: int = -1, data: bytes = b"") -> None:
        """Count a step, and fail or die at it if it is the one."""
        number, self.count = self.count, self.count + 1
        os.pwrite(self.log, f"{self.count} {what} {about}\n".encode()[:400].ljust(400), 0)
        kind, at = self.fault.get("kind"), self.fault.get("at", -1)
        torn = data[: int(self.fault.get("torn", 0.0) * len(data))] if number == at else b""  # at any byte
        if kind == "kill" and number == at:
            if torn:
                self._write(stream, torn)
            os.kill(os.getpid(), signal.SIGKILL)
        if kind in (None, "kill") or number < at or what == "sql":
            return
        code = getattr(errno, kind)
        if (code == errno.ENOSPC and what not in SPENDS) or (code == errno.EIO and number > at):
            return  # a full disk lets names change, and a bad block fails once
        if torn:
            self._write(stream, torn)
        raise OSError(code, os.strerror(code), about)

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


def _bear(order: Mapping[str, Any], out: int, err: int, log: int) -> int:
    """Fork a child that runs the command; return its number."""
    if child := os.fork():
        return child
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(order["folder"])
    code = 70
    try:
        Steps(order["folder"], order["fault"], log)
        import_module("empathy_judge.commands.main").main(order["arguments"], prog_name="cli.py")
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _obey(order: Mapping[str, Any]) -> Any:
    if "kill" in order:
        os.kill(order["kill"], signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(order["kill"], 0)[1])
    with TemporaryFile() as out, TemporaryFile() as err, TemporaryFile() as log:
        child = _bear(order, out.fileno(), err.fileno(), log.fileno())
        if "start" in order:
            return child
        if "after" in order["fault"]:
            ended = os.pidfd_open(child)
            if not select.select([ended], [], [], order["fault"]["after"])[0]:
                os.kill(child, signal.SIGKILL)
            os.close(ended)
        status = os.waitpid(child, 0)[1]
        last = os.pread(log.fileno(), 400, 0).decode("utf-8", "replace").strip()
        texts = [os.pread(each.fileno(), 1 << 24, 0).decode("utf-8", "replace") for each in (out, err)]
    answer = Ended(os.waitstatus_to_exitcode(status), *texts, int(last.partition(" ")[0] or 0), last)
    return answer._asdict()


if __name__ == "__main__":
    for module in sys.argv[1:]:
        import_module(module)
    for line in iter(sys.stdin.readline, ""):
        print(json.dumps(_obey(json.loads(line))), flush=True)
