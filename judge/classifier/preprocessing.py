"""What a classifier does around its network: normalize replies, tokenize exchanges, label probabilities."""

import random
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from empathy_judge.data.records import LABELS, Exchange, Judgment, judgment_of, unscored
from empathy_judge.data.text import clean
from empathy_judge.judge.input_checks import why_unreadable
from empathy_judge.judge.llm.prompt_injection import find_injections

# Letters of other alphabets that look like ours; by hand, as the packages that know them carry thousands.
LIKE: Final = str.maketrans(
    "аеорсухіјѕԁһкмтвнАВЕКМНОРСТУХІЈЅαορνικτεΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijsdhkmtbhABEKMHOPCTYXIJSaopvikteABEZHIKMNOPTYX",
)
FEW: Final = 3  # words that may all be letters or figures without being a disguise
_WORD: Final = re.compile(r"[^\W\d_]+")
_LATIN: Final = re.compile("[A-Za-z]")
_FOREIGN: Final = re.compile("[\u0370-\u03ff\u0400-\u052f]")
_FONT: Final = re.compile(
    "[\uff01-\uff5e\u2460-\u24ff\u2100-\u214f\U0001d400-\U0001d7ff\U0001f130-\U0001f189]"
)
_END: Final = re.compile(r"(?<=[.!?…。！？])\s+|\n+")  # noqa: RUF001
_REVERSED: Final = re.compile("\u202e([^\u202c\u202e\n]*)\u202c?")  # displayed right to left
_MARK: Final = re.compile("[\u0300-\u036f]")  # what is set above, below or through a letter
_LETTER: Final = re.compile(r"[^\W\d_]")
_SMALL_CAPITAL: Final = re.compile(
    "[\u0262\u026a\u0274\u0280\u028f\u0299\u029c\u029f\u1d00-\u1d22\ua730\ua731]"
)
_SPACED: Final = re.compile(r"(?<!\S)\S(?: \S)+(?!\S)")
_LEET: Final = str.maketrans("013457", "oieast")
_WITHIN: Final = re.compile("[013457][a-zA-Z]")  # a figure within a word, not behind it
_MIXED: Final = re.compile(r"(?<!\S)(?=\S*[a-zA-Z])(?=\S*[013457])[\w'.,;:!?()-]+(?!\S)")
REPEATS: Final = 3  # of a word after itself that are too many
_AGAIN: Final = re.compile(rf"(?i)\b(\w+)(?:[\s,;!.#*-]+\1\b){{{REPEATS},}}")


def normalize(text: str) -> str:
    """Return a reply as people read it: no hidden characters, look-alike letters, repeats or capitals.

    >>> normalize("I c\u0430re. I c\u200bare. I care. Love love love LOVE!")
    'I care. Love!'
    """
    text = clean(_REVERSED.sub(lambda run: run[1][::-1], text))
    text = _FONT.sub(lambda letter: unicodedata.normalize("NFKC", letter[0]), text)
    if _FOREIGN.search(text) and _LATIN.search(text):
        text = _WORD.sub(_unmask, text)
    text = _AGAIN.sub(r"\1", _undecorate(text))
    sentences = _END.split(text)
    first: dict[str, str] = {}  # by its words alone, each sentence at its first place
    for sentence in sentences:
        first.setdefault(" ".join(_WORD.findall(sentence.casefold())) or sentence, sentence)
    text = text if len(first) == len(sentences) else " ".join(first.values())
    letters = [letter for letter in text if letter.isalpha()]
    is_in_capitals = len(text.split()) > FEW and sum(map(str.isupper, letters)) > 0.8 * len(letters)
    return _uncapitalize(text) if is_in_capitals else text


def _uncapitalize(text: str) -> str:
    """Return a text that is in capitals throughout as one that is not: its words count, not its case.

    >>> _uncapitalize("I CARE. DO YOU? I'M HERE")
    "I care. Do you? I'm here"
    """
    text = re.sub(r"(^|[.!?]\s+)(\w)", lambda start: start[1] + start[2].upper(), text.lower())
    return re.sub(r"\bi\b", "I", text)


def _undecorate(text: str) -> str:
    """Return the plain letters of a text that is decorated throughout; leave single accents and digits alone.

    >>> _undecorate("Y o u   f o o l"), _undecorate("y0u 4r3 th3 f00l"), _undecorate("at 3, caf\u00e9")
    ('You   fool', 'you are the fool', 'at 3, caf\u00e9')
    """
    text = _SMALL_CAPITAL.sub(lambda letter: unicodedata.name(letter[0])[-1].lower(), text)
    apart = unicodedata.normalize("NFD", text)
    if len(_MARK.findall(apart)) > 0.7 * len(_LETTER.findall(apart)):
        text = _MARK.sub("", apart)
    parts = text.split()
    if len(parts) > FEW and sum(len(part) == 1 for part in parts) > 0.8 * len(parts):
        text = _SPACED.sub(lambda run: run[0].replace(" ", ""), text)
        parts = text.split()
    if len(parts) > FEW and 2 * sum(bool(_WITHIN.search(part)) for part in parts) > len(parts):
        text = _MIXED.sub(lambda word: word[0].translate(_LEET), text)
    return text


def _unmask(word: re.Match[str]) -> str:
    """Return a word of two alphabets with look-alike letters replaced; other words as they are."""
    return word[0].translate(LIKE) if _LATIN.search(word[0]) and _FOREIGN.search(word[0]) else word[0]


CONTEXT_START, CONTEXT_END = 96, 160  # tokens of a long context that are kept at its two ends
ENCODER_TOKENS = 512  # all that an encoder of BERT's kind can read
RESPONSE_TOKENS = 640  # the start of a reply is kept: some 480 words
RESPONSE_CHARACTERS = 40 * RESPONSE_TOKENS  # 100,000 characters are not tokenized for 640 tokens


@dataclass(frozen=True, slots=True)
class Tokens:
    """One exchange, ready for a network."""

    ids: tuple[int, ...]
    cut: bool  # the reply was longer than what is read
    before: int  # of the ids, those of what came before the reply

    @property
    def segments(self) -> tuple[int, ...]:
        """0 for what came before the reply, 1 for the reply; encoders alone are told."""
        return (0,) * self.before + (1,) * (len(self.ids) - self.before)


def write_context(exchange: Exchange, *, chance: random.Random | None = None, drop: float = 0.0) -> str:
    """Return what came before the reply as one text; training leaves out optional parts at random."""

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


class ReplyTokenizer:
    """Turns exchanges into tokens for one kind of base: a pair for encoders, one text for decoders."""

    def __init__(self, tokenizer: Any, *, is_decoder: bool) -> None:
        self.backend = tokenizer
        self.backend.no_truncation()
        self.backend.no_padding()
        self.is_decoder = is_decoder

    @classmethod
    def read(cls, path: Path, *, is_decoder: bool) -> "ReplyTokenizer":
        """Read a `tokenizer.json`."""
        from tokenizers import Tokenizer

        return cls(Tokenizer.from_file(str(path)), is_decoder=is_decoder)

    @property
    def limit(self) -> str:
        """The longest reply that is read whole, in words; an encoder's includes what came before it."""
        if self.is_decoder:
            return f"{RESPONSE_TOKENS} tokens"
        return f"{ENCODER_TOKENS} tokens with what came before it"

    def encode(self, context: str, response: str) -> Tokens:
        """Return the token ids of a context and a reply, each cut to its own length."""
        return self.encode_all([(context, response)])[0]

    def encode_all(self, pairs: Sequence[tuple[str, str]]) -> list[Tokens]:
        """Return the tokens of many, on all cores; a context of several replies is read once."""
        contexts = list({context: None for context, _ in pairs})
        before = dict(zip(contexts, map(self._cut, self._ids(contexts)), strict=True))
        replies = self._ids([response[:RESPONSE_CHARACTERS] for _, response in pairs])
        return [
            self._join(before[context], reply, is_cut=len(response) > RESPONSE_CHARACTERS)
            for (context, response), reply in zip(pairs, replies, strict=True)
        ]

    def _cut(self, before: tuple[int, ...]) -> tuple[int, ...]:
        """Return a context's tokens, of a long one those at its two ends."""
        if len(before) <= CONTEXT_START + CONTEXT_END:
            return before
        return before[:CONTEXT_START] + self._between[0] + before[-CONTEXT_END:]

    def _join(self, before: tuple[int, ...], reply: tuple[int, ...], *, is_cut: bool) -> Tokens:
        room = RESPONSE_TOKENS if self.is_decoder else min(RESPONSE_TOKENS, ENCODER_TOKENS - len(before) - 3)
        is_cut = is_cut or len(reply) > room
        reply = reply[:room]
        if self.is_decoder:
            _, answer, end = self._between
            return Tokens(before + answer + reply + end, is_cut, len(before))
        first, last = self._ends
        return Tokens((first, *before, last, *reply, last), is_cut, len(before) + 2)

    @cached_property
    def _between(self) -> list[tuple[int, ...]]:
        return self._ids(["\n…\n", "\nListener: ", "\nEmpathy:"])

    @cached_property
    def _ends(self) -> tuple[int, int]:
        return self.backend.token_to_id("[CLS]"), self.backend.token_to_id("[SEP]")

    def _ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        # A lone surrogate cannot be encoded; the replacement character stands for it.
        clean = [text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for text in texts]
        return [tuple(item.ids) for item in self.backend.encode_batch(clean, add_special_tokens=False)]


@dataclass(frozen=True, slots=True)
class PreparedReply:
    """A reply before the network; `notes` go into the rationale, and `reason` says why it is not judged."""

    reason: str | None
    tokens: Tokens | None
    notes: tuple[str, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """Token ids of a reply that is judged."""
        assert self.tokens is not None
        return self.tokens.ids


def prepare(exchanges: Sequence[Exchange], tokenizer: ReplyTokenizer) -> list[PreparedReply]:
    """Normalize, check and tokenize replies."""
    texts = [normalize(exchange.response) for exchange in exchanges]
    reasons = [why_unreadable(text) for text in texts]
    rows = list(zip(exchanges, texts, reasons, strict=True))
    encoded = iter(tokenizer.encode_all([(write_context(item), text) for item, text, why in rows if not why]))
    prepared = []
    for exchange, text, reason in rows:
        tokens, notes = None, []
        if not reason:
            tokens = next(encoded)
            notes = [
                f"suspected injection: {item}" for item in sorted(find_injections(exchange.response, text))
            ]
            notes += [f"longer than {tokenizer.limit}: only the start was read"] if tokens.cut else []
        prepared.append(PreparedReply(reason, tokens, tuple(notes)))
    return prepared


def judgments_of(
    exchanges: Sequence[Exchange],
    prepared: Sequence[PreparedReply],
    probabilities: Sequence[Sequence[float]],
) -> Iterator[Judgment]:
    """Yield the judgment of every exchange; `probabilities` has a row for each that is judged."""
    rows = iter(probabilities)
    for exchange, item in zip(exchanges, prepared, strict=True):
        if item.reason:
            yield unscored(exchange, item.reason)
            continue
        judgment = judgment_of(exchange, dict(zip(LABELS, next(rows), strict=True)))
        yield replace(judgment, rationale="\n".join(item.notes)) if item.notes else judgment
