"""A reply as a person sees it, whatever was done to it so that a network sees something else."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from judge.fencing import clean

WINDOW: Final = 100  # words, some 130 tokens: as much as the longest replies that people rated
# Letters of other alphabets that look like ours; by hand, as the packages that know them carry thousands.
LIKE: Final = str.maketrans(
    "аеорсухіјѕԁһкмтвнАВЕКМНОРСТУХІЈЅαορνικτεΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijsdhkmtbhABEKMHOPCTYXIJSaopvikteABEZHIKMNOPTYX",
)
_WORD: Final = re.compile(r"[^\W\d_]+")
_LATIN: Final = re.compile("[A-Za-z]")
_FOREIGN: Final = re.compile("[\u0370-\u03ff\u0400-\u052f]")
_FONT: Final = re.compile(
    "[\uff01-\uff5e\u2460-\u24ff\u2100-\u214f\U0001d400-\U0001d7ff\U0001f130-\U0001f189]"
)
_END: Final = re.compile(r"(?<=[.!?…。！？])\s+|\n+")  # noqa: RUF001
_AGAIN: Final = re.compile(r"(?i)\b(\w+)(?:[\s,;!.#*-]+\1\b){3,}")


def as_seen(text: str) -> str:
    """Without what nobody sees, in the letters it seems to be written in, and nothing said over and over.

    >>> as_seen("I c\u0430re. I c\u200bare. I care. Love love love LOVE!")
    'I care. Love!'
    """
    text = _FONT.sub(lambda found: unicodedata.normalize("NFKC", found[0]), clean(text))
    if _FOREIGN.search(text) and _LATIN.search(text):
        text = _WORD.sub(_unmask, text)
    return _say_once(_AGAIN.sub(r"\1", text))


def windows(text: str) -> Iterator[str]:
    """The whole text in pieces of some `WINDOW` words, cut between sentences where there are any."""
    held: list[str] = []
    for sentence in _END.split(text):
        words = sentence.split()
        if held and len(held) + len(words) > WINDOW:
            yield " ".join(held)
            held = []
        held += words
        while len(held) > WINDOW:
            yield " ".join(held[:WINDOW])
            held = held[WINDOW:]
    if held:
        yield " ".join(held)


def _unmask(word: re.Match[str]) -> str:
    """A word of two alphabets is no word: the strangers in it are read as what they look like."""
    return word[0].translate(LIKE) if _LATIN.search(word[0]) and _FOREIGN.search(word[0]) else word[0]


def _say_once(text: str) -> str:
    """The text with every sentence at its first place only; untouched where none is said again."""
    sentences = _END.split(text)
    first = dict.fromkeys(_heard(sentence) for sentence in sentences)
    if len(first) == len(sentences):
        return text
    kept = []
    for sentence in sentences:
        if _heard(sentence) in first:
            del first[_heard(sentence)]
            kept.append(sentence)
    return " ".join(kept)


def _heard(sentence: str) -> str:
    return " ".join(_WORD.findall(sentence.casefold())) or sentence
