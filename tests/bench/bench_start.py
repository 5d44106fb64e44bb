"""What it takes to get one judgment, and whether memory follows the number of judgments."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench_figures import Figure, in_turns, run_cli, say, write_samples


def measure(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    def score(count: int, number: int) -> float:
        path = write_samples(scratch / f"{count}.jsonl", count)
        return run_cli("score", path, "--out", scratch / f"{count}-{number}").seconds

    contenders = {
        "--help": lambda number: run_cli("--help").seconds,
        "one reply": lambda number: score(1, number),
        "three replies": lambda number: score(3, number),
    }
    found = in_turns(contenders, 1 if quick else 5)
    limits = {"--help": 0.3, "one reply": 2.0, "three replies": 3.0}
    abouts = {"--help": "`--help`", "one reply": "`score` of one line", "three replies": "of three lines"}
    for name, took in found.items():
        about = f"{abouts[name]}, a cold process; median of {len(took)}"
        yield Figure(
            name=name, value=median(took), unit=" s", about=about, most=limits[name], measured={"s": took}
        )
    if not quick:
        yield memory(scratch, few=500, many=2000)


def memory(scratch: Path, *, few: int, many: int) -> Figure:
    """Peak memory must not follow the number of rows."""
    peaks = {}
    for count in (few, many):
        say(f"  {count:,} rows")
        path = write_samples(scratch / f"{count}.jsonl", count)
        peaks[count] = run_cli("score", path, "--out", scratch / f"memory-{count}").mib
    small, large = peaks.values()
    return Figure(
        name="memory of the classifier",
        value=large / small,
        unit=" x",
        most=1.2,
        about=f"peak of {many:,} rows ({large:.0f} MiB) over {few:,} ({small:.0f} MiB)",
        measured={f"mib_{count}": round(peak, 1) for count, peak in peaks.items()},
    )
