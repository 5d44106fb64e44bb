"""Seeded changes to an input: of bytes, of lines and cells, and of the values in JSON and TOML."""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

LONGEST: Final = 1 << 16  # bytes; a longer input finds no more, and takes longer
# Values that broke readers somewhere before.
VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2, 3, 1.5, -0.0, 10**30, -(2**63), 1e308, 1e-320, float("nan"),
    float("inf"),
    "", " ", "0", "1", "nan", "inf", "Good", "good", "null", "\x00", "\ud800", "\u202e", "\u0662",
    "é", "a" * 300,
    [], {}, [None], [[]], {"": None}, [1, "a", {}], {"a": {"b": []}}, "1e999", "-1", "1_0", "٣", "²",
)  # fmt: skip
WORDS: Final = (
    b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b'"', b'""', b"'", b",", b";",
    b"\t", b"\\", b"\\u0000",
    b"\\ud83d", b"{", b"}", b"[", b"]", b"[[", b"]]", b"=", b":", b"-", b"NaN", b"Infinity",
    b"1e999", b"-0", b"9" * 25,
    b"9" * 4400, b"[" * 600, b'{"a":' * 400, b"<think>", b"</think>", b"\xed\xa0\x80",
    b"\xe2\x80\xa8", b"\xf0\x9f\x92\x94",
    b"true", b"false", b"null", b"1979-05-27", b"0001-01-01T00:00:00Z", b"inf", b"#", b"''", b'"""',
    b"..", b"://", b"@",
    b"%s", b"{0}", b"$x", b"(" * 200, b"a" * 5000,
)  # fmt: skip

Change = Callable[[bytes, Random, Sequence[bytes]], bytes]


def mutate(seeds: Sequence[bytes], chance: Random) -> bytes:
    """One seed after one to four changes, which follow from `chance` alone."""
    data = chance.choice(seeds) if seeds else b""
    if chance.random() < 0.01:
        return chance.randbytes(chance.randrange(200))
    for _ in range(chance.choice((1, 1, 2, 3, 4))):
        change = chance.choice(CHANGES)
        data = change(data, chance, seeds)[:LONGEST]
    return data


def flip(data: bytes, chance: Random, seeds: Sequence[bytes]) -> bytes:
    """A few bytes changed."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        if changed:
            changed[chance.randrange(len(changed))] = chance.choice(
                (chance.randrange(256), 0, 255, 34, 92, 45)
            )
    return bytes(changed)


def insert(data: bytes, chance: Random, seeds: Sequence[bytes]) -> bytes:
    """A word that means something to some reader, put in or put over."""
    at = chance.randrange(len(data) + 1)
    word = chance.choice(WORDS)
    return data[:at] + word + data[at + chance.choice((0, 0, len(word), 1)) :]


def cut(data: bytes, chance: Random, seeds: Sequence[bytes]) -> bytes:
    """A stretch left out: of the middle, or all from a place on."""
    start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:start] if chance.random() < 0.3 else data[:start] + data[end:]


def repeat(data: bytes, chance: Random, seeds: Sequence[bytes]) -> bytes:
    """A stretch said again, perhaps often."""
    start, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[:end] + data[start:end] * chance.choice((1, 1, 2, 30)) + data[end:]


def splice(data: bytes, chance: Random, seeds: Sequence[bytes]) -> bytes:
    """The beginning of one and the end of another."""
    other = chance.choice(seeds)
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other) + 1) :]


def replace_cell(data: bytes, chance: Random, seeds: Sequence[bytes]) -> bytes:
    """What stands between two marks of a table or of TOML, put in another's place."""
    mark = chance.choice((b",", b"\n", b"=", b'"', b" "))
    parts = data.split(mark)
    at = chance.randrange(len(parts))
    value = chance.choice(VALUES)
    said = value if isinstance(value, str) else json.dumps(value)
    parts[at] = chance.choice(
        (said.encode("utf-8", "surrogatepass"), chance.choice(parts), chance.choice(WORDS))
    )
    return mark.join(parts)


def replace_value(data: bytes, chance: Random, seeds: Sequence[bytes]) -> bytes:
    """A value somewhere in JSON, or in one line of it, changed, left out or put deep into others."""
    lines = data.split(b"\n") if b"}\n{" in data else [data]
    at = chance.randrange(len(lines))
    try:
        value = json.loads(lines[at])
        lines[at] = json.dumps(_change(value, chance), ensure_ascii=chance.random() < 0.8).encode(
            "utf-8", "surrogatepass"
        )
    except (ValueError, RecursionError):
        return insert(data, chance, seeds)
    return b"\n".join(lines)


def _change(value: Any, chance: Random) -> Any:
    """The same value but for one place in it."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        what = chance.random()
        if what < 0.1:
            return {name: item for name, item in value.items() if name != key}
        if what < 0.2:
            return value | {str(chance.choice(VALUES)): value[key]}
        return value | {key: _change(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.85:
        at = chance.randrange(len(value))
        return [
            *value[:at],
            *([_change(value[at], chance)] * chance.choice((0, 1, 1, 1, 2))),
            *value[at + 1 :],
        ]
    if chance.random() < 0.05:
        for _ in range(chance.choice((5, 100, 330, 480, 900))):
            value = [value] if chance.random() < 0.5 else {"a": value}
        return value
    return chance.choice(VALUES)


CHANGES: Final[tuple[Change, ...]] = (
    flip, insert, insert, cut, repeat, splice, replace_cell, replace_cell, replace_value,
    replace_value, replace_value,
)  # fmt: skip
