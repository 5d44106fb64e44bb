"""From a recipe to a judge: the teacher first where there is one, then the network, then its level."""

import random
from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import numpy as np
import torch

from data.records import Exchange
from judge.examples import Example, cut_pieces, soften
from judge.network import JudgeNetwork
from judge.recipe import Recipe, read_recipe
from judge.training import Progress, Trained, fine_tune

SETTLED_ON = 2000  # rated replies are enough to find two numbers


def train_judge(
    examples: Sequence[Example],
    recipe: Recipe,
    *,
    texts: Sequence[Exchange] = (),
    device: str = "cpu",
    progress: Progress | None = None,
) -> Trained:
    """Follow a recipe to the end; `texts` are exchanges nobody rated, for a teacher to label."""
    lesson = list(examples)
    if recipe.teacher:
        teacher = fine_tune(examples, read_recipe(recipe.teacher), device=device, progress=progress)
        lesson = teach(teacher, examples, recipe, texts)
    return settle(fine_tune(lesson, recipe, device=device, progress=progress), examples, recipe.sharpness)


def teach(
    teacher: Trained, examples: Sequence[Example], recipe: Recipe, texts: Sequence[Exchange]
) -> list[Example]:
    """The examples with softer targets, and unrated exchanges with the teacher's word for target."""
    rated = [example.exchange for example in examples]
    said = {exchange.content: tuple(row) for exchange, row in zip(rated, teacher.predict(rated), strict=True)}
    chance = random.Random(1)
    unrated = [
        replace(chance.choice(rated), response=chance.choice(rated).response) for _ in range(recipe.shuffled)
    ]
    part = min(1.0, recipe.texts)
    unrated += [text for n, text in enumerate(texts) if ceil((n + 1) * part) > ceil(n * part)]
    unrated += cut_pieces(rated, recipe.pieces, chance)
    taught = [
        Example(exchange=exchange, target=tuple(float(part) for part in row))
        for exchange, row in zip(unrated, teacher.predict(unrated), strict=True)
    ]
    return soften(examples, said, recipe.teacher_weight) + taught


def settle(trained: Trained, examples: Sequence[Example], sharpness: float) -> Trained:
    """Soften every network's logits, and set its level to the share of each label among the ratings.

    Ratings are noisy and networks learn them by heart, so their probabilities are too sure of the commonest
    label; and with raters' harshness as an effect they speak of the middle rater, not of the crowd.
    """
    if not sharpness:
        return trained
    rated = [example for example in examples if example.rater]
    sample = random.Random(5).sample(rated, min(SETTLED_ON, len(rated)))
    shares = np.mean([example.target for example in sample], axis=0)
    for network in trained.networks:
        alone = Trained([network], trained.wording)
        logits = np.log(alone.predict([example.exchange for example in sample]) + 1e-6)
        bias = match_shares(sharpness * logits, shares)
        with torch.no_grad():
            for parameter in (*network.head.parameters(), *network.style.parameters()):
                parameter.mul_(sharpness)
        shift_level(network, bias)
    return trained


def shift_level(network: JudgeNetwork, bias: np.ndarray) -> None:
    """Move the logits of every reply alike."""
    with torch.no_grad():
        network.head.bias.add_(torch.from_numpy(bias).to(network.head.bias))


def match_shares(logits: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The three numbers that, added to the logits, make the mean probabilities equal the shares.

    >>> logits = np.zeros((4, 3))
    >>> bias = match_shares(logits, np.array([0.2, 0.3, 0.5]))
    >>> np.round(np.exp(bias) / np.exp(bias).sum(), 3).tolist()
    [0.2, 0.3, 0.5]
    """
    bias = np.zeros(3)
    for _ in range(200):  # a fixed point that is reached in far fewer steps
        powers = np.exp(logits + bias - (logits + bias).max(axis=1, keepdims=True))
        means = (powers / powers.sum(axis=1, keepdims=True)).mean(axis=0)
        bias += np.log(np.maximum(shares, 1e-4) / means)
    return bias
