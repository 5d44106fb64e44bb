"""Training examples of one epoch: from ratings, rated sets, graded replies, and unrated replies."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from data.rated_exchanges import RatedExchange
from data.records import Exchange
from judge.classifier.preprocessing import normalize
from judge.explanation import split_reply
from judge.robustness.catalogue import rewrite
from training.graded_replies import read_graded_replies, read_grades
from training.rated_sets import RatedItem
from training.training_data import TrainingData, training_perturbations

OURS, GRADES = "ours", "grades"  # graded replies are trained like sets: with a scale and an offset each
MIDDLE, SPREAD = 50.0, 30.0  # of a score from 0 to 100
KIND_SCORE = 65.0  # from which a graded reply counts as kind
MISMATCHED_SCORE = 25.0  # of a kind reply under another prompt
MISMATCHED, MISMATCHED_WORDS = 0.1, 12  # fraction of kind replies shown so, and the words one must have
PERTURBED = 0.4  # fraction of graded replies shown in a perturbed form, with the same score
GRADED = 1 / 3  # fraction of the grades in an epoch
MIN_RATER_ITEMS = 4  # from which a rater's own mean is removed


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingExample:
    """Replies and their target: three probabilities, or a rating on the scale of a set.

    The replies of a rated conversation are one example: their mean is compared with its rating.
    """

    exchanges: tuple[Exchange, ...]
    target: tuple[float, ...] = (0.0, 0.0, 0.0)
    rater: str = ""
    set: str = ""
    value: float = 0.0  # in standard deviations of the set
    weight: float = 1.0


def examples_from_ratings(ratings: Sequence[RatedExchange]) -> list[TrainingExample]:
    """Return one example for every rating."""
    return [
        TrainingExample(exchanges=(rated.exchange,), target=rated.target, rater=rated.rater)
        for rated in ratings
    ]


def examples_from_sets(
    items: Sequence[RatedItem], weights: Mapping[str, float], *, replies: int, chance: random.Random
) -> list[TrainingExample]:
    """Return items of other sets with standardized ratings; of a conversation a new sample of its replies."""
    examples = []
    by_set: dict[str, list[RatedItem]] = defaultdict(list)
    for item in items:
        if weights.get(item.set):
            by_set[item.set].append(item)
    for name, members in by_set.items():
        for item, value in zip(members, standardize(members), strict=True):
            drawn = tuple(chance.sample(item.exchanges, min(replies, len(item.exchanges))))
            examples.append(
                TrainingExample(exchanges=drawn, set=name, value=float(value), weight=weights[name])
            )
    return examples


def standardize(items: Sequence[RatedItem]) -> np.ndarray:
    """Return the ratings of one set in its standard deviations, without the mean of each rater."""
    values = np.array([item.rating for item in items], dtype=float)
    raters: dict[str, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        if item.rater:
            raters[item.rater].append(place)
    overall = values.mean()
    for places in raters.values():
        if len(places) >= MIN_RATER_ITEMS:
            values[places] += overall - values[places].mean()
    return np.asarray((values - overall) / (values.std() or 1.0))


def examples_from_graded_replies(weight: float, chance: random.Random) -> list[TrainingExample]:
    """Return the graded replies with their scores, many of them perturbed, kind ones too.

    So a perturbation predicts nothing: only the content of the reply does.
    """
    if not weight:
        return []
    replies = read_graded_replies()
    examples = []
    for reply in replies:
        exchange, score = reply.exchange, reply.score
        # These replies refer to their prompt, so under another prompt they cannot be an answer.
        is_specific = score >= KIND_SCORE and len(exchange.response.split()) >= MISMATCHED_WORDS
        if is_specific and chance.random() < MISMATCHED:
            other = chance.choice(replies).exchange
            if other.prompt != exchange.prompt:
                exchange = replace(exchange, prompt=other.prompt, dialogue=other.dialogue)
                score = MISMATCHED_SCORE
        shown = perturb_some(exchange, chance)
        value = (score - MIDDLE) / SPREAD
        examples.append(TrainingExample(exchanges=(shown,), set=OURS, value=value, weight=weight))
    return examples


def perturb_some(exchange: Exchange, chance: random.Random) -> Exchange:
    """Return a reply as it is or, with probability `PERTURBED`, in a perturbed form."""
    if chance.random() >= PERTURBED:
        return exchange
    perturbed = rewrite(chance.choice(training_perturbations()), exchange) or exchange
    return replace(perturbed, response=normalize(perturbed.response))


def examples_from_grades(data: TrainingData, weight: float, chance: random.Random) -> list[TrainingExample]:
    """Return a new sample of the rated replies that a language model graded, with its grades."""
    if not weight:
        return []
    grades = read_grades()
    every = {exchange.content_digest: exchange for exchange in data.exchanges()}
    graded = [digest for digest in every if digest in grades]
    return [
        TrainingExample(
            exchanges=(every[digest],), set=GRADES, value=(grades[digest] - MIDDLE) / SPREAD, weight=weight
        )
        for digest in chance.sample(graded, round(GRADED * len(graded)))
    ]


def draw_evenly(data: TrainingData, count: int, chance: random.Random) -> list[Exchange]:
    """Return replies of the other sets and of the texts, of each up to an equal share.

    Some sets are conversations of which every turn is a text: drawn at random they would dominate.
    """
    sources: dict[str, list[Exchange]] = defaultdict(list)
    for item in data.items:
        sources[item.set].extend(item.exchanges)
    sources[""] = list(data.texts)
    drawn: list[Exchange] = []
    smallest_first = sorted(sources.values(), key=len)
    for place, texts in enumerate(smallest_first):
        share = (count - len(drawn)) // (len(smallest_first) - place)
        drawn += chance.sample(texts, min(share, len(texts)))
    return drawn


def drop_sentences(exchanges: Sequence[Exchange], count: int, chance: random.Random) -> list[Exchange]:
    """Return replies with one of their parts left out, each reply at most once."""
    divisible = [exchange for exchange in exchanges if len(split_reply(exchange.response)) > 1]
    shortened = []
    for exchange in chance.sample(divisible, min(count, len(divisible))):
        parts = split_reply(exchange.response)
        del parts[chance.randrange(len(parts))]
        shortened.append(replace(exchange, response="".join(parts).strip()))
    return shortened


def join_replies(exchanges: Sequence[Exchange], count: int, chance: random.Random) -> list[Exchange]:
    """Return two or three replies to one prompt joined into one long reply."""
    by_prompt: dict[str, list[Exchange]] = defaultdict(list)
    for exchange in exchanges:
        by_prompt[exchange.prompt_digest].append(exchange)
    shared = [several for several in by_prompt.values() if len(several) > 1]
    joined = []
    for _ in range(count if shared else 0):
        several = chance.choice(shared)
        drawn = chance.sample(several, min(len(several), chance.choice((2, 2, 3))))
        text = chance.choice(("\n\n", " ", "\n")).join(item.response.strip() for item in drawn)
        joined.append(replace(drawn[0], response=text))
    return joined


def shuffle_replies(exchanges: Sequence[Exchange], count: int, chance: random.Random) -> list[Exchange]:
    """Return replies under the prompts of others."""
    return [
        replace(chance.choice(exchanges), response=chance.choice(exchanges).response) for _ in range(count)
    ]
