"""The engine, which judges exchanges on several threads and saves each judgment as it comes."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing, nullcontext
from threading import Event, Lock
from typing import Any, Protocol, TypeVar

from empathy_judge.data.records import Exchange, Judgment
from empathy_judge.data.runs import Run
from empathy_judge.judge.base import Judge

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Ask = Callable[[Exchange], Judgment | Mapping[str, Any]]


class Asked(Protocol):
    """A judge, or a model that answers prompts."""

    concurrency: int

    def stop(self) -> None:
        """Finish the calls under way and make no more."""

    def close(self) -> None:
        """Close all connections."""


def score_exchanges(
    judge: Judge, exchanges: Iterable[Exchange], run: Run, *, limit: int | None = None
) -> None:
    """Judge every exchange that `run` does not hold yet."""
    if judge.score_stream is not None:
        judge.score_stream(exchanges, run, limit=limit)
    else:
        ask_all(judge, judge.judge, exchanges, run, limit=limit)


def ask_all(
    asked: Asked, ask: Ask, exchanges: Iterable[Exchange], run: Run, *, limit: int | None = None
) -> None:
    """Ask for every exchange that `run` does not hold yet, and save the answers.

    Before an error or interrupt is raised, the judgments under way are finished and saved.
    """
    in_threads(
        asked.concurrency,
        still_to_judge(exchanges, run, limit),
        lambda item: ask(item[1]),
        lambda item, answer: run.keep(item[0], answer),
        asked=asked,
    )


def in_threads(
    count: int,
    coming: Iterator[Item],
    ask: Callable[[Item], Answer],
    keep: Callable[[Item, Answer], None],
    *,
    asked: Asked | None = None,
) -> None:
    """Ask for each item on so many threads; `asked` is stopped when one fails, and closed at the end."""
    lock, stop = Lock(), Event()

    def work() -> None:
        while not stop.is_set():
            with lock:  # no more items are in memory than there are threads
                item = next(coming, None)
            if item is None:
                break
            answer = ask(item)
            with lock:
                keep(item, answer)

    with closing(asked) if asked else nullcontext(), ThreadPoolExecutor(count) as pool:
        workers = [pool.submit(work) for _ in range(count)]
        try:
            wait(workers, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()
            failed = [worker for worker in workers if worker.done() and worker.exception()]
            if asked and (failed or not all(worker.done() for worker in workers)):
                asked.stop()
    # Those that failed first: others may have failed only because they were stopped then.
    for worker in failed or workers:
        worker.result()


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def still_to_judge(
    exchanges: Iterable[Exchange], run: Run, limit: int | None
) -> Iterator[tuple[int, Exchange]]:
    """Yield the exchanges to ask for; those judged earlier are looked for past the limit, too."""
    for position, exchange in enumerate(exchanges):
        is_judged = position in run.twins or (run.has_more and run.is_judged(position, exchange))
        if not is_judged and (limit is None or position < limit):
            yield position, exchange
        if limit is not None and position + 1 >= limit and not run.has_more:
            return
