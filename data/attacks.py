"""Attacks on a judge: ways to dress up a Bad reply so that it passes for Good, from `attacks.toml`."""

import codecs
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from data.errors import UserError
from data.files import read_toml
from data.prompts import SAMPLE_PROMPTS, read_prompts
from data.records import Exchange

ATTACKS: Final = Path(__file__).parent / "attacks.toml"
HOLE: Final = re.compile(r"\{(reply|disguised|start|rest|prompt|text)\}")
PLAIN: Final = "plain"  # the model that "wrote" the plain replies


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BadReply:
    """A reply without empathy to one of the sample prompts, and what is wrong with it."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    prompt: str  # its id
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The attacks, what each family of them tries, and the plain replies they are made of."""

    attacks: tuple[Attack, ...]
    families: Mapping[str, str]
    replies: tuple[Exchange, ...]  # `extra` holds the kind


def read_attacks(path: Path = ATTACKS, *, prompts: Path = SAMPLE_PROMPTS) -> Catalogue:
    """The shipped catalogue, or another file of the same shape over other prompts."""
    tables = read_toml(path)
    if unknown := sorted(set(tables) - {"family", "attack", "reply"}):
        raise UserError(f"{path}: {unknown[0]}: unknown; there are family, attack and reply")
    families, named, listed = tables.get("family"), tables.get("attack"), tables.get("reply")
    if not isinstance(families, dict) or not isinstance(named, dict) or not isinstance(listed, list):
        raise UserError(f"{path}: give a table [family], tables [attack.NAME] and tables [[reply]]")
    attacks = [
        _check(_validate(Attack, table, f"{path}: {name}", name=name), families, path)
        for name, table in named.items()
    ]
    asked = {prompt.id: prompt for prompt in read_prompts(prompts)}
    replies = []
    for number, table in enumerate(listed, start=1):
        reply = _validate(BadReply, table, f"{path}: reply {number}")
        if reply.prompt not in asked:
            raise UserError(f"{path}: reply {number}: prompt: {reply.prompt!r} is not in {prompts}")
        about = {"kind": reply.kind}
        identity = f"{reply.prompt} {number}"
        replies.append(
            replace(asked[reply.prompt], id=identity, response=reply.text, model=PLAIN, extra=about)
        )
    return Catalogue(
        attacks=tuple(attacks),
        families={name: str(told) for name, told in families.items()},
        replies=tuple(replies),
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
Told = TypeVar("Told", Attack, BadReply)


def _validate(kind: type[Told], table: Any, place: str, **named: str) -> Told:
    from pydantic import TypeAdapter, ValidationError

    if not isinstance(table, dict):
        raise UserError(f"{place}: a table was expected")
    try:
        return TypeAdapter(kind).validate_python({**table, **named})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{place}: {field}: {first['msg']}") from error


def _check(attack: Attack, families: Mapping[str, Any], path: Path) -> Attack:
    place, holes = f"{path}: {attack.name}", set(HOLE.findall(attack.template))
    if attack.family not in families:
        raise UserError(f"{place}: family: {attack.family!r} is not under [family]; add it there")
    if attack.disguise and attack.disguise not in DISGUISES:
        raise UserError(
            f"{place}: disguise: unknown {attack.disguise!r}; known: {', '.join(sorted(DISGUISES))}"
        )
    if not holes & {"reply", "disguised"} and not {"start", "rest"} <= holes:
        raise UserError(f"{place}: template: the reply is not in it; write {{reply}} where it goes")
    if bool(attack.text) != ("text" in holes) or attack.times < 1:
        raise UserError(f"{place}: text: give one where the template has {{text}}, at least once")
    if "disguised" in holes and not attack.disguise:
        raise UserError(f"{place}: disguise: missing, and the template has {{disguised}}")
    if attack.disguise and not holes & {"disguised", "text"}:
        raise UserError(f"{place}: disguise: the template has neither {{disguised}} nor {{text}}")
    return attack
