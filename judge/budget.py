"""Limits of calls to servers: money by the price of tokens, calls in flight, calls and tokens per minute."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median_low
from threading import Condition, Lock
from typing import Any, ClassVar

from empathy_judge.data.errors import BudgetSpent, UserError
from empathy_judge.data.tables import validate
from empathy_judge.data.text import money

MINUTE = 60.0
PRICES = Path(__file__).parent / "llm" / "prices.toml"  # list prices; a judge's file may override them
MILLION = 1e6
DATED = re.compile(r"-(?:20\d\d-?\d\d-?\d\d|\d{4})$")  # gpt-4o-mini-2024-07-18 is a gpt-4o-mini
CHARACTERS_A_TOKEN = 3.0  # low, so that the reserve is rather too large
ANSWER_TOKENS = 1000  # where a request sets no limit
SLOWER = 1.5  # twice the calls in flight must not make a call this much slower
LEAST_CALLS = 4  # before the limit of calls in flight changes
SETTLED_WINDOWS = 16  # under the same limit before others are tried again


class Budget:
    """Money in USD. Several endpoints may share one budget, as those of a panel do."""

    def __init__(self, most: float | None = None) -> None:
        self.most = most
        self.spent = 0.0
        self._reserved = 0.0
        self._dearest = 1.0  # the largest cost of a call, in multiples of its estimate
        self._change = Condition()

    def reserve(self, estimate: float) -> float:
        """Reserve what a call may cost by the largest excess so far, and return it; wait for calls under way.

        Raise `BudgetSpent` if the budget does not cover it, whatever these calls cost.
        """
        with self._change:
            while True:
                cost = self._dearest * estimate
                self.check(cost)
                # The tolerance: a rounding error must not block a call when nothing is under way.
                if self.most is None or self.spent + self._reserved + cost <= self.most + 1e-12:
                    self._reserved += cost
                    return cost
                self._change.wait()

    def check(self, cost: float) -> None:
        """Raise `BudgetSpent` if a call of this cost would exceed the budget."""
        if self.most is not None and self.spent + cost > self.most:
            again = "Finished judgments are saved. Run the command again to continue with a fresh budget, or"
            raise BudgetSpent(
                f"the budget of USD {self.most:g} is reached: USD {self.spent:.4f} is spent, and the next "
                f"call may cost USD {cost:.4f}. {f'{again} raise' if self.spent else 'Raise'} --max-cost"
            )

    def settle(self, reserved: float, cost: float, *, estimate: float = 0.0) -> None:
        """Replace a call's reservation by its cost."""
        with self._change:
            self._dearest = max(self._dearest, cost / estimate if estimate else 0.0)
            self._reserved = max(0.0, self._reserved - reserved)
            self.spent += cost
            self._change.notify_all()


def add_usage(used: Iterable[Mapping[str, float] | None]) -> dict[str, float]:
    """Sum the usage of several calls or judgments.

    >>> add_usage([{"cost": 1.0}, None, {"cost": 0.5, "input_tokens": 7.0}])
    {'cost': 1.5, 'input_tokens': 7.0}
    """
    total: dict[str, float] = {}
    for usage in used:
        for name, amount in (usage or {}).items():
            total[name] = round(total.get(name, 0.0) + amount, 9)
    return total


class Pace:
    """Spacing of calls and tokens, even over the minute; 0 means no limit."""

    def __init__(self, *, requests_per_minute: float, tokens_per_minute: float) -> None:
        self._seconds_a_call = MINUTE / requests_per_minute if requests_per_minute else 0.0
        self._seconds_a_token = MINUTE / tokens_per_minute if tokens_per_minute else 0.0
        self._next_call = self._next_token = float("-inf")
        self._lock = Lock()

    def share(self, parts: int) -> None:
        """Use one of so many equal parts of the rates: other processes use the rest."""
        self._seconds_a_call *= parts
        self._seconds_a_token *= parts

    def take(self, now: float, *, tokens: float) -> float:
        """Take the next free slot; return the seconds until it comes."""
        with self._lock:
            slot = max(now, self._next_call, self._next_token)
            self._next_call = slot + self._seconds_a_call
            self._next_token = slot + tokens * self._seconds_a_token
            return slot - now

    def correct(self, *, tokens: float) -> None:
        """Add the tokens that a call took beyond its estimate, or fewer if negative."""
        with self._lock:
            self._next_token += tokens * self._seconds_a_token


class ConcurrencyLimit:
    """The number of calls in flight: as many as a server answers without making them wait for each other.

    The limit doubles while a call then takes at most `SLOWER` times as long. It is halved where calls take
    longer and where the server is overloaded. Without `most` it is fixed.
    """

    def __init__(self, limit: int, *, most: int | None = None) -> None:
        self.limit, self._most = limit, most
        self._in_flight, self._settled, self._change = 0, 0, Condition()
        self._seconds: dict[int, float] = {}  # the median time of a call, by limit
        self._window: list[float] = []  # times of the calls that began under the present limit

    def enter(self) -> list[float]:
        """Wait until a call may begin; return the window that it belongs to."""
        with self._change:
            self._change.wait_for(lambda: self._in_flight < self.limit)
            self._in_flight += 1
            return self._window

    def leave(self, window: list[float], seconds: float | None) -> None:
        """End a call, which took so long; None if it was not answered at once."""
        with self._change:
            self._in_flight -= 1
            if self._most and seconds is not None and window is self._window:
                window.append(seconds)
                if len(window) >= max(LEAST_CALLS, self.limit):
                    self._set(self._choose(median_low(window)))
            self._change.notify_all()

    def reduce(self, window: list[float]) -> None:
        """Halve the limit, once for all calls of a window: the server has too many."""
        with self._change:
            if self._most and window is self._window:
                self._seconds[self.limit] = inf
                self._set(max(1, self.limit // 2))

    def _set(self, limit: int) -> None:
        self._settled = self._settled + 1 if limit == self.limit else 0
        if self._settled >= SETTLED_WINDOWS:  # what a server can serve changes: try again
            self._seconds.clear()
        self.limit, self._window = limit, []

    def _choose(self, seconds: float) -> int:
        """Return the next limit, given the time of a call under the present one."""
        limit = self.limit
        self._seconds[limit] = seconds
        at_half, at_double = self._seconds.get(limit // 2), self._seconds.get(2 * limit)
        if at_half and seconds > SLOWER * at_half:
            return limit // 2
        if 2 * limit > (self._most or 0):
            return limit
        if at_double is None or at_double <= SLOWER * seconds:
            return 2 * limit
        return limit if limit == 1 or at_half else limit // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """The tokens of one call; `cached` is the part of `input` that the server has cached."""

    input: float
    output: float
    cached: float = 0.0

    @property
    def total(self) -> float:
        return self.input + self.output


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """USD per million tokens."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    input: float
    output: float
    cached: float | None = None

    def cost(self, tokens: TokenCounts) -> float:
        """Return the cost of one call in USD.

        >>> round(Prices(input=0.10, output=0).cost(TokenCounts(input=4000, output=12)), 6)
        0.0004
        """
        cached = self.input if self.cached is None else self.cached
        fresh = tokens.input - tokens.cached
        return (fresh * self.input + tokens.cached * cached + tokens.output * self.output) / MILLION


GuessedCall = tuple[TokenCounts, Prices | None]


def find_prices(model: str, *, kind: str = "chat") -> Prices | None:
    """Return a model's list price, with or without a provider prefix and a date; None if unknown.

    >>> find_prices("openai/gpt-4o-mini-2024-07-18").output
    0.6
    >>> find_prices("SmolLM2-135M-Instruct") is None
    True
    """
    table = tomllib.loads(PRICES.read_text(encoding="utf-8"))[kind]
    for name in (model, DATED.sub("", model)):
        if prices := table.get(name.rpartition("/")[2]):
            return Prices(**prices)
    return None


def check_prices(prices: Mapping[str, float]) -> Prices:
    """Check prices from a user's file."""
    for name, price in prices.items():
        if not 0 <= price < inf:
            raise UserError(f"prices: {name}: must be 0 or more, not {price}")
    return validate(Prices, prices, "prices")


def guess_tokens(body: Mapping[str, Any]) -> TokenCounts:
    """Estimate the tokens of a request, rather too many than too few."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or body.get("max_output_tokens")
    answers = body.get("n") or 1
    # Typed questions are answered without text.
    output = 0.0 if "questions" in body else float(limit or ANSWER_TOKENS) * float(answers)
    return TokenCounts(input=len(json.dumps(body)) / CHARACTERS_A_TOKEN, output=output)


def most_cost(calls: Iterable[GuessedCall]) -> float | None:
    """Return the most that calls may cost in USD, about; None where a price is unknown."""
    costs = [prices.cost(tokens) if prices else None for tokens, prices in calls]
    return None if None in costs else sum(filter(None, costs))


def say_calls(calls: Sequence[GuessedCall], times: float = 1) -> str:
    """Describe calls, each made so many times.

    >>> say_calls([(TokenCounts(input=720, output=500), Prices(input=0.15, output=0.6))], times=40)
    '40 calls, about 29,000 input and at most 20,000 output tokens, at most $0.0163'
    """
    read, written = (times * sum(getattr(each, name) for each, _ in calls) for name in ("input", "output"))
    text = (
        f"{times * len(calls):,.0f} calls, about {float(f'{read:.2g}'):,.0f} input and at most "
        f"{written:,.0f} output tokens"
    )
    if (cost := most_cost(calls)) is None:
        return f"{text}; the cost is unknown, because no list price is known for the model"
    return f"{text}, at most {money(times * cost)}" if cost else text


def read_tokens(body: Mapping[str, Any]) -> TokenCounts | None:
    """Read the tokens that an answer reports, under either of the names in use; None without them."""
    usage = body.get("usage")
    if not isinstance(usage, Mapping):
        return None
    read = _count(usage, "input_tokens", "prompt_tokens")
    if not read:  # no request takes 0 tokens: a server that says so is not believed
        return None
    details = usage.get("input_tokens_details") or usage.get("prompt_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, Mapping) else None
    written = _count(usage, "output_tokens", "completion_tokens")
    return TokenCounts(input=read, output=written or 0.0, cached=min(cached or 0.0, read))


def usage_of(used: TokenCounts | None, cost: float | None) -> dict[str, float]:
    """Return the usage that a judgment records of a call: its tokens and its cost, where known."""
    tokens = {"input_tokens": used.input, "output_tokens": used.output} if used else {}
    return tokens | ({} if cost is None else {"cost": round(cost, 9)})


def _count(table: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        value = table.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
            return float(value)
    return None
