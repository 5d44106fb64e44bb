"""JSON as the server takes it, too: no key twice, no NaN, no number past all bounds, no endless line."""

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

from jiter import from_json

LONGEST_LINE: Final = 16 << 20  # bytes; a row of ours has a few thousand
SKIP: Final = 1 << 20
# Only a text with such digits can hold a number that is too large: the check of each number takes its time.
MOST_DIGITS: Final = 308  # as many as a number with a decimal point can have before it
LARGE: Final = 1e300
MAY_BE_LARGE: Final = re.compile(r"\d[eE]\+?\d{3}|\d{300}")


class BadValue(ValueError):
    """JSON that parsers read in different ways."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen = set[str]()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise BadValue(f"the key {twice[:40]!r} stands twice in one object")
    return table


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        is_word = text.lstrip("-").isalpha()  # NaN or Infinity
        raise BadValue(f"{text} is no number" if is_word else "a number is too large")
    return number


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise BadValue("a number is too large")
    return int(text)


DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_once, parse_constant=_finite, parse_float=_finite, parse_int=_whole
)
_QUICK: Final = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_finite)


def parse_json(text: str) -> Any:
    """Parse a JSON text; `ValueError` where it is none, or where two parsers could differ about it.

    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    data.readers.strict_json.BadValue: the key 'a' stands twice in one object
    """
    return (DECODER if MAY_BE_LARGE.search(text) else _QUICK).decode(text)


def parse_line(line: bytes) -> Any:
    """What `parse_json` makes of a line of a file, several times faster where there is nothing to refuse.

    >>> parse_line(b'{"a": 1e999}')
    Traceback (most recent call last):
    data.readers.strict_json.BadValue: a number is too large
    """
    try:
        value = from_json(line, allow_inf_nan=False, catch_duplicate_keys=True)
        if not _has_large((value,)):
            return value
    except ValueError:
        pass  # what is wrong is said below; lone surrogates are read there
    return parse_json(line.strip().decode("utf-8", "surrogatepass"))


def _has_large(values: Iterable[Any]) -> bool:
    for value in values:
        kind = type(value)
        if kind is float or kind is int:
            if not -LARGE < value < LARGE:
                return True
        elif (kind is dict and _has_large(value.values())) or (kind is list and _has_large(value)):
            return True
    return False


def read_lines(stream: IO[bytes], longest: int = LONGEST_LINE) -> Iterator[bytes | None]:
    """The lines of a file; None for one that is too long, of which no more than this is ever in memory."""
    while line := stream.readline(longest + 1):
        if len(line) <= longest:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(SKIP)
        yield None
