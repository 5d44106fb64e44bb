"""The bounded queue before the judge: exchanges of all requests, taken as they come by its threads."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from math import ceil
from threading import Condition, Thread
from time import monotonic
from typing import Any

LONGEST_RETRY = 600  # seconds; nobody plans further ahead than that
NEW = 0.1  # weight of the newest judgment in the mean time a judgment takes


class Full(Exception):
    """No room for this request now; there should be in `seconds`."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"no room for {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do, and how many judgments it takes."""

    do: Callable[[], Any]
    judgments: int = 1


@dataclass(slots=True, eq=False)
class Job:
    """What one request waits for: the results of its tasks, in their order."""

    tasks: Sequence[Task]
    results: list[Any]
    done: "asyncio.Future[list[Any]]"
    taken: int = 0  # tasks that a thread has taken
    left: int = 0  # tasks without a result


class Queue:
    """Holds at most `most` judgments, those under way included.

    A request's tasks are due one after another, as if it were judged alone from when it came, and a thread
    that is free takes the one that is due first. So a request of one exchange does not wait for all of a
    large one before it, and none waits for more than `most` judgments and as many as its own, whoever comes
    later: taking requests in turns would not promise that. Tasks are never merged into one tensor: int8
    activations are scaled by the largest value of a batch, so company would change a reply's probabilities.
    """

    def __init__(self, *, threads: int, most: int, clock: Callable[[], float] = monotonic) -> None:
        self.threads, self.most, self._clock = threads, most, clock
        self.held = 0  # judgments promised and not yet made
        self._each = 0.0  # seconds a judgment takes
        self._begun = 0  # judgments ever begun: what the tasks are due by
        self._jobs: list[tuple[int, int, Job]] = []  # a heap: when its next task is due, which came first
        self._numbers = count()
        self._change = Condition()
        self._stopped = False
        self._workers = [Thread(target=self._work, name=f"judge-{n}", daemon=True) for n in range(threads)]

    def start(self) -> None:
        """Let the threads work."""
        for worker in self._workers:
            worker.start()

    def stop(self) -> None:
        """Finish what is there, then end the threads."""
        with self._change:
            self._stopped = True
            self._change.notify_all()
        for worker in self._workers:
            worker.join()

    def put(self, tasks: Sequence[Task]) -> Job:
        """Take a request's tasks, all or none; to be called from the event loop that waits for them."""
        wanted = sum(task.judgments for task in tasks)
        job = Job(tasks, [None] * len(tasks), asyncio.get_running_loop().create_future(), left=len(tasks))
        with self._change:
            if self.held + wanted > self.most:
                seconds = (self.held + wanted - self.most) * self._each / self.threads
                raise Full(min(max(1, ceil(seconds)), LONGEST_RETRY))
            self.held += wanted
            heappush(self._jobs, (self._begun, next(self._numbers), job))
            self._change.notify(min(len(tasks), self.threads))
        return job

    def drop(self, job: Job) -> None:
        """Forget what nobody has begun of a job; for one that is done this does nothing."""
        with self._change:
            kept = [entry for entry in self._jobs if entry[2] is not job]
            if len(kept) < len(self._jobs):
                heapify(kept)
                self._jobs = kept
                self.held -= sum(task.judgments for task in job.tasks[job.taken :])
                job.left -= len(job.tasks) - job.taken
                job.taken = len(job.tasks)

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            job, place = taken
            began = self._clock()
            error: Exception | None = None
            try:
                job.results[place] = job.tasks[place].do()
            except Exception as problem:  # whatever it is, it goes to the request and the thread goes on
                error = problem
            self._finish(job, job.tasks[place].judgments, self._clock() - began, error)

    def _take(self) -> tuple[Job, int] | None:
        with self._change:
            while not self._jobs:
                if self._stopped:
                    return None
                self._change.wait()
            due, number, job = heappop(self._jobs)
            place = job.taken
            job.taken += 1
            judgments = job.tasks[place].judgments
            self._begun += judgments
            if job.taken < len(job.tasks):
                heappush(self._jobs, (due + judgments, number, job))
            return job, place

    def _finish(self, job: Job, judgments: int, seconds: float, error: Exception | None) -> None:
        with self._change:
            self.held -= judgments
            each = seconds / judgments
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
