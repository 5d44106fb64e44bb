"""Public sets with human ratings: scale, raters and license of each, its items, and texts that sets share."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Final, TypeVar

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import read_toml
from empathy_judge.data.importers import import_source
from empathy_judge.data.importers.intake import Imported
from empathy_judge.data.importers.rated_replies import EPITOME_DIMENSIONS
from empathy_judge.data.readers.conversations import DISTINCTIVE_WORDS, split_conversation
from empathy_judge.data.records import CONVERSATION, Exchange
from empathy_judge.data.tables import validate
from empathy_judge.training.graded_replies import RECIPES, read_written_replies

FACTS: Final = Path(__file__).with_suffix(".toml")
CLUSTERED: Final = ("epitome", "empathetic-exchanges", "ieval", "resort", "empo")  # by an id's first part
REVERSED: Final = frozenset({"advice_giving", "self_oriented", "dismissing_emotions"})


@dataclass(frozen=True, slots=True)
class RatedSet:
    """Facts about a set; `rated_sets.toml` explains them."""

    name: str
    source: str
    unit: str
    scale: tuple[float, float]
    raters: str
    licence: str
    part: int = 0
    systems: bool = False
    path: str = ""
    evaluation_only: bool = False


@dataclass(frozen=True, slots=True)
class RatedItem:
    """A unit of rating: replies, a rating on the set's scale, and the ratings of other judges.

    `exchanges` are the replies in order, each with the turns before it as its dialogue. `rater` is known
    where one person rated several items; `cluster` is the unit of resampling; `others` are recorded judges,
    crowd workers and single experts, on the scale of the rating. `label` is Bad, Okay or Good as 1 to 3,
    where raters gave one.
    """

    set: str
    exchanges: tuple[Exchange, ...]
    rating: float
    rater: str | None
    system: str
    cluster: str
    others: Mapping[str, float] = field(default_factory=dict)
    label: int | None = None


_SETS: Final[Mapping[str, RatedSet]] = {
    name: validate(RatedSet, facts, str(FACTS), name=name) for name, facts in read_toml(FACTS).items()
}
RATED_SETS: Final = {name: facts for name, facts in _SETS.items() if not facts.evaluation_only}
EXTERNAL_SETS: Final = {name: facts for name, facts in _SETS.items() if facts.evaluation_only}


def read_rated_set(name: str, folder: Path) -> list[RatedItem]:
    """Return the items of a set with a text and a rating, from a folder that has one for each source."""
    if name not in _SETS:
        raise UserError(f"unknown rated set {name!r}; known: {', '.join(_SETS)}")
    facts = _SETS[name]
    if not facts.source:
        written = [(each.exchange, each.score) for each in read_written_replies(RECIPES / f"{name}.jsonl")]
        return [RatedItem(name, (each,), score, None, each.model, each.prompt) for each, score in written]
    imported = import_source(facts.source, folder / (facts.path or facts.source))
    exchanges = {exchange.id: exchange for exchange in imported.exchanges}
    scores = _scores_by_rater(name, imported)
    labels = {item.id: int(item.rating) for item in imported.ratings if item.dimension == "Rating"}
    items = []
    for identity in [key for key in dict.fromkeys([*exchanges, *scores]) if _belongs(name, key)]:
        by_rater = scores.get(identity, {})
        people = [score for rater, score in by_rater.items() if _counts(name, rater)]
        replies = _replies(facts, exchanges[identity]) if identity in exchanges else ()
        if people and replies:
            items.append(
                RatedItem(
                    set=name,
                    exchanges=replies,
                    rating=fmean(people),
                    rater=str(replies[0].extra["batch"]) if name == "ieval" else None,
                    system=str(replies[0].extra.get("file", replies[0].model)),
                    cluster=_cluster(name, identity),
                    others=_others(name, by_rater),
                    label=labels.get(identity),
                )
            )
    return items


Texts = TypeVar("Texts", RatedItem, Exchange)


def drop_shared(items: Sequence[Texts], against: Iterable[RatedItem | Exchange]) -> list[Texts]:
    """Return the items that share neither a text nor a source's conversation with the others.

    Texts are compared by their words alone. Texts of fewer than eight words, such as greetings, occur in many
    conversations by chance: they count only with the next turn, where both have eight words together.
    """
    taken: set[str] = set().union(*(_texts(item) for item in against))
    return [item for item in items if _texts(item).isdisjoint(taken)]


def _texts(item: RatedItem | Exchange) -> set[str]:
    """Return the texts of an item that identify its conversation."""
    last = item.exchanges[-1] if isinstance(item, RatedItem) else item
    turns = [_plain(text) for text in (*(turn.text for turn in last.dialogue), last.prompt, last.response)]
    pairs = [f"{first}\n{second}" for first, second in pairwise(turns)]
    texts = (*turns, *pairs, _plain(last.situation or ""))
    distinctive = {text for text in texts if len(text.split()) >= DISTINCTIVE_WORDS}
    # Conversations and turns of one source are two sets of the same conversations.
    if isinstance(item, RatedItem):
        distinctive.add(f"{source_of(item)}\n{item.cluster}")
    return distinctive


def source_of(item: RatedItem) -> str:
    """Return the source of an item, which may hold several sets; of given ratings, their name."""
    return _SETS[item.set].source if item.set in _SETS else item.set


@cache
def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _scores_by_rater(name: str, imported: Imported) -> dict[str, dict[str, float]]:
    """Return one number for each id and rater, on the scale of the set."""
    given: defaultdict[str, defaultdict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for rating in imported.ratings:
        given[rating.id][rating.rater][rating.dimension] = rating.rating
    scores: dict[str, dict[str, float]] = {}
    for identity, raters in given.items():
        rated = {rater: _score(name, marks) for rater, marks in raters.items()}
        scores[identity] = {rater: score for rater, score in rated.items() if score is not None}
    return scores


def _score(name: str, marks: Mapping[str, float]) -> float | None:
    """Return one number for a rater's marks; None where a mark is missing."""
    if name == "judging-empathy/epitome":
        levels = [marks.get(f"level_{dimension}") for dimension in EPITOME_DIMENSIONS]
        return None if None in levels else sum(level for level in levels if level is not None)
    if name == "judging-empathy/lend_an_ear":
        low, high = RATED_SETS[name].scale
        return fmean(low + high - mark if key in REVERSED else mark for key, mark in marks.items())
    return marks.get({"esconv-turns": "turn", "dstc9": "overall"}.get(name, "empathy"))


def _belongs(name: str, identity: str) -> bool:
    """Return whether an id of the source belongs to the set."""
    if name.startswith("judging-empathy/"):
        return identity.startswith(f"{name.split('/')[1]}/")
    return _SETS[name].source != "esconv" or ("/turn-" in identity) == (name == "esconv-turns")


def _counts(name: str, rater: str) -> bool:
    """Return whether a rater counts towards the rating."""
    if name.startswith("judging-empathy/"):
        return rater.startswith("expert")
    return rater != "gpt"


def _others(name: str, by_rater: Mapping[str, float]) -> dict[str, float]:
    if name.startswith("judging-empathy/"):
        return {rater.replace("expert", "expert-"): score for rater, score in by_rater.items()}
    if name == "resort":  # by position: two of four psychologists rated a reply
        return {f"expert-{number}": score for number, score in enumerate(by_rater.values(), 1)}
    return {rater: score for rater, score in by_rater.items() if rater == "gpt"}


def _replies(facts: RatedSet, exchange: Exchange) -> tuple[Exchange, ...]:
    if facts.name == "esconv-turns":
        return split_conversation(exchange)[-exchange.extra["rated_replies"] :]
    return split_conversation(exchange) if facts.unit == CONVERSATION else (exchange,)


def _cluster(name: str, identity: str) -> str:
    """Return the post, the conversation or the worker of an item."""
    parts = {"esconv-turns": 2, **dict.fromkeys(CLUSTERED, 1)}.get(name)
    return "/".join(identity.split("/")[:parts])
