"""Fine-tune a base into a classifier of Bad, Okay and Good: the teacher, the network, then its level.

The same code trains on CPU and CUDA.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from data.errors import UserError
from data.rated_exchanges import RatedExchange
from data.records import Exchange
from judge.classifier.preprocessing import Tokeniser, Tokens, write_context
from training.examples import (
    TrainingData,
    TrainingExample,
    cut_pieces,
    draw_evenly,
    dress_some,
    examples_from_graded_replies,
    examples_from_grades,
    examples_from_ratings,
    examples_from_sets,
    forget_situations,
    mix_replies,
    shuffle_replies,
)
from training.graded_replies import read_graded_replies
from training.network import JudgeNetwork, make_network
from training.recipe import Recipe, read_recipe

Progress = Callable[[int, int], None]  # lessons done, lessons in all
MakeExamples = Callable[
    [str, random.Random], list[TrainingExample]
]  # of one epoch, by what a network learns from
PREDICTED_TOKENS = 32_768  # in a batch that is only read
USUAL = 3.3  # the logarithm of 27 words, the middle length of the study's replies
BATCH_TOKENS = 16_384  # in a batch that is learnt from


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """Tensors of one step: of the replies, then of the lessons they belong to.

    `rater` is -1 where nobody known rated, `set` -1 where the lesson is of labels.
    """

    ids: Tensor
    mask: Tensor
    segments: Tensor
    lesson: Tensor  # of each reply
    target: Tensor
    rater: Tensor
    set: Tensor
    value: Tensor
    weight: Tensor


@dataclass(frozen=True, slots=True)
class TrainedNetworks:
    """Networks with one tokeniser, whose probabilities are averaged."""

    networks: list[JudgeNetwork]
    tokeniser: Tokeniser

    def predict(self, exchanges: Sequence[Exchange], *, batch_size: int = 512) -> np.ndarray:
        """Probabilities of Bad, Okay and Good: [exchanges, 3]."""
        return np.asarray(self.predict_each(exchanges, batch_size=batch_size).mean(axis=0))

    def predict_each(self, exchanges: Sequence[Exchange], *, batch_size: int = 512) -> np.ndarray:
        """Each network's probabilities: [networks, exchanges, 3]."""
        tokens = self.tokeniser.encode_all([(write_context(item), item.response) for item in exchanges])
        order = sorted(range(len(tokens)), key=lambda index: len(tokens[index].ids))
        answer = np.zeros((len(self.networks), len(tokens), 3))
        device = next(self.networks[0].parameters()).device
        start = 0
        while start < len(order):
            # Sorted, so the last is the longest; a batch's size is what is padded to it.
            stop = min(len(order), start + batch_size)
            while stop > start + 1 and (stop - start) * len(tokens[order[stop - 1]].ids) > PREDICTED_TOKENS:
                stop = start + max(1, (stop - start) // 2)
            chosen = order[start:stop]
            padded = pad_tokens([tokens[index] for index in chosen], device)
            for number, network in enumerate(self.networks):
                network.eval()
                # As it is: compiling once more for what is only read costs more than it saves.
                with torch.no_grad(), _precision(device), torch.compiler.set_stance("force_eager"):
                    logits = network(*padded).float()
                answer[number, chosen] = logits.softmax(dim=-1).cpu().numpy()
            start = stop
        return answer


def fine_tune(
    make_examples: MakeExamples, recipe: Recipe, *, device: str = "cpu", progress: Progress | None = None
) -> TrainedNetworks:
    """Train the networks of a recipe, on lessons that may differ from epoch to epoch."""
    networks = []
    for number, learnt_from in enumerate(recipe.networks):
        seeded = replace(recipe, seed=recipe.seed + number)
        make_epoch = partial(make_examples, learnt_from)
        network, tokeniser = _fine_tune_once(make_epoch, seeded, device, progress)
        networks.append(network)
    return TrainedNetworks(networks, tokeniser)


def _fine_tune_once(
    make_epoch: Callable[[random.Random], list[TrainingExample]],
    recipe: Recipe,
    device: str,
    progress: Progress | None,
) -> tuple[JudgeNetwork, Tokeniser]:
    torch.manual_seed(recipe.seed)
    chance = random.Random(recipe.seed)
    network, tokeniser = make_network(recipe)
    network.to(device)
    if device.startswith("cuda"):
        # Compiled once for all of them, since all are alike, but for the first, whose input has no gradient.
        for layer in getattr(network.base, "layers", [])[1:]:
            layer.compile(dynamic=True)
    lessons = make_epoch(chance)
    if not lessons:
        raise UserError("nothing is left to train on: give more ratings, or a recipe that uses other texts")
    effects = RatingEffects(lessons, recipe).to(device)
    total = recipe.epochs * len(lessons)
    optimizer = _make_optimizer(network, effects, recipe)
    done = 0
    for epoch in range(recipe.epochs):
        if epoch:
            lessons = make_epoch(chance)
        network.train()
        for batch in make_batches(lessons, tokeniser, recipe, effects, chance, device):
            with _precision(torch.device(device)):
                loss = compute_loss(network, effects, batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            done += len(batch.set)
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * _warm(done / total, recipe.warmup)
            optimizer.step()
            if progress:
                progress(done, total)
    return network.eval(), tokeniser


class RatingEffects(nn.Module):
    """What a rating owes to who gave it and on which scale, learnt in training and left out after.

    Every other set is met through the same direction as the labels, latent = Good's logit - Bad's, with a
    positive scale and an offset of its own. So a set cannot turn the direction round, only refine it.
    """

    def __init__(self, lessons: Sequence[TrainingExample], recipe: Recipe) -> None:
        super().__init__()
        self.raters = _number(lesson.rater for lesson in lessons)
        self.sets = _number(lesson.set for lesson in lessons)
        self.severity = nn.Parameter(torch.zeros(max(1, len(self.raters))))
        self.log_scale = nn.Parameter(torch.full((max(1, len(self.sets)),), -0.7))
        self.offset = nn.Parameter(torch.zeros(max(1, len(self.sets))))
        self.prior = recipe.severity
        self.count = max(1, sum(bool(lesson.rater) for lesson in lessons))
        # Centred within each model: else the raters of a good one would look kind, and its text not good.
        arms = _number(e.model for lesson in lessons if lesson.rater for e in lesson.exchanges)
        home = torch.zeros(max(1, len(self.raters)), dtype=torch.long)
        for lesson in lessons:
            if lesson.rater:
                home[self.raters[lesson.rater]] = arms[lesson.exchanges[0].model]
        self.arms = max(1, len(arms))
        self.home: Tensor
        self.register_buffer("home", home)

    def harshness(self, rater: Tensor) -> Tensor:
        """The shift of each lesson towards Good: [lessons]."""
        if not self.prior:
            return torch.zeros(len(rater), device=rater.device)
        size = torch.zeros(self.arms, device=rater.device)
        total = size.clone().index_add_(0, self.home, self.severity)
        size = size.index_add_(0, self.home, torch.ones_like(self.severity)).clamp(min=1)
        centred = self.severity - (total / size)[self.home]
        return (rater >= 0).float() * centred[rater.clamp(min=0)]

    def penalty(self) -> Tensor:
        """Minus the log of the normal prior, per rating."""
        if not self.prior:
            return torch.zeros((), device=self.severity.device)
        return self.severity.square().sum() / (2 * self.prior**2) / self.count

    def on_scale(self, latent: Tensor, sets: Tensor) -> Tensor:
        """What a latent score is on the scale of each lesson's set."""
        place = sets.clamp(min=0)
        return self.log_scale[place].exp() * latent + self.offset[place]


def _number(names: Iterator[str] | Sequence[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(sorted({name for name in names if name}))}


def compute_loss(network: JudgeNetwork, effects: RatingEffects, batch: TrainingBatch) -> Tensor:
    """Cross-entropy where labels are to be met, squared error where a set's ratings are; and the prior."""
    each = network(batch.ids, batch.mask, batch.segments).float()
    count = torch.zeros(len(batch.set), device=each.device).index_add_(
        0, batch.lesson, torch.ones(len(each), device=each.device)
    )
    logits = torch.zeros(len(batch.set), 3, device=each.device).index_add_(0, batch.lesson, each)
    logits = logits / count.unsqueeze(1)
    levels = torch.tensor((-1.0, 0.0, 1.0), device=logits.device)
    shifted = logits + effects.harshness(batch.rater).unsqueeze(1) * levels
    by_label = -(batch.target * functional.log_softmax(shifted, dim=-1)).sum(dim=-1)
    by_value = (effects.on_scale(logits[:, 2] - logits[:, 0], batch.set) - batch.value).square()
    losses = batch.weight * torch.where(batch.set >= 0, by_value, by_label)
    return losses.sum() / len(losses) + effects.penalty()


def make_batches(
    lessons: Sequence[TrainingExample],
    tokeniser: Tokeniser,
    recipe: Recipe,
    effects: RatingEffects,
    chance: random.Random,
    device: str,
) -> Iterator[TrainingBatch]:
    """One epoch in random order; texts of like length lie together so that little is padded."""
    pairs = [
        (write_context(exchange, chance=chance, drop=recipe.drop_context), exchange.response)
        for lesson in lessons
        for exchange in lesson.exchanges
    ]
    tokens = iter(tokeniser.encode_all(pairs))
    replies = [[next(tokens) for _ in lesson.exchanges] for lesson in lessons]
    size = [max(len(reply.ids) for reply in several) for several in replies]
    order = list(range(len(lessons)))
    chance.shuffle(order)
    window = recipe.batch_size * 16
    chunks = [order[start : start + window] for start in range(0, len(order), window)]
    order = [i for chunk in chunks for i in sorted(chunk, key=size.__getitem__)]
    batches = _fill(order, size, [len(several) for several in replies], recipe.batch_size)
    chance.shuffle(batches)
    for places in batches:
        chosen = [lessons[place] for place in places]
        owner = [number for number, place in enumerate(places) for _ in replies[place]]
        yield TrainingBatch(
            *pad_tokens([reply for place in places for reply in replies[place]], torch.device(device)),
            torch.tensor(owner, device=device),
            torch.tensor([lesson.target for lesson in chosen], device=device),
            torch.tensor([effects.raters.get(lesson.rater, -1) for lesson in chosen], device=device),
            torch.tensor([effects.sets.get(lesson.set, -1) for lesson in chosen], device=device),
            torch.tensor([lesson.value for lesson in chosen], device=device),
            torch.tensor([lesson.weight for lesson in chosen], device=device),
        )


def _fill(order: Sequence[int], size: Sequence[int], replies: Sequence[int], most: int) -> list[list[int]]:
    """Lessons in order cut into batches of so many, or fewer where they are long: a step must fit memory."""
    batches: list[list[int]] = [[]]
    longest = rows = 0
    for place in order:
        longest, rows = max(longest, size[place]), rows + replies[place]
        if batches[-1] and (len(batches[-1]) == most or longest * rows > BATCH_TOKENS):
            batches.append([])
            longest, rows = size[place], replies[place]
        batches[-1].append(place)
    return batches


def pad_tokens(tokens: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, mask and segments of like length: [batch, longest] each."""
    longest = max(len(item.ids) for item in tokens)
    shape = (len(tokens), longest)
    ids, mask, segments = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    for row, item in enumerate(tokens):
        ids[row, : len(item.ids)] = item.ids
        mask[row, : len(item.ids)] = 1
        segments[row, : len(item.ids)] = item.segments
    return tuple(torch.from_numpy(array).to(device) for array in (ids, mask, segments))  # type: ignore[return-value]


def _make_optimizer(network: JudgeNetwork, effects: RatingEffects, recipe: Recipe) -> torch.optim.Optimizer:
    fresh = list(network.head.parameters())
    groups: list[dict[str, Any]] = [
        {"params": [p for p in network.base.parameters() if p.requires_grad], "peak": recipe.learning_rate},
        {"params": fresh, "peak": recipe.head_learning_rate},
        # A rater has ten ratings to learn from in a whole epoch, hence the long stride.
        {"params": [effects.severity], "peak": 0.05, "weight_decay": 0.0},
        {"params": [effects.log_scale, effects.offset], "peak": 0.01, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, weight_decay=recipe.weight_decay, fused=fresh[0].is_cuda)


def _warm(part: float, warmup: float) -> float:
    """The learning rate's share of its peak: up over the warm-up, then down to nothing."""
    return min(part / max(warmup, 1e-9), (1 - part) / max(1e-9, 1 - warmup))


def _precision(device: torch.device) -> torch.autocast:
    # bf16 halves the time on CUDA and only slows a CPU down.
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


SETTLED_ON = 2000  # rated replies are enough to find two numbers


def train_judge(
    corpus: TrainingData,
    recipe: Recipe,
    *,
    teacher: TrainedNetworks | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> list[TrainedNetworks]:
    """Follow a recipe to the end: the judge, then the one that taught it, its teacher, and so on.

    A `teacher` that is there already is not trained again.
    """
    if recipe.drop_context >= 1:
        corpus = replace(corpus, items=forget_situations(corpus.items))
    teachers: list[TrainedNetworks] = []
    taught: list[TrainingExample] = []
    ours: list[TrainingExample] = []
    if recipe.teacher:
        there = [teacher] if teacher else None
        teachers = there or train_judge(corpus, read_recipe(recipe.teacher), device=device, progress=progress)
        taught = distill_ratings(teachers[0], corpus, recipe)
        ours = distill_graded_replies(teachers[0], corpus, recipe)

    def make_examples(learnt_from: str, chance: random.Random) -> list[TrainingExample]:
        if teachers:
            dressed = [replace(each, exchanges=(dress_some(each.exchanges[0], chance),)) for each in ours]
            return [*taught, *dressed]
        lessons = examples_from_ratings(corpus.examples)
        if learnt_from != "labels":
            lessons += examples_from_grades(corpus, recipe.grades, chance)
        if learnt_from in ("all", "sets"):
            lessons += examples_from_sets(corpus.items, recipe.sets, replies=recipe.replies, chance=chance)
        if learnt_from in ("all", "ours"):
            lessons += examples_from_graded_replies(recipe.ours, chance)
        return lessons

    trainable = replace(recipe, networks=trainable_networks(recipe, corpus))
    trained = fine_tune(make_examples, trainable, device=device, progress=progress)
    return [match_level(trained, corpus.examples, recipe.sharpness), *teachers]


def trainable_networks(recipe: Recipe, corpus: TrainingData) -> list[str]:
    """Those of a recipe that can be trained: where the study is left out, none on its labels alone."""
    return [name for name in recipe.networks if corpus.examples or name != "labels"] or list(recipe.networks)


def distill_ratings(teacher: TrainedNetworks, corpus: TrainingData, recipe: Recipe) -> list[TrainingExample]:
    """The ratings moved towards the teacher's word, which carries less noise than one person's; and that word
    on replies nobody rated: other turns of conversations, given texts, pieces, mixtures and strangers.
    """
    chance = random.Random(1)
    rated = [example.exchange for example in corpus.examples]
    others = [exchange for item in corpus.items for exchange in item.exchanges] + list(corpus.texts)
    every = rated + others
    unrated = [
        *draw_evenly(corpus, recipe.texts, chance),
        *shuffle_replies(every, recipe.shuffled, chance),
        *cut_pieces(every, recipe.pieces, chance),
        *mix_replies(every, recipe.mixtures, chance),
    ]
    words = teacher.predict([*rated, *unrated])
    # The study's people have said what they think of the length of its replies.
    words[len(rated) :] = favour_length(words[len(rated) :], unrated, recipe.length)
    weight = recipe.teacher_weight
    softened = [
        (1 - weight) * np.array(example.target) + weight * word
        for example, word in zip(corpus.examples, words, strict=False)
    ]
    return [
        TrainingExample(exchanges=(exchange,), target=tuple(float(part) for part in target))
        for exchange, target in zip([*rated, *unrated], [*softened, *words[len(rated) :]], strict=True)
    ]


def distill_graded_replies(
    teacher: TrainedNetworks, corpus: TrainingData, recipe: Recipe
) -> list[TrainingExample]:
    """The teacher's word on our own replies as they are, whatever form they are then shown in.

    Where only some of its networks have learnt from ours, the mean of those and the mean of all count alike.
    """
    if not recipe.ours:
        return []
    ours = [reply.exchange for reply in read_graded_replies()]
    said = teacher.predict_each(ours)
    have_learnt = [
        name in ("all", "ours") for name in trainable_networks(read_recipe(recipe.teacher), corpus)
    ]
    words = (said.mean(axis=0) + (said[have_learnt] if any(have_learnt) else said).mean(axis=0)) / 2
    return [
        TrainingExample(exchanges=(exchange,), target=tuple(float(part) for part in word), weight=recipe.ours)
        for exchange, word in zip(ours, words, strict=True)
    ]


def favour_length(said: np.ndarray, exchanges: Sequence[Exchange], by: float) -> np.ndarray:
    """Probabilities moved towards Good by `by` for every e-fold of words beyond the study's usual number.

    Longer replies were rated higher in most sets, and a little lower in the study, which is most of what a
    teacher learns from: of a set that it never met it expects too little of them.
    """
    words = np.array([max(1, len(exchange.response.split())) for exchange in exchanges])
    shift = by / 2 * (np.log(words) - USUAL)
    moved = np.log(said + 1e-6) + shift[:, None] * np.array([-1.0, 0.0, 1.0])
    powers = np.exp(moved - moved.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def match_level(
    trained: TrainedNetworks, examples: Sequence[RatedExchange], sharpness: float
) -> TrainedNetworks:
    """Soften every network's logits, and set its level to the share of each label among the ratings.

    Ratings are noisy and networks learn them by heart, so their probabilities are too sure of the commonest
    label; and with raters' harshness as an effect they speak of the middle rater, not of the crowd.
    """
    rated = [example for example in examples if example.rater]
    if not sharpness or not rated:
        return trained
    sample = random.Random(5).sample(rated, min(SETTLED_ON, len(rated)))
    shares = np.mean([example.target for example in sample], axis=0)
    for network in trained.networks:
        alone = TrainedNetworks([network], trained.tokeniser)
        logits = np.log(alone.predict([example.exchange for example in sample]) + 1e-6)
        bias = match_shares(sharpness * logits, shares)
        with torch.no_grad():
            for parameter in network.head.parameters():
                parameter.mul_(sharpness)
            network.head.bias.add_(torch.from_numpy(bias).to(network.head.bias))
    return trained


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
