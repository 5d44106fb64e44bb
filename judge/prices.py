"""What calls cost: a small table of list prices, which a judge's file may override."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from data.errors import UserError

TABLE = Path(__file__).parent / "prices.toml"
MILLION = 1e6
DATED = re.compile(r"-(?:20\d\d-?\d\d-?\d\d|\d{4})$")  # gpt-4o-mini-2024-07-18 is a gpt-4o-mini
CHARACTERS_A_TOKEN = 3.0  # a low guess, so that what is reserved for a call is rather too much
ANSWER_TOKENS = 1000  # guessed where a request sets no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens of one call; `cached` is the part of `input` that the server had read before."""

    input: float
    output: float
    cached: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """USD per million tokens."""

    input: float
    output: float
    cached: float | None = None

    def cost(self, usage: Usage) -> float:
        """USD for one call.

        >>> round(Prices(input=0.10, output=0).cost(Usage(input=4000, output=12)), 6)
        0.0004
        """
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input - usage.cached
        return (fresh * self.input + usage.cached * cached + usage.output * self.output) / MILLION


def find_prices(model: str, *, kind: str = "chat") -> Prices | None:
    """The list price of a model, with or without a provider in front and a date behind; None if unknown.

    >>> find_prices("openai/gpt-4o-mini-2024-07-18").output
    0.6
    >>> find_prices("SmolLM2-135M-Instruct") is None
    True
    """
    plain = model.rpartition("/")[2]
    table = _read_table()[kind]
    found = table.get(plain) or table.get(DATED.sub("", plain))
    return Prices(**found) if found else None


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


def guess_usage(body: Mapping[str, Any], size: int) -> Usage:
    """What a request of `size` bytes may take, before it is sent; rather too much than too little."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or body.get("max_output_tokens")
    answers = body.get("n") or 1
    # Typed questions are answered without a word of text.
    output = 0.0 if "questions" in body else float(limit or ANSWER_TOKENS) * float(answers)
    return Usage(input=size / CHARACTERS_A_TOKEN, output=output)


def read_usage(body: Mapping[str, Any]) -> Usage | None:
    """The tokens an answer says it took, under either of the names in use; None where it does not say."""
    usage = body.get("usage")
    if not isinstance(usage, Mapping):
        return None
    read = _count(usage, "input_tokens", "prompt_tokens")
    if read is None:
        return None
    details = usage.get("input_tokens_details") or usage.get("prompt_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, Mapping) else None
    written = _count(usage, "output_tokens", "completion_tokens")
    return Usage(input=read, output=written or 0.0, cached=min(cached or 0.0, read))


def _count(table: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        value = table.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
            return float(value)
    return None


@cache
def _read_table() -> dict[str, dict[str, dict[str, float]]]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))
