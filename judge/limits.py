"""How hard an endpoint may be asked: calls in flight, calls and tokens a minute, and money."""

from collections.abc import Callable
from threading import Condition, Lock

from data.errors import BudgetSpent

MINUTE = 60.0


class Gate:
    """Calls in flight: half as many when the server is overloaded, then slowly more while it answers.

    Whoever enters gets a ticket. Only the first complaint about calls of one ticket halves the limit: thirty
    calls refused at once are one overload, not thirty.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = float(most)
        self._in_flight = 0
        self._ticket = 0
        self._change = Condition()

    def enter(self, is_stopped: Callable[[], bool] = lambda: False) -> int:
        """Wait for a place, unless everything is stopped meanwhile."""
        with self._change:
            self._change.wait_for(lambda: is_stopped() or self._in_flight < int(self.limit))
            self._in_flight += 1
            return self._ticket

    def leave(self, ticket: int, *, was_answered: bool, was_overloaded: bool) -> None:
        """Give the place back, and say how the call went."""
        with self._change:
            self._in_flight -= 1
            if was_overloaded and ticket == self._ticket:
                self.limit = max(1.0, self.limit / 2)
                self._ticket += 1
            elif was_answered:
                self.limit = min(float(self.most), self.limit + 1 / self.limit)
            self._change.notify_all()

    def wake(self) -> None:
        """Have everyone who waits look again whether all is stopped."""
        with self._change:
            self._change.notify_all()


class Pace:
    """Spreads calls and tokens evenly over the minute; 0 means no limit."""

    def __init__(self, *, requests_per_minute: float, tokens_per_minute: float) -> None:
        self._seconds_a_call = MINUTE / requests_per_minute if requests_per_minute else 0.0
        self._seconds_a_token = MINUTE / tokens_per_minute if tokens_per_minute else 0.0
        self._next_call = self._next_token = self._paused_until = float("-inf")
        self._lock = Lock()

    def share(self, parts: int) -> None:
        """Take one of so many parts of the minute: other processes take the rest."""
        self._seconds_a_call *= parts
        self._seconds_a_token *= parts

    def take(self, now: float, *, tokens: float) -> float:
        """Take the next free slot; returns the seconds until it comes."""
        with self._lock:
            slot = max(now, self._next_call, self._next_token)
            self._next_call = slot + self._seconds_a_call
            self._next_token = slot + tokens * self._seconds_a_token
            return slot - now

    def correct(self, *, tokens: float) -> None:
        """Tokens that a call took beyond what was guessed for it; fewer when negative."""
        with self._lock:
            self._next_token += tokens * self._seconds_a_token

    def pause(self, until: float) -> None:
        """The server asked for quiet: nobody calls before `until`."""
        with self._lock:
            self._paused_until = max(self._paused_until, until)

    def rest(self, now: float) -> float:
        """Seconds of quiet that are left."""
        with self._lock:
            return max(0.0, self._paused_until - now)


class Budget:
    """Money in USD. Several endpoints may share one budget, as those of a panel do."""

    def __init__(self, most: float | None = None) -> None:
        self.most = most
        self.spent = 0.0
        self._reserved = 0.0
        self._change = Condition()

    def reserve(self, cost: float, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Set aside what a call may cost; `BudgetSpent` when that is no longer there.

        Where it would be there if the calls under way turned out cheaper than guessed, we wait for them.
        """
        with self._change:
            self._change.wait_for(lambda: is_stopped() or self._is_spent(cost) or self._has_room(cost))
            if self._is_spent(cost) and not is_stopped():
                raise BudgetSpent(
                    f"the budget of USD {self.most:g} is spent: USD {self.spent:.4f} so far, and the next "
                    f"call may cost USD {cost:.4f}. What was judged is kept: the same command goes on from "
                    "there, with as much again or with a larger --max-cost"
                )
            self._reserved += cost

    def settle(self, reserved: float, cost: float) -> None:
        """A call is over: it cost this much of what was reserved for it."""
        with self._change:
            self._reserved = max(0.0, self._reserved - reserved)
            self.spent += cost
            self._change.notify_all()

    def wake(self) -> None:
        """Have everyone who waits look again whether all is stopped."""
        with self._change:
            self._change.notify_all()

    def _is_spent(self, cost: float) -> bool:
        return self.most is not None and self.spent + cost > self.most

    def _has_room(self, cost: float) -> bool:
        # A reservation of ours that rounding left behind must not block a call when nothing is under way.
        return self.most is None or self.spent + self._reserved + cost <= self.most + 1e-12
