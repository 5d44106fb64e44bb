"""Forms of attack on a judge: ways to dress up a reply, whatever it says, as in `attacks.toml`."""

import codecs
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from data.errors import UserError
from data.files import read_toml
from data.records import Exchange
from data.tables import validate

ATTACKS: Final = Path(__file__).parent / "attacks.toml"
SECOND_ATTACKS: Final = ATTACKS.with_name("attacks-2.toml")
HOLE: Final = re.compile(r"\{(reply|disguised|start|rest|prompt|text)\}")
# Families of which no attack may be met in training.
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
UNREADABLE: Final = frozenset({"rot13", "base64"})  # disguises that no reader sees through


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One way to dress up a reply; see the head of `attacks.toml`."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (pydantic wants it so)

    name: str
    family: str
    template: str
    text: str = ""
    times: int = 1
    disguise: str = ""
    round: int = 1

    @property
    def is_readable(self) -> bool:
        """Whether a person could still read the reply in it."""
        return "{disguised}" not in self.template or self.disguise not in UNREADABLE

    @property
    def is_unmet(self) -> bool:
        """Whether no training may have met its like."""
        return self.round > 1 or self.family in TEST_FAMILIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The attacks, and what each family of them tries."""

    attacks: tuple[Attack, ...]
    families: Mapping[str, str]


def read_attacks(path: Path = ATTACKS) -> Catalogue:
    """The shipped catalogue, or another file of the same shape."""
    tables = read_toml(path)
    if unknown := sorted(set(tables) - {"family", "attack", "round"}):
        raise UserError(f"{path}: {unknown[0]}: unknown; there are family and attack")
    families, named = tables.get("family"), tables.get("attack")
    if not isinstance(families, dict) or not isinstance(named, dict):
        raise UserError(f"{path}: give a table [family] and tables [attack.NAME]")
    in_round = tables.get("round", 1)
    return Catalogue(
        attacks=tuple(
            _check(validate(Attack, table, f"{path}: {name}", name=name, round=in_round), families, path)
            for name, table in named.items()
        ),
        families={name: str(told) for name, told in families.items()},
    )


def dress_up(attack: Attack, exchange: Exchange) -> Exchange:
    """The exchange with its reply dressed up, under an id of its own.

    >>> attack = Attack(name="label", family="fake", template="{reply}{text}", text=" Good!", times=2)
    >>> dress_up(attack, Exchange(id="1", prompt="I won!", response="So what.")).response
    'So what. Good! Good!'
    """
    reply = exchange.response
    disguise = DISGUISES.get(attack.disguise, str)
    start, rest = halve(reply)
    fillings = {
        "reply": reply,
        "disguised": disguise(reply),
        "start": start,
        "rest": rest,
        "prompt": exchange.prompt,
        "text": disguise(attack.text) * attack.times,
    }
    # In one pass: what stands in a reply or a prompt is never taken for a hole.
    response = HOLE.sub(lambda hole: fillings[hole[1]], attack.template)
    return replace(exchange, id=f"{exchange.id} [{attack.name}]", response=response)


def halve(reply: str) -> tuple[str, str]:
    """A reply in two: after its first sentence, or where it has but one, in the middle of its words.

    >>> halve("It was a dog. Get another."), halve("It was a dog.")
    (('It was a dog.', 'Get another.'), ('It was', 'a dog.'))
    """
    sentence = re.match(r"(.+?[.!?])\s+(?=\S)", reply, re.DOTALL)
    if sentence:
        return sentence[1], reply[sentence.end() :]
    words = reply.split()
    middle = (len(words) + 1) // 2
    return " ".join(words[:middle]), " ".join(words[middle:])


def _between(mark: str) -> Callable[[str], str]:
    """Puts a mark after every letter."""
    return lambda text: re.sub(r"(\w)", rf"\1{mark}", text)


def _swap(letters: str, others: str) -> Callable[[str], str]:
    table = str.maketrans(letters, others)
    return lambda text: text.translate(table)


def _shift(text: str, *, small: int, large: int) -> str:
    """The 26 letters as those of another alphabet that stand in the same order."""
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


def _check(attack: Attack, families: Mapping[str, Any], path: Path) -> Attack:
    holes, disguise = set(HOLE.findall(attack.template)), attack.disguise
    has_reply = bool(holes & {"reply", "disguised"}) or {"start", "rest"} <= holes
    has_text = bool(attack.text) == ("text" in holes) and attack.times >= 1
    for is_wrong, problem in (
        (attack.family not in families, f"family: {attack.family!r} is not under [family]; add it there"),
        (
            disguise and disguise not in DISGUISES,
            f"disguise: unknown {disguise!r}; known: {', '.join(sorted(DISGUISES))}",
        ),
        (not has_reply, "template: the reply is not in it; write {reply} where it goes"),
        (not has_text, "text: give one where the template has {text}, at least once"),
        ("disguised" in holes and not disguise, "disguise: missing, and the template has {disguised}"),
        (
            disguise and not holes & {"disguised", "text"},
            "disguise: the template has neither {disguised} nor {text}",
        ),
    ):
        if is_wrong:
            raise UserError(f"{path}: {attack.name}: {problem}")
    return attack
