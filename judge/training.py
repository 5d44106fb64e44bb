"""Fine-tunes a base into a classifier of Bad, Okay and Good; the same code on CPU and CUDA."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from data.records import Exchange
from judge.disguises import make_disguised
from judge.examples import Example, make_dismissals, make_mismatched
from judge.network import JudgeNetwork, make_network
from judge.recipe import Recipe
from judge.style import STYLE, count_style
from judge.wording import Tokens, Wording, write_context

Progress = Callable[[int, int], None]  # steps done, steps in all
LEVELS = (-1.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of one step; `rater` and `arm` are -1 where nobody rated."""

    ids: Tensor
    mask: Tensor
    segments: Tensor
    style: Tensor
    target: Tensor
    task: Tensor
    rater: Tensor
    arm: Tensor
    group: Tensor


@dataclass(frozen=True, slots=True)
class Trained:
    """Networks trained alike from different seeds, whose probabilities are averaged."""

    networks: list[JudgeNetwork]
    wording: Wording

    def predict(self, exchanges: Sequence[Exchange], *, batch_size: int = 128) -> np.ndarray:
        """Probabilities of Bad, Okay and Good: [exchanges, 3]."""
        tokens = [self.wording.encode(write_context(item), item.response) for item in exchanges]
        order = sorted(range(len(tokens)), key=lambda index: len(tokens[index].ids))
        answer = np.zeros((len(tokens), 3))
        device = next(self.networks[0].parameters()).device
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            ids, mask, segments = pad_tokens([tokens[index] for index in chosen], device)
            style = torch.tensor([count_style(exchanges[index].response) for index in chosen], device=device)
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
        network, wording = _fine_tune_once(
            examples, replace(recipe, seed=recipe.seed + number), device, progress
        )
        networks.append(network)
    return Trained(networks, wording)


def _fine_tune_once(
    examples: Sequence[Example], recipe: Recipe, device: str, progress: Progress | None
) -> tuple[JudgeNetwork, Wording]:
    torch.manual_seed(recipe.seed)
    chance = random.Random(recipe.seed)
    rated = [example for example in examples if not example.task]
    tasks = sorted({example.task for example in examples if example.task})
    network, wording = make_network(recipe, len(tasks))
    if recipe.rank and device.startswith("cuda"):
        for parameter in network.base.parameters():
            if not parameter.requires_grad:  # frozen weights need no more than the precision they are used in
                parameter.data = parameter.data.to(torch.bfloat16)
    network.to(device)
    effects = Effects(rated, recipe).to(device)
    parts = (recipe.mismatched, recipe.dismissals, recipe.disguised)
    mismatched, dismissed, disguised = (round(part * len(rated)) for part in parts)
    steps = recipe.epochs * -(-(len(examples) + mismatched + dismissed + disguised) // recipe.batch_size)
    optimizer, schedule = _make_optimizer(network, effects, recipe, steps)
    done = 0
    for _ in range(recipe.epochs):
        lesson = list(examples)
        lesson += make_mismatched(rated, mismatched, chance)
        lesson += make_dismissals(rated, dismissed, chance)
        lesson += make_disguised(rated, disguised, chance)
        network.train()
        for batch in make_batches(lesson, wording, recipe, effects, tasks, chance, device):
            with _precision(torch.device(device)):
                loss = compute_loss(network, effects, batch, recipe)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            done += 1
            if progress:
                progress(done, steps)
    return network.eval(), wording


class Effects(nn.Module):
    """What a rating owes to who gave it and to whose reply it was, learnt in training and left out after."""

    def __init__(self, examples: Sequence[Example], recipe: Recipe) -> None:
        super().__init__()
        self.raters = {rater: n for n, rater in enumerate(sorted({e.rater for e in examples if e.rater}))}
        self.arms = {arm: n for n, arm in enumerate(sorted({e.exchange.model for e in examples}))}
        self.severity = nn.Embedding(max(1, len(self.raters)), 1)
        self.offset = nn.Embedding(max(1, len(self.arms)), 1)
        nn.init.zeros_(self.severity.weight)
        nn.init.zeros_(self.offset.weight)
        self.uses_severity, self.uses_offsets = recipe.severity > 0, recipe.offsets > 0
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
        shift = torch.zeros(len(batch.rater), device=batch.rater.device)
        known = (batch.rater >= 0).float()
        if self.uses_severity:
            # Centred within each arm: else the raters of a good arm would look kind, and its text not good.
            raw = self.severity.weight[:, 0]
            size = torch.zeros(len(self.arms), device=raw.device)
            total = size.clone().index_add_(0, self.home, raw)
            size = size.index_add_(0, self.home, torch.ones_like(raw)).clamp(min=1)
            shift = shift + known * (raw - (total / size)[self.home])[batch.rater.clamp(min=0)]
        if self.uses_offsets:
            raw = self.offset.weight[:, 0]
            shift = shift + known * (raw - raw.mean())[batch.arm.clamp(min=0)]
        return shift

    def penalty(self) -> Tensor:
        """Minus the log of the normal priors, per example."""
        total = torch.zeros((), device=self.severity.weight.device)
        if self.uses_severity:
            total = total + self.severity.weight.square().sum() / (2 * self.recipe.severity**2)
        if self.uses_offsets:
            total = total + self.offset.weight.square().sum() / (2 * self.recipe.offsets**2)
        return total / self.count


def compute_loss(network: JudgeNetwork, effects: Effects, batch: Batch, recipe: Recipe) -> Tensor:
    """Cross-entropy with the targets, and what the recipe adds to it."""
    state = network.dropout(network.pool(batch.ids, batch.mask, batch.segments).float())
    logits = network.read(state, batch.style)
    levels = torch.tensor(LEVELS, device=logits.device)
    shifted = logits + effects(batch).unsqueeze(1) * levels
    ours = batch.task < 0
    losses = -(batch.target * functional.log_softmax(shifted.float(), dim=-1)).sum(dim=-1)
    loss = (losses * ours).sum() / ours.sum().clamp(min=1)
    if recipe.second_tasks and not bool(ours.all()):
        guess = network.tasks(state).gather(1, batch.task.clamp(min=0).unsqueeze(1)).squeeze(1)
        other = functional.binary_cross_entropy_with_logits(guess, batch.target[:, 0], reduction="none")
        loss = loss + recipe.second_tasks * (other * ~ours).sum() / (~ours).sum().clamp(min=1)
    if recipe.pairwise:
        loss = loss + recipe.pairwise * _pairwise_loss(shifted, batch, levels)
    return loss + effects.penalty()


def _pairwise_loss(logits: Tensor, batch: Batch, levels: Tensor) -> Tensor:
    """Replies to one prompt in the order people put them: a logistic loss on the difference of scores."""
    score = 3 * (logits.softmax(dim=-1) * levels).sum(dim=-1)
    rating = (batch.target * levels).sum(dim=-1)
    gap = rating.unsqueeze(1) - rating.unsqueeze(0)
    rated = (batch.rater >= 0) & (batch.task < 0)
    pairs = (
        (batch.group.unsqueeze(1) == batch.group.unsqueeze(0))
        & (rated.unsqueeze(1) & rated.unsqueeze(0))
        & (gap > 0)
    )
    losses = functional.softplus(-(score.unsqueeze(1) - score.unsqueeze(0)))
    return (losses * pairs).sum() / pairs.sum().clamp(min=1)


def make_batches(
    examples: Sequence[Example],
    wording: Wording,
    recipe: Recipe,
    effects: Effects,
    tasks: Sequence[str],
    chance: random.Random,
    device: str,
) -> Iterator[Batch]:
    """One epoch in random order; texts of like length lie together so that little is padded."""
    tokens = [
        wording.encode(
            write_context(e.exchange, chance=chance, drop=recipe.drop_context), e.exchange.response
        )
        for e in examples
    ]
    order = list(range(len(examples)))
    chance.shuffle(order)
    # Not a set: its order would differ from one process to the next, and with it the training.
    groups = {group: chance.random() for group in dict.fromkeys(example.group for example in examples)}
    if recipe.pairwise:
        order.sort(key=lambda index: groups[examples[index].group])
    else:
        window = recipe.batch_size * 16
        chunks = [order[start : start + window] for start in range(0, len(order), window)]
        order = [i for chunk in chunks for i in sorted(chunk, key=lambda index: len(tokens[index].ids))]
    starts = list(range(0, len(order), recipe.batch_size))
    chance.shuffle(starts)
    number = {group: n for n, group in enumerate(groups)}
    for start in starts:
        chosen = [examples[index] for index in order[start : start + recipe.batch_size]]
        ids, mask, segments = pad_tokens(
            [tokens[index] for index in order[start : start + recipe.batch_size]], torch.device(device)
        )
        style = [count_style(e.exchange.response) if recipe.style else (0.0,) * len(STYLE) for e in chosen]
        target = [e.target if not e.task else (e.target[0], 0.0, 0.0) for e in chosen]
        yield Batch(
            ids,
            mask,
            segments,
            torch.tensor(style, device=device),
            torch.tensor(target, device=device),
            torch.tensor([tasks.index(e.task) if e.task else -1 for e in chosen], device=device),
            torch.tensor([effects.raters.get(e.rater, -1) for e in chosen], device=device),
            torch.tensor([effects.arms.get(e.exchange.model, -1) for e in chosen], device=device),
            torch.tensor(
                [number[e.group] if e.group else -1 - n for n, e in enumerate(chosen)], device=device
            ),
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
