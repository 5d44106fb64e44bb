"""Words of somebody who may be in danger: a response to them is flagged for people to read, not only rated.

A list of phrases finds what is said plainly, most of it in English, and misses much of what is only hinted
at: no flag never means that nobody is in danger. A flag changes no label; flagged responses are left out of
every share, and form a reading list.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

from data.files import read_toml

PATTERNS: Final = Path(__file__).with_suffix(".toml")
PART: Final = re.compile("<([A-Z]+)>")
MARKS: Final = re.compile("[\u0300-\u036f\u0610-\u061a\u064b-\u065f\u0670\u00ad\u200b-\u200f\u2060\ufe0f]")
SPACED: Final = "".join(chr(n) if chr(n).isalnum() else " " for n in range(128))  # punctuation off
READING_LIST: Final = "to-read.jsonl"  # in a run's folder: the responses to somebody who may be in danger
LEFT_OUT: Final = "left out of the figures; "
KEPT: Final = 100  # ids in a summary
SHOWN: Final = 5  # ids in a line
WORD: Final = re.compile("[a-z]+")
SPELLED_OUT: Final = re.compile(r"\b(?:[a-z] ){2,}[a-z]\b")  # k i l l
OUTLINE: Final = bytes(ord("x" if chr(n).isalnum() else " ") for n in range(256))
REMEMBERED: Final = 2_000  # characters; longer texts would take much memory
QUOTES: Final = re.compile("['\u2018\u2019\u02bc\u0060\u00b4]")


class Flagged(Protocol):
    """A judgment, as far as it is looked at here."""

    @property
    def id(self) -> str: ...
    @property
    def flag(self) -> str | None: ...


class Flags:
    """The flagged ones among judgments that come by."""

    def __init__(self) -> None:
        self.dangers: Counter[str] = Counter()
        self.ids: list[str] = []

    def add(self, judgment: Flagged) -> None:
        """Count a judgment in."""
        if judgment.flag is not None:
            self.dangers[judgment.flag] += 1
            if len(self.ids) < KEPT:
                self.ids.append(judgment.id)

    def as_dict(self) -> dict[str, Any]:
        """Their number, how many of each danger, and the first ids."""
        return {
            "count": self.dangers.total(),
            "dangers": dict(sorted(self.dangers.items())),
            "ids": list(self.ids),
        }


def find_flags(judgments: Iterable[Flagged]) -> dict[str, Any]:
    """A report's part about the flagged ones among judgments; empty where none is."""
    flags = Flags()
    for judgment in judgments:
        flags.add(judgment)
    return {"flagged": flags.as_dict()} if flags.ids else {}


def say_flags(flagged: Mapping[str, Any] | None, where: str = "") -> list[str]:
    """A line about flagged responses; none where none is flagged, or a run is older than flags are.

    `where` says what became of them.

    >>> say_flags({"count": 1, "dangers": {"suicide": 1}, "ids": ["7"]})  # doctest: +ELLIPSIS
    ['1 response answers somebody who may be in danger: id 7; read it, the judge cannot ...']
    >>> say_flags({"count": 0, "dangers": {}, "ids": []}), say_flags(None)
    ([], [])
    """
    count = flagged["count"] if flagged else 0
    if not flagged or not count:
        return []
    shown = ", ".join(flagged["ids"][:SHOWN])
    more = f" and {count - SHOWN:,} more (flag in judgments.jsonl)" if count > SHOWN else ""
    who = "somebody who may be in danger"
    if count == 1:
        return [
            f"1 response answers {who}: id {shown}; {where}read it, the judge cannot tell whether it is safe"
        ]
    return [
        f"{count:,} responses answer {who}: ids {shown}{more}; {where}"
        "read them, the judge cannot tell whether they are safe"
    ]


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
    return _danger_again(text) if len(text) <= REMEMBERED else _danger(text)


def _danger(text: str) -> str | None:
    signs, (plain, words) = _read_signs(), _plain(text)
    if plain.isascii():
        if signs.by_word.keys().isdisjoint(words):
            return None
        hints = []
    else:
        hints = [place for part, place in signs.by_part if part in plain]
    hints += [place for word in words for place in signs.by_word.get(word, ())]
    hinted = sorted(set(hints))
    if not any(_compiled(signs.patterns[place]).search(plain) for place in hinted):
        return None
    rest = _compiled(signs.idioms).sub(" ", plain)
    alone = _compiled(signs.patterns[-1]).sub(" ", rest)  # without those who have died of it
    for place in hinted:
        if _compiled(signs.patterns[place]).search(alone):
            return signs.dangers[place]
    return signs.dangers[-1] if alone != rest else None


_danger_again = lru_cache(maxsize=1024)(_danger)  # many models answer one prompt


def _plain(text: str) -> tuple[str, list[str]]:
    """In small letters, without accents, apostrophes and what cannot be seen, on one line; and its words."""
    if not text.isascii():
        text = _fold(QUOTES.sub("", text))
    plain = " ".join(text.replace("'", "").casefold().split())
    plain = plain.replace("any more", "anymore").replace("no more", "nomore")
    words = plain.translate(SPACED).split()
    if _may_be_spelled_out(plain):
        plain = SPELLED_OUT.sub(lambda found: found[0].replace(" ", ""), plain)
        words = plain.translate(SPACED).split()
    meant = _read_spelling()
    if not meant.keys().isdisjoint(words):
        plain = WORD.sub(lambda found: meant.get(found[0], found[0]), plain)
        words = plain.translate(SPACED).split()
    return plain, words


def _may_be_spelled_out(plain: str) -> bool:
    """Tell a text in which three letters may stand alone; few do, and the pattern takes long."""
    return not plain.isascii() or b" x x x " in b" %b " % plain.encode().translate(OUTLINE)


def _fold(text: str) -> str:
    return MARKS.sub("", unicodedata.normalize("NFKD", text))


@cache
def _read_spelling() -> dict[str, str]:
    """What is meant by a word that is written otherwise: in dialect, joined, or mistyped in one place."""
    table = read_toml(PATTERNS)["spelling"]
    meant = {way: word for word, ways in table["as"].items() for way in ways.split()}
    right = {*table["words"].split(), *table["kept"].split()}
    for word in table["words"].split():
        for at in range(1, len(word)):
            before, letter, after = word[:at], word[at], word[at + 1 :]
            ways = [before + after, before + letter * 2 + after, before[:-1] + letter + before[-1] + after]
            meant.update((way, word) for way in ways if way not in right)
    return meant


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
