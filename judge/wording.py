"""An exchange as the token ids a classifier reads: the same code in training and in scoring."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.records import Exchange

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


class Wording:
    """Turns exchanges into tokens for one kind of base: a pair for encoders, one text for decoders."""

    def __init__(self, tokenizer: Any, *, is_decoder: bool) -> None:
        self.tokenizer = tokenizer
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.is_decoder = is_decoder

    @classmethod
    def read(cls, path: Path, *, is_decoder: bool) -> "Wording":
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
