"""How a classifier reads an exchange, in training and scoring: normalised, its style counted, tokenised."""

import math
import random
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import eq
from pathlib import Path
from typing import Any, Final

from data.records import Exchange
from judge.llm.fencing import as_typed, clean, find_words, is_plain

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
_TURNED: Final = re.compile("\u202e([^\u202c\u202e\n]*)\u202c?")  # shown from its end
_MARK: Final = re.compile("[\u0300-\u036f]")  # what is set above, below or through a letter
_LETTER: Final = re.compile(r"[^\W\d_]")
_SMALL_CAPITAL: Final = re.compile(
    "[\u0262\u026a\u0274\u0280\u028f\u0299\u029c\u029f\u1d00-\u1d22\ua730\ua731]"
)
_SPACED: Final = re.compile(r"(?<!\S)\S(?: \S)+(?!\S)")
_OUTLINE: Final = bytes(ord(" " if chr(n).isspace() else "x") for n in range(256))
_LEET: Final = str.maketrans("013457", "oieast")
_WITHIN: Final = re.compile("[013457][a-zA-Z]")  # a figure within a word, not behind it
_MIXED: Final = re.compile(r"(?<!\S)(?=\S*[a-zA-Z])(?=\S*[013457])[\w'.,;:!?()-]+(?!\S)")
REPEATS: Final = 3  # of a word after itself that are too many
_AGAIN: Final = re.compile(rf"(?i)\b(\w+)(?:[\s,;!.#*-]+\1\b){{{REPEATS},}}")
_SMALL: Final = bytes(range(256)).lower()
_NO_LETTERS: Final = bytes(n for n in range(128) if not chr(n).isalpha() and chr(n) != "\n")


def normalise(text: str) -> str:
    """A reply as a person sees it: without hidden characters, look-alike letters and endless repeats.

    >>> normalise("I c\u0430re. I c\u200bare. I care. Love love love LOVE!")
    'I care. Love!'
    """
    if is_plain(text):
        text = clean(text)
    else:
        text = clean(_TURNED.sub(lambda run: run[1][::-1], text))
        text = _FONT.sub(lambda letter: unicodedata.normalize("NFKC", letter[0]), text)
        if _FOREIGN.search(text) and _LATIN.search(text):
            text = _WORD.sub(_unmask, text)
    text = _undecorate(text)
    words = find_words(text)
    if any(map(eq, words, words[1:])) or not is_plain(text):
        text = _AGAIN.sub(r"\1", text)
    if not _may_repeat(text):
        return text
    sentences = _END.split(text)
    first: dict[str, str] = {}  # by its words alone, each sentence at its first place
    for sentence in sentences:
        first.setdefault(" ".join(_WORD.findall(sentence.casefold())) or sentence, sentence)
    return text if len(first) == len(sentences) else " ".join(first.values())


def _may_repeat(text: str) -> bool:
    """Tell a text in which one sentence may have the letters of another; few do."""
    typed = as_typed(text)
    if not typed.isascii() or "\t" in typed:
        return True
    ends = typed.replace(". ", "\n").replace("! ", "\n").replace("? ", "\n")
    letters = ends.encode().translate(_SMALL, _NO_LETTERS).split(b"\n")
    return len(set(letters)) < len(letters)


def _may_be_spaced(text: str) -> bool:
    """Tell a text in which one character may stand alone beside another; few do."""
    typed = as_typed(text)
    return not typed.isascii() or b" x x " in b" %b " % typed.encode().translate(_OUTLINE)


def _undecorate(text: str) -> str:
    """The plain letters of a text that is decorated from end to end; one accent or figure is left alone.

    >>> _undecorate("Y o u   f o o l"), _undecorate("y0u 4r3 th3 f00l"), _undecorate("at 3, caf\u00e9")
    ('You   fool', 'you are the fool', 'at 3, caf\u00e9')
    """
    if not is_plain(text):
        text = _SMALL_CAPITAL.sub(lambda letter: unicodedata.name(letter[0])[-1].lower(), text)
        apart = unicodedata.normalize("NFD", text)
        if len(_MARK.findall(apart)) > 0.7 * len(_LETTER.findall(apart)):
            text = _MARK.sub("", apart)
    if _may_be_spaced(text):
        parts = text.split()
        if len(parts) > FEW and list(map(len, parts)).count(1) > 0.8 * len(parts):
            text = _SPACED.sub(lambda run: run[0].replace(" ", ""), text)
    if _WITHIN.search(text):
        parts = text.split()
        if len(parts) > FEW and 2 * sum(map(bool, map(_WITHIN.search, parts))) > len(parts):
            text = _MIXED.sub(lambda word: word[0].translate(_LEET), text)
    return text


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
_JOINT = re.compile(r"['’](?=[^\W_])(?<=[^\W_].)")  # noqa: RUF001
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

_YOURS = frozenset({"you", "your", "yours", "yourself"})
_OWN = frozenset({"i", "me", "my", "mine", "myself"})
_ADVISING = frozenset({"try", "consider", "perhaps", "remember", "should", "important", "make", "have"})


def style_features(response: str) -> tuple[float, ...]:
    """One number for every name in `STYLE`, each of the order of one.

    >>> dict(zip(STYLE, style_features("Oh no! Are you okay?")))["questions"]
    1.0
    """
    if is_plain(response) and "_" not in response:  # the patterns below would find the same, and take longer
        parts, joined = find_words(response), len(_JOINT.findall(response))
        words, letters = max(1, len(parts) - joined), sum(map(len, parts)) + joined
        to_speaker, of_itself = sum([part in _YOURS for part in parts]), sum([part in _OWN for part in parts])
        contractions = len(_CONTRACTION.findall(response)) if joined else 0
        advises = not _ADVISING.isdisjoint(parts) and bool(_ADVICE.search(response))
    else:
        parts = _STYLE_WORD.findall(response)
        words, letters = max(1, len(parts)), sum(map(len, parts))
        to_speaker, of_itself = len(_YOU.findall(response)), len(_SELF.findall(response))
        contractions = len(_CONTRACTION.findall(response))
        advises = bool(_ADVICE.search(response))
    sentences = max(1, len(_SENTENCE.findall(response)))
    return (
        math.log(words) - 3.5,
        math.log(words / sentences) - 2.4,
        min(sentences, 6) - 3.0,
        float(min(response.count("?"), 2)),
        float(min(response.count("!"), 3)),
        min(letters / words, 8.0) - 4.5,
        min(10 * contractions / words, 3.0),
        min(10 * to_speaker / words, 3.0),
        min(10 * of_itself / words, 3.0),
        float(bool(_FORMAL.match(response))),
        float(advises),
        float(response[:1].islower() or " i " in response),
    )


CONTEXT_START, CONTEXT_END = 96, 160  # tokens of a long context that are kept at its two ends
ENCODER_TOKENS = 512  # all that an encoder of BERT's kind can read
RESPONSE_TOKENS = 640  # the start of a reply is kept: some 480 words
MOST_PARTS, LONG_PART = (
    100_000,
    50,
)  # of texts, whose tokens are remembered; and characters of one that is not
RESPONSE_CHARACTERS = 40 * RESPONSE_TOKENS  # 100,000 characters are not tokenised for 640 tokens


@dataclass(frozen=True, slots=True)
class Tokens:
    """One exchange, ready for a network; `cut` says that the reply was longer than what is read.

    The first `before` ids are those of what came before the reply, which other replies may share.
    """

    ids: tuple[int, ...]
    cut: bool
    before: int

    @property
    def segments(self) -> tuple[int, ...]:
        """0 for what came before the reply, 1 for the reply; encoders alone are told."""
        return (0,) * self.before + (1,) * (len(self.ids) - self.before)


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
    """Turns exchanges into tokens for one kind of base: a pair for encoders, one text for decoders.

    The tokens of a text are those of its parts, so that the library is asked for each part once: with BERT's
    tokens what stands between two spaces, with GPT-2's what begins with one.
    """

    def __init__(self, tokenizer: Any, *, is_decoder: bool) -> None:
        self.tokenizer = tokenizer
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.is_decoder = is_decoder
        self._find_parts = _choose_parts(tokenizer)
        self._of_part: dict[str, list[int]] = {}

    @classmethod
    def read(cls, path: Path, *, is_decoder: bool) -> "Tokeniser":
        """From a `tokenizer.json`."""
        from tokenizers import Tokenizer

        return cls(Tokenizer.from_file(str(path)), is_decoder=is_decoder)

    @property
    def limit(self) -> str:
        """How much of a reply is read at most, in words; what came before it takes room of an encoder's."""
        if self.is_decoder:
            return f"{RESPONSE_TOKENS} tokens"
        return f"{ENCODER_TOKENS} tokens with what came before it"

    def encode(self, context: str, response: str) -> Tokens:
        """Token ids of a context and a reply, each cut to its own length: neither crowds the other out."""
        return self.encode_all([(context, response)])[0]

    def encode_all(self, pairs: Sequence[tuple[str, str]]) -> list[Tokens]:
        """The same for many, on all cores; several replies often answer one context, which is read once."""
        contexts = list({context: None for context, _ in pairs})
        before = dict(zip(contexts, map(self._cut, self._ids(contexts)), strict=True))
        replies = self._ids([response[:RESPONSE_CHARACTERS] for _, response in pairs])
        return [
            self._join(before[context], reply, is_cut=len(response) > RESPONSE_CHARACTERS)
            for (context, response), reply in zip(pairs, replies, strict=True)
        ]

    def _cut(self, before: tuple[int, ...]) -> tuple[int, ...]:
        """A context's tokens, of a long one those at its two ends."""
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
        return self.tokenizer.token_to_id("[CLS]"), self.tokenizer.token_to_id("[SEP]")

    def _ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        ids = [self._join_parts(text) for text in texts]
        others = [text for text, found in zip(texts, ids, strict=True) if found is None]
        # A lone surrogate cannot be encoded; the replacement character stands for it.
        clean = [text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for text in others]
        left = iter(self.tokenizer.encode_batch(clean, add_special_tokens=False) if clean else ())
        return [tuple(next(left).ids) if found is None else found for found in ids]

    def _join_parts(self, text: str) -> tuple[int, ...] | None:
        """The tokens of each part; None for texts that the library may part elsewhere."""
        parts, known = self._find_parts(text), self._of_part
        if parts is None:
            return None
        try:
            return tuple(chain.from_iterable(map(known.__getitem__, parts)))
        except KeyError:
            pass  # some are new
        ids: list[int] = []
        for part in parts:
            of_part = known.get(part)
            if of_part is None:
                if not _is_in_print(part):
                    return None
                of_part = self.tokenizer.encode(part, add_special_tokens=False).ids
                if len(known) < MOST_PARTS and len(part) < LONG_PART:
                    known[part] = of_part
            ids += of_part
        return tuple(ids)


def _choose_parts(tokenizer: Any) -> Callable[[str], list[str] | None]:
    """How to part a text as this tokenizer does before it looks for tokens, where we know that."""
    before = tokenizer.pre_tokenizer
    if type(before).__name__ == "BertPreTokenizer":
        return _parts_of_bert
    is_gpt = type(before).__name__ == "ByteLevel" and before.use_regex and not before.add_prefix_space
    is_marked = all(token.content.startswith("<") for token in tokenizer.get_added_tokens_decoder().values())
    return _parts_of_gpt if is_gpt and is_marked and tokenizer.normalizer is None else lambda text: None


def _is_in_print(part: str) -> bool:
    """Tell a part that the library neither takes for a token of its own, such as [SEP], nor parts."""
    return "<" not in part and "[" not in part and part.replace("\n", " ").isprintable()


def _parts_of_bert(text: str) -> list[str] | None:
    """Parts between spaces, as long as no space is another than BERT's."""
    return text.split() if text.replace("\n", " ").isprintable() else None


def _parts_of_gpt(text: str) -> list[str] | None:
    """Parts that begin with a space: GPT-2's words have none within. Two spaces are a matter of its own."""
    return None if "  " in text or "\0" in text else text.replace(" ", "\0 ").split("\0")
