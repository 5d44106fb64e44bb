"""Fine-tune a base into a classifier of Bad, Okay and Good: the teacher, the network, then its level.

The same code trains on CPU and CUDA.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from data.records import Exchange
from judge.classifier.examples import Example, cut_pieces, make_dismissals, make_mismatched, soften
from judge.classifier.network import JudgeNetwork, make_network
from judge.classifier.preprocessing import STYLE, Tokeniser, Tokens, style_features, write_context
from judge.classifier.recipe import Recipe, read_recipe
from judge.classifier.synthetic import make_disguised

Progress = Callable[[int, int], None]  # steps done, steps in all


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of one step; `rater` is -1 where nobody rated."""

    ids: Tensor
    mask: Tensor
    segments: Tensor
    style: Tensor
    target: Tensor
    rater: Tensor


@dataclass(frozen=True, slots=True)
class Trained:
    """Networks trained alike from different seeds, whose probabilities are averaged."""

    networks: list[JudgeNetwork]
    tokeniser: Tokeniser

    def predict(self, exchanges: Sequence[Exchange], *, batch_size: int = 128) -> np.ndarray:
        """Probabilities of Bad, Okay and Good: [exchanges, 3]."""
        tokens = [self.tokeniser.encode(write_context(item), item.response) for item in exchanges]
        order = sorted(range(len(tokens)), key=lambda index: len(tokens[index].ids))
        answer = np.zeros((len(tokens), 3))
        device = next(self.networks[0].parameters()).device
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            ids, mask, segments = pad_tokens([tokens[index] for index in chosen], device)
            style = torch.tensor(
                [style_features(exchanges[index].response) for index in chosen], device=device
            )
            for network in self.networks:
                network.eval()
                with torch.no_grad(), _precision(device):
                    logits = network(ids, mask, segments, style).float()
                answer[chosen] += logits.softmax(dim=-1).cpu().numpy() / len(self.networks)
        return answer


def fine_tune(
    examples: Sequence[Example], recipe: Recipe, *, device: str = "cpu", progress: Progress | None = None
) -> Trained:
    """Train `recipe.seeds` networks on the examples and those the recipe makes of them."""
    networks = []
    for number in range(recipe.seeds):
        network, tokeniser = _fine_tune_once(
            examples, replace(recipe, seed=recipe.seed + number), device, progress
        )
        networks.append(network)
    return Trained(networks, tokeniser)


def _fine_tune_once(
    examples: Sequence[Example], recipe: Recipe, device: str, progress: Progress | None
) -> tuple[JudgeNetwork, Tokeniser]:
    torch.manual_seed(recipe.seed)
    chance = random.Random(recipe.seed)
    network, tokeniser = make_network(recipe)
    if recipe.rank and device.startswith("cuda"):
        for parameter in network.base.parameters():
            if not parameter.requires_grad:  # frozen weights need no more than the precision they are used in
                parameter.data = parameter.data.to(torch.bfloat16)
    network.to(device)
    effects = Effects(examples, recipe).to(device)
    parts = (recipe.mismatched, recipe.dismissals, recipe.disguised)
    mismatched, dismissed, disguised = (round(part * len(examples)) for part in parts)
    steps = recipe.epochs * -(-(len(examples) + mismatched + dismissed + disguised) // recipe.batch_size)
    optimizer, schedule = _make_optimizer(network, effects, recipe, steps)
    done = 0
    for _ in range(recipe.epochs):
        lesson = list(examples)
        lesson += make_mismatched(examples, mismatched, chance)
        lesson += make_dismissals(examples, dismissed, chance)
        lesson += make_disguised(examples, disguised, chance)
        network.train()
        for batch in make_batches(lesson, tokeniser, recipe, effects, chance, device):
            with _precision(torch.device(device)):
                loss = compute_loss(network, effects, batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            done += 1
            if progress:
                progress(done, steps)
    return network.eval(), tokeniser


class Effects(nn.Module):
    """What a rating owes to who gave it, learnt in training and left out after."""

    def __init__(self, examples: Sequence[Example], recipe: Recipe) -> None:
        super().__init__()
        self.raters = {rater: n for n, rater in enumerate(sorted({e.rater for e in examples if e.rater}))}
        self.arms = {arm: n for n, arm in enumerate(sorted({e.exchange.model for e in examples}))}
        self.severity = nn.Embedding(max(1, len(self.raters)), 1)
        torch.randn(max(1, len(self.arms)), 1)  # of no use: without these draws a seed trains another judge
        nn.init.zeros_(self.severity.weight)
        self.count = len(examples)
        self.recipe = recipe
        home = torch.zeros(max(1, len(self.raters)), dtype=torch.long)
        for example in examples:
            if example.rater:
                home[self.raters[example.rater]] = self.arms[example.exchange.model]
        self.home: Tensor
        self.register_buffer("home", home)

    def forward(self, batch: Batch) -> Tensor:
        """The shift of each example towards Good: [batch]."""
        if not self.recipe.severity:
            return torch.zeros(len(batch.rater), device=batch.rater.device)
        # Centred within each arm: else the raters of a good arm would look kind, and its text not good.
        raw = self.severity.weight[:, 0]
        size = torch.zeros(len(self.arms), device=raw.device)
        total = size.clone().index_add_(0, self.home, raw)
        size = size.index_add_(0, self.home, torch.ones_like(raw)).clamp(min=1)
        centred = raw - (total / size)[self.home]
        return (batch.rater >= 0).float() * centred[batch.rater.clamp(min=0)]

    def penalty(self) -> Tensor:
        """Minus the log of the normal priors, per example."""
        if not self.recipe.severity:
            return torch.zeros((), device=self.severity.weight.device)
        return self.severity.weight.square().sum() / (2 * self.recipe.severity**2) / self.count


def compute_loss(network: JudgeNetwork, effects: Effects, batch: Batch) -> Tensor:
    """Cross-entropy with the targets, and the priors of the effects."""
    logits = network(batch.ids, batch.mask, batch.segments, batch.style)
    levels = torch.tensor((-1.0, 0.0, 1.0), device=logits.device)
    shifted = logits + effects(batch).unsqueeze(1) * levels
    losses = -(batch.target * functional.log_softmax(shifted.float(), dim=-1)).sum(dim=-1)
    return losses.sum() / len(losses) + effects.penalty()


def make_batches(
    examples: Sequence[Example],
    tokeniser: Tokeniser,
    recipe: Recipe,
    effects: Effects,
    chance: random.Random,
    device: str,
) -> Iterator[Batch]:
    """One epoch in random order; texts of like length lie together so that little is padded."""
    tokens = [
        tokeniser.encode(
            write_context(e.exchange, chance=chance, drop=recipe.drop_context), e.exchange.response
        )
        for e in examples
    ]
    order = list(range(len(examples)))
    chance.shuffle(order)
    for _ in {example.group for example in examples}:
        chance.random()  # of no use: without these draws a seed trains another judge
    window = recipe.batch_size * 16
    chunks = [order[start : start + window] for start in range(0, len(order), window)]
    order = [i for chunk in chunks for i in sorted(chunk, key=lambda index: len(tokens[index].ids))]
    starts = list(range(0, len(order), recipe.batch_size))
    chance.shuffle(starts)
    for start in starts:
        indices = order[start : start + recipe.batch_size]
        chosen = [examples[index] for index in indices]
        style = [style_features(e.exchange.response) if recipe.style else (0.0,) * len(STYLE) for e in chosen]
        yield Batch(
            *pad_tokens([tokens[index] for index in indices], torch.device(device)),
            torch.tensor(style, device=device),
            torch.tensor([e.target for e in chosen], device=device),
            torch.tensor([effects.raters.get(e.rater, -1) for e in chosen], device=device),
        )


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


def _make_optimizer(
    network: JudgeNetwork, effects: Effects, recipe: Recipe, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
    fresh = [*network.head.parameters(), *network.style.parameters(), *network.tasks.parameters()]
    groups = [
        {"params": [p for p in network.base.parameters() if p.requires_grad], "lr": recipe.learning_rate},
        {"params": fresh, "lr": recipe.head_learning_rate},
        # An effect has ten ratings to learn from in a whole epoch, hence the long stride.
        {"params": list(effects.parameters()), "lr": 0.05, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=recipe.weight_decay, fused=fresh[0].is_cuda)
    warm = max(1, round(recipe.warmup * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, max(0.0, (steps - step) / max(1, steps - warm)))
    )
    return optimizer, schedule


def _precision(device: torch.device) -> torch.autocast:
    # bf16 halves the time on CUDA and only slows a CPU down.
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


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
    lessons = {
        exchange.content_digest: tuple(row)
        for exchange, row in zip(rated, teacher.predict(rated), strict=True)
    }
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
    return soften(examples, lessons, recipe.teacher_weight) + taught


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
        alone = Trained([network], trained.tokeniser)
        logits = np.log(alone.predict([example.exchange for example in sample]) + 1e-6)
        bias = match_shares(sharpness * logits, shares)
        with torch.no_grad():
            for parameter in (*network.head.parameters(), *network.style.parameters()):
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
