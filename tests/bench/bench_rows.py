"""Time and memory of `score` by a judge that costs nothing: 1,000 to 1,000,000 rows, a process each."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench_figures import Cost, Figure, run_cli, say
from rows import write_many

REPEATS = {1_000: 3, 10_000: 3, 100_000: 2, 1_000_000: 1}
QUICK = {100: 1, 1_000: 1, 2_000: 1}
MOST_MIB = 1536  # of the largest run
MOST_RATIO = 1.1  # of the cost of a row, from one size to the next; both without what starting costs
MOST_GROWTH = 1.5  # of the peak, for a hundred times as many rows


def measure(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    costs: dict[int, Cost] = {}
    for count, repeats in (QUICK if quick else REPEATS).items():
        path = write_many(scratch / f"{count}.jsonl", count)
        runs = []
        for number in range(repeats):
            say(f"  {count:,} rows, round {number + 1} of {repeats}")
            out = scratch / f"run-{count}-{number}"
            runs.append(run_cli("score", path, "--judge", "length", "--out", out))
        path.unlink()
        costs[count] = Cost(*(median(column) for column in zip(*runs, strict=True)))
        yield time_of(count, costs[count], repeats)
    sizes = list(costs)
    large, below = sizes[-1], sizes[-2]
    for name, ratio in zip(("clock", "processor"), cost_ratio(costs), strict=True):
        yield Figure(
            name=f"a further row, {name}",
            value=ratio,
            unit=" x",
            most=MOST_RATIO,
            about=f"a row from {below:,} to {large:,}, over one from {sizes[-3]:,} to {below:,}; 1 is linear",
        )
    yield Figure(
        name="peak memory",
        value=costs[large].mib,
        unit=" MiB",
        most=MOST_MIB,
        about=f"of {large:,} rows; {costs[below].mib:,.0f} MiB of {below:,}",
        measured={f"mib_{count}": round(cost.mib, 1) for count, cost in costs.items()},
    )
    yield Figure(
        name="growth of memory",
        value=costs[large].mib / costs[sizes[-3]].mib,
        unit=" x",
        most=MOST_GROWTH,
        about=f"peak of {large:,} rows over that of {sizes[-3]:,}",
    )


def time_of(count: int, cost: Cost, repeats: int) -> Figure:
    """How long one size took."""
    return Figure(
        name=f"{count:,} rows",
        value=cost.seconds,
        unit=" s",
        about=f"{count / cost.seconds:,.0f} rows/s, peak {cost.mib:,.0f} MiB; "
        + (f"median of {repeats}" if repeats > 1 else "once"),
        measured={name: round(value, 3) for name, value in cost._asdict().items()},
    )


def cost_ratio(costs: Mapping[int, Cost]) -> tuple[float, ...]:
    """The cost of a further row between the two largest sizes, over that one step below: clock, processor."""
    steps = list(pairwise(list(costs.items())[-3:]))
    each = [
        [(after[part] - before[part]) / (more - fewer) for part in (0, 1)]
        for (fewer, before), (more, after) in steps
    ]
    return tuple(after / before if before > 0 else float("inf") for before, after in zip(*each, strict=True))
