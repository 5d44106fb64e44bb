"""How a classifier reads an exchange, in training and scoring: normalised, its style counted, tokenised."""

import math
import random
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from data.records import Exchange
from judge.llm.fencing import clean

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


def normalise(text: str) -> str:
    """A reply as a person sees it: without hidden characters, look-alike letters and endless repeats.

    >>> normalise("I c\u0430re. I c\u200bare. I care. Love love love LOVE!")
    'I care. Love!'
    """
    text = _FONT.sub(lambda letter: unicodedata.normalize("NFKC", letter[0]), clean(text))
    if _FOREIGN.search(text) and _LATIN.search(text):
        text = _WORD.sub(_unmask, text)
    text = _AGAIN.sub(r"\1", text)
    sentences = _END.split(text)
    first: dict[str, str] = {}  # by its words alone, each sentence at its first place
    for sentence in sentences:
        first.setdefault(" ".join(_WORD.findall(sentence.casefold())) or sentence, sentence)
    return text if len(first) == len(sentences) else " ".join(first.values())


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


# What separates one model's manner from another's. Seeing these counts beside the text helps a judge with an
# unseen model a little, within noise (`docs/experiments.md`).
STYLE = (
    "length",
    "sentence_length",
    "sentences",
    "questions",
    "exclamations",
    "word_length",
    "contractions",
    "addresses_speaker",
    "speaks_of_itself",
    "opens_formally",
    "gives_advice",
    "lower_case",
)
_STYLE_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")  # noqa: RUF001  (the typographic apostrophe is meant)
# The look back is for speed: without it 100,000 dots before a letter are tried from each dot anew.
_SENTENCE = re.compile(r"(?<![.!?…])[.!?…]+(?=\s|$)")
_CONTRACTION = re.compile(r"\b\w+['’](?:s|m|re|ve|d|ll|t)\b", re.IGNORECASE)  # noqa: RUF001
_YOU = re.compile(r"\byou(?:r|rs|rself)?\b", re.IGNORECASE)
_SELF = re.compile(r"\b(?:i|me|my|mine|myself)\b", re.IGNORECASE)
_FORMAL = re.compile(
    r"\s*i (?:can |completely |fully |truly )?(?:understand|empathize|acknowledge|recognize)", re.I
)
_ADVICE = re.compile(
    r"\b(?:try|consider|perhaps|remember|should|important to|make sure|have you)\b", re.IGNORECASE
)


def style_features(response: str) -> tuple[float, ...]:
    """One number for every name in `STYLE`, each of the order of one.

    >>> dict(zip(STYLE, style_features("Oh no! Are you okay?")))["questions"]
    1.0
    """
    words = max(1, len(_STYLE_WORD.findall(response)))
    sentences = max(1, len(_SENTENCE.findall(response)))
    letters = sum(len(word) for word in _STYLE_WORD.findall(response))
    return (
        math.log(words) - 3.5,
        math.log(words / sentences) - 2.4,
        min(sentences, 6) - 3.0,
        float(min(response.count("?"), 2)),
        float(min(response.count("!"), 3)),
        min(letters / words, 8.0) - 4.5,
        min(10 * len(_CONTRACTION.findall(response)) / words, 3.0),
        min(10 * len(_YOU.findall(response)) / words, 3.0),
        min(10 * len(_SELF.findall(response)) / words, 3.0),
        float(bool(_FORMAL.match(response))),
        float(bool(_ADVICE.search(response))),
        float(response[:1].islower() or " i " in response),
    )


CONTEXT_TOKENS = 128  # the end of the context is kept, since it is nearest to the reply
RESPONSE_TOKENS = 160  # the start of the reply is kept; the study's longest has about 140
RESPONSE_CHARACTERS = 40 * RESPONSE_TOKENS  # 100,000 characters are not tokenised for 160 tokens


@dataclass(frozen=True, slots=True)
class Tokens:
    """One exchange, ready for a network; `cut` says that the reply was longer than what is read."""

    ids: tuple[int, ...]
    segments: tuple[int, ...]
    cut: bool


def write_context(exchange: Exchange, *, chance: random.Random | None = None, drop: float = 0.0) -> str:
    """What came before the reply, as one text; training leaves out each optional part now and then."""

    def kept(text: str | None) -> bool:
        return bool(text) and not (chance and chance.random() < drop)

    parts = []
    if kept(exchange.emotion):
        parts.append(f"Feeling: {exchange.emotion}.")
    if kept(exchange.situation):
        parts.append(f"Situation: {exchange.situation}")
    parts += [f"{turn.speaker}: {turn.text}" for turn in exchange.dialogue]
    parts.append(f"Speaker: {exchange.prompt}")
    return "\n".join(parts)


class Tokeniser:
    """Turns exchanges into tokens for one kind of base: a pair for encoders, one text for decoders."""

    def __init__(self, tokenizer: Any, *, is_decoder: bool) -> None:
        self.tokenizer = tokenizer
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.is_decoder = is_decoder

    @classmethod
    def read(cls, path: Path, *, is_decoder: bool) -> "Tokeniser":
        """From a `tokenizer.json`."""
        from tokenizers import Tokenizer

        return cls(Tokenizer.from_file(str(path)), is_decoder=is_decoder)

    def encode(self, context: str, response: str) -> Tokens:
        """Token ids of a context and a reply, each cut to its own length: neither crowds the other out."""
        before = self._ids(context)[-CONTEXT_TOKENS:]
        reply = self._ids(response[:RESPONSE_CHARACTERS])
        cut = len(reply) > RESPONSE_TOKENS or len(response) > RESPONSE_CHARACTERS
        reply = reply[:RESPONSE_TOKENS]
        if self.is_decoder:
            ids = before + self._ids("\nListener: ") + reply + self._ids("\nEmpathy:")
            return Tokens(tuple(ids), (0,) * len(ids), cut)
        start, end = self.tokenizer.token_to_id("[CLS]"), self.tokenizer.token_to_id("[SEP]")
        ids = [start, *before, end, *reply, end]
        return Tokens(tuple(ids), (0,) * (len(before) + 2) + (1,) * (len(reply) + 1), cut)

    def _ids(self, text: str) -> list[int]:
        # A lone surrogate cannot be encoded; the replacement character stands for it.
        clean = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return list(self.tokenizer.encode(clean, add_special_tokens=False).ids)
