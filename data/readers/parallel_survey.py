"""A large JSONL file looked through by several processes, as long as all of its rows are plain.

Plain rows are in our own columns, valid, and each has an id that no other has. Where one is not, nothing is
said here: the file is then read row by row, which knows the words for it.
"""

import os
import signal
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from secrets import randbelow
from typing import IO, Any, Final

from data.errors import UserError
from data.readers.shapes import is_ours
from data.readers.strict_json import LONGEST_LINE, parse_line
from data.records import Exchange
from data.storage import Shards, Source, digest_source, shards_of
from data.tables import Survey, make_record

LARGE: Final = 64 << 20  # bytes; below it, starting processes takes as long as reading
FEWEST: Final = 4  # processes that are worth starting
NOT_PLAIN: Final = 3  # what a process ends with
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def survey_plain(source: Source, *, processes: int, large: int = LARGE) -> Survey | None:
    """What `survey_exchanges` says of a source, in a part of the time; None where it has to be asked."""
    path = _plain_file(source)
    if path is None or processes < FEWEST or path.stat().st_size < large:
        return None
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        # One key for all, so that one id has one hash; another in every run, so that nobody can aim at it.
        "PYTHONHASHSEED": str(randbelow(2**32 - 1) + 1),
    }
    command = [sys.executable, "-c", f"from {__name__} import look_through as go; go()", str(path)]
    with ThreadPoolExecutor(1) as beside, ExitStack() as ends:
        digest = beside.submit(digest_source, source)
        children = []
        for part in _parts(path, processes):
            child = subprocess.Popen(
                [*command, *map(str, part)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # what went wrong is found again, and said, row by row
                env=env,
            )
            ends.callback(child.wait)
            ends.callback(child.kill)
            children.append(child)
        found = [child.communicate()[0] for child in children]
        if any(child.returncode for child in children):
            return None
    import numpy as np  # not above: every process would load it

    ids = np.sort(np.frombuffer(b"".join(found), dtype=np.int64))
    # Two ids with one hash are next to impossible, and would cost no more than a second reading.
    if not len(ids) or (ids[1:] == ids[:-1]).any():
        return None
    return Survey(digest.result(), len(ids), (), is_plain=True)


class PlainRows:
    """The rows of a file that `survey_plain` has looked through, unread, as often as they are asked for."""

    def __init__(self, source: Source) -> None:
        self._path = _plain_file(source)

    def __iter__(self) -> Iterator[bytes]:
        assert self._path is not None, "not looked through"
        with self._path.open("rb") as lines:
            first = next(lines, b"").removeprefix(BYTE_ORDER_MARK)
            yield from (line for line in chain((first,), lines) if line.strip())


def read_plain(row: bytes) -> Exchange:
    """The exchange of such a row."""
    read = parse_line(row)
    assert isinstance(read, dict)
    return _maker()(0, read)


@cache
def _maker() -> Callable[[int, dict[str, Any]], Exchange]:
    return make_record(Exchange)


def _plain_file(source: Source) -> Path | None:
    """The file, if a source is one file of JSON lines on this machine, of which no column was named."""
    (_, path), *others = shards_of(source)
    is_named = isinstance(source, Shards) and bool(source.columns)
    if others or is_named or not isinstance(path, Path):
        return None
    return path if path.suffix.lower() == ".jsonl" else None


def _parts(path: Path, count: int) -> list[tuple[int, int]]:
    """Where each of so many parts starts and stops, all at the start of a line."""
    size = path.stat().st_size
    starts = {0, size}
    with path.open("rb") as stream:
        for part in range(1, count):
            stream.seek(size * part // count)
            stream.readline(LONGEST_LINE)
            starts.add(stream.tell())
    return list(pairwise(sorted(starts)))


def look_through() -> None:
    """A process's part: writes the hash of every row's id, or ends with a status of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    path, start, stop = sys.argv[-3:]
    with open(path, "rb") as stream:
        stream.seek(int(start))
        ids = _hash_ids(stream, int(start), int(stop))
    if ids is None:
        sys.exit(NOT_PLAIN)
    sys.stdout.buffer.write(ids.tobytes())


def _hash_ids(stream: IO[bytes], place: int, stop: int) -> "array[int] | None":
    make, ids, is_first = make_record(Exchange), array("q"), place == 0
    while place < stop:
        line = stream.readline(LONGEST_LINE)
        place += len(line)
        if not line.endswith(b"\n") and place < stop:
            return None
        if place == len(line):
            line = line.removeprefix(BYTE_ORDER_MARK)
        if not line.strip():
            continue
        try:
            row = parse_line(line)
            if not isinstance(row, dict) or row.get("id") is None or (is_first and not is_ours(row)):
                return None
            ids.append(hash(make(0, row).id))
        except (ValueError, RecursionError, UserError):
            return None
        is_first = False
    return ids
