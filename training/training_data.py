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

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import digest_json
from empathy_judge.data.rating_files.rated_inputs import RatedExchange, join_ratings
from empathy_judge.data.readers.conversations import DISTINCTIVE_WORDS
from empathy_judge.data.records import LABELS, Exchange, to_plain
from empathy_judge.data.tables import read_exchanges, read_ratings
from empathy_judge.judge.robustness.catalogue import Perturbation, read_perturbations
from empathy_judge.training import rated_sets
from empathy_judge.training.rated_sets import RATED_SETS, RatedItem
from empathy_judge.training.recipe import STUDY, Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """Rated exchanges, items of other rated sets, and unrated texts."""

    ratings: Sequence[RatedExchange] = ()
    items: Sequence[RatedItem] = ()
    texts: Sequence[Exchange] = ()
    evaluated: frozenset[str] = frozenset()  # sets with the weight 0, which only the finished judge reads

    def exchanges(self) -> list[Exchange]:
        """Return all rated replies."""
        return [
            *(rated.exchange for rated in self.ratings),
            *(exchange for item in self.items for exchange in item.exchanges),
        ]

    def for_recipe(self, recipe: Recipe) -> "TrainingData":
        """Return what a recipe trains on: not what is only evaluated, nor situations if it drops them all."""
        items = [item for item in self.items if item.set not in self.evaluated]
        return replace(
            self,
            ratings=() if STUDY in self.evaluated else self.ratings,
            items=without_situations(items) if recipe.drop_context >= 1 else items,
        )

    def digests(self, recipes: Sequence[Recipe]) -> dict[str, str]:
        """Return a digest of each data set that these recipes read, in whatever order its rows come."""
        digests = {}
        if self.ratings and STUDY not in self.evaluated:
            digests["ratings"] = _digest(
                f"{rated.exchange.content_digest} {rated.rater} {rated.target}" for rated in self.ratings
            )
        for name in dict.fromkeys(item.set for item in self.items if item.set not in self.evaluated):
            digests[name] = _digest(
                f"{name} {item.exchanges[-1].content_digest} {item.rating}"
                for item in self.items
                if item.set == name
            )
        if self.texts:
            digests["texts"] = _digest(text.content_digest for text in self.texts)
        if any(recipe.synthetic for recipe in recipes):
            digests["graded replies"] = _digest(
                f"{reply.exchange.content_digest} {reply.score}" for reply in rated_sets.read_graded_replies()
            )
            digests["constant replies"] = _digest(reply.text for reply in rated_sets.read_constant_replies())
            digests["perturbations"] = digest_json(to_plain(training_perturbations()))[:16]
        if any(recipe.grades for recipe in recipes):
            digests["grades"] = _digest(
                f"{digest} {score}" for digest, score in rated_sets.read_grades().items()
            )
        return digests

    def describe(self, recipes: Sequence[Recipe]) -> dict[str, Any]:
        """Return the counts that a model card prints, with the licenses of rated and own texts."""
        counts = Counter(item.set for item in self.items if item.set not in self.evaluated)
        ratings = () if STUDY in self.evaluated else self.ratings
        shares = np.mean([rated.target for rated in ratings], axis=0) if ratings else ()
        sets = {
            name: {"items": count, "licence": RATED_SETS[name].licence, "raters": RATED_SETS[name].raters}
            for name, count in counts.items()
        }
        if any(recipe.synthetic for recipe in recipes):
            own = len(rated_sets.read_graded_replies()), len(rated_sets.read_constant_replies())
            for name, count in zip(("graded replies", "constants"), own, strict=True):
                sets[name] = {"items": count, "licence": "CC0", "raters": "language models"}
        return {
            "ratings": len(ratings),
            "raters": len({rated.rater for rated in ratings}),
            "models": sorted({rated.exchange.model for rated in ratings}),
            "shares": {label: round(float(share), 4) for label, share in zip(LABELS, shares, strict=False)},
            "sets": sets,
        }


@cache
def training_perturbations() -> tuple[Perturbation, ...]:
    """Return the perturbations of replies that training may use: those of families that no test uses."""
    return tuple(item for item in read_perturbations() if not item.is_test_only)


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
    names = list(dict.fromkeys(name for recipe in recipes for name in recipe.sets if name != STUDY))
    trained = {name for recipe in recipes for name, weight in recipe.sets.items() if weight}
    published = [name for name in names if RATED_SETS[name].source]
    if published and sets is None:
        needed = [name for name in published if name in trained] or published
        raise UserError(f"--sets: the recipe uses {', '.join(needed)}; set the folder that has them")
    if sets and not published:
        raise UserError("--sets: the recipe names no other rated set")
    if not trained and exchanges is None:
        raise UserError("EXCHANGES and RATINGS are missing: replies, and their human ratings")
    evaluated = [name for recipe in recipes for name, weight in recipe.sets.items() if name not in trained]
    present = [
        name for name in names if name in trained or (sets and (sets / RATED_SETS[name].source).exists())
    ]
    return TrainingData(
        ratings=join_ratings(read_exchanges(exchanges), read_ratings(ratings))
        if exchanges and ratings
        else (),
        items=[item for name in present for item in rated_sets.read_rated_set(name, sets or Path())],
        texts=[exchange for path in texts for exchange in read_exchanges(path)],
        evaluated=frozenset(evaluated),
    )


def without_situations(items: Sequence[RatedItem]) -> list[RatedItem]:
    """Return items without emotion, situation, and turns that repeat a passage of the situation.

    Many people copy a situation that they are given. A reply whose prompt is such a turn is left out.
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
