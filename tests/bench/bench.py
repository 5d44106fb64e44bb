"""Speed, start and memory on this machine: `make bench`; docs/performance.md explains the figures.

    bench.py [--only NAME ...] [--judge FILE.toml ...] [--json FILE] [--quick]

Commands run in processes of their own. A busy machine makes every figure worse. The exit code is 1 where a
limit is missed.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
SAMPLES: Final = ROOT / "data" / "samples" / "responses.jsonl"
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]  # as a script, Python looks beside it only


class Figure(NamedTuple):
    """One measured number with its unit, its limits if it has any, and what it means."""

    name: str
    value: float
    unit: str = ""
    most: float = float("inf")
    least: float = float("-inf")
    meaning: str = ""

    @property
    def is_met(self) -> bool:
        return self.least <= self.value <= self.most

    def __str__(self) -> str:
        missed = "" if self.is_met else f"MISSED [{self.least:g}, {self.most:g}]"
        return f"{self.name:<32} {self.value:>12,.4g}{self.unit:<5} {missed} {self.meaning}"


class Cost(NamedTuple):
    """What a command took."""

    seconds: float
    mib: float  # at its peak


def run_cli(*arguments: object) -> Cost:
    """Run one command in a process of its own, from the shell to the shell."""
    command = [sys.executable, str(ROOT / "cli.py"), *map(str, arguments)]
    start = perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # else Popen would wait for it again
    if process.returncode:
        raise SystemExit(f"failed with exit code {process.returncode}: {' '.join(command)}")
    return Cost(perf_counter() - start, usage.ru_maxrss / 1024)


def write_samples(path: Path, count: int) -> Path:
    """Write the sample replies over and over, each time with other ids and prompts."""
    rows = [json.loads(line) for line in SAMPLES.read_text(encoding="utf-8").splitlines()]
    with path.open("w", encoding="utf-8") as out:
        for number in range(count):
            turn, position = divmod(number, len(rows))
            renamed = {key: f"{rows[position][key]} ({turn + 1})" for key in ("id", "prompt")}
            out.write(json.dumps({**rows[position], **renamed}) + "\n")
    return path


def score_twice(
    scratch: Path, number: int, sizes: tuple[int, int], *options: object
) -> tuple[float, Cost, Cost]:
    """Return rows a second of `score` beyond its start, and what it took for few and for many rows."""
    files = [write_samples(scratch / f"{size}.jsonl", size) for size in sizes]
    outs = [scratch / f"{number}-{size}" for size in sizes]
    few, many = (
        run_cli("score", path, "--out", out, *options) for path, out in zip(files, outs, strict=True)
    )
    return (sizes[1] - sizes[0]) / max(many.seconds - few.seconds, 1e-9), few, many


def measure_start(scratch: Path, quick: bool) -> Iterator[Figure]:
    """Measure a command from the shell to the shell."""
    one, rounds = write_samples(scratch / "one.jsonl", 1), range(1 if quick else 5)
    yield Figure("--help", median(run_cli("--help").seconds for _ in rounds), " s", most=0.3)
    runs = [run_cli("score", one, "--out", scratch / f"run-{number}").seconds for number in rounds]
    yield Figure("one reply", median(runs), " s", most=2.0)


def measure_rows(scratch: Path, quick: bool) -> Iterator[Figure]:
    """Measure many rows by a judge that costs nothing."""
    from rows import write_many

    sizes, costs = (100, 1_000, 2_000) if quick else (10_000, 100_000, 1_000_000), []
    for count in sizes:
        path = write_many(scratch / f"{count}.jsonl", count)
        costs.append(run_cli("score", path, "--judge", "length", "--out", scratch / f"run-{count}"))
        yield Figure(f"{count:,} rows", costs[-1].seconds, " s", meaning=f"{costs[-1].mib:.0f} MiB")
    seconds = [after.seconds - before.seconds for before, after in pairwise(costs)]
    each = [took / (more - fewer) for took, (fewer, more) in zip(seconds, pairwise(sizes), strict=True)]
    yield Figure("growth of time per row", each[1] / max(each[0], 1e-9), " x", most=1.2)
    yield Figure("growth of memory", costs[-1].mib / costs[0].mib, " x", most=1.5)


def measure_judges(scratch: Path, quick: bool, names: Sequence[str] = ()) -> Iterator[Figure]:
    """Measure the classifier and the judges that are named on a GPU, or the CPU."""
    has_gpu = _has_gpu()
    sizes = (1, 2) if quick else (2_000, 20_000) if has_gpu else (100, 700)
    for number, name in enumerate(("classifier", *names)):
        options = ("--judge", name, "--device", "cuda" if has_gpu else "cpu")
        rate, short, long = score_twice(scratch, number, sizes, *options)
        yield Figure(name, rate, "/s", meaning="replies, beyond the start")
        yield Figure(f"{name}: start", short.seconds, " s", meaning=f"with {sizes[0]} replies")
        yield Figure(f"{name}: memory", long.mib, " MiB", 1.2 * short.mib, meaning=f"{sizes[1]} replies")


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def measure_gpu(scratch: Path, quick: bool) -> Iterator[Figure]:
    """Compare the classifier's judgments on a GPU with those on the CPU."""
    if not _has_gpu():
        return
    few, many = (write_samples(scratch / f"{n}.jsonl", n) for n in (384, 2_000 if quick else 1_000_000))
    runs: list[list[dict[str, Any]]] = []
    for device in ("cpu", "cuda"):
        cost = run_cli("score", few, "--device", device, "--out", scratch / device)
        yield Figure(f"{device}: 384 replies", cost.seconds, " s", meaning="with the start")
        lines = (scratch / device / "judgments.jsonl").read_text(encoding="utf-8").splitlines()
        runs.append([json.loads(line) for line in lines])
    pairs = list(zip(*runs, strict=True))
    gaps = [abs(one["score"] - other["score"]) for one, other in pairs]
    yield Figure("score, GPU less CPU", sum(gaps) / len(gaps), meaning=f"at most {max(gaps):.4f}")
    same = sum(one["label"] == other["label"] for one, other in pairs) / len(pairs)
    yield Figure("labels as on the CPU", same, least=0.98)
    cost = run_cli("score", many, "--device", "cuda", "--out", scratch / "many")
    yield Figure("many replies", cost.seconds, " s", most=120, meaning=many.stem)


def measure_endpoint(scratch: Path, quick: bool) -> Iterator[Figure]:
    """Compare judges that ask a server with a bare loop of the same client."""
    from servers import ScriptedServer, answer

    calls, delay, at_once = (32, 0.02, 8) if quick else (640, 0.2, 32)
    judge = scratch / "judge.toml"
    with ScriptedServer(lambda call: replace(answer(call), delay=delay)) as server:
        url = server.base_url
        for number, kind in enumerate(("decision", "prompted")):
            text = f'kind = "{kind}"\nbase_url = "{url}"\nmodel = "gpt-6-luna"\nconcurrency = {at_once}\n'
            judge.write_text(text, encoding="utf-8")
            bare = asyncio.run(bare_loop(url, calls, at_once))
            rate, *_ = score_twice(scratch, number, (at_once, calls), "--judge", judge, "--max-cost", 100)
            meaning = f"{rate:.1f} calls/s over {bare:.1f}"
            yield Figure(f"{kind} over a bare loop", rate / bare, least=0.9, meaning=meaning)


async def bare_loop(url: str, calls: int, at_once: int) -> float:
    """Return calls a second of the `openai` client with a semaphore and nothing else."""
    from openai import AsyncOpenAI

    places = asyncio.Semaphore(at_once)
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

        async def ask(number: int) -> None:
            async with places:
                body = {"model": "m", "messages": [{"role": "user", "content": f"I lost letter {number}."}]}
                await client.post("/chat/completions", body=body, cast_to=object)

        await asyncio.gather(*map(ask, range(at_once)))  # connections, imports
        start = perf_counter()
        await asyncio.gather(*map(ask, range(calls)))
        return calls / (perf_counter() - start)


PARTS: Final[dict[str, Callable[..., Iterator[Figure]]]] = {
    name.removeprefix("measure_"): part for name, part in globals().items() if name.startswith("measure_")
}


def main() -> int:
    """Measure the parts that are asked for; return the exit code."""
    parser = argparse.ArgumentParser(description="Measure speed, start and memory.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME")
    parser.add_argument("--judge", nargs="+", default=[], metavar="FILE.toml", help="beside the shipped ones")
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="where the figures go")
    parser.add_argument("--quick", action="store_true", help="only try whether it runs; limits do not count")
    options = parser.parse_args()
    measured: dict[str, list[dict[str, Any]]] = {}
    is_met = True
    for name in options.only:
        print(f"{name}: {PARTS[name].__doc__}", flush=True)
        measured[name] = []
        with TemporaryDirectory() as scratch:
            more = {"names": options.judge} if name == "judges" else {}
            for figure in PARTS[name](Path(scratch), options.quick, **more):
                print(figure, flush=True)
                is_met &= figure.is_met
                measured[name].append(figure._asdict())
    machine = f"{platform.system()} {platform.machine()}, {len(os.sched_getaffinity(0))} cores"
    options.json.parent.mkdir(parents=True, exist_ok=True)
    about = {"machine": machine, "quick": options.quick, "parts": measured}
    options.json.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return 0 if is_met or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
