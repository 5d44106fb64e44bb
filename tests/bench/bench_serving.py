"""The server with 1, 8 and 64 clients, and with more than its queue takes, beside `score` without a server.

Before and after each load the engine scores the same exchanges in this process, while the server has nothing
to do; so a busy machine is as unfair to both. The clients share the server's cores. Where others take the
cores in turns, the share by processor time says more than that by the clock; it counts the clients, too.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from time import process_time
from typing import Any

from bench_figures import Figure, say, score_rate
from load_serving import measure_load, read_samples, started

LEAST = 0.8  # of what the engine does without a server
QUEUE = 512  # judgments that the server lets wait
LOADS = ((1, 1, 20.0), (8, 1, 20.0), (64, 1, 60.0), (64, 16, 20.0))  # clients, exchanges a request, seconds
QUICK = ((1, 1, 0.5), (4, 2, 0.5))


def measure(scratch: Path, *, quick: bool) -> Iterator[Figure]:
    import psutil

    from data.tables import read_exchange
    from judge.base import load_judge

    judge = load_judge("classifier")
    rows = read_samples()
    exchanges = [read_exchange(row, line=1) for row in rows][: 2 if quick else None]
    offline = iter(range(100))

    def score() -> tuple[float, float]:
        """Replies a second, by the clock and of processor time."""
        used = process_time()
        rate = score_rate(judge, exchanges, scratch / f"run-{next(offline)}")
        return rate, len(exchanges) / (process_time() - used)

    score()
    with started() as (url, number):
        server = psutil.Process(number)
        measure_load(url, 2, 0.5 if quick else 3)  # every thread has judged something
        before, statuses = memory(server), set()
        for clients, size, seconds in QUICK if quick else LOADS:
            say(f"  {clients} clients, {size} a request, {seconds:g} s")
            rates = [score()]
            used = cpu_seconds(server)
            load = measure_load(url, clients, seconds, rows=rows, size=size)
            used = cpu_seconds(server) - used + load["client_cpu_seconds"]
            rates.append(score())
            statuses |= set(load["statuses"])
            yield from figures_of(load, size, rates, load["exchanges"] / used)
        after = memory(server)
    others = sorted(statuses - {"200", "503"})
    yield Figure(name="other statuses", value=len(others), about="than 200 and 503, in all of it", most=0)
    yield Figure(
        name="memory after the load",
        value=after / before,
        unit=" x",
        most=1.1,
        about=f"of the server, resident: {after:.0f} MB over {before:.0f} MB before it, when warm",
    )


def figures_of(
    load: dict[str, Any], size: int, rates: list[tuple[float, float]], by_cpu: float
) -> Iterator[Figure]:
    """Throughput, share of what there is without a server, and how long an answer took."""
    who = f"{load['clients']} client{'s' if load['clients'] > 1 else ''}"
    who += f", {size} a request" if size > 1 else ""
    offline, offline_by_cpu = (mean(column) for column in zip(*rates, strict=True))
    rate = load["exchanges_per_second"]
    said = ", ".join(f"{count:,} answers of {status}" for status, count in load["statuses"].items())
    yield Figure(
        name=f"{who}: share",
        value=rate / offline,
        unit=" x",
        least=LEAST if load["clients"] == 64 and size == 1 else None,
        about=f"{rate:.1f} replies/s, over {offline:.1f} by `score`; {said}; {load['seconds']:.0f} s",
        measured={**load, "offline_per_second": rates},
    )
    yield Figure(
        name=f"{who}: share by processor",
        value=by_cpu / offline_by_cpu,
        unit=" x",
        about=f"{by_cpu:.1f} replies a processor second, clients included, over {offline_by_cpu:.1f}",
    )
    yield Figure(name=f"{who}: p50", value=load["p50"] * 1000, unit=" ms", about="of 50 in 100 answers")
    longest = (QUEUE + size) / rate
    yield Figure(
        name=f"{who}: p99",
        value=load["p99"] * 1000,
        unit=" ms",
        most=round(longest * 1000),
        about=f"of 99 in 100; the limit is what a full queue of {QUEUE} and one request take at this rate",
    )


def cpu_seconds(process: Any) -> float:
    """Processor time a process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


def memory(process: Any) -> float:
    """Resident memory in MB."""
    return float(process.memory_info().rss / 1e6)
