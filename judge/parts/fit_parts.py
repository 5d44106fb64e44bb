"""Fit heads for EPITOME's three parts on replies that experts rated, and try them on EPITOME itself.

A head is the mean of a few counts that the part is made of by its very definition. Only its scale is fitted,
on the few replies that may be used for anything; the thousands of EPITOME, which may not, only measure it.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from calibration.agreement.metrics import spearman_of
from calibration.bootstrap import Statistic, ratio, resample_clusters, sample
from data.errors import UserError
from data.files import disk_errors, replacing
from data.importers import import_source
from data.importers.epitome import EPITOME_DIMENSIONS
from data.importers.rated_sets import RATED_SETS, drop_shared
from data.records import LABELS, Exchange, digest_json, to_plain
from judge.conversations.conversation_features import conversation_features
from judge.conversations.conversation_judge import CARD, Weights
from judge.conversations.fit_conversations import set_cuts, weights_table

LEARN, TEST = "judging-empathy", "epitome"
PREFIX: Final = "epitome/"  # of the ids of LEARN that are replies to posts
EXPERT: Final = "expert"
# The signs that the definition of a part names; each counts the same.
SIGNS: Final[Mapping[str, Mapping[str, float]]] = {
    "emotional_reactions": {"feeling_words": 1.0, "dismisses": -1.0},
    "explorations": {"new_questions": 1.0},
    "interpretations": {"validates": 1.0, "feeling_words": 1.0, "lost": -1.0},
}
BOUND: Final = 2.0  # standard deviations that a sign counts at most
DRAWS: Final = 2000


@dataclass(frozen=True, slots=True)
class RatedReply:
    """A reply with its counts, and the levels from 0 to 2 that people gave it on each part."""

    exchange: Exchange
    features: Mapping[str, float]
    levels: Mapping[str, tuple[float, ...]]

    @property
    def post(self) -> str:
        return self.exchange.id.split("/")[0]


def read_replies(sets: Path, source: str, *, prefix: str = "") -> list[RatedReply]:
    """The replies of a source that people rated on every part; what models said of them is left out."""
    if not (sets / source).exists():
        raise UserError(f"--sets: {sets} has no {source}; heads need {LEARN} and {TEST}")
    imported = import_source(source, sets / source)
    given: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for rating in imported.ratings:
        if rating.rater.startswith(EXPERT):
            given[rating.id][rating.dimension.removeprefix("level_")].append(rating.rating)
    return [
        RatedReply(
            exchange,
            conversation_features([exchange], []),
            {name: tuple(given[exchange.id][name]) for name in EPITOME_DIMENSIONS},
        )
        for exchange in imported.exchanges
        if exchange.id.startswith(prefix) and set(EPITOME_DIMENSIONS) <= given[exchange.id].keys()
    ]


def fit_head(replies: Sequence[RatedReply], dimension: str) -> Weights:
    """The mean of the signs in standard deviations, and where on it Okay and Good begin."""
    signs = SIGNS[dimension]
    table = {name: np.array([reply.features[name] for reply in replies]) for name in signs}
    weights = Weights(
        center={name: round(float(values.mean()), 4) for name, values in table.items()},
        scale={name: round(float(values.std()) or 1.0, 4) for name, values in table.items()},
        weight={name: sign / len(signs) for name, sign in signs.items()},
        bound=BOUND,
        slope=1.0,
        cuts=(-0.5, 0.5),
    )
    said = [(weights.place(reply.features), level) for reply in replies for level in reply.levels[dimension]]
    return set_cuts(
        weights, np.array([place for place, _ in said]), np.array([int(level) for _, level in said])
    )


def try_head(
    weights: Weights, replies: Sequence[RatedReply], dimension: str, *, seed: int = 0
) -> dict[str, Any]:
    """How a head does on replies that it had not met, beside length: ranks, and the share of Good."""
    rating = np.array([float(np.mean(reply.levels[dimension])) for reply in replies])
    place = np.array([weights.place(reply.features) for reply in replies])
    words = np.array([float(len(reply.exchange.response.split())) for reply in replies])
    good = np.array([weights.probabilities(each)[LABELS[-1]] for each in place.tolist()])
    is_good = np.array(
        [float(np.mean([level == 2 for level in reply.levels[dimension]])) for reply in replies]
    )
    head, length = spearman_of(rating, place), spearman_of(rating, words)
    # Length may count either way: that short replies ask more is known without a head.
    turn = -1.0 if np.corrcoef(rating, words)[0, 1] < 0 else 1.0
    statistics: dict[str, Statistic] = {
        "head": head,
        "length": lambda counts: turn * length(counts),
        "more": lambda counts: head(counts) - turn * length(counts),
        "judge_good": lambda counts: ratio(counts @ good, counts.sum(axis=-1)),
        "people_good": lambda counts: ratio(counts @ is_good, counts.sum(axis=-1)),
    }
    names, clusters = np.unique([reply.post for reply in replies], return_inverse=True)
    drawn = resample_clusters(len(names), rng=np.random.default_rng(seed), draws=DRAWS)
    found = sample(statistics, clusters, drawn)
    return {
        "set": TEST.upper(),
        "replies": len(replies),
        **{name: to_plain(found[name].estimate()) for name in statistics},
    }


def make_heads(learn: Sequence[RatedReply], test: Sequence[RatedReply]) -> dict[str, Any]:
    """A card of heads: of each part its weights, its trial, and whether it is refused."""
    heads = {}
    for dimension in EPITOME_DIMENSIONS:
        weights = fit_head(learn, dimension)
        trial = try_head(weights, test, dimension)
        low = trial["more"]["low"]
        heads[dimension] = {**weights_table(weights), "trial": trial, "refused": low is None or low <= 0}
    card = {
        "summary": "Parts of empathy by counts of words, their scale fitted on replies that experts rated.",
        "licence": f"fitted on {len(learn)} replies of {LEARN} ({RATED_SETS[f'{LEARN}/epitome'].licence})",
        "heads": heads,
    }
    return {**card, "digest": digest_json(card)}


def run_fit_parts(sets: Path, folder: Path) -> dict[str, Any]:
    """What `train --unit part` does."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        learn, every = read_replies(sets, LEARN, prefix=PREFIX), read_replies(sets, TEST)
        apart = drop_shared([reply.exchange for reply in every], [reply.exchange for reply in learn])
        ids = {exchange.id for exchange in apart}
        card = make_heads(learn, [reply for reply in every if reply.exchange.id in ids])
        with replacing(folder / CARD) as partial:
            partial.write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return card
