"""Classifiers on a graphics card: which device is taken, batches for it, and a host that keeps up with it.

What waits is packed into batches of one shape, whoever waits for it. The replies of a whole input are
prepared, and their judgments written out, in processes of their own, since one prepares far fewer a second
than a card reads; the journal gets them in the order of the input.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of_package
from importlib.util import find_spec
from itertools import chain, islice
from multiprocessing.connection import Connection
from operator import attrgetter
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from data.errors import UserError
from data.readers.parallel_survey import read_plain
from data.records import Exchange, Judgment
from judge.engine import Store, count_cores, in_threads, still_to_judge

if TYPE_CHECKING:
    import numpy as np

    from judge.classifier.judge import ClassifierJudge
    from judge.classifier.torch_decoder import Weights

AUTO, CPU, CUDA = "auto", "cpu", "cuda"
ELSEWHERE: Final = "elsewhere"  # on the cards of other machines, whatever this one has
DEVICES: Final = (AUTO, CPU, CUDA)
# What a judge takes that is told nothing else; a command's --device sets it.
DEVICE: ContextVar[str] = ContextVar("DEVICE", default=AUTO)
TOKENS, REPLIES = 32_768, 640  # of a batch at most: enough to fill a large card
CHUNK = 1_024  # replies that are prepared together
SWITCH: Final = 1e-4  # seconds that a thread may go on for while another waits
_TAKE: Final = attrgetter(*Exchange.__slots__)
Row = Exchange | bytes  # an exchange, or the line of a file that is one
Chunk = tuple[int, list[tuple[int, Row]]]  # its number, and rows with their positions in the input
AHEAD: Final = 2  # batches handed to the card before the first of them is waited for


def choose_device(wanted: str, judge: str, *, is_decoder: bool) -> str:
    """The device that a judge runs on: a graphics card where it is wanted and there, else the CPU.

    A card that was asked for by name and cannot be had is said in a sentence; the judgments are the same.
    """
    wanted = wanted or DEVICE.get()
    if wanted not in (*DEVICES, ELSEWHERE):
        raise UserError(f"device: one of {', '.join(DEVICES)} expected, not {wanted!r}")
    if wanted == ELSEWHERE and is_decoder:
        return CUDA
    if wanted == CPU:
        return CPU
    problem = _why_no_card() if is_decoder else f"the network of {judge} runs on the CPU only"
    if problem and wanted != AUTO:
        _say_once(f"No graphics card is used: {problem}. The CPU judges instead, slower.")
    return CPU if problem else CUDA


def let_workers_choose() -> None:
    """A card that was asked for is one of the workers' machines, whatever this one has."""
    if DEVICE.get() == CUDA:
        DEVICE.set(ELSEWHERE)


@cache
def _why_no_card() -> str:
    """Why there is no graphics card to use; empty where there is. Loads torch only where a driver is."""
    if find_spec("torch") is None or find_spec("onnx") is None:
        return "it needs two packages: pip install torch onnx"
    try:
        ctypes.CDLL("libcuda.so.1" if os.name == "posix" else "nvcuda.dll")
    except OSError:
        return "this machine has no NVIDIA driver"
    import torch

    return "" if torch.cuda.is_available() else "torch sees none"


@cache
def _say_once(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def version_on_card(version: str) -> str:
    """A judge's version on a graphics card; what stands before the plus says which calibration holds."""
    try:
        torch = ".".join(version_of_package("torch").split(".")[:2])
    except PackageNotFoundError as error:
        raise UserError("--device cuda needs the package torch, also where others judge") from error
    return f"{version}+cuda-torch{torch}"


class _Request:
    """Replies that somebody waits for, and how many of them have been handed out to batches."""

    def __init__(self, ids: "np.ndarray", lengths: "np.ndarray") -> None:
        import numpy as np

        self.ids = ids
        self.ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self.found = np.empty((len(lengths), 3), dtype=np.float32)
        self.taken, self.left = 0, len(lengths)
        self.error: BaseException | None = None
        self.done = Event()


class CardEngine:
    """The networks on a device, and a thread that hands them batches; their probabilities are averaged.

    `read` may be called from many threads: what they bring is read together. Every batch has the same shape,
    so that the steps of a network are recorded once (a CUDA graph) and then started as one. `device` is "cpu"
    in tests.
    """

    def __init__(
        self, networks: "Sequence[Weights]", *, device: str, tokens: int = TOKENS, compiled: bool = True
    ) -> None:
        self._networks, self._device, self._tokens = networks, device, tokens
        self._compiled = compiled and device == CUDA
        self._requests: SimpleQueue[_Request] = SimpleQueue()
        Thread(target=self._work, daemon=True, name="graphics card").start()

    def read(self, ids: "np.ndarray", lengths: "np.ndarray") -> "np.ndarray":
        """Probabilities of Bad, Okay and Good, [replies, 3]; the replies' tokens stand one behind another."""
        request = _Request(ids, lengths)
        if request.left:
            self._requests.put(request)
            request.done.wait()
        if request.error is not None:
            raise request.error
        return request.found

    def _work(self) -> None:
        waiting: deque[_Request] = deque()
        under_way: deque[tuple[Callable[[], np.ndarray], list[tuple[_Request, int, int]]]] = deque()
        try:
            from judge.classifier.torch_decoder import Card

            card = Card(
                self._networks,
                device=self._device,
                tokens=self._tokens,
                replies=REPLIES,
                ahead=AHEAD,
                compiled=self._compiled,
            )
            self._networks = ()  # they are on the card now
            while True:
                while not self._requests.empty() or not (waiting or under_way):
                    waiting.append(self._requests.get())
                if parts := self._take(waiting):
                    under_way.append((card.launch([_slice(*part) for part in parts]), parts))
                if under_way and (len(under_way) > AHEAD or not waiting):
                    self._hand_out(*under_way.popleft())
        except BaseException as error:
            for request in {*waiting, *(part[0] for _, parts in under_way for part in parts)}:
                request.error = error
                request.done.set()
            while True:  # whoever comes later is told as well
                request = self._requests.get()
                request.error = error
                request.done.set()

    def _take(self, waiting: deque[_Request]) -> list[tuple[_Request, int, int]]:
        """As many replies as a batch has room for, in the order in which they came."""
        parts, tokens, replies = [], self._tokens, REPLIES
        while waiting and replies:
            request = waiting[0]
            start, ends = request.taken, request.ends
            end = int(ends.searchsorted(ends[start] + tokens, side="right")) - 1
            end = min(end, start + replies)
            if end == start:
                break
            parts.append((request, start, end))
            request.taken = end
            tokens -= int(ends[end] - ends[start])
            replies -= end - start
            if end == len(request.found):
                waiting.popleft()
        return parts

    def _hand_out(self, wait: "Callable[[], np.ndarray]", parts: list[tuple[_Request, int, int]]) -> None:
        found, place = wait(), 0
        for request, start, end in parts:
            request.found[start:end] = found[place : place + end - start]
            place += end - start
            request.left -= end - start
            if not request.left:
                request.done.set()


def _slice(request: _Request, start: int, end: int) -> "tuple[np.ndarray, np.ndarray]":
    """Tokens and lengths of some replies of a request."""
    ends = request.ends[start : end + 1]
    return request.ids[ends[0] : ends[-1]], ends[1:] - ends[:-1]


def score_on_card(
    judge: "ClassifierJudge",
    exchanges: Any,
    run: Store,
    *,
    limit: int | None = None,
    on_progress: Callable[[], None] = lambda: None,
) -> int:
    """`score_exchanges` for a judge on a graphics card: replies are prepared in processes of their own.

    Where each row can be read by itself, and nothing of the run is there yet, they read them as well.
    """
    unread = getattr(exchanges, "unread", None)
    coming: Iterator[tuple[int, Row]] = (
        still_to_judge(exchanges, run, limit, on_progress)
        if unread is None or run.has_more or limit is not None
        else enumerate(unread)
    )
    chunks = enumerate(_cut(coming))
    kept, first = _InOrder(run, on_progress), next(chunks, None)
    if first is None:
        return 0
    second = next(chunks, None)
    if second is None:  # not worth a process
        judged = judge.judge_many([_read(row) for _, row in first[1]])
        lines = _write(judged)
        kept.keep(first, lines)
        return len(lines)
    engine, about = judge.engine, str(judge.folder)
    cores = count_cores()
    idle: SimpleQueue[_Child] = SimpleQueue()
    # While some wait for the card others prepare: more of them than there are cores.
    workers = [_Child("prepare_for_card", about) for _ in range(cores + cores // 2)]
    for worker in workers:
        idle.put(worker)
    kept.counting = _Child("count_lines", getattr(run, "counted", None))

    def ask(chunk: Chunk) -> list[bytes]:
        worker = idle.get()
        try:
            worker.send([row if isinstance(row, bytes) else _TAKE(row) for _, row in chunk[1]])
            worker.send(engine.read(*worker.receive()))
            lines: list[bytes] = worker.receive().splitlines(keepends=True)
            return lines
        finally:
            idle.put(worker)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)  # else the card waits while a thread reads on for as long as Python lets it
    try:
        in_threads(len(workers), chain((first, second), chunks), ask, kept.keep)
        kept.counting.send(None)
        if hasattr(run, "counted"):
            run.counted = kept.counting.receive()
    finally:
        sys.setswitchinterval(interval)
        kept.flush()
        for child in (*workers, kept.counting):
            child.close()
    return kept.count


def _cut(coming: Iterator[tuple[int, Row]]) -> Iterator[list[tuple[int, Row]]]:
    while chunk := list(islice(coming, CHUNK)):
        yield chunk


def _read(row: "Row | tuple[Any, ...]") -> Exchange:
    """The exchange of a row: read already, taken apart to be sent, or as it stands in its file."""
    if isinstance(row, Exchange):
        return row
    if isinstance(row, bytes):
        return read_plain(row)
    return Exchange(**dict(zip(Exchange.__slots__, row, strict=True)))


class _InOrder:
    """Keeps lines of judgments in the order of the input; those that come too early wait for the others."""

    def __init__(self, run: Store, on_progress: Callable[[], None]) -> None:
        self.run, self.on_progress = run, on_progress
        self.early: dict[int, tuple[list[int], list[bytes]]] = {}
        self.turn = self.count = 0
        self.counting: _Child | None = None

    def keep(self, chunk: Chunk, lines: list[bytes]) -> None:
        number, rows = chunk
        self.early[number] = [position for position, _ in rows], lines
        while self.turn in self.early:
            self._keep(self.turn)
            self.turn += 1

    def flush(self) -> None:
        """What was judged is kept, also where something before it was not."""
        for number in sorted(self.early):
            self._keep(number)

    def _keep(self, number: int) -> None:
        positions, lines = self.early.pop(number)
        self.run.keep_lines(positions, lines)
        if self.counting is not None:
            self.counting.send(lines)
        self.count += len(lines)
        for _ in lines:
            self.on_progress()


class _Child:
    """A process that does what a function of this module says, and takes and gives values."""

    def __init__(self, function: str, about: Any) -> None:
        # No fork, which a card does not survive, and no second run of whoever's script this is.
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TOKENIZERS_PARALLELISM": "false"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import {function} as go; go()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **paths},
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.to = Connection(os.dup(self.process.stdin.fileno()), readable=False)
        self.back = Connection(os.dup(self.process.stdout.fileno()), writable=False)
        self.process.stdin.close()
        self.process.stdout.close()
        self.send(about)

    def send(self, what: Any) -> None:
        self.to.send(what)

    def receive(self) -> Any:
        """What it gives back; an error is raised here."""
        try:
            found = self.back.recv()
        except EOFError as error:
            raise RuntimeError(f"a process beside this one ended ({self.process.wait()})") from error
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """It ends by itself once nothing more comes."""
        for stream in (self.to, self.back):
            with suppress(OSError):  # it may be gone already
                stream.close()
        self.process.wait()


def _open_ends() -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """A child's ends: what takes the next value, and what gives one back."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that gives us work
    back = Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # whatever prints must not stand between
    return Connection(os.dup(0), writable=False).recv, back.send


def count_lines() -> None:
    """Add up judgments while others are made; what they come to is given back once nothing more comes."""
    take, give = _open_ends()
    counted = take()
    with suppress(EOFError):
        while (lines := take()) is not None:
            for line in lines if counted else ():
                counted.add(Judgment(**json.loads(line)))
        give(counted)


def prepare_for_card() -> None:
    """Prepare chunks of replies: give the tokens of each, take probabilities, and give its lines."""
    from pathlib import Path

    from judge.classifier.judge import TOKENIZER, judge_prepared, pack, prepare
    from judge.classifier.preprocessing import Tokeniser

    take, give = _open_ends()
    folder = take()
    tokeniser = Tokeniser.read(Path(folder) / TOKENIZER, is_decoder=True)

    def ask(readable: Sequence[Any]) -> Any:
        give(pack(readable))
        return take().tolist()

    while True:
        try:
            exchanges = [_read(row) for row in take()]
            judged = list(judge_prepared(exchanges, prepare(exchanges, tokeniser), ask))
            give(b"".join(_write(judged)))
        except (EOFError, BrokenPipeError):
            return
        except Exception as error:
            give(error)


def _write(judged: Sequence[Judgment]) -> list[bytes]:
    """The lines of judgments."""
    from data.tables import to_line, to_row

    return [to_line(to_row(judgment)) for judgment in judged]
