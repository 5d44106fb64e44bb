"""What a classifier learns from: rated exchanges, other rated sets, our own replies, and unrated texts."""

import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from data.rated_exchanges import RatedExchange
from data.readers.conversations import DISTINCTIVE_WORDS
from data.records import Exchange
from judge.classifier.preprocessing import normalise
from judge.explanation import split_reply
from judge.robustness.attacks import TEST_FAMILIES, Attack, dress_up, read_attacks
from training.graded_replies import read_graded_replies, read_grades
from training.rated_sets import RatedItem

OURS, GRADES = "ours", "grades"  # graded replies, met like sets: with a scale of their own
MIDDLE, SPREAD = 50.0, 30.0  # of a score from 0 to 100
WELL_MEANT = 65.0  # a score from which a reply of ours is kind
UNHEARD_SCORE = 25.0  # of a kind reply under the words of somebody else
UNHEARD, TELLING = 0.1, 12  # part of the kind replies that are shown so, and words of one that tells
DRESSED = 0.4  # part of our own replies that are shown in the form of some attack; their score stays
GRADED = 1 / 3  # part of the grades that an epoch shows
FEW_OF_A_RATER = 4  # items that tell a rater's own level


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """All that a training may see: rated exchanges, items of other rated sets, and texts nobody rated.

    `asked` are items of sets with the weight 0, which no training sees: a judge is only asked about them.
    """

    examples: Sequence[RatedExchange]
    items: Sequence[RatedItem] = ()
    texts: Sequence[Exchange] = ()
    asked: Sequence[RatedItem] = ()

    def exchanges(self) -> list[Exchange]:
        """All that was rated, reply by reply."""
        return [
            *(example.exchange for example in self.examples),
            *(exchange for item in self.items for exchange in item.exchanges),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingExample:
    """Replies, and what is to be said of them: three probabilities, or a rating on the scale of a set.

    The replies of a rated conversation are one lesson: their mean is held against its rating.
    """

    exchanges: tuple[Exchange, ...]
    target: tuple[float, ...] = (0.0, 0.0, 0.0)
    rater: str = ""
    set: str = ""
    value: float = 0.0  # in standard deviations of the set
    weight: float = 1.0


def examples_from_ratings(examples: Sequence[RatedExchange]) -> list[TrainingExample]:
    """One lesson for every rating."""
    return [TrainingExample(exchanges=(e.exchange,), target=e.target, rater=e.rater) for e in examples]


def examples_from_sets(
    items: Sequence[RatedItem], weights: Mapping[str, float], *, replies: int, chance: random.Random
) -> list[TrainingExample]:
    """Items of other sets with standardised ratings; of a conversation some of its replies, drawn anew.

    Where one person rated several items, that person's own level is taken out: it says nothing of the reply.
    """
    lessons = []
    by_set: dict[str, list[RatedItem]] = defaultdict(list)
    for item in items:
        if weights.get(item.set):
            by_set[item.set].append(item)
    for name, those in by_set.items():
        values = standardise(those)
        for item, value in zip(those, values, strict=True):
            drawn = chance.sample(item.exchanges, min(replies, len(item.exchanges)))
            lessons.append(
                TrainingExample(exchanges=tuple(drawn), set=name, value=float(value), weight=weights[name])
            )
    return lessons


def forget_situations(items: Sequence[RatedItem]) -> list[RatedItem]:
    """Items without emotion and situation, and without each turn that repeats a stretch of the situation.

    Where people are given a situation to speak of, many copy it out: its words then come back as theirs, and
    with them its licence. A reply whose own prompt is such a turn is left out.
    """
    kept = []
    for item in items:
        exchanges = []
        for exchange in item.exchanges:
            told = exchange.situation or ""
            if repeats(exchange.prompt, told) or repeats(exchange.response, told):
                continue
            dialogue = tuple(turn for turn in exchange.dialogue if not repeats(turn.text, told))
            exchanges.append(replace(exchange, emotion=None, situation=None, dialogue=dialogue))
        if exchanges:
            kept.append(replace(item, exchanges=tuple(exchanges)))
    return kept


def repeats(text: str, told: str) -> bool:
    """Whether eight words in a row of what was told stand in a text; all of it, where it is shorter.

    >>> repeats("Hi! My dog died, sadly.", "my dog DIED"), repeats("My dog is ill.", "My dog died.")
    (True, False)
    """
    said, words = (re.findall(r"\w+", part.casefold()) for part in (text, told))
    size = min(DISTINCTIVE_WORDS, len(words))
    runs = {tuple(words[start : start + size]) for start in range(len(words) - size + 1)} if size else set()
    return any(tuple(said[start : start + size]) in runs for start in range(len(said) - size + 1))


def standardise(items: Sequence[RatedItem]) -> np.ndarray:
    """The ratings of one set in its standard deviations, without each rater's own level."""
    values = np.array([item.rating for item in items], dtype=float)
    raters: dict[str, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        if item.rater:
            raters[item.rater].append(place)
    overall = values.mean()
    for places in raters.values():
        if len(places) >= FEW_OF_A_RATER:
            values[places] += overall - values[places].mean()
    return np.asarray((values - overall) / (values.std() or 1.0))


def examples_from_graded_replies(weight: float, chance: random.Random) -> list[TrainingExample]:
    """Our own replies with their writers' scores, many in the form of some attack: kind ones too.

    A form tells nothing then: only what is said in it does.
    """
    if not weight:
        return []
    ours = read_graded_replies()
    lessons = []
    for reply in ours:
        exchange, score = reply.exchange, reply.score
        # Ours speak of what they answer, so that under another prompt nobody could take them for an answer.
        is_telling = score >= WELL_MEANT and len(exchange.response.split()) >= TELLING
        if is_telling and chance.random() < UNHEARD:
            other = chance.choice(ours).exchange
            if other.prompt != exchange.prompt:
                exchange = replace(exchange, prompt=other.prompt, dialogue=other.dialogue)
                score = UNHEARD_SCORE
        shown, value = dress_some(exchange, chance), (score - MIDDLE) / SPREAD
        lessons.append(TrainingExample(exchanges=(shown,), set=OURS, value=value, weight=weight))
    return lessons


def dress_some(exchange: Exchange, chance: random.Random) -> Exchange:
    """A reply as it is or, now and then, in the form of some attack that may be learnt from."""
    if chance.random() >= DRESSED:
        return exchange
    dressed = dress_up(chance.choice(_training_attacks()), exchange)
    return replace(dressed, response=normalise(dressed.response))


def examples_from_grades(corpus: TrainingData, weight: float, chance: random.Random) -> list[TrainingExample]:
    """What a language model says of rated replies: of some of those that it graded, drawn anew."""
    if not weight:
        return []
    grades = read_grades()
    every = {exchange.content_digest: exchange for exchange in corpus.exchanges()}
    graded = [digest for digest in every if digest in grades]
    return [
        TrainingExample(
            exchanges=(every[digest],), set=GRADES, value=(grades[digest] - MIDDLE) / SPREAD, weight=weight
        )
        for digest in chance.sample(graded, round(GRADED * len(graded)))
    ]


@cache
def _training_attacks() -> list[Attack]:
    return [attack for attack in read_attacks().attacks if attack.family not in TEST_FAMILIES]


def draw_evenly(corpus: TrainingData, count: int, chance: random.Random) -> list[Exchange]:
    """Replies of the other sets and of the given texts, of each as many as it has up to an even share.

    Some sets are conversations of which every turn is a text: drawn blindly they would be most of the lesson.
    """
    kinds: dict[str, list[Exchange]] = defaultdict(list)
    for item in corpus.items:
        kinds[item.set].extend(item.exchanges)
    kinds[""] = list(corpus.texts)
    drawn: list[Exchange] = []
    smallest_first = sorted(kinds.values(), key=len)
    for place, texts in enumerate(smallest_first):
        share = (count - len(drawn)) // (len(smallest_first) - place)
        drawn += chance.sample(texts, min(share, len(texts)))
    return drawn


def cut_pieces(exchanges: Sequence[Exchange], count: int, chance: random.Random) -> list[Exchange]:
    """Replies with one of their parts left out, each reply once at most: near misses of rated ones."""
    fit = [exchange for exchange in exchanges if len(split_reply(exchange.response)) > 1]
    pieces = []
    for exchange in chance.sample(fit, min(count, len(fit))):
        parts = split_reply(exchange.response)
        del parts[chance.randrange(len(parts))]
        pieces.append(replace(exchange, response="".join(parts).strip()))
    return pieces


def mix_replies(exchanges: Sequence[Exchange], count: int, chance: random.Random) -> list[Exchange]:
    """Two or three replies to one prompt made one long reply."""
    by_prompt: dict[str, list[Exchange]] = defaultdict(list)
    for exchange in exchanges:
        by_prompt[exchange.prompt_digest].append(exchange)
    fit = [several for several in by_prompt.values() if len(several) > 1]
    mixed = []
    for _ in range(count if fit else 0):
        several = chance.choice(fit)
        drawn = chance.sample(several, min(len(several), chance.choice((2, 2, 3))))
        text = chance.choice(("\n\n", " ", "\n")).join(item.response.strip() for item in drawn)
        mixed.append(replace(drawn[0], response=text))
    return mixed


def shuffle_replies(exchanges: Sequence[Exchange], count: int, chance: random.Random) -> list[Exchange]:
    """Replies under the prompts of others."""
    return [
        replace(chance.choice(exchanges), response=chance.choice(exchanges).response) for _ in range(count)
    ]
