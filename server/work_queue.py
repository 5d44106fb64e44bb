"""The bounded queue in front of the judge: tasks of all requests, first in, first out."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from math import ceil
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any

from empathy_judge.data.files import LONGEST_RETRY
from empathy_judge.judge.base import IS_CANCELLED
from empathy_judge.server.middleware import RequestRefused

NEW = 0.1  # weight of the newest task in the mean time of a run


@dataclass(frozen=True, slots=True)
class Task:
    """A function to call, and how many runs of a network it takes."""

    do: Callable[[], Any]
    runs: int = 1


@dataclass(slots=True, eq=False)
class Job:
    """The results of one request's tasks, in their order."""

    results: list["Future[Any]"]
    is_dropped: bool = False

    def drop(self) -> None:
        """Cancel what is not begun, and begin no other run of what is: nobody waits for it."""
        self.is_dropped = True
        for result in self.results:
            result.cancel()


class WorkQueue:
    """A queue of at most `most` runs of the judge's network, those under way included.

    Tasks are never merged into one tensor: int8 activations are scaled by the largest value of a batch, so
    other replies in a batch would change a reply's probabilities. The threads are daemons: a judge that never
    answers must not keep the process alive.
    """

    def __init__(self, *, threads: int, most: int) -> None:
        self.threads, self.most = threads, most
        self.held = 0  # runs accepted and not yet made
        self._seconds_a_run = 0.0
        self._lock = Lock()
        self._tasks: SimpleQueue[tuple[Job, Future[Any], Task] | None] = SimpleQueue()
        self._workers = [Thread(target=self._work, name=f"judge-{n}", daemon=True) for n in range(threads)]

    def start(self) -> None:
        """Start the threads."""
        for worker in self._workers:
            worker.start()

    def stop(self, seconds: float) -> None:
        """Finish the queued tasks and end the threads; abandon those that take longer than `seconds`."""
        until = monotonic() + seconds
        for _ in self._workers:
            self._tasks.put(None)
        for worker in self._workers:
            worker.join(max(0.0, until - monotonic()))

    def put(self, tasks: Sequence[Task]) -> Job:
        """Accept all of a request's tasks, or refuse the request."""
        wanted = sum(task.runs for task in tasks)
        if wanted > self.most:
            message = f"this needs {wanted} judgments, and at most {self.most} may wait; send fewer"
            raise RequestRefused(400, message)
        with self._lock:
            excess = self.held + wanted - self.most
            if excess > 0:
                needed = ceil(excess * self._seconds_a_run / self.threads)
                seconds = min(max(1, needed), LONGEST_RETRY)
                message = f"too many exchanges are waiting; try again in {seconds} s"
                raise RequestRefused(503, message, code="queue_full", headers={"Retry-After": str(seconds)})
            self.held += wanted
        job = Job([Future() for _ in tasks])
        for task, result in zip(tasks, job.results, strict=True):
            result.add_done_callback(partial(self._release, task.runs))
            self._tasks.put((job, result, task))
        return job

    def _release(self, runs: int, _: "Future[Any]") -> None:
        with self._lock:
            self.held -= runs

    def _work(self) -> None:
        while (item := self._tasks.get()) is not None:
            job, result, task = item
            if not result.set_running_or_notify_cancel():
                continue
            began = monotonic()
            IS_CANCELLED.set(partial(getattr, job, "is_dropped"))
            try:
                value = task.do()
            except Exception as error:  # raised again in the request that waits for it
                result.set_exception(error)
                job.drop()
            else:
                result.set_result(value)
            each = (monotonic() - began) / task.runs
            self._seconds_a_run += (each - self._seconds_a_run) * (NEW if self._seconds_a_run else 1)
