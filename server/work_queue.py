"""The bounded queue before the judge: exchanges of all requests, taken as they come by its threads."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import ceil
from threading import Condition, Thread, get_ident
from time import monotonic
from typing import Any

from judge.base import HAS_LEFT

LONGEST_RETRY = 600  # seconds; nobody plans further ahead than that
NEW = 0.1  # weight of the newest task in the mean time a run takes


class Full(Exception):
    """No room for this request now; there should be in `seconds`."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"no room for {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do, and how many runs of a network it takes."""

    do: Callable[[], Any]
    runs: int = 1


@dataclass(slots=True, eq=False)
class Job:
    """What one request waits for: the results of its tasks, in their order."""

    tasks: Sequence[Task]
    results: list[Any]
    done: "asyncio.Future[list[Any]]"
    taken: int = 0  # tasks that a thread has taken
    left: int = 0  # tasks without a result
    is_dropped: bool = False  # nobody waits any more: what is under way begins no other run


class Queue:
    """Holds at most `most` runs of the judge's network, those under way included.

    A request's tasks are due one after another, as if it were judged alone from when it came, and a thread
    that is free takes the one that is due first. So a request of one exchange does not wait for all of a
    large one before it, and none waits for more than `most` judgments and as many as its own, whoever comes
    later: taking requests in turns would not promise that. Tasks are never merged into one tensor: int8
    activations are scaled by the largest value of a batch, so company would change a reply's probabilities.
    """

    def __init__(self, *, threads: int, most: int, clock: Callable[[], float] = monotonic) -> None:
        self.threads, self.most, self._clock = threads, most, clock
        self.held = 0  # runs promised and not yet made
        self._each = 0.0  # seconds a run takes
        self._under_way: dict[int, tuple[float, int]] = {}  # by thread: since when, and how many runs
        self._begun = 0  # runs ever begun: what the tasks are due by
        self._jobs: list[tuple[int, int, Job]] = []  # a heap: when its next task is due, which came first
        self._numbers = count()
        self._change = Condition()
        self._stopped = False
        self._workers = [Thread(target=self._work, name=f"judge-{n}", daemon=True) for n in range(threads)]

    def start(self) -> None:
        """Let the threads work."""
        for worker in self._workers:
            worker.start()

    def stop(self, seconds: float | None = None) -> None:
        """Finish what is there, then end the threads; those that take longer are left behind."""
        with self._change:
            self._stopped = True
            self._change.notify_all()
        until = None if seconds is None else self._clock() + seconds
        for worker in self._workers:
            worker.join(None if until is None else max(0.0, until - self._clock()))

    def put(self, tasks: Sequence[Task]) -> Job:
        """Take a request's tasks, all or none; to be called from the event loop that waits for them."""
        wanted = sum(task.runs for task in tasks)
        job = Job(tasks, [None] * len(tasks), asyncio.get_running_loop().create_future(), left=len(tasks))
        with self._change:
            if self.held + wanted > self.most:
                seconds = (self.held + wanted - self.most) * self._seconds_a_run() / self.threads
                raise Full(min(max(1, ceil(seconds)), LONGEST_RETRY))
            self.held += wanted
            heappush(self._jobs, (self._begun, next(self._numbers), job))
            self._change.notify(min(len(tasks), self.threads))
        return job

    def drop(self, job: Job) -> None:
        """Forget what nobody has begun of a job, and have no other run begun of what somebody has."""
        with self._change:
            job.is_dropped = True
            kept = [entry for entry in self._jobs if entry[2] is not job]
            if len(kept) < len(self._jobs):
                heapify(kept)
                self._jobs = kept
                self.held -= sum(task.runs for task in job.tasks[job.taken :])
                job.left -= len(job.tasks) - job.taken
                job.taken = len(job.tasks)

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            job, place = taken
            began = self._clock()
            error: Exception | None = None
            HAS_LEFT.set(partial(getattr, job, "is_dropped"))
            try:
                job.results[place] = job.tasks[place].do()
            except Exception as problem:  # whatever it is, it goes to the request and the thread goes on
                error = problem
            self._finish(job, job.tasks[place].runs, self._clock() - began, error)

    def _take(self) -> tuple[Job, int] | None:
        with self._change:
            while not self._jobs:
                if self._stopped:
                    return None
                self._change.wait()
            due, number, job = heappop(self._jobs)
            place = job.taken
            job.taken += 1
            runs = job.tasks[place].runs
            self._begun += runs
            self._under_way[get_ident()] = self._clock(), runs
            if job.taken < len(job.tasks):
                heappush(self._jobs, (due + runs, number, job))
            return job, place

    def _seconds_a_run(self) -> float:
        """As it was, or as it must be by now where what is under way takes longer."""
        so_far = [(self._clock() - since) / runs for since, runs in self._under_way.values()]
        return max([self._each, *so_far])

    def _finish(self, job: Job, runs: int, seconds: float, error: Exception | None) -> None:
        with self._change:
            self.held -= runs
            self._under_way.pop(get_ident(), None)
            each = seconds / runs
            self._each = each if not self._each else (1 - NEW) * self._each + NEW * each
            job.left -= 1
            if error is not None:
                self.drop(job)
            is_last = job.left == 0
        if error is not None or is_last:
            with suppress(RuntimeError):  # the loop is gone, and with it whoever waited
                job.done.get_loop().call_soon_threadsafe(_settle, job, error)


def _settle(job: Job, error: Exception | None) -> None:
    if not job.done.done():
        if error is None:
            job.done.set_result(job.results)
        else:
            job.done.set_exception(error)
