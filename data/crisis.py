"""Words of somebody who may be in danger: a response to them is flagged for people to read, not only rated.

A list of phrases finds what is said plainly, most of it in English, and misses what is only hinted at: no
flag never means that nobody is in danger. A flag changes no label.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from data.files import read_toml

PATTERNS: Final = Path(__file__).with_suffix(".toml")
PART: Final = re.compile("<([A-Z]+)>")
MARKS: Final = re.compile("[\u0300-\u036f\u0610-\u061a\u064b-\u065f\u0670\u00ad\u200b-\u200f\u2060\ufe0f]")
SPACED: Final = "".join(chr(n) if chr(n).isalnum() else " " for n in range(128))  # punctuation off
QUOTES: Final = re.compile("['\u2018\u2019\u02bc\u0060\u00b4]")


@dataclass(frozen=True, slots=True)
class _Signs:
    """The pattern of each danger, bereavement last, and the places of those that a word hints at."""

    dangers: tuple[str, ...]
    patterns: tuple[str, ...]
    by_word: dict[str, list[int]]
    by_part: tuple[tuple[str, int], ...]
    idioms: str


def danger_said(text: str) -> str | None:
    """What danger the speaker, or somebody they speak of, may be in; None where no phrase of ours says so.

    >>> danger_said("I don't want to live anymore."), danger_said("This traffic is killing me.")
    ('suicide', None)
    """
    signs, plain = _read_signs(), _plain(text)
    hints = [place for word in plain.translate(SPACED).split() for place in signs.by_word.get(word, ())]
    if not plain.isascii():
        hints += [place for part, place in signs.by_part if part in plain]
    hinted = sorted(set(hints))
    if not any(_compiled(signs.patterns[place]).search(plain) for place in hinted):
        return None
    rest = _compiled(signs.idioms).sub(" ", plain)
    alone = _compiled(signs.patterns[-1]).sub(" ", rest)  # without those who have died of it
    for place in hinted:
        if _compiled(signs.patterns[place]).search(alone):
            return signs.dangers[place]
    return signs.dangers[-1] if alone != rest else None


def _plain(text: str) -> str:
    """In small letters, without accents, apostrophes and what cannot be seen, on one line."""
    if not text.isascii():
        text = _fold(QUOTES.sub("", text))
    return " ".join(text.replace("'", "").casefold().split()).replace("any more", "anymore")


def _fold(text: str) -> str:
    return MARKS.sub("", unicodedata.normalize("NFKD", text))


@cache
def _read_signs() -> _Signs:
    table = read_toml(PATTERNS)
    rows = [*table["signs"], table["lost"]]
    by_word: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        for word in _fold(row["words"]).split():
            by_word.setdefault(word, []).append(place)
    return _Signs(
        dangers=tuple(row["danger"] for row in rows),
        patterns=tuple(_join(row["patterns"], table["parts"]) for row in rows),
        by_word=by_word,
        by_part=tuple(
            (word, place) for word, found in by_word.items() if not word.isascii() for place in found
        ),
        idioms=_join(table["idioms"]["patterns"], table["parts"]),
    )


def _join(patterns: list[str], parts: dict[str, str]) -> str:
    written = _fold("|".join(patterns))
    while PART.search(written):
        written = PART.sub(lambda found: parts[found[1]], written)
    return rf"\b(?:{written})" if written.isascii() else written


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    # When first needed, which for most is never.
    return re.compile(pattern)
