"""Training examples of one epoch: from ratings, rated sets, graded replies, and unrated replies."""

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from empathy_judge.data.rating_files.rated_inputs import RatedExchange
from empathy_judge.data.records import POSITIVE_EMOTIONS, Exchange
from empathy_judge.judge.classifier.preprocessing import normalize
from empathy_judge.judge.explanation import split_reply
from empathy_judge.judge.robustness.catalogue import rewrite
from empathy_judge.training import rated_sets
from empathy_judge.training.rated_sets import GradedReply, RatedItem
from empathy_judge.training.training_data import TrainingData, training_perturbations

SYNTHETIC, GRADES = "synthetic", "grades"  # both are trained like sets: with a scale and an offset each
MIDDLE, SPREAD = 50.0, 30.0  # of a score from 0 to 100
CUTS = 35.0, 57.0  # of a score: cruel and poor replies are Bad, okay ones Okay, good and excellent ones Good
READING_ERROR = 20.0  # of a score, in points: the standard deviation between raters
MAX_DRAWS = 20  # of another prompt, before a reply stays under its own
GRADED_FRACTION = 0.4  # of the graded replies that are shown in an epoch
PERTURBED = 0.4  # fraction of graded replies shown in a perturbed form, with the same score
# Assumed scores of a constant reply: its feeling suits the prompt, does not, or the prompt's is unknown.
SUITED, UNSUITED, UNKNOWN = 38.0, 6.0, 28.0
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
    grade: float = math.nan  # a language model's score of the reply
    wrong_prompt: Exchange | None = None  # the same reply under another prompt, where it must score lower


def from_ratings(ratings: Sequence[RatedExchange]) -> list[TrainingExample]:
    """Return one example for every rating."""
    return [
        TrainingExample(exchanges=(each.exchange,), target=each.target, rater=each.rater) for each in ratings
    ]


def from_sets(
    items: Sequence[RatedItem], weights: Mapping[str, float], *, replies: int, chance: random.Random
) -> list[TrainingExample]:
    """Return items of other sets with standardized ratings; of a conversation a new sample of its replies."""
    examples = []
    by_set: dict[str, list[RatedItem]] = defaultdict(list)
    for item in items:
        if weights.get(item.set):
            by_set[item.set].append(item)
    for name, members in by_set.items():
        for item, value in zip(members, standardize(members).tolist(), strict=True):
            drawn = tuple(chance.sample(item.exchanges, min(replies, len(item.exchanges))))
            examples.append(TrainingExample(exchanges=drawn, set=name, value=value, weight=weights[name]))
    return examples


def standardize(items: Sequence[RatedItem]) -> np.ndarray:
    """Return the ratings of one set in its standard deviations, without the mean of each rater."""
    values = np.array([item.rating for item in items], dtype=float)
    raters: dict[str, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        if item.rater:
            raters[item.rater].append(index)
    overall = values.mean()
    for rows in raters.values():
        if len(rows) >= MIN_RATER_ITEMS:
            values[rows] += overall - values[rows].mean()
    return np.asarray((values - overall) / (values.std() or 1.0))


def from_graded_replies(weight: float, chance: random.Random) -> list[TrainingExample]:
    """Return a new sample of the graded replies with their scores, many of them perturbed, kind ones too."""
    every = rated_sets.read_graded_replies() if weight else ()
    replies = chance.sample(every, round(GRADED_FRACTION * len(every)))
    return [_graded_example(reply, weight, perturb_some(reply.exchange, chance)) for reply in replies]


def _graded_example(reply: GradedReply, weight: float, shown: Exchange) -> TrainingExample:
    value = (reply.score - MIDDLE) / SPREAD
    return TrainingExample(exchanges=(shown,), set=SYNTHETIC, value=value, weight=weight)


def from_constants(
    exchanges: Sequence[Exchange], count: int, weight: float, chance: random.Random
) -> list[TrainingExample]:
    """Return constant replies with assumed scores, under prompts of these and of graded replies."""
    if not weight or not count:
        return []
    prompts = [*exchanges, *(reply.exchange for reply in rated_sets.read_graded_replies())]
    return [_graded_example(reply, weight, reply.exchange) for reply in put_constants(prompts, count, chance)]


def grades_to_labels(examples: Sequence[TrainingExample]) -> list[TrainingExample]:
    """Return the examples, those of graded replies with label probabilities in place of scores.

    They are as if raters read a reply's score with a normal error, and cut the scale at `CUTS`.
    """
    return [
        replace(example, set="", target=_label_probabilities(MIDDLE + SPREAD * example.value))
        if example.set == SYNTHETIC
        else example
        for example in examples
    ]


def _label_probabilities(score: float) -> tuple[float, ...]:
    below = norm.cdf((np.array(CUTS) - score) / READING_ERROR)
    return tuple(float(part) for part in np.diff([0.0, *below, 1.0]))


def put_constants(exchanges: Sequence[Exchange], count: int, chance: random.Random) -> list[GradedReply]:
    """Return constant replies under prompts drawn from these exchanges."""
    put = []
    for _ in range(count):
        constant, exchange = chance.choice(rated_sets.read_constant_replies()), chance.choice(exchanges)
        score = UNKNOWN
        if exchange.emotion:
            is_glad = exchange.emotion.casefold() in POSITIVE_EMOTIONS
            is_suited = constant.feeling == "any" or (constant.feeling == "glad") == is_glad
            score = SUITED if is_suited else UNSUITED
        put.append(GradedReply(exchange=replace(exchange, response=constant.text), score=score))
    return put


def add_wrong_prompts(
    examples: Sequence[TrainingExample], fraction: float, chance: random.Random
) -> list[TrainingExample]:
    """Return the examples, a fraction of them with the same reply under another prompt of their set."""
    by_set: dict[str, list[Exchange]] = defaultdict(list)
    for example in examples:
        by_set[example.set].append(example.exchanges[-1])
    added = []
    for example in examples:
        if chance.random() < fraction:
            moved = under_another(example.exchanges[-1], by_set[example.set], chance)
            if moved.prompt != example.exchanges[-1].prompt:
                example = replace(example, wrong_prompt=moved)
        added.append(example)
    return added


def under_another(exchange: Exchange, others: Sequence[Exchange], chance: random.Random) -> Exchange:
    """Return a reply under the prompt of another exchange; under its own where all have the same."""
    prompts = (chance.choice(others) for _ in range(MAX_DRAWS))
    other = next((each for each in prompts if each.prompt != exchange.prompt), exchange)
    return replace(other, response=exchange.response)


def perturb_some(exchange: Exchange, chance: random.Random) -> Exchange:
    """Return a reply as it is or, with probability `PERTURBED`, in a perturbed form."""
    if chance.random() >= PERTURBED:
        return exchange
    perturbed = rewrite(chance.choice(training_perturbations()), exchange) or exchange
    return replace(perturbed, response=normalize(perturbed.response))


def add_grades(examples: Sequence[TrainingExample]) -> list[TrainingExample]:
    """Return the examples, those of one reply with a language model's grade of it where there is one."""
    grades = rated_sets.read_grades()
    graded = []
    for example in examples:
        grade = grades.get(example.exchanges[0].content_digest) if len(example.exchanges) == 1 else None
        graded.append(example if grade is None else replace(example, grade=(grade - MIDDLE) / SPREAD))
    return graded


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
    for left, texts in zip(range(len(sources), 0, -1), smallest_first, strict=True):
        share = (count - len(drawn)) // left
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


def shuffle_replies(
    groups: Sequence[Sequence[Exchange]], count: int, chance: random.Random
) -> list[Exchange]:
    """Return replies under other prompts of their group, of each group by its size."""
    sizes = [len(group) for group in groups]
    return [
        under_another(chance.choice(group), group, chance)
        for group in (chance.choices(groups, sizes, k=count) if sum(sizes) else ())
    ]
