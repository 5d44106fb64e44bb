"""A million rows in shards by Ray: killed once midway, taken up again, and held against one process.

The judge costs nothing. The part ends by itself, and with it all that it started.
"""

import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

import psutil
from bench_figures import Figure, say
from repository import ROOT
from rows import write_many, write_shards

SHARDS, WORKERS, FEW = 10, 2, 1_000
MOST_SECONDS = 540  # then whatever is under way is killed
END_SECONDS = 120  # in which the last of Ray's processes must have noticed that their driver is gone
MOST_START = 10  # seconds
FILES = ("judgments.jsonl", "summary.json", "plan.json")
BY_RAY = ("--engine", "ray", "--workers", WORKERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a command took, as seen from outside."""

    seconds: float
    judging: float  # seconds between the first and the last judgment
    mib: float
    worker_mib: float  # of the largest
    judged: int
    family: Sequence[psutil.Process]  # that it started
    folders: Collection[str]  # Ray's: a driver that is killed leaves its own behind


def measure(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    rows = 20_000 if quick else 1_000_000
    one, many, deadline = scratch / "one", scratch / "many", perf_counter() + MOST_SECONDS
    say(f"  writing {rows:,} rows")
    counts = {f"part-{number}.jsonl": rows // SHARDS for number in range(SHARDS)}
    words = ("score", write_shards(scratch / "shards", counts), "--judge", "length", "-v", "--out")
    say("  one process")
    alone = watch(one, (*words, one), deadline)
    say("  Ray, until it is killed")
    by_ray, half = (*words, many, *BY_RAY), (one / FILES[0]).stat().st_size // (8 if quick else 2)
    first = watch(many, by_ray, deadline, kill_at=half)
    kept = count_lines(many)
    say(f"  Ray, taken up again with {kept:,} rows")
    second = watch(many, by_ray, deadline)
    yield Figure(
        name="one process",
        value=rows / alone.seconds,
        unit=" rows/s",
        about=f"the whole command: {alone.seconds:.0f} s, peak {alone.mib:.0f} MiB",
    )
    yield Figure(
        name="Ray",
        value=rows / (first.seconds + second.seconds),
        unit=" rows/s",
        about=f"{first.seconds:.0f} s until it was killed with {kept:,} rows kept, {second.seconds:.0f} s "
        "for the rest; each time Ray is started and all of the input read",
    )
    yield Figure(
        name="Ray, while judging",
        value=rows / (first.judging + second.judging),
        unit=" rows/s",
        about=f"from the first judgment to the last; one process {rows / alone.judging:,.0f}",
        measured={"seconds": [first.judging, second.judging, alone.judging]},
    )
    yield Figure(
        name="Ray, peak memory",
        value=max(first.mib, second.mib),
        unit=" MiB",
        about=f"of the driver; of a worker {max(first.worker_mib, second.worker_mib):.0f} MiB",
    )
    yield Figure(
        name="judged twice",
        value=kept + second.judged - rows,
        most=0,
        about=f"of {rows:,} rows: {second.judged:,} were judged once it was taken up again",
    )
    same = [(one / name).read_bytes() == (many / name).read_bytes() for name in FILES]
    yield Figure(
        name="same bytes",
        value=sum(same) / len(same),
        least=1,
        about=f"share of {', '.join(f'`{name}`' for name in FILES)} that are as one process writes them",
    )
    yield Figure(
        name="left running",
        value=end_all(first) + end_all(second),
        most=0,
        about=f"processes of Ray, {END_SECONDS} s after the last",
    )
    if not quick:  # Ray takes seconds to start
        yield from starts(scratch)


def watch(run: Path, words: tuple[object, ...], deadline: float, *, kill_at: float = math.inf) -> Watched:
    """Run a command to its end, or until its journal is so large and it is killed."""
    journal, said = run / "journal.jsonl", run.with_suffix(".out")
    start = sampled = perf_counter()
    grew: list[float] = []
    family: list[psutil.Process] = []
    folders: set[str] = set()
    is_killed, size, worker_mib = False, _size(journal), 0.0
    with said.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "cli.py"), *map(str, words)], stdout=out, stderr=subprocess.DEVNULL
        )
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        now, before, size = perf_counter(), size, _size(journal)
        if size > before:
            grew.append(now)
        is_due = size >= kill_at or now > deadline
        if not is_killed and (is_due or now - sampled > 1):
            sampled, family = now, psutil.Process(process.pid).children(recursive=True)
            worker_mib = max([worker_mib, *map(_worker_mib, family)])
            folders |= {folder for one in family for folder in _folders(one)}
        if not is_killed and is_due:
            process.kill()
            is_killed = True
        sleep(0.05)
    seconds, (_, status, usage) = perf_counter() - start, ended
    process.returncode = os.waitstatus_to_exitcode(status)  # else Popen would wait for it again
    judged = re.search(r"([\d,]+) judged in", said.read_text(encoding="utf-8"))
    watched = Watched(
        seconds=seconds,
        judging=grew[-1] - grew[0] if grew else math.nan,
        mib=usage.ru_maxrss / 1024,
        worker_mib=worker_mib,
        judged=int(judged[1].replace(",", "")) if judged else 0,
        family=family,
        folders=folders,
    )
    if size < kill_at and process.returncode:  # not for what we wanted
        end_all(watched)
        late = f"not done after {MOST_SECONDS} s: too slow or too busy a machine"
        raise SystemExit(late if is_killed else f"failed with exit code {process.returncode}")
    return watched


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _worker_mib(process: psutil.Process) -> float:
    """The memory of a process that judges; of another, none."""
    with suppress(psutil.Error):
        if process.name().startswith("ray::MapWor"):
            return process.memory_info().rss / 2**20
    return 0.0


def _folders(process: psutil.Process) -> list[str]:
    """Where Ray keeps its files, as one of its processes was told."""
    with suppress(psutil.Error):
        return [word.partition("=")[2] for word in process.cmdline() if word.startswith("--temp-dir=")]
    return []


def end_all(watched: Watched) -> int:
    """Wait for the end of what a command started, and end what does not; returns how many those were."""
    _, alive = psutil.wait_procs(watched.family, timeout=END_SECONDS)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    for folder in watched.folders:
        shutil.rmtree(folder, ignore_errors=True)
    return len(alive)


def count_lines(run: Path) -> int:
    """How many judgments the journal of a run holds that was killed."""
    with suppress(FileNotFoundError), (run / "journal.jsonl").open("rb") as journal:
        return sum(1 for _ in journal)
    raise SystemExit("Ray was done before it could be killed")


def starts(scratch: Path, rounds: int = 3) -> Iterator[Figure]:
    """What Ray and its workers take before the first judgment; measured last, since this process grows."""
    from judge.base import load_judge
    from judge.ray_engine import score_ray, start_ray
    from judge.scored_run import score_file

    path, judge = write_many(scratch / "few.jsonl", FEW), load_judge("length")
    engine = partial(score_ray, named="length", workers=WORKERS)
    of_ray, of_workers = [], []
    for number in range(rounds):
        say(f"  start, round {number + 1} of {rounds}")
        came: list[float] = []
        began = perf_counter()
        with start_ray(WORKERS):
            ready = perf_counter()
            score_file(
                path,
                judge=judge,
                out=scratch / f"start-{number}",
                calibration=None,
                engine=engine,
                on_progress=lambda done, total, came=came: came.append(perf_counter()),  # type: ignore[misc]
            )
        of_ray.append(ready - began)
        of_workers.append(came[0] - ready)
    yield Figure(
        name="Ray's start",
        value=median(of_ray),
        unit=" s",
        about=f"import and its own processes; median of {rounds}",
        measured={"s": of_ray},
    )
    yield Figure(
        name="workers' start",
        value=median(of_workers),
        unit=" s",
        most=MOST_START,
        about=f"from there to the first of {FEW:,} judgments by {WORKERS} workers; median of {rounds}",
        measured={"s": of_workers},
    )
