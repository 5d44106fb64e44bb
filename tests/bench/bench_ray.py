"""`score --engine ray` with one and with two workers, against one process: whole commands, by the classifier.

A small run and a large one by each: what the further rows take gives the rate, and what is left of the small
run is what starting costs.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench_figures import Figure, in_turns, medians, run_cli, write_samples

RUNNERS: dict[str, tuple[object, ...]] = {
    "one process": (),
    "Ray, 1 worker": ("--engine", "ray", "--workers", 1),
    "Ray, 2 workers": ("--engine", "ray", "--workers", 2),
}


def measure(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    few, many, rounds = (2, 4, 1) if quick else (32, 832, 2)
    names = list(RUNNERS)[1:2] if quick else list(RUNNERS)  # Ray takes seconds to start
    paths = {count: write_samples(scratch / f"{count}.jsonl", count) for count in (few, many)}

    def seconds(name: str, count: int, number: int) -> float:
        out = scratch / f"{name}-{count}-{number}"
        return run_cli("score", paths[count], "--out", out, *RUNNERS[name]).seconds

    sizes = (many,) if quick else (few, many)
    contenders: dict[str, Callable[[int], float]] = {
        f"{name}, {count} rows": partial(seconds, name, count) for name in names for count in sizes
    }
    found = in_turns(contenders, rounds)
    took = medians(found)
    if quick:
        yield Figure(name="Ray", value=took[f"{names[0]}, {many} rows"], unit=" s", about="one worker")
        return
    rates = {}
    for name in names:
        small, large = (took[f"{name}, {count} rows"] for count in sizes)
        rates[name] = (many - few) / (large - small)
        yield Figure(
            name=f"{name}, start",
            value=small - few / rates[name],
            unit=" s",
            about=f"of a command, without the judging; {large:.1f} s for {many} rows with it",
            measured={"seconds": {key: value for key, value in found.items() if key.startswith(name)}},
        )
    for name in names[1:]:
        yield Figure(
            name=f"{name}, rate",
            value=rates[name] / rates[names[0]],
            unit=" x",
            about=f"of one process, once started: {rates[name]:.1f} over {rates[names[0]]:.1f} rows/s; "
            f"median of {rounds}",
        )
