"""The judge of whole conversations: the judge of replies along it, and what only the whole shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp
from pathlib import Path
from typing import Any, Final

from empathy_judge.calibration.artifact import own_version
from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.conversations import opening_digest, split_conversation
from empathy_judge.data.records import (
    CONVERSATION,
    LABELS,
    Exchange,
    Judgment,
    digest_json,
    is_scripted,
    judgment_of,
    unscored,
)
from empathy_judge.data.rubric import read_rubric
from empathy_judge.data.sealed_json import read_sealed
from empathy_judge.judge.base import DEFAULT, WEIGHTS, load_judge
from empathy_judge.judge.conversations.features import FEATURES, conversation_features
from empathy_judge.judge.explanation import Explanation, Part, SelfExplaining

CARD: Final = "card.json"
NAME: Final = "conversation"
FORMAT: Final = 1
MEAN_CAVEAT: Final = (
    "The score of a conversation is the mean score of its replies; repetition and lost threads are not "
    "measured. The judge `conversation` measures them."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """One direction through the features, and where on it Bad ends and Good begins.

    A feature counts as (value - `center`) / `scale`, no further than `bound` either way. Along the direction
    the chance of Okay or better, and of Good, rises as a logistic curve with `slope` from each of the `cuts`.
    """

    center: Mapping[str, float]
    scale: Mapping[str, float]
    weight: Mapping[str, float]
    bound: float
    slope: float
    cuts: tuple[float, float]

    def place(self, features: Mapping[str, float]) -> float:
        """Where a conversation stands on the direction: more is better."""
        return sum(self.parts(features).values())

    def parts(self, features: Mapping[str, float]) -> dict[str, float]:
        """What every feature adds."""
        return {
            name: weight
            * max(-self.bound, min(self.bound, (features[name] - self.center[name]) / self.scale[name]))
            for name, weight in self.weight.items()
        }

    def probabilities(self, place: float) -> dict[str, float]:
        """Chances of Bad, Okay and Good."""
        okay, good = (1 / (1 + exp(self.slope * (cut - place))) for cut in self.cuts)
        return dict(zip(LABELS, (1 - okay, okay - good, good), strict=True))


def expected_score(probabilities: Mapping[str, float]) -> float:
    """The expected rating, from 1 to 3."""
    return sum(place * probabilities[label] for place, label in enumerate(LABELS, start=1))


class ConversationJudge(SelfExplaining):
    """Judges conversations by a judge of `replies`, and by what is fitted on rated conversations.

    What is fitted belongs to the judge of replies that is named on its card; of any other the mean over the
    replies is taken. Where the row says that no person spoke (`speaker`), the speaker's words count for
    nothing: a script's thanks are not earned.
    """

    unit = CONVERSATION
    files = ("replies",)

    def __init__(self, *, replies: str = DEFAULT, weights: str = "") -> None:
        judge = load_judge(replies)
        self.replies = judge
        self.asked_judges = (judge,)
        if judge.unit == CONVERSATION:
            raise UserError(f"replies: {replies} judges whole conversations; set a judge of replies")
        folder = Path(weights) if weights else WEIGHTS / NAME
        self.card = read_card(folder)
        self.is_fitted = self.card["replies"]["judge"] == replies
        if self.is_fitted:
            self.folder = folder  # beside it a calibration may lie
        self.name = NAME if self.is_fitted else f"{NAME}:{replies}"
        own = self.replies.rubric
        self.rubric = own if own.is_part and not self.is_fitted else read_rubric(CONVERSATION)
        self.concurrency = self.replies.concurrency
        self.caveat = str(self.card["caveat"]) if self.is_fitted else MEAN_CAVEAT
        if self.is_fitted and own_version(self.card["replies"]["version"]) != own_version(judge.version):
            self.caveat += (
                f" It was fitted with an earlier version of {judge.name}: "
                "fit it again with train --unit conversation."
            )
        told = [self.replies.version, digest_json(self.card) if self.is_fitted else "mean", FORMAT]
        self.version = digest_json(told)[:12]

    @cached_property
    def weights(self) -> Mapping[str, Weights]:
        """By whether a person spoke: `person`, or `script`."""
        return {who: read_weights(table) for who, table in self.card["weights"].items()}

    def most_cost(self, exchange: Exchange) -> float | None:
        replies = map(self.asked_judges[0].most_cost, split_conversation(exchange))
        costs = list(replies)
        return None if None in costs else sum(filter(None, costs))

    def judge(self, exchange: Exchange) -> Judgment:
        replies = split_conversation(exchange)
        judged = [self.replies.judge(reply) for reply in replies]
        scores = [item.score for item in judged]
        if not any(score is not None for score in scores):
            reason = judged[0].unscored or "no reply has a score"
            return replace(unscored(exchange, reason), prompt_digest=opening_digest(exchange))
        if self.is_fitted:
            weights = self.weights["script" if is_scripted(exchange) else "person"]
            probabilities = weights.probabilities(weights.place(conversation_features(replies, scores)))
        else:
            said = [item.probabilities for item in judged if item.probabilities is not None]
            probabilities = {label: sum(item[label] for item in said) / len(said) for label in LABELS}
        notes = dict.fromkeys(
            line for item in judged for line in (item.rationale or "").splitlines() if self.is_fitted
        )
        return replace(
            judgment_of(exchange, probabilities),
            prompt_digest=opening_digest(exchange),
            rationale="\n".join(notes) or None,
            curve=tuple(scores),
        )

    def explain(self, exchange: Exchange, whole: Judgment) -> Explanation:
        """What each reply does to the score, and what each count; nobody is asked again.

        A reply is left out with the words that it answers. What was said of the others stays as it was,
        though they were judged with it before them.
        """
        replies, scores = split_conversation(exchange), list(whole.curve or ())
        who = "script" if is_scripted(exchange) else "person"
        parts, counted = [], []
        for place, reply in enumerate(replies):
            rest = [item for number, item in enumerate(scores) if number != place and item is not None]
            effect = None
            if rest and whole.score is not None:
                others = [*replies[:place], *replies[place + 1 :]]
                kept = [*scores[:place], *scores[place + 1 :]]
                without = self._score(others, kept, who) if self.is_fitted else sum(rest) / len(rest)
                effect = round(whole.score - without, 6)
            parts.append(Part(f"Reply {place + 1}: {reply.response}", effect))
        if self.is_fitted and whole.score is not None:
            weights, features = self.weights[who], conversation_features(replies, scores)
            standing = weights.place(features)
            for name, part in weights.parts(features).items():
                without = expected_score(weights.probabilities(standing - part))
                is_more = features[name] > weights.center[name]
                text = f"{FEATURES[name][1]}: {'more' if is_more else 'less'} than usual"
                counted.append(Part(text, round(whole.score - without, 6)))
        return Explanation(
            id=exchange.id,
            model=exchange.model,
            score=whole.score,
            parts=tuple(parts),
            unscored=whole.unscored,
            counted=tuple(sorted(counted, key=lambda part: -abs(part.effect or 0.0))),
        )

    def _score(self, replies: Sequence[Exchange], scores: Sequence[float | None], who: str) -> float:
        weights = self.weights[who]
        return expected_score(weights.probabilities(weights.place(conversation_features(replies, scores))))

    def count_runs(self, exchange: Exchange) -> int:
        """Count those for every reply of a conversation."""
        return sum(map(self.replies.count_runs, split_conversation(exchange)))


def read_card(folder: Path) -> dict[str, Any]:
    """Return what was fitted on rated conversations, and how well it did; refused where it was changed."""
    path = folder / CARD
    card = read_sealed(
        path, what="fitted judge of conversations", version=FORMAT, remedy="install or fit again"
    )
    try:
        for table in card["weights"].values():
            read_weights(table)
        _ = card["replies"]["judge"], card["replies"]["version"], card["caveat"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: cannot be read: {error!r}; install or fit again") from error
    return card


def read_weights(table: Mapping[str, Any]) -> Weights:
    """The weights of a card."""
    features = table["features"]
    unknown = set(features) - set(FEATURES)
    if unknown:
        raise ValueError(f"unknown features {sorted(unknown)}")
    parts = ("center", "scale", "weight")
    center, scale, weight = ({name: float(row[part]) for name, row in features.items()} for part in parts)
    cuts = (float(table["cuts"][0]), float(table["cuts"][1]))
    bound, slope = float(table["bound"]), float(table["slope"])
    return Weights(center=center, scale=scale, weight=weight, bound=bound, slope=slope, cuts=cuts)


def names_for(who: str) -> list[str]:
    """The features that count where a person, or a script, spoke."""
    return [name for name in FEATURES if who == "person" or not name.startswith("speaker_")]
