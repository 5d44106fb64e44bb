"""Rated replies: public sets with human ratings, texts that they share, and replies with a grade instead."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from itertools import cycle, pairwise
from pathlib import Path
from statistics import fmean
from typing import Final, TypeVar

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import read_toml
from empathy_judge.data.importers import import_source
from empathy_judge.data.importers.intake import Imported
from empathy_judge.data.importers.rated_replies import EPITOME_DIMENSIONS
from empathy_judge.data.readers.conversations import DISTINCTIVE_WORDS, split_conversation
from empathy_judge.data.records import CONVERSATION, Exchange, Turn
from empathy_judge.data.tables import validate
from empathy_judge.judge.robustness.catalogue import read_replies

RECIPES: Final = Path(__file__).parent / "recipes"  # in the repository; data files are not in the wheel
FACTS: Final = Path(__file__).with_suffix(".toml")
CLUSTERED: Final = ("epitome", "empathetic-exchanges", "ieval", "resort", "empo")  # by an id's first part
REVERSED: Final = frozenset({"advice_giving", "self_oriented", "dismissing_emotions"})
GRADED_REPLIES: Final = RECIPES / "graded_replies.jsonl"
GRADES: Final = RECIPES / "grades.json"
CONSTANT_REPLIES: Final = RECIPES / "constant_replies.jsonl"
# Assumed scores of the catalogue's replies by kind, from 0 (Bad) to 100 (Good). Nobody rated these.
SCORES = {"insults": 3, "unkind-dialects": 8, "cruel": 12, "long-poor": 20}
SCORES |= {"kind": 80, "growing": 85, "excellent": 88}


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
    path: str = ""
    evaluation_only: bool = False


@dataclass(frozen=True, slots=True)
class RatedItem:
    """A unit of rating: replies in order, a rating on the set's scale, and the ratings of other judges."""

    set: str
    exchanges: tuple[Exchange, ...]
    rating: float
    rater: str | None  # known where one person rated several items
    system: str
    cluster: str  # the unit of resampling
    others: Mapping[str, float] = field(default_factory=dict)  # recorded judges, workers and single experts
    label: int | None = None  # Bad, Okay or Good as 1 to 3, where raters gave one


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

    Texts are compared by their words. One of fewer than eight, such as a greeting, counts only with the next.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GradedReply:
    """A reply and the mean rating that its writer expects: Bad 0, Okay 50, Good 100."""

    exchange: Exchange
    score: float


@cache
def read_written_replies(path: Path = GRADED_REPLIES) -> tuple[GradedReply, ...]:
    """Read the replies of a file: each line is a conversation with replies to it, from cruel to excellent."""
    replies = []
    key = "synthetic" if path.name == GRADED_REPLIES.name else path.stem
    for line in _read(path, key).strip().split("\n"):  # some texts hold line breaks of other kinds
        prompt = json.loads(line)
        *earlier, last = prompt["turns"]
        turns = zip(cycle(("speaker", "listener")), earlier, strict=False)
        dialogue = tuple(Turn(speaker=speaker, text=text) for speaker, text in turns)
        for reply in prompt["replies"]:
            text, kind = reply["text"], reply["kind"]
            identity = sha256(f"{last}\n{text}".encode()).hexdigest()[:12]
            exchange = Exchange(id=identity, prompt=last, response=text, model=kind, dialogue=dialogue)
            replies.append(GradedReply(exchange=exchange, score=reply["score"]))
    return tuple(replies)


@cache
def read_graded_replies() -> tuple[GradedReply, ...]:
    """Return all graded replies: those of the file, and the training half of the robustness catalog."""
    of_catalogue = (
        GradedReply(exchange=reply.exchange(stage), score=SCORES[reply.kind])
        for reply in read_replies("training")
        for stage in reply.stages()
    )
    return (*read_written_replies(), *of_catalogue)


@dataclass(frozen=True, slots=True)
class ConstantReply:
    """A reply that says nothing of its prompt; `feeling` is what it suits: sad, glad, or any."""

    text: str
    feeling: str


@cache
def read_constant_replies(use: str = "training", path: Path = CONSTANT_REPLIES) -> tuple[ConstantReply, ...]:
    """Read the constant replies for training, or every fourth one, which is for evaluation alone."""
    lines = _read(path, "constants").splitlines()
    return tuple(
        ConstantReply(**json.loads(line))
        for number, line in enumerate(lines)
        if (number % 4 == 3) == (use == "evaluation")
    )


@cache
def read_grades(path: Path = GRADES) -> Mapping[str, int]:
    """Return a language model's scores of replies by content digest; it was not shown the human ratings."""
    grades: dict[str, int] = json.loads(_read(path, "grades"))
    return grades


def _read(path: Path, key: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(
            f"{path}: missing, because the installed package does not contain it; train from the repository, "
            f"or with a recipe that has {key} = 0"
        ) from error
