"""How fast and how small the judge is: ratios and limits from one run on this machine (`make bench`).

Nothing here is a test: a busy machine makes every figure worse. The exit code is 1 when a limit is missed.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "data" / "samples" / "responses.jsonl"
BATCH = 32  # of the rival in plain torch


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rounds: int  # of the speed measurement; the best counts, since noise only ever slows
    rows: int  # in each of these rounds
    repeats: int  # of each process that is timed
    few: int  # rows for a run whose memory is compared with that of a larger one ...
    many: int  # ... by the judge that costs nothing
    few_judged: int  # likewise by the classifier
    many_judged: int


FULL = Size(rounds=3, rows=200, repeats=3, few=1_000, many=50_000, few_judged=1_000, many_judged=3_000)
QUICK = Size(rounds=2, rows=64, repeats=2, few=1_000, many=10_000, few_judged=100, many_judged=300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number, its limit, and what both are about."""

    name: str
    value: float
    unit: str
    limit: float
    is_floor: bool  # whether the value should be at least the limit, rather than at most
    about: str
    measured: dict[str, float]

    @property
    def is_met(self) -> bool:
        return self.value >= self.limit if self.is_floor else self.value <= self.limit

    def __str__(self) -> str:
        bound = f"{'at least' if self.is_floor else 'at most'} {self.limit:g}{self.unit}"
        verdict = "ok" if self.is_met else "MISSED"
        return f"{self.name:<18} {self.value:>6.2f}{self.unit:<2}  {bound:<14} {verdict:<6}  {self.about}"


def say(text: str) -> None:
    print(f"{text} ...", file=sys.stderr, flush=True)


def write_rows(path: Path, count: int) -> Path:
    """The sample responses over and over, each time under other ids and to other prompts.

    A file of few prompts would hide memory that is held for each of them.
    """
    rows = [json.loads(line) for line in SAMPLES.read_text(encoding="utf-8").splitlines()]
    with path.open("w", encoding="utf-8") as out:
        for number in range(count):
            turn, position = divmod(number, len(rows))
            suffix = f" ({turn + 1})" if turn else ""
            again = {key: rows[position][key] + suffix for key in ("id", "prompt")}
            out.write(json.dumps({**rows[position], **again}) + "\n")
    return path


def run_cli(*arguments: object) -> tuple[float, float]:
    """Seconds and peak MiB of one command in a process of its own."""
    command = [sys.executable, str(ROOT / "cli.py"), *map(str, arguments)]
    start = perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took = perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)  # else Popen would wait for it again
    if process.returncode:
        raise SystemExit(f"failed with exit code {process.returncode}: {' '.join(command)}")
    return took, usage.ru_maxrss / 1024


def measure_start(size: Size, scratch: Path) -> Iterator[Figure]:
    """Whole processes, from the shell to the shell: the best of a few."""

    def best(*arguments: object, repeats: int = size.repeats) -> float:
        return min(run_cli(*arguments)[0] for _ in range(repeats))

    def score(count: int) -> float:
        path = write_rows(scratch / f"{count}.jsonl", count)
        runs = (scratch / f"start-{count}-{number}" for number in range(size.repeats))
        return min(run_cli("score", path, "--out", run)[0] for run in runs)

    say("timing --help and a cold start")
    helped, one, three = best("--help"), score(1), score(3)
    common: dict[str, Any] = {"unit": " s", "is_floor": False, "measured": {}}
    yield Figure(name="help", value=helped, limit=0.3, about="--help: loads nothing heavy", **common)
    yield Figure(name="first judgment", value=one, limit=2.0, about="score, one line, cold start", **common)
    yield Figure(
        name="three judgments", value=three, limit=3.0, about="score, three lines, likewise", **common
    )


def measure_memory(size: Size, scratch: Path) -> Iterator[Figure]:
    """Peak memory must not follow the number of rows; what intervals take stops growing at 5,000 prompts."""
    cases = (("length", size.few, size.many), ("classifier", size.few_judged, size.many_judged))
    for judge, few, many in cases:
        peaks = {}
        for count in (few, many):
            say(f"memory of {count:,} rows, judge {judge}")
            path = write_rows(scratch / f"{judge}-{count}.jsonl", count)
            _, peaks[count] = run_cli("score", path, "--judge", judge, "--out", scratch / f"{judge}-{count}")
        yield Figure(
            name=f"memory, {judge}",
            value=peaks[many] / peaks[few],
            unit="x",
            limit=2.0,
            is_floor=False,
            about=f"peak of {many:,} rows ({peaks[many]:.0f} MiB) over {few:,} ({peaks[few]:.0f} MiB)",
            measured={f"mib_{count}": round(peak, 1) for count, peak in peaks.items()},
        )


def measure_speed(size: Size, scratch: Path) -> Iterator[Figure]:
    """Responses a second through the engine, over those of the same network in plain torch.

    Both begin at the exchanges and end at probabilities, in turns, so that a busy minute hurts both.
    """
    from data.tables import read_exchanges
    from judge.base import load_judge

    say("loading both networks")
    exchanges = list(read_exchanges(write_rows(scratch / "speed.jsonl", size.rows)))
    judge = load_judge("classifier")
    rivals = {"judge": engine(judge, exchanges, scratch), "torch": plain_torch(exchanges)}
    rates = dict.fromkeys(rivals, 0.0)
    for number in range(size.rounds + 1):  # the first only warms up
        for name, work in rivals.items():
            say(f"speed of the {name}, round {number} of {size.rounds}")
            start = perf_counter()
            work(number)
            rate = size.rows / (perf_counter() - start)
            rates[name] = max(rates[name], rate if number else 0.0)
    yield Figure(
        name="speed",
        value=rates["judge"] / rates["torch"],
        unit="x",
        limit=1.3,
        is_floor=True,
        about=f"responses/s: {rates['judge']:.1f} over {rates['torch']:.1f} in torch fp32, batch {BATCH}",
        measured={name: round(rate, 2) for name, rate in rates.items()},
    )


def engine(judge: Any, exchanges: list[Any], scratch: Path) -> Callable[[int], None]:
    """Scores everything into a run folder of its own, as the command does."""
    from data.runs import Plan, open_run
    from judge.scoring import score_exchanges

    plan = Plan(judge=judge.name, version=judge.version, rubric=judge.rubric.digest, input="bench")

    def work(number: int) -> None:
        with open_run(scratch / f"speed-{number}", plan) as run:
            score_exchanges(judge, exchanges, run)

    return work


def plain_torch(exchanges: list[Any]) -> Callable[[int], None]:
    """The default recipe's network, untrained (weights do not matter for speed), on every core."""
    import torch

    from judge.network import make_network
    from judge.recipe import read_recipe
    from judge.style import count_style
    from judge.wording import write_context

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    network, wording = make_network(read_recipe("default"))
    network.eval()

    def work(number: int) -> None:
        for start in range(0, len(exchanges), BATCH):
            part = exchanges[start : start + BATCH]
            tokens = [wording.encode(write_context(item), item.response) for item in part]
            ids = [torch.tensor(item.ids) for item in tokens]
            padded, segments, mask = (
                torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
                for rows in (
                    ids,
                    [torch.tensor(item.segments) for item in tokens],
                    [torch.ones_like(row) for row in ids],
                )
            )
            style = torch.tensor([count_style(item.response) for item in part])
            with torch.inference_mode():
                network(padded, mask, segments, style).softmax(dim=-1).tolist()

    return work


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure speed, start and memory.")
    parser.add_argument("--quick", action="store_true", help="fewer rows; rougher figures")
    parser.add_argument("--out", type=Path, default=Path("runs/bench.json"), help="where the figures go")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))  # as a script, Python looks for modules beside it only
    size = QUICK if options.quick else FULL
    start = perf_counter()
    with TemporaryDirectory() as scratch:
        figures = []
        # torch comes last: a process inherits the peak memory of the one that started it.
        for measure in (measure_start, measure_memory, measure_speed):
            for figure in measure(size, Path(scratch)):
                print(figure, flush=True)
                figures.append(figure)
    found = {
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "python": platform.python_version(),
        "size": asdict(size),
        "seconds": round(perf_counter() - start, 1),
        "figures": [{**asdict(figure), "is_met": figure.is_met} for figure in figures],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(f"{found['machine']}, {found['seconds']} s; written to {options.out}")
    return 0 if all(figure.is_met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
