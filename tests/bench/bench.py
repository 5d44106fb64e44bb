"""Speed, start and memory on this machine: `make bench`; docs/performance.md explains the figures.

    bench.py [--only NAME ...] [--judge FILE.toml ...] [--json FILE] [--quick]

Commands run in processes of their own, contenders take turns, and the median counts. A busy machine makes
every figure worse. The exit code is 1 where a limit is missed.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "data" / "samples" / "responses.jsonl"
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]  # as a script, Python looks beside it only


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number, what it means, and its limit if it has one."""

    name: str
    value: float
    unit: str = ""
    meaning: str = ""
    most: float | None = None
    least: float | None = None

    @property
    def is_met(self) -> bool:
        too_much = self.most is not None and self.value > self.most
        return not too_much and not (self.least is not None and self.value < self.least)

    def __str__(self) -> str:
        limit = f"at least {self.least:g}" if self.least is not None else ""
        limit = f"at most {self.most:g}" if self.most is not None else limit
        missed = "" if self.is_met else "MISSED"
        return f"{self.name:<32} {self.value:>12,.4g}{self.unit:<7} {limit:<16} {missed:<6} {self.meaning}"


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
    seconds = perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)  # else Popen would wait for it again
    if process.returncode:
        raise SystemExit(f"failed with exit code {process.returncode}: {' '.join(command)}")
    return Cost(seconds, usage.ru_maxrss / 1024)


def in_turns(contenders: Mapping[str, Callable[[int], float]], rounds: int) -> dict[str, float]:
    """Return each contender's median; in turns, so that a busy minute hurts all of them."""
    measured: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, measure in contenders.items():
            print(f"  {name}, round {number + 1} of {rounds} ...", file=sys.stderr, flush=True)
            measured[name].append(measure(number))
    return {name: median(values) for name, values in measured.items()}


def write_samples(path: Path, count: int) -> Path:
    """Write the sample replies over and over, each time with other ids and prompts."""
    rows = [json.loads(line) for line in SAMPLES.read_text(encoding="utf-8").splitlines()]
    with path.open("w", encoding="utf-8") as out:
        for number in range(count):
            turn, position = divmod(number, len(rows))
            renamed = {key: f"{rows[position][key]} ({turn + 1})" for key in ("id", "prompt")}
            out.write(json.dumps({**rows[position], **renamed}) + "\n")
    return path


def further_rate(few: Path, many: Path, out: Path, *options: object) -> float:
    """Return rows a second of `score` beyond its start: many rows less few rows."""
    counts = [path.read_bytes().count(b"\n") for path in (few, many)]
    seconds = [run_cli("score", path, "--out", out / path.stem, *options).seconds for path in (few, many)]
    return (counts[1] - counts[0]) / max(seconds[1] - seconds[0], 1e-9)


def measure_start(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    """A command from the shell to the shell."""
    one = write_samples(scratch / "one.jsonl", 1)
    contenders: dict[str, Callable[[int], float]] = {
        "--help": lambda number: run_cli("--help").seconds,
        "one reply": lambda number: run_cli("score", one, "--out", scratch / f"run-{number}").seconds,
    }
    for name, seconds in in_turns(contenders, 1 if quick else 5).items():
        yield Figure(name=name, value=seconds, unit=" s", most={"--help": 0.3, "one reply": 2.0}[name])


def measure_rows(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    """Many rows by a judge that costs nothing."""
    from rows import write_many

    sizes = (100, 1_000, 2_000) if quick else (10_000, 100_000, 1_000_000)
    costs = []
    for count in sizes:
        path = write_many(scratch / f"{count}.jsonl", count)
        cost = run_cli("score", path, "--judge", "length", "--out", scratch / f"run-{count}")
        costs.append(cost)
        yield Figure(name=f"{count:,} rows", value=cost.seconds, unit=" s", meaning=f"{cost.mib:.0f} MiB")
    steps = [
        (after.seconds - before.seconds) / (more - fewer)
        for before, after, fewer, more in zip(costs, costs[1:], sizes, sizes[1:], strict=False)
    ]
    meaning = "cost of a further row, over that of one a step below"
    yield Figure(
        name="growth of time", value=steps[1] / max(steps[0], 1e-9), unit=" x", most=1.2, meaning=meaning
    )
    yield Figure(name="growth of memory", value=costs[-1].mib / costs[0].mib, unit=" x", most=1.5)


def measure_classifier(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    """The classifier on the CPU."""
    few, many = (2, 6) if quick else (100, 700)
    files = [write_samples(scratch / f"{count}.jsonl", count) for count in (few, many)]
    contenders: dict[str, Callable[[int], float]] = {
        "classifier": lambda number: further_rate(*files, scratch / f"{number}"),
        "transformers' pipeline": lambda number: pipeline_rate(files[1]),
    }
    for name, rate in in_turns(contenders, 1 if quick else 3).items():
        yield Figure(name=name, value=rate, unit="/s", meaning="replies, beyond the start")
    peaks = [run_cli("score", path, "--out", scratch / f"memory-{path.stem}").mib for path in files]
    yield Figure(
        name="memory", value=peaks[1], unit=" MiB", most=1.2 * peaks[0], meaning=f"of {many} replies"
    )


def pipeline_rate(path: Path) -> float:
    """Return replies a second of transformers' own pipeline with an untrained network of the same shape."""
    from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast, pipeline

    weights = ROOT / "judge" / "weights" / "classifier"
    card = json.loads((weights / "card.json").read_text(encoding="utf-8"))
    path_of_tokenizer = str(weights / "tokenizer.json")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=path_of_tokenizer, pad_token="<|im_end|>")
    shape = {"intermediate_size": 1536, "num_key_value_heads": 3, "vocab_size": len(tokenizer)}
    config = LlamaConfig(**card["config"], **shape, num_labels=3, pad_token_id=tokenizer.pad_token_id)
    classify = pipeline(
        "text-classification", model=LlamaForSequenceClassification(config).eval(), tokenizer=tokenizer
    )
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    texts = [f"{row['prompt']}\n{row['response']}" for row in rows[:48]]
    classify(texts[:2])
    started = perf_counter()
    classify(texts, batch_size=8)
    return len(texts) / (perf_counter() - started)


def measure_gpu(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    """The classifier on a GPU, and its judgments beside the CPU's."""
    try:
        import torch
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    few, many = (write_samples(scratch / f"{n}.jsonl", n) for n in (384, 2_000 if quick else 1_000_000))
    runs: dict[str, list[dict[str, Any]]] = {}
    for device in ("cpu", "cuda"):
        out = scratch / device
        cost = run_cli("score", few, "--device", device, "--out", out)
        yield Figure(name=f"{device}: 384 replies", value=cost.seconds, unit=" s", meaning="with the start")
        lines = (out / "judgments.jsonl").read_text(encoding="utf-8").splitlines()
        runs[device] = [json.loads(line) for line in lines]
    pairs = list(zip(*runs.values(), strict=True))
    gaps = [abs(one["score"] - other["score"]) for one, other in pairs]
    same = sum(one["label"] == other["label"] for one, other in pairs) / len(pairs)
    yield Figure(name="score, GPU less CPU", value=sum(gaps) / len(gaps), meaning=f"at most {max(gaps):.4f}")
    yield Figure(name="labels as on the CPU", value=same, least=0.98)
    cost = run_cli("score", many, "--device", "cuda", "--out", scratch / "many")
    yield Figure(name="many replies", value=cost.seconds, unit=" s", most=120, meaning=many.stem)


def measure_judges(scratch: Path, *, quick: bool, own: Sequence[str] = ()) -> Iterator[Figure]:
    """The trained judges on a GPU, or the CPU; the large one only where its base is at hand."""
    from empathy_judge.data.errors import UserError
    from empathy_judge.judge.base import load_judge

    try:
        import torch

        has_gpu = torch.cuda.is_available()
    except ImportError:
        has_gpu = False
    usual, few = ((2_000, 20_000), (200, 10_000)) if has_gpu else ((10, 100), (2, 20))
    counts = {"classifier": usual, **dict.fromkeys(own, usual), "classifier-large": few}
    try:
        load_judge("classifier-large")
    except UserError:
        del counts["classifier-large"]
    for number, (name, sizes) in enumerate(counts.items()):
        files = [write_samples(scratch / f"{count}.jsonl", count) for count in ((1, 2) if quick else sizes)]
        options = ("--judge", name, *(("--device", "cuda") if has_gpu else ()))

        def score(path: Path, number: int = number, options: tuple[str, ...] = options) -> Cost:
            return run_cli("score", path, "--out", scratch / f"judge-{number}" / path.stem, *options)

        # On a GPU side by side: both load for up to minutes, and then the longer one runs alone.
        with ThreadPoolExecutor(2 if has_gpu else 1) as pool:
            costs = list(pool.map(score, files))
        further = int(files[1].stem) - int(files[0].stem)
        rate = further / max(costs[1].seconds - costs[0].seconds, 1e-9)
        yield Figure(name=name, value=rate, unit="/s", meaning="replies, beyond the start")
        yield Figure(name="start", value=costs[0].seconds, unit=" s", meaning=f"with {files[0].stem} replies")
        yield Figure(name="memory", value=costs[1].mib, unit=" MiB", meaning=f"of {files[1].stem} replies")


def measure_endpoint(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    """Judges that ask a server, against a bare loop with the same client."""
    from real_servers import start_slow_server

    calls, delay, at_once = (32, 0.02, 8) if quick else (640, 0.2, 32)
    files = [write_samples(scratch / f"{count}.jsonl", count) for count in (at_once, calls)]
    judge = scratch / "judge.toml"
    with start_slow_server(delay=delay, most=at_once) as url:
        for kind in ("decision", "prompted"):
            text = f'kind = "{kind}"\nbase_url = "{url}"\nmodel = "gpt-6-luna"\nconcurrency = {at_once}\n'
            judge.write_text(text, encoding="utf-8")
            contenders: dict[str, Callable[[int], float]] = {
                "bare": lambda number: asyncio.run(bare_loop(url, calls, at_once)),
                kind: lambda number, kind=kind: further_rate(
                    *files, scratch / f"{kind}-{number}", "--judge", judge, "--max-cost", 100
                ),
            }
            rates = in_turns(contenders, 1 if quick else 3)
            meaning = f"{rates[kind]:.1f} calls/s over {rates['bare']:.1f}"
            yield Figure(
                name=f"{kind} over a bare loop", value=rates[kind] / rates["bare"], least=0.9, meaning=meaning
            )


async def bare_loop(url: str, calls: int, at_once: int) -> float:
    """Return calls a second of the `openai` client with a semaphore and nothing else."""
    from openai import AsyncOpenAI

    places = asyncio.Semaphore(at_once)
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

        async def ask(number: int) -> None:
            async with places:
                message = {"role": "user", "content": f"I lost letter {number}."}
                body = {"model": "gpt-6-luna", "messages": [message]}
                await client.post("/chat/completions", body=body, cast_to=object)

        await asyncio.gather(*map(ask, range(at_once)))  # connections, imports
        start = perf_counter()
        await asyncio.gather(*map(ask, range(calls)))
        return calls / (perf_counter() - start)


def measure_serving(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    """The server under load."""
    statuses: Counter[int] = Counter()
    with served() as url:
        for clients, seconds in ((1, 0.5), (4, 0.5)) if quick else ((1, 20.0), (8, 20.0), (64, 60.0)):
            waits, answers = asyncio.run(ask_together(url, clients, seconds))
            statuses += answers
            rate = len(waits) / seconds
            yield Figure(name=f"{clients} clients", value=rate, unit="/s", meaning="answers")
            for share in (50, 99):
                wait = waits[int(len(waits) * share / 100)]
                yield Figure(name=f"{clients} clients: p{share}", value=1000 * wait, unit=" ms")
    others = sum(count for status, count in statuses.items() if status not in (200, 503))
    yield Figure(name="other statuses", value=others, most=0, meaning="than 200 and 503")


@contextmanager
def served() -> Iterator[str]:
    """Run a server of its own process and yield its address."""
    command = [sys.executable, str(ROOT / "cli.py"), "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        start = line.index("http://")
        yield line[start:].split()[0].rstrip(";,./")
        process.terminate()


async def ask_together(url: str, clients: int, seconds: float) -> tuple[list[float], Counter[int]]:
    """Ask from many clients for some time; return the sorted waits for answers, and all statuses."""
    import httpx

    rows = cycle([json.loads(line) for line in SAMPLES.read_text(encoding="utf-8").splitlines()])
    waits: list[float] = []
    statuses: Counter[int] = Counter()
    began = perf_counter()

    async def ask(client: httpx.AsyncClient) -> None:
        while perf_counter() - began < seconds:
            start = perf_counter()
            answer = await client.post("/v1/score", json={"exchanges": [next(rows)]})
            statuses[answer.status_code] += 1
            if answer.status_code == 200:
                waits.append(perf_counter() - start)
            else:
                await asyncio.sleep(float(answer.headers.get("retry-after", 1)))

    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits, trust_env=False) as client:
        await asyncio.gather(*(ask(client) for _ in range(clients)))
    return sorted(waits), statuses


def measure_ray(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    """Ray against one process, by a judge that costs nothing."""
    from rows import write_many

    count = 2_000 if quick else 1_000_000
    path = write_many(scratch / "rows.jsonl", count)
    outs = {"one process": (), "Ray, 2 workers": ("--engine", "ray", "--workers", "2")}
    for name, options in outs.items():
        out = scratch / name.partition(",")[0]
        cost = run_cli("score", path, "--judge", "length", "--out", out, *options)
        yield Figure(name=name, value=cost.seconds, unit=" s", meaning=f"{count:,} rows, {cost.mib:.0f} MiB")
    same = [
        (scratch / "one process" / name).read_bytes() == (scratch / "Ray" / name).read_bytes()
        for name in ("judgments.jsonl", "summary.json")
    ]
    yield Figure(name="same bytes", value=sum(same), least=len(same))


def measure_bootstrap(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    """2,000 bootstrap draws of two statistics of agreement, against loops over libraries."""
    import krippendorff
    import numpy as np
    from sklearn.metrics import cohen_kappa_score

    from empathy_judge.calibration.agreement.metrics import TABLE_STATISTICS, from_table
    from empathy_judge.calibration.bootstrap import resample_clusters, sample

    ratings_count, raters_count, draws, timed = 12_000, 1_200, 2_000, 1 if quick else 8
    rng = np.random.default_rng(0)
    ratings = 1 + rng.choice(3, ratings_count, p=[0.11, 0.31, 0.58])
    labels = np.where(rng.random(ratings_count) < 0.4, ratings, 1 + rng.integers(0, 3, ratings_count))
    raters = np.arange(ratings_count) % raters_count
    start = perf_counter()
    drawn = resample_clusters(raters_count, rng=np.random.default_rng(1), draws=draws)
    names = ("alpha_ordinal", "qwk")
    made = {name: from_table(TABLE_STATISTICS[name], ratings, labels, 3) for name in names}
    ours = np.stack([item.draws for item in sample(made, raters, drawn).values()], axis=1)
    our_seconds, their_seconds, gap = perf_counter() - start, 0.0, 0.0
    for draw in range(timed):
        rows = np.repeat(np.arange(ratings_count), drawn[draw][raters])
        first, second = ratings[rows], labels[rows]
        start = perf_counter()
        alpha = krippendorff.alpha(np.stack([first, second]), level_of_measurement="ordinal")
        kappa = cohen_kappa_score(first, second, weights="quadratic")
        their_seconds += (perf_counter() - start) * draws / timed
        gap = max(gap, float(np.abs(ours[draw] - [alpha, kappa]).max()))
    meaning = f"{our_seconds:.3f} s, libraries {their_seconds:.1f} s (scaled from {timed} draws)"
    yield Figure(name="bootstrap", value=their_seconds / our_seconds, unit=" x", least=50, meaning=meaning)
    yield Figure(name="difference of the values", value=gap, most=1e-9)


PARTS: dict[str, Callable[..., Iterator[Figure]]] = {
    "start": measure_start,
    "rows": measure_rows,
    "classifier": measure_classifier,
    "gpu": measure_gpu,
    "judges": measure_judges,
    "endpoint": measure_endpoint,
    "serving": measure_serving,
    "ray": measure_ray,
    "bootstrap": measure_bootstrap,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure speed, start and memory.")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME")
    parser.add_argument(
        "--judge", nargs="+", default=[], metavar="FILE.toml", help="measured beside the default"
    )
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"), help="where the figures go")
    parser.add_argument("--quick", action="store_true", help="only try whether it runs; limits do not count")
    options = parser.parse_args()
    parts_to_run = {**PARTS, "judges": partial(measure_judges, own=options.judge)}
    machine = f"{platform.system()} {platform.machine()}, {len(os.sched_getaffinity(0))} cores"
    measured: dict[str, list[Figure]] = {}
    for name in options.only:
        print(f"{name}: {PARTS[name].__doc__}", flush=True)
        measured[name] = []
        with TemporaryDirectory() as scratch:
            for figure in parts_to_run[name](Path(scratch), quick=options.quick):
                print(figure, flush=True)
                measured[name].append(figure)
        parts = {part: [asdict(figure) for figure in figures] for part, figures in measured.items()}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"machine": machine, "quick": options.quick, "parts": parts}, indent=2)
        options.json.write_text(f"{text}\n", encoding="utf-8")
    is_met = all(figure.is_met for figures in measured.values() for figure in figures)
    return 0 if is_met or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
