"""The data of a training, read from files, and its digests."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from data.errors import UserError
from data.rated_exchanges import RatedExchange, join_ratings
from data.readers.conversations import DISTINCTIVE_WORDS
from data.records import LABELS, Exchange, digest_json, to_plain
from data.tables import read_exchanges, read_ratings
from judge.robustness.catalogue import Perturbation, read_perturbations
from training.graded_replies import read_constant_replies, read_graded_replies, read_grades
from training.rated_sets import RATED_SETS, RatedItem, read_rated_set
from training.recipe import Recipe

EVALUATION_ITEMS, EVALUATION_REPLIES = 600, 2  # of a set with the weight 0, and of one of its conversations


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """Rated exchanges, items of other rated sets, and unrated texts.

    `evaluation_items` are items of sets with the weight 0: no training reads them, a trial predicts them.
    """

    ratings: Sequence[RatedExchange] = ()
    items: Sequence[RatedItem] = ()
    texts: Sequence[Exchange] = ()
    evaluation_items: Sequence[RatedItem] = ()

    def exchanges(self) -> list[Exchange]:
        """Return all rated replies."""
        return [
            *(rated.exchange for rated in self.ratings),
            *(exchange for item in self.items for exchange in item.exchanges),
        ]

    def for_recipe(self, recipe: Recipe) -> "TrainingData":
        """Return the data as a recipe reads it: without situations where it drops all of them."""
        return replace(self, items=without_situations(self.items)) if recipe.drop_context >= 1 else self

    def digests(self, recipes: Sequence[Recipe]) -> dict[str, str]:
        """Return a digest of each data set that these recipes read, in whatever order its rows come."""
        digests = {}
        if self.ratings:
            digests["ratings"] = _digest(
                f"{rated.exchange.content_digest} {rated.rater} {rated.target}" for rated in self.ratings
            )
        for name in dict.fromkeys(item.set for item in self.items):
            digests[name] = digest_items(item for item in self.items if item.set == name)
        if self.texts:
            digests["texts"] = _digest(text.content_digest for text in self.texts)
        if any(recipe.ours for recipe in recipes):
            digests["graded replies"] = _digest(
                f"{reply.exchange.content_digest} {reply.score}" for reply in read_graded_replies()
            )
            digests["constant replies"] = _digest(reply.text for reply in read_constant_replies())
            digests["perturbations"] = digest_json(to_plain(training_perturbations()))[:16]
        if any(recipe.grades for recipe in recipes):
            digests["grades"] = _digest(f"{digest} {score}" for digest, score in read_grades().items())
        return digests

    def describe(self) -> dict[str, Any]:
        """Return the counts that a model card prints."""
        counts = Counter(item.set for item in self.items)
        shares = np.mean([rated.target for rated in self.ratings], axis=0) if self.ratings else ()
        return {
            "ratings": len(self.ratings),
            "raters": len({rated.rater for rated in self.ratings}),
            "models": sorted({rated.exchange.model for rated in self.ratings}),
            "shares": {label: round(float(share), 4) for label, share in zip(LABELS, shares, strict=False)},
            "sets": {
                name: {"items": count, "licence": RATED_SETS[name].licence, "raters": RATED_SETS[name].raters}
                for name, count in counts.items()
            },
        }


@cache
def training_perturbations() -> tuple[Perturbation, ...]:
    """Return the perturbations of replies that training may use: those of families that no test uses."""
    return tuple(item for item in read_perturbations() if not item.is_test_only)


def digest_items(items: Iterable[RatedItem]) -> str:
    """Return a digest of rated items, in whatever order they come."""
    return _digest(f"{item.set} {item.exchanges[-1].content_digest} {item.rating}" for item in items)


def _digest(rows: Iterable[str]) -> str:
    return sha256("\n".join(sorted(rows)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read_training_data(
    exchanges: Path | None,
    ratings: Path | None,
    recipes: Sequence[Recipe],
    *,
    sets: Path | None,
    texts: Sequence[Path],
) -> TrainingData:
    """Read all that a recipe and its teachers use; `sets` has one folder for each source, as published."""
    if (exchanges is None) != (ratings is None):
        raise UserError("RATINGS are missing: the human ratings of the exchanges")
    if texts and not recipes[0].teachers:
        raise UserError("--texts: the recipe has no teacher to label them")
    names = list(dict.fromkeys(name for recipe in recipes for name in recipe.sets))
    trained = {name for recipe in recipes for name, weight in recipe.sets.items() if weight}
    if names and sets is None:
        raise UserError(
            f"--sets: the recipe uses {', '.join(names)}; set the folder that has them, or use a recipe "
            "without [sets]"
        )
    if sets and not names:
        raise UserError("--sets: the recipe names no other rated set")
    if not trained and exchanges is None:
        raise UserError("EXCHANGES and RATINGS are missing: replies, and their human ratings")
    items = {
        name: read_rated_set(name, sets)
        for name in names
        if sets and (name in trained or (sets / RATED_SETS[name].source).exists())
    }
    return TrainingData(
        ratings=join_ratings(read_exchanges(exchanges), read_ratings(ratings))
        if exchanges is not None and ratings is not None
        else (),
        items=[item for name in items if name in trained for item in items[name]],
        texts=[exchange for path in texts for exchange in read_exchanges(path)],
        evaluation_items=[
            item for name in items if name not in trained for item in _sample_items(items[name])
        ],
    )


def _sample_items(items: Iterable[RatedItem]) -> list[RatedItem]:
    """Return at most `EVALUATION_ITEMS` items, each with its last replies, the same in every run."""
    ordered = sorted(items, key=lambda item: item.exchanges[-1].content_digest)
    return [replace(item, exchanges=_evenly_spaced(item.exchanges)) for item in ordered[:EVALUATION_ITEMS]]


def _evenly_spaced(exchanges: Sequence[Exchange]) -> tuple[Exchange, ...]:
    if len(exchanges) <= EVALUATION_REPLIES:
        return tuple(exchanges)
    places = np.linspace(0, len(exchanges) - 1, EVALUATION_REPLIES + 1).round().astype(int)[1:]
    return tuple(exchanges[place] for place in places)


def without_situations(items: Sequence[RatedItem]) -> list[RatedItem]:
    """Return items without emotion, situation, and turns that repeat a passage of the situation.

    Where people are given a situation to speak of, many copy it: its text then appears as theirs, under its
    own license. A reply whose prompt is such a turn is left out.
    """
    kept = []
    for item in items:
        exchanges = []
        for exchange in item.exchanges:
            situation = exchange.situation or ""
            if repeats(exchange.prompt, situation) or repeats(exchange.response, situation):
                continue
            dialogue = tuple(turn for turn in exchange.dialogue if not repeats(turn.text, situation))
            exchanges.append(replace(exchange, emotion=None, situation=None, dialogue=dialogue))
        if exchanges:
            kept.append(replace(item, exchanges=tuple(exchanges)))
    return kept


def repeats(text: str, source: str) -> bool:
    """Return whether a text contains eight consecutive words of a source, or all of a shorter source.

    >>> repeats("Hi! My dog died, sadly.", "my dog DIED"), repeats("My dog is ill.", "My dog died.")
    (True, False)
    """
    words, source_words = (re.findall(r"\w+", part.casefold()) for part in (text, source))
    size = min(DISTINCTIVE_WORDS, len(source_words))
    if not size:
        return False
    runs = {tuple(source_words[start : start + size]) for start in range(len(source_words) - size + 1)}
    return any(tuple(words[start : start + size]) in runs for start in range(len(words) - size + 1))
