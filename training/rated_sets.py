"""The sets that people rated: scale, raters and licence of each, its items, and texts that two sets share."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Final, TypeVar

from data.errors import UserError
from data.importers import import_source
from data.importers.epitome import EPITOME_DIMENSIONS
from data.importers.intake import Imported, SetAside
from data.readers.conversations import DISTINCTIVE_WORDS, split_conversation
from data.records import CONVERSATION, REPLY, Exchange

REVERSED: Final = frozenset({"advice_giving", "self_oriented", "dismissing_emotions"})


@dataclass(frozen=True, slots=True)
class RatedSet:
    """What is known of a set before one of its items is read."""

    name: str
    source: str
    unit: str
    scale: tuple[float, float]
    raters: str
    licence: str
    systems: bool = False
    is_simulated: bool = False  # a model spoke, so that its words are no person's answer to the listener


@dataclass(frozen=True, slots=True)
class RatedItem:
    """What people rated as one: replies, a rating on the set's scale, and what others said of the same.

    `exchanges` are the replies in order, each with the turns before it as its dialogue. `rater` is known
    where one person rated several items; `cluster` is what an interval draws; `others` are recorded judges,
    the crowd and single experts, on the scale of the rating. `label` is Bad, Okay or Good as 1 to 3, where
    people were asked for that too.
    """

    set: str
    exchanges: tuple[Exchange, ...]
    rating: float
    rater: str | None
    system: str
    cluster: str
    others: Mapping[str, float] = field(default_factory=dict)
    label: int | None = None


def _listed(*sets: RatedSet) -> Mapping[str, RatedSet]:
    return MappingProxyType({item.name: item for item in sets})


RATED_SETS: Final = _listed(
    RatedSet(
        "epitome", "epitome", REPLY, (0, 6), "trained annotators, mostly one a reply", "research use only"
    ),
    RatedSet(
        "ieval", "ieval", CONVERSATION, (1, 5), "the person who talked, all four bots", "CC BY", systems=True
    ),
    RatedSet("esconv", "esconv", CONVERSATION, (1, 5), "the person who sought support", "CC BY-NC"),
    RatedSet(
        "esconv-turns",
        "esconv",
        REPLY,
        (1, 5),
        "the person who sought support, for one to three replies at once",
        "CC BY-NC",
    ),
    RatedSet("empathetic-exchanges", "empathetic-exchanges", REPLY, (1, 5), "not said", "CC BY-NC"),
    RatedSet("dstc9", "dep", CONVERSATION, (1, 5), "mean of three crowd workers", "CC BY", systems=True),
    RatedSet(
        "judging-empathy/empatheticdialogues",
        "judging-empathy",
        CONVERSATION,
        (1, 5),
        "mean of three experts",
        "MIT",
    ),
    RatedSet("judging-empathy/epitome", "judging-empathy", REPLY, (0, 6), "mean of three experts", "MIT"),
    RatedSet(
        "judging-empathy/lend_an_ear",
        "judging-empathy",
        CONVERSATION,
        (1, 5),
        "mean of three experts",
        "MIT",
        is_simulated=True,
    ),
)


def read_rated_set(
    name: str, folder: Path, on_set_aside: Callable[[SetAside], None] | None = None
) -> list[RatedItem]:
    """The items of a set, from a folder that has one folder for each source.

    What became no item, for want of a text or of a rating, goes to `on_set_aside`.
    """
    if name not in RATED_SETS:
        raise UserError(f"unknown rated set {name!r}; known: {', '.join(RATED_SETS)}")
    about = RATED_SETS[name]
    imported = import_source(about.source, folder / about.source)
    exchanges = {exchange.id: exchange for exchange in imported.exchanges}
    words = _words_by_rater(name, imported)
    labels = {item.id: int(item.rating) for item in imported.ratings if item.dimension == "Rating"}
    items = []
    for identity in [key for key in dict.fromkeys([*exchanges, *words]) if _belongs(name, key)]:
        said = words.get(identity, {})
        people = [word for rater, word in said.items() if _counts(name, rater)]
        replies = _replies(about, exchanges[identity]) if identity in exchanges else ()
        if people and replies:
            items.append(
                RatedItem(
                    set=name,
                    exchanges=replies,
                    rating=fmean(people),
                    rater=str(replies[0].extra["batch"]) if name == "ieval" else None,
                    system=str(replies[0].extra.get("file", replies[0].model)),
                    cluster=_cluster(name, identity),
                    others=_others(name, said),
                    label=labels.get(identity),
                )
            )
        elif on_set_aside:
            on_set_aside(SetAside(identity, "no rating" if replies else "no reply with a text"))
    return items


Texts = TypeVar("Texts", RatedItem, Exchange)


def drop_shared(items: Sequence[Texts], against: Iterable[RatedItem | Exchange]) -> list[Texts]:
    """Those of the items that have neither a text nor a source's conversation in common with the others.

    Texts are compared by their words alone. Shorter ones than eight words, such as greetings, stand in many
    conversations by chance: they count only with the turn after them, where both have eight together.
    """
    taken: set[str] = set().union(*(_texts(item) for item in against))
    return [item for item in items if _texts(item).isdisjoint(taken)]


def _texts(item: RatedItem | Exchange) -> set[str]:
    """All that a judge may read of an item, as far as it tells one conversation from another."""
    last = item.exchanges[-1] if isinstance(item, RatedItem) else item
    turns = [_plain(text) for text in (*(turn.text for turn in last.dialogue), last.prompt, last.response)]
    pairs = [f"{first}\n{second}" for first, second in pairwise(turns)]
    texts = (*turns, *pairs, _plain(last.situation or ""))
    told = {text for text in texts if len(text.split()) >= DISTINCTIVE_WORDS}
    # Talks and turns of one source are two sets of the same conversations, also where all words are few.
    return told | {f"{source_of(item)}\n{item.cluster}"} if isinstance(item, RatedItem) else told


def source_of(item: RatedItem) -> str:
    """Where an item comes from: some sources hold several sets; of ratings somebody brings, their name."""
    return RATED_SETS[item.set].source if item.set in RATED_SETS else item.set


@cache
def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _words_by_rater(name: str, imported: Imported) -> dict[str, dict[str, float]]:
    """Who said what of each id: one number a rater, on the scale of the set."""
    given: defaultdict[str, defaultdict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for rating in imported.ratings:
        given[rating.id][rating.rater][rating.dimension] = rating.rating
    words: dict[str, dict[str, float]] = {}
    for identity, raters in given.items():
        scores = {rater: _score(name, marks) for rater, marks in raters.items()}
        words[identity] = {rater: score for rater, score in scores.items() if score is not None}
    return words


def _score(name: str, marks: Mapping[str, float]) -> float | None:
    """One number of a rater's marks; None where a mark is missing."""
    if name == "judging-empathy/epitome":
        levels = [marks.get(f"level_{dimension}") for dimension in EPITOME_DIMENSIONS]
        return None if None in levels else sum(level for level in levels if level is not None)
    if name == "judging-empathy/lend_an_ear":
        low, high = RATED_SETS[name].scale
        return fmean(low + high - mark if key in REVERSED else mark for key, mark in marks.items())
    return marks.get({"esconv-turns": "turn", "dstc9": "overall"}.get(name, "empathy"))


def _belongs(name: str, identity: str) -> bool:
    """Whether an id of the source is one of the set's: some sources hold several sets."""
    if name.startswith("judging-empathy/"):
        return identity.startswith(f"{name.split('/')[1]}/")
    return RATED_SETS[name].source != "esconv" or ("/turn-" in identity) == (name == "esconv-turns")


def _counts(name: str, rater: str) -> bool:
    """Whether a rater's word is part of the rating."""
    if name.startswith("judging-empathy/"):
        return rater.startswith("expert")
    return rater != "gpt"


def _others(name: str, said: Mapping[str, float]) -> dict[str, float]:
    if name.startswith("judging-empathy/"):
        return {rater.replace("expert", "expert-"): score for rater, score in said.items()}
    return {rater: score for rater, score in said.items() if rater == "gpt"}


def _replies(about: RatedSet, exchange: Exchange) -> tuple[Exchange, ...]:
    if about.name == "esconv-turns":
        return split_conversation(exchange)[-exchange.extra["rated_replies"] :]
    return split_conversation(exchange) if about.unit == CONVERSATION else (exchange,)


def _cluster(name: str, identity: str) -> str:
    """The post, the conversation or the worker that an item comes from."""
    parts = {"esconv-turns": 2, "epitome": 1, "empathetic-exchanges": 1, "ieval": 1}.get(name)
    return "/".join(identity.split("/")[:parts])
