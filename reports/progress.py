"""The progress of a run on stderr: a bar on a terminal or in a notebook, and lines in a log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from time import monotonic
from typing import Final

from empathy_judge.data.runs import OnProgress
from empathy_judge.data.text import duration, money
from empathy_judge.reports.terminal import open_screen

FIRST_LINE: Final = 3.0  # seconds after which a long or costly run is announced in a log
LONG: Final = 10.0  # seconds left
COSTLY: Final = 0.01  # US dollars left
FEW: Final = 3  # judgments before the time left is estimated
LINE_EVERY: Final = 30.0  # seconds between two lines of progress in a log
STEP_EVERY: Final = 5.0  # likewise while a network is trained, where a step takes long


@contextmanager
def progress(
    doing: str = "scoring", done: str = "scored", *, spent: Callable[[], float] = float
) -> Iterator[OnProgress]:
    """Show how far a run is, how long it takes, and the US dollars `spent`, if any."""
    screen = open_screen(stderr=True)
    is_notebook = screen.is_jupyter and find_spec("ipywidgets") is not None  # what rich draws with there
    if not (sys.stderr.isatty() or is_notebook):
        yield log_lines(done, spent)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    cost = TextColumn("{task.fields[cost]}")
    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), cost)
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task(doing, total=None, cost="")

        def show(count: int, total: int) -> None:
            bar.update(task, completed=count, total=total, cost=money(spent()) if spent() else "")

        yield show


def log_lines(
    done: str, spent: Callable[[], float] = float, *, first: float = FIRST_LINE, every: float = LINE_EVERY
) -> OnProgress:
    """Return a function that prints a line soon after the start of a long or costly run, and then some."""
    # Measured from the first call: a model was loaded before it, and an earlier run did the first so many.
    start: tuple[float, int, float] | None = None
    due = first  # seconds after the start

    def log(count: int, total: int) -> None:
        nonlocal due, start
        start = start or (monotonic(), count, spent())
        elapsed, new = monotonic() - start[0], count - start[1]
        if elapsed < due or new < FEW:
            return
        seconds, cost = (each / new * (total - count) for each in (elapsed, spent() - start[2]))
        if due > FIRST_LINE or seconds >= LONG or cost >= COSTLY:
            left = f"about {duration(seconds)}{f' and USD {cost:.2f}' if cost else ''} left"
            print(f"{done} {count:,} of {total:,}, {left}", file=sys.stderr, flush=True)
        due = elapsed + every

    return log


def training_steps() -> tuple[Callable[[str, int, int], None], OnProgress]:
    """Return functions that print the split and, for each network of it, how far its training is."""
    part, network, before, log = "", 0, 0, log_lines("")

    def on_split(name: str, number: int, total: int) -> None:
        nonlocal part, network
        part, network = f"{name} ({number + 1} of {total}), ", 0
        print(f"training {name} ({number + 1} of {total})", file=sys.stderr, flush=True)

    def on_step(done: int, total: int) -> None:
        nonlocal network, before, log
        if done <= before or not network:  # another network: a teacher comes first, and some are several
            network += 1
            log = log_lines(f"{part}network {network}:", first=STEP_EVERY, every=STEP_EVERY)
        before = done
        log(done, total)

    return on_split, on_step
