"""The body of a request: read within its limit, and parsed more strictly than JSON libraries do."""

import asyncio
import json
import math
from typing import Any

from starlette.requests import ClientDisconnect, Request

from nightly.serving.refusals import Refused

MOST_DEPTH = 32  # containers within containers
LONGEST_WAIT = 30.0  # seconds for the whole body to arrive
READ_ON = 32  # times the limit that is read of a body too large, so that its sender gets to hear why


async def read_object(request: Request, *, most: int) -> dict[str, Any]:
    """The JSON object that was sent; `Refused` says what else it was."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # Also what keeps other sites' pages out: a browser asks before it sends them this type.
        raise Refused(415, "send JSON, with the header Content-Type: application/json")
    try:
        async with asyncio.timeout(LONGEST_WAIT):
            content = await _read(request, most)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {LONGEST_WAIT:.0f} seconds") from None
    except ClientDisconnect:
        raise Refused(499, "the client left") from None
    return parse_object(content)


async def _read(request: Request, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= most:
            parts.append(part)
        elif size > READ_ON * most:
            break
        else:
            parts.clear()
    if size > most:
        raise Refused(413, f"the body is larger than {most:,} bytes; send fewer exchanges a request")
    return b"".join(parts)


def parse_object(content: bytes) -> dict[str, Any]:
    """JSON without what parsers read in different ways: duplicate keys, NaN, numbers past all bounds.

    >>> parse_object(b'{"a": [1, "x"]}')
    {'a': [1, 'x']}
    >>> parse_object(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    nightly.serving.refusals.Refused: not JSON that can be read: the key 'a' stands twice in one object
    """
    try:
        found = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_once,
            parse_constant=_no_number,
            parse_float=_finite,
        )
    except UnicodeDecodeError:
        raise Refused(400, "not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise Refused(400, f"not JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, RecursionError) as error:
        said = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refused(400, f"not JSON that can be read: {said}") from None
    if not isinstance(found, dict):
        raise Refused(400, f"a JSON object was expected, not {type(found).__name__}")
    _check_depth(found)
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:40]!r} stands twice in one object")
    return found


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _check_depth(found: Any) -> None:
    """Level by level, since a recursion could itself go too deep."""
    level = [found]
    for _ in range(MOST_DEPTH):
        level = [
            item
            for held in level
            for item in (held.values() if isinstance(held, dict) else held)
            if isinstance(item, dict | list)
        ]
        if not level:
            return
    raise Refused(400, f"nested more than {MOST_DEPTH} levels deep")
