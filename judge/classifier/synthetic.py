"""Unkind replies dressed up to look kind or to sway a judge: made examples whose core stays Bad.

A network that met kind phrases in such company only would learn to distrust the phrases. So as many examples
show them where they belong: alone, and around replies that people rated, whose ratings they do not change.
"""

import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from data.records import POSITIVE_EMOTIONS
from judge.classifier.examples import DISMISSED, MISMATCHED, Example, read_dismissals
from judge.explanation import split_reply

HERE = Path(__file__).parent
# Ours, as those of `examples`: no disguise makes an unkind reply kind; kind phrases alone get about
# what the judge gave them before it met any disguise.
DISGUISED = (0.85, 0.12, 0.03)
PHRASES = (0.20, 0.37, 0.43)
PLAIN = 0.3  # part of the unkind replies that stand alone
ALIEN = 0.15  # part of the cores that are replies to another prompt instead
SPOILT = 0.4  # chance that the core is only part of a rated reply, which it spoils
REPEATED = 0.2  # chance that a cover is said over and over
FRONT = 80  # words in front of the core at most: what the judge does not get to read teaches it nothing
SAD = ("sympathy", "therapy", "questions", "warm", "comfort")
GLAD = ("joy", "joy", "therapy")


@cache
def read_covers() -> Mapping[str, Any]:
    """The words that disguise, by kind."""
    return tomllib.loads((HERE / "covers.toml").read_text(encoding="utf-8"))


@cache
def read_unkind() -> tuple[str, ...]:
    """Unkind replies; of the curt ones those that stay unkind in any company, as "Okay." does not."""
    lines = (HERE / "unkind.txt").read_text(encoding="utf-8").splitlines()
    curt = (line for line in read_dismissals() if len(line.split()) > 2)
    return (*(line for line in lines if line), *curt)


def make_disguised(examples: Sequence[Example], count: int, chance: random.Random) -> list[Example]:
    """Unkind replies under real prompts, most of them behind something kind; and as many counterparts."""
    made = []
    for _ in range(count):
        here = chance.choice(examples)
        made += [_disguise(here, examples, chance), _belong(chance.choice(examples), chance)]
    return made


def _disguise(here: Example, examples: Sequence[Example], chance: random.Random) -> Example:
    if chance.random() < ALIEN:
        core, target = chance.choice(examples).exchange.response, MISMATCHED
    else:
        core, target = " ".join(chance.sample(read_unkind(), chance.choice((1, 1, 1, 2)))), DISGUISED
    if chance.random() < PLAIN:
        text, target = core, target if target is MISMATCHED else DISMISSED
    elif chance.random() < SPOILT:
        text = spoil(here.exchange.response, core, chance)
    else:
        text = dress_up(core, COVERS, here, chance)
    return Example(exchange=replace(here.exchange, response=text), target=target)


def _belong(here: Example, chance: random.Random) -> Example:
    """Kind phrases alone, or around a reply whose rating stays what it was."""
    if chance.random() < 0.5:
        text = " ".join(_be_kind(here, chance) for _ in range(chance.choice((1, 1, 2))))
        return Example(exchange=replace(here.exchange, response=text), target=PHRASES)
    text = dress_up(here.exchange.response, (_be_kind,), here, chance, most=1)
    return Example(exchange=replace(here.exchange, response=text), target=here.target)


def spoil(reply: str, core: str, chance: random.Random) -> str:
    """A real reply with an unkind part among its own."""
    parts = [part.strip() for part in split_reply(reply)]
    parts.insert(chance.randrange(len(parts) + 1), core)
    return " ".join(parts)


Cover = Callable[[Example, random.Random], str]


def dress_up(
    core: str, covers: Sequence[Cover], example: Example, chance: random.Random, *, most: int = 3
) -> str:
    """The core with up to `most` covers before and behind it."""
    text, room = core, FRONT
    for _ in range(min(most, chance.choice((1, 1, 2, 3)))):
        cover = chance.choice(covers)(example, chance)
        between = chance.choice((" ", " ", " ", "\n", "\n\n"))
        if chance.random() < 0.55 and len(cover) < 6 * room:
            text, room = f"{cover}{between}{text}", room - len(cover) // 6
        else:
            text = f"{text}{between}{cover}"
    return text


def _be_kind(example: Example, chance: random.Random) -> str:
    """One to four kind sentences that suit the speaker's feeling."""
    kinds = GLAD if example.exchange.emotion in POSITIVE_EMOTIONS else SAD
    lines = [
        chance.choice(read_covers()[chance.choice(kinds)]) for _ in range(chance.choice((1, 2, 2, 3, 4)))
    ]
    return " ".join(dict.fromkeys(lines))


def _overdo(example: Example, chance: random.Random) -> str:
    """Many kind sentences, or one over and over."""
    kinds = GLAD if example.exchange.emotion in POSITIVE_EMOTIONS else SAD
    lines = read_covers()[chance.choice(kinds)]
    if chance.random() < REPEATED:
        return " ".join([chance.choice(lines)] * chance.randint(2, 8))
    return " ".join(chance.sample(lines, min(len(lines), chance.randint(3, 8))))


def _say(kind: str, most: int) -> Cover:
    """One to `most` lines of a kind, or one of them over and over."""

    def say(example: Example, chance: random.Random) -> str:
        lines = read_covers()[kind]
        if chance.random() < REPEATED:
            return " ".join([chance.choice(lines)] * chance.randint(2, 8))
        return " ".join(chance.sample(lines, chance.randint(1, min(most, len(lines)))))

    return say


def _pile(kind: str, between: Sequence[str], most: int) -> Cover:
    """Single words or signs, heaped up."""

    def pile(example: Example, chance: random.Random) -> str:
        words = read_covers()[kind].split()
        return chance.choice(between).join(chance.choices(words, k=chance.randint(2, most)))

    return pile


def _echo(example: Example, chance: random.Random) -> str:
    """What the speaker said, given back."""
    prompt = example.exchange.prompt.strip()
    return chance.choice(('You said: "{}"', "{}", "I hear you saying: {}", "So {}")).format(prompt)


def _borrow(example: Example, chance: random.Random) -> str:
    """The first sentences of a real reply to the same prompt."""
    parts = split_reply(example.exchange.response)
    return "".join(parts[: chance.randint(1, len(parts))]).strip()


COVERS: tuple[Cover, ...] = (
    *(_be_kind,) * 6,
    *(_overdo,) * 3,
    *(_borrow,) * 4,
    *(_say("orders", 2),) * 2,
    _say("labels", 2),
    _say("flattery", 2),
    _say("filler", 4),
    _pile("words", (" ", ", ", " #", "! "), 30),
    _pile("emoji", ("", " "), 20),
    _echo,
)
