"""Perturbations of replies, and the written replies that they are tried on.

Both are in two halves: one may train a judge, the other only tests it.
"""

import codecs
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final, Literal

from empathy_judge.data.files import read_toml
from empathy_judge.data.records import EMOTIONS, POSITIVE_EMOTIONS, Exchange
from empathy_judge.data.tables import validate

PERTURBATIONS: Final = Path(__file__).parent / "perturbations.toml"
REPLIES: Final = Path(__file__).parent / "replies"
HOLE: Final = re.compile(r"\{(reply|disguised|start|rest|prompt|text|exclaimed|upper|lower|other)\}")
UNREADABLE: Final = frozenset({"rot13", "base64"})  # disguises that no reader sees through
Half = Literal["training", "test"]
Should = Literal["up", "not up", "same", "not down", "down"]
# What a careful reader would call each kind of written reply.
UNKIND: Final = ("cruel", "insults", "unkind-dialects", "long-poor", "mistaken")
KIND: Final = ("excellent", "kind", "growing")
# Families of perturbations of which none may be used in training.
TEST_FAMILIES: Final = frozenset(
    {
        "fake rubric",
        "false evidence",
        "examples",
        "crowding out",
        "stage directions",
        "echo",
        "polite filler",
        "sympathy, translated",
    }
)
# Families of written replies that are wholly in the test half.
TEST_REPLIES: Final = frozenset(
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
_STOP: Final = re.compile(r"(?<![.])[.](?=\s|$)")  # a full stop, not the end of an ellipsis


@dataclass(frozen=True, slots=True, kw_only=True)
class Perturbation:
    """One way to rewrite a reply, and what a good judge does; see the head of `perturbations.toml`."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (pydantic wants it so)

    name: str
    template: str
    family: str = ""
    texts: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    fits: bool = True
    times: int = 1
    disguise: str = ""
    round: int = 1
    should: Should | None = None
    limit: float = 0.0
    why: str = ""
    against: str | None = None

    @property
    def is_readable(self) -> bool:
        """Whether a person could still read the reply in it."""
        return "{disguised}" not in self.template or self.disguise not in UNREADABLE

    @property
    def is_test_only(self) -> bool:
        """Whether no training may use it."""
        return bool(self.should) or self.round > 1 or self.family in TEST_FAMILIES


@cache
def read_perturbations() -> tuple[Perturbation, ...]:
    """Read the catalogue: some perturbations have a family, the others an expected change of score."""
    tables = read_toml(PERTURBATIONS)["perturbation"]
    return tuple(
        validate(Perturbation, table, f"{PERTURBATIONS}: {name}", name=name) for name, table in tables.items()
    )


def rewrite(
    perturbation: Perturbation, exchange: Exchange, others: Sequence[Exchange] = (), *, seed: int = 0
) -> Exchange | None:
    """Return the exchange with its reply rewritten, under its own id; None where no other reply results.

    Which text is taken follows from the seed and the exchange, never from the order of exchanges, and
    perturbations with as many texts take the same one. Replies to other prompts are taken from `others`.

    >>> label = Perturbation(name="label", family="f", template="{reply}{text}", texts=(" Good!",), times=2)
    >>> rewrite(label, Exchange(id="1", prompt="I won!", response="So what.")).response
    'So what. Good! Good!'
    """
    chance = Random(f"{seed} {exchange.id} {exchange.content_digest}")
    reply, holes = exchange.response, set(HOLE.findall(perturbation.template))
    disguise = DISGUISES.get(perturbation.disguise, str)
    start, rest = split_in_two(reply)
    fillings = {
        "reply": reply,
        "disguised": disguise(reply),
        "start": start,
        "rest": rest,
        "prompt": exchange.prompt,
        "exclaimed": _STOP.sub("!", reply),
        "upper": reply.upper(),
        "lower": reply.lower(),
    }
    if "text" in holes:
        texts = perturbation.texts
        emotion = (exchange.emotion or exchange.id.partition("-")[0]).strip().lower()  # ids of the samples
        if not texts and emotion in EMOTIONS:  # those for the speaker's feeling, or those that do not fit it
            is_positive = (emotion in POSITIVE_EMOTIONS) == perturbation.fits
            texts = perturbation.positive if is_positive else perturbation.negative
        if not texts:
            return None
        fillings["text"] = disguise(texts[chance.randrange(len(texts))]) * perturbation.times
    if "other" in holes:
        replies = [
            other.response
            for other in others
            if other.model == exchange.model and other.prompt != exchange.prompt
            if other.response != exchange.response
        ]
        if not replies:
            return None
        fillings["other"] = replies[chance.randrange(len(replies))]
    # In one pass: what stands in a reply or a prompt is never taken for a hole.
    response = HOLE.sub(lambda hole: fillings[hole[1]], perturbation.template)
    if response == reply:
        return None
    return replace(exchange, id=f"{exchange.id} [{perturbation.name}]", response=response)


def split_in_two(reply: str) -> tuple[str, str]:
    """Split a reply after its first sentence, or where it has but one, in the middle of its words.

    >>> split_in_two("It was a dog. Get another."), split_in_two("It was a dog.")
    (('It was a dog.', 'Get another.'), ('It was', 'a dog.'))
    """
    sentence = re.match(r"(.+?[.!?])\s+(?=\S)", reply, re.DOTALL)
    if sentence:
        return sentence[1], reply[sentence.end() :]
    words = reply.split()
    middle = (len(words) + 1) // 2
    return " ".join(words[:middle]), " ".join(words[middle:])


def _between(mark: str) -> Callable[[str], str]:
    """Return a function that puts a mark after every letter."""
    return lambda text: re.sub(r"(\w)", rf"\1{mark}", text)


def _swap(letters: str, others: str) -> Callable[[str], str]:
    table = str.maketrans(letters, others)
    return lambda text: text.translate(table)


def _shift(text: str, *, small: int, large: int) -> str:
    """Replace the 26 letters by those of another alphabet in the same order."""
    moved = {ord("a") + i: small + i for i in range(26)} | {ord("A") + i: large + i for i in range(26)}
    return text.translate(moved)


DISGUISES: Final[Mapping[str, Callable[[str], str]]] = {
    "zero width": _between("\u200b"),
    "soft hyphens": _between("\u00ad"),
    "combining": _between("\u0323\u0307"),
    "struck": _between("\u0336"),
    "look-alikes": _swap(
        "aceiopsxyABCEHIKMOPSTXY",
        "\u0430\u0441\u0435\u0456\u043e\u0440\u0455\u0445\u0443"
        "\u0410\u0412\u0421\u0415\u041d\u0406\u041a\u041c\u041e\u0420\u0405\u0422\u0425\u04ae",
    ),
    "small capitals": _swap(
        "abcdefghijklmnoprtuvwyz",
        "\u1d00\u0299\u1d04\u1d05\u1d07\ua730\u0262\u029c\u026a\u1d0a\u1d0b\u029f\u1d0d\u0274\u1d0f\u1d18"
        "\u0280\u1d1b\u1d1c\u1d20\u1d21\u028f\u1d22",
    ),
    "digits": _swap("aeiostAEIOST", "431057431057"),
    "full width": lambda text: "".join(
        chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in text
    ),
    "mathematical": lambda text: _shift(text, small=0x1D41A, large=0x1D400),
    "circled": lambda text: _shift(text, small=0x24D0, large=0x24B6),
    "spaced": lambda text: " ".join(text),
    # Written from the end, and turned round again where it is shown.
    "turned round": lambda text: f"\u202e{text[::-1]}\u202c",
    "tags": lambda text: "".join(chr(0xE0000 + ord(sign)) for sign in text if sign.isascii()),
    "variation selectors": lambda text: "".join(
        chr(0xFE00 + byte if byte < 16 else 0xE0100 + byte - 16) for byte in text.encode()
    ),
    "base64": lambda text: b64encode(text.encode()).decode(),
    "rot13": lambda text: codecs.encode(text, "rot13"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenReply:
    """One of our own replies; one that grows has `paragraphs` instead of a `text`."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (pydantic wants it so)

    kind: str
    family: str
    prompt: str
    text: str = ""
    paragraphs: tuple[str, ...] = ()
    dialect: str = ""
    round: int = 1  # the second was written by somebody who had not read the first
    is_lesson: bool = False  # written for training alone, by authors of none of the test replies

    @property
    def half(self) -> Half:
        """The half, decided by the text itself, so that a reply never changes sides."""
        if self.is_lesson:
            return "training"
        if self.round > 1 or self.family in TEST_REPLIES:
            return "test"
        digest = sha256(f"{self.prompt}\n{self.text or self.paragraphs[0]}".encode()).digest()
        return "training" if digest[0] % 2 else "test"

    def stages(self) -> list[str]:
        """Return the reply; one that grows after each of its paragraphs."""
        if not self.paragraphs:
            return [self.text]
        return ["\n\n".join(self.paragraphs[:count]) for count in range(1, len(self.paragraphs) + 1)]

    def exchange(self, response: str = "") -> Exchange:
        """Return the reply, or another in its place, under its prompt."""
        text = response or self.stages()[-1]
        identity = sha256(f"{self.prompt}\n{text}".encode()).hexdigest()[:12]
        return Exchange(id=identity, prompt=self.prompt, response=text, model=self.kind)


@cache
def read_replies(half: Half) -> tuple[WrittenReply, ...]:
    """Read one half of the written replies."""
    replies = []
    for path in sorted(REPLIES.glob("*.toml")):
        kind = next((kind for kind in (*UNKIND, *KIND) if path.stem.startswith(kind)), None)
        if kind is None:
            continue  # the replies in other languages, which nobody trains with
        tables = read_toml(path)
        defaults = {"round": tables.get("round", 1), "is_lesson": tables.get("is_lesson", False)}
        for number, table in enumerate(tables.get("reply", []), start=1):
            place = f"{path}: reply {number}"
            replies.append(validate(WrittenReply, {**table, "kind": kind}, place, **defaults))
    return tuple(reply for reply in replies if reply.half == half)
