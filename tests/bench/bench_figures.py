"""What the parts of the benchmark share: figures with limits, contenders in turns, commands timed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from repository import ROOT

SAMPLES = ROOT / "data" / "samples" / "responses.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number, what it is about, and its limit if it has one."""

    name: str
    value: float
    unit: str = ""
    about: str
    most: float | None = None
    least: float | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_met(self) -> bool:
        too_much = self.most is not None and self.value > self.most
        too_little = self.least is not None and self.value < self.least
        return not too_much and not too_little

    @property
    def limit(self) -> str:
        """The limit in words.

        >>> Figure(name="speed", value=2.0, unit=" x", about="", least=1.3).limit
        'at least 1.3 x'
        """
        if self.least is not None:
            return f"at least {self.least:g}{self.unit}"
        return f"at most {self.most:g}{self.unit}" if self.most is not None else ""

    def __str__(self) -> str:
        verdict = ("ok" if self.is_met else "MISSED") if self.limit else ""
        return (
            f"{self.name:<28} {write_value(self.value, self.unit):>12}"
            f"  {self.limit:<16} {verdict:<6}  {self.about}"
        )


def write_value(value: float, unit: str) -> str:
    """Three digits or so.

    >>> [write_value(value, " s") for value in (0, 3e-16, 0.0123, 1.234, 61.25, 1234.5)]
    ['0 s', '3e-16 s', '0.012 s', '1.23 s', '61.2 s', '1,234 s']
    """
    if value < 0.001:
        return f"{value:.1g}{unit}"
    digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}{unit}"


class Cost(NamedTuple):
    """What a command took."""

    seconds: float
    cpu_seconds: float
    mib: float  # at its peak


def say(text: str) -> None:
    print(f"{text} ...", file=sys.stderr, flush=True)


def run_cli(*arguments: object) -> Cost:
    """One command in a process of its own, from the shell to the shell.

    A process inherits the peak memory of the one that started it, so whoever calls this must be small.
    """
    command = [sys.executable, str(ROOT / "cli.py"), *map(str, arguments)]
    start = perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took = perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)  # else Popen would wait for it again
    if process.returncode:
        raise SystemExit(f"failed with exit code {process.returncode}: {' '.join(command)}")
    return Cost(took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def in_turns(contenders: Mapping[str, Callable[[int], float]], rounds: int) -> dict[str, list[float]]:
    """What each contender gives in each round; in turns, so that a busy minute hurts them all."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, measure in contenders.items():
            say(f"  {name}, round {number + 1} of {rounds}")
            found[name].append(round(measure(number), 4))
    return found


def medians(found: Mapping[str, list[float]]) -> dict[str, float]:
    """One number for each contender."""
    return {name: median(values) for name, values in found.items()}


def write_samples(path: Path, count: int) -> Path:
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


def score_rate(judge: Any, exchanges: list[Any], folder: Path) -> float:
    """Judgments a second through the engine, into a run folder, as `score` does it."""
    from data.runs import ScorePlan, open_run
    from judge.classifier.judge import KeptContexts
    from judge.engine import score_exchanges

    judge.contexts = KeptContexts()  # each round reads every context anew, as a process of its own would
    plan = ScorePlan(judge=judge.name, version=judge.version, rubric=judge.rubric.digest, input="bench")
    start = perf_counter()
    with open_run(folder, plan) as run:
        score_exchanges(judge, exchanges, run)
        run.write_judgments()
    return len(exchanges) / (perf_counter() - start)
