"""Replies written to try a judge, kind and unkind, in two halves: one may train it, the other tests it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

from data.errors import UserError
from data.files import read_toml
from data.records import Exchange
from data.tables import validate

CATALOGUE: Final = Path(__file__).parent / "catalogue"
Half = Literal["training", "test"]
# What a careful reader would call each kind of reply.
UNKIND: Final = ("cruel", "insults", "unkind-dialects", "long-poor", "mistaken")
KIND: Final = ("excellent", "kind", "growing")
# Families wholly in the test half: a judge meets their like for the first time there.
TEST_FAMILIES: Final = frozenset(
    {
        "sarcasm",
        "sympathy for the wrong person",
        "therapy words as weapons",
        "spoiling good news",
        "exposing and humiliating",
        "questions only",
        "gentle humour",
        "letter or poem",
        "Scottish English",
        "Singapore English",
        "old-fashioned formal English",
        "long self-talk",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenReply:
    """One reply of the catalogue; one that grows has `paragraphs` instead of a `text`."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (pydantic wants it so)

    kind: str
    family: str
    prompt: str
    text: str = ""
    paragraphs: tuple[str, ...] = ()
    dialect: str = ""
    round: int = 1  # the second was written by somebody who had not read the first
    is_lesson: bool = False  # written to be learnt from alone, by hands that wrote nothing of what tests

    @property
    def half(self) -> Half:
        """Decided by the words themselves, so that a reply never changes sides."""
        if self.is_lesson:
            return "training"
        if self.round > 1 or self.family in TEST_FAMILIES:
            return "test"
        digest = sha256(f"{self.prompt}\n{self.text or self.paragraphs[0]}".encode()).digest()
        return "training" if digest[0] % 2 else "test"

    def stages(self) -> list[str]:
        """The reply; one that grows after each of its paragraphs."""
        if not self.paragraphs:
            return [self.text]
        return ["\n\n".join(self.paragraphs[:count]) for count in range(1, len(self.paragraphs) + 1)]

    def exchange(self, response: str = "") -> Exchange:
        """The reply, or another in its place, under its prompt."""
        text = response or self.stages()[-1]
        identity = sha256(f"{self.prompt}\n{text}".encode()).hexdigest()[:12]
        return Exchange(id=identity, prompt=self.prompt, response=text, model=self.kind)


@cache
def read_replies(half: Half, in_round: int = 1) -> tuple[WrittenReply, ...]:
    """One half of the catalogue, as it was written in one round."""
    return tuple(reply for reply in _read_all() if (reply.half, reply.round) == (half, in_round))


def _read_all() -> Iterator[WrittenReply]:
    kinds = (*UNKIND, *KIND)
    for path in sorted(CATALOGUE.glob("*.toml")):
        kind = next((kind for kind in kinds if path.stem.startswith(kind)), None)
        if kind is None:
            continue  # the replies in other languages, which nobody trains with
        tables = read_toml(path)
        about = {"round": tables.get("round", 1), "is_lesson": tables.get("is_lesson", False)}
        for number, table in enumerate(tables.get("reply", []), start=1):
            reply = validate(WrittenReply, {**table, "kind": kind}, f"{path}: reply {number}", **about)
            if bool(reply.text) == bool(reply.paragraphs):
                raise UserError(f"{path}: reply {number}: give either text or paragraphs")
            yield reply
