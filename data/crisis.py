"""Detection of messages by people who may be in danger; responses to them are flagged for human review.

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

from empathy_judge.data.files import read_toml

PATTERNS: Final = Path(__file__).with_suffix(".toml")
PART: Final = re.compile("<([A-Z]+)>")
MARKS: Final = re.compile("[\u0300-\u036f\u0610-\u061a\u064b-\u065f\u0670\u00ad\u200b-\u200f\u2060\ufe0f]")
READING_LIST: Final = "to-read.jsonl"  # in a run's folder: the responses to somebody who may be in danger
LEFT_OUT: Final = "left out of the figures; "
KEPT: Final = 100  # ids in a summary
SHOWN: Final = 5  # ids in a line
WORD: Final = re.compile(r"[^\W_]+")
LATIN: Final = re.compile("[a-z]+")
SPELLED_OUT: Final = re.compile(r"\b(?:[a-z] ){2,}[a-z]\b")  # k i l l
QUOTES: Final = re.compile("['\u2018\u2019\u02bc\u0060\u00b4]")


class Flagged(Protocol):
    """A judgment, as far as it is looked at here."""

    @property
    def id(self) -> str: ...
    @property
    def flag(self) -> str | None: ...


class Flags:
    """A count of flagged judgments."""

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
        """Return their number, the number of each danger, and the first ids."""
        return {
            "count": self.dangers.total(),
            "dangers": dict(sorted(self.dangers.items())),
            "ids": list(self.ids),
        }


def find_flags(judgments: Iterable[Flagged]) -> dict[str, Any]:
    """Return a report's part about the flagged judgments; empty where there is none."""
    flags = Flags()
    for judgment in judgments:
        flags.add(judgment)
    return {"flagged": flags.as_dict()} if flags.ids else {}


def say_flags(flagged: Mapping[str, Any] | None, where: str = "") -> list[str]:
    """Return a line about answers to somebody who may be in danger; none where none is flagged.

    `where` says what became of them.

    >>> say_flags({"count": 1, "dangers": {"suicide": 1}, "ids": ["7"]})
    ['1 answer to somebody who may be in danger (id 7): read it; the judge cannot decide whether it is safe']
    >>> say_flags({"count": 0, "dangers": {}, "ids": []}), say_flags(None)
    ([], [])
    """
    if not flagged or not (count := flagged["count"]):
        return []
    ids, answers, them, they_are = "ids", f"{count:,} answers", "them", "they are"
    if count == 1:
        ids, answers, them, they_are = "id", "1 answer", "it", "it is"
    shown = f"{ids} {', '.join(flagged['ids'][:SHOWN])}"
    shown += f" and {count - SHOWN:,} more, see flag in judgments.jsonl" if count > SHOWN else ""
    read = f"read {them}; the judge cannot decide whether {they_are} safe"
    return [f"{answers} to somebody who may be in danger ({shown}): {where}{read}"]


@dataclass(frozen=True, slots=True)
class _Sign:
    """One danger: a pattern, and words of which one must be in a text before the pattern is tried."""

    danger: str
    words: frozenset[str]
    pattern: re.Pattern[str]

    def is_hinted(self, plain: str, words: frozenset[str]) -> bool:
        """Return whether to try the pattern; non-Latin words may be part of others."""
        if not self.words.isdisjoint(words):
            return True
        return not plain.isascii() and any(word in plain for word in self.words if not word.isascii())


@lru_cache(maxsize=256)  # many models answer one prompt
def danger_said(text: str) -> str | None:
    """Return the danger that the speaker, or somebody they mention, may be in; None if no phrase is found.

    >>> danger_said("I don't want to live anymore."), danger_said("This traffic is killing me.")
    ('suicide', None)
    """
    signs, idioms = _read_signs()
    plain = _plain(text)
    words = frozenset(WORD.findall(plain))
    hinted = [sign for sign in signs if sign.is_hinted(plain, words)]
    if not any(sign.pattern.search(plain) for sign in hinted):
        return None
    rest = idioms.sub(" ", plain)
    bereavement = signs[-1]
    alone = bereavement.pattern.sub(" ", rest)  # without those who have died of it
    for sign in hinted:
        if sign.pattern.search(alone):
            return sign.danger
    return bereavement.danger if alone != rest else None


def _plain(text: str) -> str:
    """Return a text on one line: casefolded, common misspellings corrected, no accents and apostrophes."""
    plain = " ".join(_fold(QUOTES.sub("", text)).casefold().split())
    plain = plain.replace("any more", "anymore").replace("no more", "nomore")
    plain = SPELLED_OUT.sub(lambda letters: letters[0].replace(" ", ""), plain)
    meant = _read_spelling()
    return LATIN.sub(lambda word: meant.get(word[0], word[0]), plain)


def _fold(text: str) -> str:
    return MARKS.sub("", unicodedata.normalize("NFKD", text))


@cache
def _read_spelling() -> dict[str, str]:
    """Return the meant word of each that is written otherwise: in dialect, joined, or with one typo."""
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
def _read_signs() -> tuple[tuple[_Sign, ...], re.Pattern[str]]:
    """Read the signs of danger, bereavement last, and the idioms that only sound like one."""
    table = read_toml(PATTERNS)
    signs = tuple(
        _Sign(row["danger"], frozenset(_fold(row["words"]).split()), _join(row["patterns"], table["parts"]))
        for row in [*table["signs"], table["lost"]]
    )
    return signs, _join(table["idioms"]["patterns"], table["parts"])


def _join(patterns: list[str], parts: dict[str, str]) -> re.Pattern[str]:
    written = _fold("|".join(patterns))
    while PART.search(written):
        written = PART.sub(lambda name: parts[name[1]], written)
    return re.compile(rf"\b(?:{written})" if written.isascii() else written)
