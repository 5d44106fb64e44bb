"""The progress of a run on stderr, and once a forecast of its time and cost from its first responses."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

from data.runs import OnProgress
from data.text import duration
from reports.terminal import open_screen

WARM_UP: Final = 1.0  # seconds left out: a model is loaded, and what an earlier stretch judged is passed over
MEASURE: Final = 2.0  # seconds at least that are measured
LONG: Final = 10.0  # seconds left that are worth a word
DEAR: Final = 0.01  # USD left, likewise


class Forecast:
    """Takes note of progress, and says what is still to come where that is long or costs money."""

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        spent: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = monotonic,
        is_kept: bool = True,
    ) -> None:
        self._say, self._spent, self._clock, self._is_kept = say, spent, clock, is_kept
        self._first: float | None = None
        self._from: tuple[float, int, float] | None = None
        self._is_said = False

    def note(self, done: int, total: int) -> None:
        """Take note that so many of so many are done."""
        if self._is_said:
            return
        now = self._clock()
        self._first = now if self._first is None else self._first
        if self._from is None:
            if now - self._first >= WARM_UP:
                self._from = now, done, self._spent()
            return
        began, at, paid = self._from
        if now - began < MEASURE or done <= at:
            return
        self._is_said = True
        seconds = (now - began) / (done - at) * (total - done)
        cost = (self._spent() - paid) / (done - at) * (total - done)
        if seconds >= LONG or cost >= DEAR:
            money = f" and about USD {cost:.2f}" if cost else ""
            self._say(
                f"about {duration(seconds)}{money} to go for {total - done:,} more (an estimate from "
                f"{done - at:,}){'; Ctrl-C keeps what is done' if self._is_kept else ''}"
            )


LINE_EVERY = 30.0  # seconds between two lines of progress in a log
STEP_EVERY = 5.0  # likewise while a network is trained, where a step takes long


@contextmanager
def progress(
    doing: str = "scoring",
    done: str = "scored",
    *,
    spent: Callable[[], float] = lambda: 0.0,
    is_kept: bool = True,
) -> Iterator[OnProgress]:
    """Show progress on stderr: a bar on a terminal, else a line now and then, and none for a short run.

    A long run, or one that costs money (`spent` says how much so far, in USD), is foretold; where what is
    done `is_kept` when it is interrupted, that is said too.
    """
    if not sys.stderr.isatty():
        forecast = Forecast(
            lambda text: print(text, file=sys.stderr, flush=True), spent=spent, is_kept=is_kept
        )
        last = monotonic()

        def log(count: int, total: int) -> None:
            nonlocal last
            forecast.note(count, total)
            if monotonic() - last >= LINE_EVERY:
                last = monotonic()
                print(f"{done} {count:,} of {total:,}", file=sys.stderr, flush=True)

        yield log
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=open_screen(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=None)
        forecast = Forecast(lambda text: bar.console.print(text, style="dim"), spent=spent, is_kept=is_kept)

        def show(count: int, total: int) -> None:
            bar.update(task, completed=count, total=total)
            forecast.note(count, total)

        yield show


@contextmanager
def steps() -> Iterator[tuple[Callable[[str, int, int], None], Callable[[int, int], None]]]:
    """Show a training on stderr: which part it is at, and how far that has come."""
    part, network, before, last = "", 0, 0, monotonic()
    began, first = last, 0

    def on_split(name: str, number: int, total: int) -> None:
        nonlocal part, network, before
        part, network, before = f"{name} ({number + 1} of {total}), ", 0, 0
        print(f"training {name} ({number + 1} of {total})", file=sys.stderr, flush=True)

    def on_step(done: int, total: int) -> None:
        nonlocal network, before, last, began, first
        now = monotonic()
        if done <= before or not network:  # another network: a teacher comes first, and some are several
            network, began, first = network + 1, now, done
        before = done
        if done > first and now - last >= STEP_EVERY:
            last = now
            left = duration((now - began) / (done - first) * (total - done))
            line = f"{part}network {network}: {done:,} of {total:,} examples, about {left} to go"
            print(line, file=sys.stderr, flush=True)

    yield on_split, on_step
