"""How long a run will take and what it will cost: said once, measured on its own first responses."""

from collections.abc import Callable
from time import monotonic
from typing import Final

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
    ) -> None:
        self._say, self._spent, self._clock = say, spent, clock
        self._first: float | None = None
        self._from: tuple[float, int, float] | None = None
        self._is_said = False

    def note(self, done: int, total: int) -> None:
        """So many of so many are done."""
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
                f"about {show_time(seconds)}{money} to go for {total - done:,} more (an estimate from "
                f"{done - at:,}); Ctrl-C keeps what is done"
            )


def show_time(seconds: float) -> str:
    """Seconds as a person would say them.

    >>> [show_time(item) for item in (14, 100, 720, 5400, 200000)]
    ['14 s', '100 s', '12 min', '1.5 h', '56 h']
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 10 else f"{hours:.0f} h"
