"""Limits of an endpoint: calls in flight, calls and tokens a minute, and money by the price of tokens."""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from threading import Condition, Lock
from typing import Any
from urllib.parse import urlsplit

from data.errors import BudgetSpent, UserError

MINUTE = 60.0


class Concurrency:
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
        self._asked, self._asked_until = 0.0, float("-inf")
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

    def count_wait(self, now: float, until: float) -> float:
        """Count time that a server asks somebody to wait, and once where several wait; the sum so far."""
        with self._lock:
            self._asked += max(0.0, until - max(now, self._asked_until))
            self._asked_until = max(self._asked_until, until)
            return self._asked

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


PRICES = Path(__file__).parent / "prices.toml"  # list prices, which a judge's file may override
LITELLM_PRICES = "model_prices_and_context_window_backup.json"
MILLION = 1e6
DATED = re.compile(r"-(?:20\d\d-?\d\d-?\d\d|\d{4})$")  # gpt-4o-mini-2024-07-18 is a gpt-4o-mini
CHARACTERS_A_TOKEN = 3.0  # a low guess, so that what is reserved for a call is rather too much
MOST_CHARACTERS_A_TOKEN = 16.0  # of any text in words, as JSON
ANSWER_TOKENS = 1000  # guessed where a request sets no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens of one call; `cached` is the part of `input` that the server had read before."""

    input: float
    output: float
    cached: float = 0.0

    @property
    def total(self) -> float:
        return self.input + self.output


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """USD per million tokens."""

    input: float
    output: float
    cached: float | None = None

    def cost(self, tokens: Tokens) -> float:
        """USD for one call.

        >>> round(Prices(input=0.10, output=0).cost(Tokens(input=4000, output=12)), 6)
        0.0004
        """
        cached = self.input if self.cached is None else self.cached
        fresh = tokens.input - tokens.cached
        return (fresh * self.input + tokens.cached * cached + tokens.output * self.output) / MILLION


def find_prices(model: str, *, kind: str = "chat", base_url: str = "") -> Prices | None:
    """The list price of a model, with or without a provider in front and a date behind; None if unknown.

    What our own list does not know is looked for in that of litellm, where this is installed.

    >>> find_prices("openai/gpt-4o-mini-2024-07-18").output
    0.6
    >>> find_prices("SmolLM2-135M-Instruct") is None
    True
    """
    table = tomllib.loads(PRICES.read_text(encoding="utf-8"))[kind]
    for name in (model, DATED.sub("", model)):
        if ours := table.get(name.rpartition("/")[2]):
            return Prices(**ours)
        if theirs := _find_in_litellm(name, kind, base_url):
            return theirs
    return None


def _find_in_litellm(model: str, kind: str, base_url: str) -> Prices | None:
    """The price under the model's name, or under that of the provider at this address and the model's.

    Many providers serve one model at different prices, so that of another is none.
    """
    table, host = _read_litellm_prices(), (urlsplit(base_url).hostname or "").split(".")
    providers = sorted({name.partition("/")[0] for name in table if "/" in name})
    there = [f"{provider}/{model}" for provider in providers if provider.partition("_")[0] in host]
    for name in (model, *there, model.rpartition("/")[2]):
        entry = table.get(name)
        if isinstance(entry, Mapping) and (prices := _read_entry(entry, kind)):
            return prices
    return None


@cache
def _read_litellm_prices() -> Mapping[str, Any]:
    """The list inside the package, read as data: to import litellm takes seconds and asks the network."""
    spec = find_spec("litellm")
    try:
        folder = Path((spec.submodule_search_locations or [])[0]) if spec else PRICES.parent
        table = json.loads((folder / LITELLM_PRICES).read_text(encoding="utf-8"))
    except (OSError, ValueError, IndexError):  # not installed, or another version's shape
        return {}
    return table if isinstance(table, dict) else {}


def _read_entry(entry: Mapping[str, Any], kind: str) -> Prices | None:
    """An entry's prices for this kind of call; None where one is missing, or all are 0: that is no price."""
    is_priced_apart = kind == "decision" and entry.get("mode") != "evaluation"
    suffix = "_decisions" if is_priced_apart else ""
    names = [f"{name}{suffix}" for name in ("input_cost_per_token", "output_cost_per_token")]
    dollars = [_count(entry, name) for name in (*names, f"cache_read_input_token_cost{suffix}")]
    if dollars[0] is None or dollars[1] is None or not dollars[0] + dollars[1]:
        return None
    per_million = [None if dollar is None else round(dollar * MILLION, 6) for dollar in dollars]
    return Prices(input=per_million[0] or 0.0, output=per_million[1] or 0.0, cached=per_million[2])


def check_prices(prices: Mapping[str, float]) -> Prices:
    """Prices as a user gives them."""
    if unknown := set(prices) - {"input", "output", "cached"}:
        raise UserError(f"prices: {min(unknown)}: unknown; it knows input, output and cached, USD a million")
    if missing := {"input", "output"} - set(prices):
        raise UserError(f"prices: {min(missing)}: missing; give USD per million tokens, 0 where it is free")
    for name, price in prices.items():
        if not (isfinite(price) and price >= 0):
            raise UserError(f"prices: {name}: must be 0 or more, not {price}")
    return Prices(**prices)


def guess_tokens(body: Mapping[str, Any], size: int) -> Tokens:
    """Guess what a request of `size` bytes may take, before it is sent; rather too much than too little."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or body.get("max_output_tokens")
    answers = body.get("n") or 1
    # Typed questions are answered without a word of text.
    output = 0.0 if "questions" in body else float(limit or ANSWER_TOKENS) * float(answers)
    return Tokens(input=size / CHARACTERS_A_TOKEN, output=output)


def least_tokens(size: int) -> Tokens:
    """The least that a request of `size` bytes took, whatever its server says: all read before, no answer."""
    return Tokens(input=size / MOST_CHARACTERS_A_TOKEN, output=0.0, cached=size / MOST_CHARACTERS_A_TOKEN)


def read_tokens(body: Mapping[str, Any]) -> Tokens | None:
    """Read the tokens an answer says it took, under either of the names in use; None where it says none."""
    usage = body.get("usage")
    if not isinstance(usage, Mapping):
        return None
    read = _count(usage, "input_tokens", "prompt_tokens")
    if read is None:
        return None
    details = usage.get("input_tokens_details") or usage.get("prompt_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, Mapping) else None
    written = _count(usage, "output_tokens", "completion_tokens")
    return Tokens(input=read, output=written or 0.0, cached=min(cached or 0.0, read))


def add_usage(used: Iterable[Mapping[str, float] | None]) -> dict[str, float]:
    """Sum what several calls or judgments took.

    >>> add_usage([{"cost": 1.0}, None, {"cost": 0.5, "input_tokens": 7.0}])
    {'cost': 1.5, 'input_tokens': 7.0}
    """
    total: dict[str, float] = {}
    for usage in used:
        for name, amount in (usage or {}).items():
            total[name] = round(total.get(name, 0.0) + amount, 9)
    return total


def lasting_usage(usage: Mapping[str, float]) -> dict[str, float]:
    """Leave out seconds and tries, so that a broken run ends with the same rows as an unbroken one."""
    return {name: amount for name, amount in usage.items() if name not in ("seconds", "calls")}


def _count(table: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        value = table.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
            return float(value)
    return None
