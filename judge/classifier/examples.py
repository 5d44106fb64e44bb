"""Training examples: rated exchanges, and the made ones that teach what ratings alone do not."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from data.errors import UserError
from data.records import LABELS, Exchange, Rating
from judge.explanation import split_reply

DISMISSALS = Path(__file__).parent / "dismissals.txt"
# What people would say of a reply that belongs to another prompt, or brushes the speaker off. Nobody rated
# these: the numbers are ours, and they decide how far such replies fall, not how rated ones are told apart.
MISMATCHED = (0.60, 0.30, 0.10)
DISMISSED = (0.92, 0.06, 0.02)
STOCK_SYMPATHY = (0.75, 0.20, 0.05)
SYMPATHY = (
    "I'm so sorry to hear that.",
    "Sorry to hear that.",
    "That's great to hear!",
    "I understand.",
    "Oh no.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An exchange with the probabilities to learn; `rater` is empty where nobody rated."""

    exchange: Exchange
    target: tuple[float, ...]
    rater: str = ""
    batch: str = ""
    group: str = ""  # replies to one prompt share it


def join_ratings(exchanges: Iterable[Exchange], ratings: Iterable[Rating]) -> list[Example]:
    """One example for every rating of empathy, from 1 to 3, whose exchange is there."""
    top = len(LABELS)
    by_id = {exchange.id: exchange for exchange in exchanges}
    examples = []
    for rating in ratings:
        exchange = by_id.get(rating.id)
        if exchange is None or rating.dimension != "empathy":
            continue
        if not rating.rater:
            raise UserError(f"a rating of {rating.id!r} names no rater; give each person a name of their own")
        if not 1 <= rating.rating <= top:
            raise UserError(f"rating {rating.rating:g} of {rating.id!r} is not on the scale from 1 to {top}")
        target = tuple(float(rating.rating == level) for level in range(1, top + 1))
        if sum(target) != 1:
            raise UserError(f"rating {rating.rating:g} of {rating.id!r} is not one of 1, 2 and 3")
        group = str(exchange.extra.get("dialog_id", exchange.prompt))
        batch = rating.batch or str(exchange.extra.get("batch", rating.rater))
        examples.append(
            Example(exchange=exchange, target=target, rater=rating.rater, batch=batch, group=group)
        )
    if not examples:
        raise UserError("no rating belongs to an exchange: the ids of the two files do not meet")
    return examples


def make_mismatched(examples: Sequence[Example], count: int, chance: random.Random) -> list[Example]:
    """Rated replies put under another group's prompt, same model, so that style tells nothing.

    There are none where every model answered one group only.
    """
    by_model: dict[str, list[Example]] = {}
    groups: dict[str, set[str]] = {}
    for example in examples:
        by_model.setdefault(example.exchange.model, []).append(example)
        groups.setdefault(example.exchange.model, set()).add(example.group)
    fit = [example for example in examples if len(groups[example.exchange.model]) > 1]
    made: list[Example] = []
    while fit and len(made) < count:
        here = chance.choice(fit)
        there = chance.choice(by_model[here.exchange.model])
        if there.group != here.group:
            exchange = replace(here.exchange, response=there.exchange.response)
            made.append(Example(exchange=exchange, target=MISMATCHED))
    return made


def read_dismissals() -> list[str]:
    """Curt replies that brush the speaker off."""
    return [line for line in DISMISSALS.read_text(encoding="utf-8").splitlines() if line]


def make_dismissals(examples: Sequence[Example], count: int, chance: random.Random) -> list[Example]:
    """Curt dismissals under real prompts, a third of them dressed up with a stock phrase of sympathy."""
    lines = read_dismissals()
    made = []
    for number in range(count):
        exchange = chance.choice(examples).exchange
        curt = chance.choice(lines)
        if number % 3:
            made.append(Example(exchange=replace(exchange, response=curt), target=DISMISSED))
        else:
            phrase = chance.choice(SYMPATHY)
            text = f"{phrase} {curt}" if chance.random() < 0.5 else f"{curt} {phrase}"
            made.append(Example(exchange=replace(exchange, response=text), target=STOCK_SYMPATHY))
    return made


def cut_pieces(exchanges: Sequence[Exchange], count: int, chance: random.Random) -> list[Exchange]:
    """Replies with one of their parts left out, each reply once at most: near misses of rated ones."""
    fit = [exchange for exchange in exchanges if len(split_reply(exchange.response)) > 1]
    pieces = []
    for exchange in chance.sample(fit, min(count, len(fit))):
        parts = split_reply(exchange.response)
        del parts[chance.randrange(len(parts))]
        pieces.append(replace(exchange, response="".join(parts).strip()))
    return pieces


def soften(
    examples: Sequence[Example], taught: Mapping[str, tuple[float, ...]], weight: float
) -> list[Example]:
    """Targets moved towards a teacher's probabilities, which carry less noise than one person's rating."""
    softened = []
    for example in examples:
        lesson = taught.get(example.exchange.content_digest)
        if lesson is not None:
            target = tuple(
                (1 - weight) * rated + weight * said
                for rated, said in zip(example.target, lesson, strict=True)
            )
            example = replace(example, target=target)
        softened.append(example)
    return softened
