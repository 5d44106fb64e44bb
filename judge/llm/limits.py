"""Limits of an endpoint: calls and tokens per minute, and money by the price of tokens."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import Any

from empathy_judge.data.errors import UserError

MINUTE = 60.0


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


PRICES = Path(__file__).parent / "prices.toml"  # list prices; a judge's file may override them
MILLION = 1e6
DATED = re.compile(r"-(?:20\d\d-?\d\d-?\d\d|\d{4})$")  # gpt-4o-mini-2024-07-18 is a gpt-4o-mini
CHARACTERS_A_TOKEN = 3.0  # low, so that the reserve is rather too large
ANSWER_TOKENS = 1000  # where a request sets no limit


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
    if unknown := set(prices) - {"input", "output", "cached"}:
        raise UserError(f"prices: {min(unknown)}: unknown; the names are input, output and cached")
    if missing := {"input", "output"} - set(prices):
        raise UserError(f"prices: {min(missing)}: missing; set USD per million tokens, 0 if free")
    for name, price in prices.items():
        if not (isfinite(price) and price >= 0):
            raise UserError(f"prices: {name}: must be 0 or more, not {price}")
    return Prices(**prices)


def guess_tokens(body: Mapping[str, Any]) -> TokenCounts:
    """Estimate the tokens of a request, rather too many than too few."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or body.get("max_output_tokens")
    answers = body.get("n") or 1
    # Typed questions are answered without text.
    output = 0.0 if "questions" in body else float(limit or ANSWER_TOKENS) * float(answers)
    return TokenCounts(input=len(json.dumps(body)) / CHARACTERS_A_TOKEN, output=output)


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


def usage_of(used: TokenCounts | None, prices: Prices | None, discount: float = 1.0) -> dict[str, float]:
    """Return the usage that a judgment records of a call: its tokens and, with prices, its cost."""
    if used is None:
        return {}
    cost = {"cost": round(discount * prices.cost(used), 9)} if prices else {}
    return {"input_tokens": used.input, "output_tokens": used.output, **cost}


def lasting_usage(usage: Mapping[str, float]) -> dict[str, float]:
    """Leave out seconds and tries, so that a resumed run has the same rows as an uninterrupted one."""
    return {name: amount for name, amount in usage.items() if name not in ("seconds", "calls")}


def _count(table: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        value = table.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
            return float(value)
    return None
