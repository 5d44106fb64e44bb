"""The network of a classifier: a pretrained base, a pooled state, and three logits."""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import Exchange
from empathy_judge.judge.classifier.large_judge import ADAPTER, HEAD, SETTINGS, load_pretrained
from empathy_judge.judge.classifier.preprocessing import ReplyTokenizer, Tokens, write_context
from empathy_judge.training.recipe import Recipe, find_base

ENCODERS = ("bert", "electra", "deberta-v2")  # they read [CLS] context [SEP] reply [SEP]
UNSUPPORTED = ("roberta", "xlm-roberta", "distilbert", "mpnet", "modernbert")  # all others are decoders
PREDICTED_TOKENS = 32_768  # padded tokens of a batch in prediction


def add_lora(base: Any, rank: int, frozen: int) -> nn.Module:
    """Freeze a decoder and add a trainable LoRA adapter to each linear layer, from the layer `frozen` on."""
    from peft import LoraConfig, get_peft_model

    linear = {name.split(".")[-1] for name, part in base.named_modules() if isinstance(part, nn.Linear)}
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules=sorted(linear),
        layers_to_transform=list(range(frozen, len(base.layers))),
        layers_pattern="layers",
    )
    with torch.random.fork_rng(devices=()):
        adapted = get_peft_model(base, config)
    for name, weight in adapted.named_parameters():
        if "lora_A" in name:  # by the width, which fits the recipes' learning rates better than peft's choice
            weight.data = torch.randn(weight.shape) / weight.shape[1] ** 0.5
    return adapted


class JudgeNetwork(nn.Module):
    """Logits of Bad, Okay and Good from token ids."""

    def __init__(self, base: nn.Module, *, is_decoder: bool, dropout: float) -> None:
        super().__init__()
        width = int(base.config.hidden_size)  # type: ignore[union-attr, arg-type]
        self.base = base
        self.is_decoder = is_decoder
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, 3)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def pool(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        """Return the last token's state of a decoder, the mean state of an encoder: [batch, width]."""
        if self.is_decoder:
            # No mask: padding comes after the last token, and attention is causal.
            states = self.base(input_ids=ids, use_cache=False).last_hidden_state
            last = mask.sum(dim=1) - 1
            return torch.as_tensor(states[torch.arange(len(ids), device=ids.device), last])
        states = self.base(input_ids=ids, attention_mask=mask, token_type_ids=segments).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        return torch.as_tensor((states * weights).sum(dim=1) / weights.sum(dim=1))

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        """Return the logits: [batch, 3]."""
        return torch.as_tensor(self.head(self.dropout(self.pool(ids, mask, segments).float())))


@dataclass(frozen=True, slots=True)
class TrainedNetworks:
    """Networks with one tokenizer, whose probabilities are averaged."""

    networks: list[JudgeNetwork]
    tokenizer: ReplyTokenizer

    def predict(self, exchanges: Sequence[Exchange], *, batch_size: int = 512) -> np.ndarray:
        """Return probabilities of Bad, Okay and Good: [exchanges, 3]."""
        tokens = self.tokenizer.encode_all([(write_context(item), item.response) for item in exchanges])
        lengths = [len(item.ids) for item in tokens]
        order = sorted(range(len(tokens)), key=lengths.__getitem__)
        probabilities = np.zeros((len(self.networks), len(tokens), 3))
        device = next(self.networks[0].parameters()).device
        for batch in cut_batches(order, lengths, batch_size, PREDICTED_TOKENS):
            padded = pad_tokens([tokens[index] for index in batch], device)
            for number, network in enumerate(self.networks):
                network.eval()
                # Eager: compiling again for prediction costs more than it saves.
                with torch.no_grad(), mixed_precision(device), torch.compiler.set_stance("force_eager"):
                    logits = network(*padded).float()
                probabilities[number, batch] = logits.softmax(dim=-1).cpu().numpy()
        return np.asarray(probabilities.mean(axis=0))


def cut_batches(
    order: Sequence[int], lengths: Sequence[int], limit: int, tokens: int, texts: Sequence[int] = ()
) -> list[list[int]]:
    """Cut a sequence into batches of `limit` items, or of fewer that have so many padded tokens.

    `lengths` are those of each item's longest text, `texts` is how many an item has, if not one.
    """
    batches: list[list[int]] = []
    longest = rows = 0
    for index in order:
        count = texts[index] if texts else 1
        longest, rows = max(longest, lengths[index]), rows + count
        if not batches or len(batches[-1]) == limit or longest * rows > tokens:
            batches.append([])
            longest, rows = lengths[index], count
        batches[-1].append(index)
    return batches


def pad_tokens(tokens: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, mask and segments: [batch, longest] each."""
    shape = (len(tokens), max(len(item.ids) for item in tokens))
    ids, mask, segments = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    for row, item in enumerate(tokens):
        ids[row, : len(item.ids)] = item.ids
        mask[row, : len(item.ids)] = 1
        segments[row, : len(item.ids)] = item.segments
    return tuple(torch.from_numpy(array).to(device) for array in (ids, mask, segments))  # type: ignore[return-value]


def mixed_precision(device: torch.device) -> torch.autocast:
    """Return bf16 autocast on CUDA, where it halves the time; on a CPU it would be slower."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")


def make_network(recipe: Recipe) -> tuple[JudgeNetwork, ReplyTokenizer]:
    """Return an untrained network and its tokenizer, as a recipe describes them."""
    base, tokenizer = load_base(recipe.base)
    base = deepcopy(base)
    if recipe.layers:
        # A decoder holds its layers itself, an encoder in a submodule; a base with fewer keeps all.
        owner, name = (base, "layers") if tokenizer.is_decoder else (base.encoder, "layer")
        setattr(owner, name, getattr(owner, name)[: recipe.layers])
        base.config.num_hidden_layers = len(getattr(owner, name))
    # Token embeddings stay frozen: the training texts contain few of them.
    base.get_input_embeddings().requires_grad_(False)
    network = JudgeNetwork(base, is_decoder=tokenizer.is_decoder, dropout=recipe.dropout)
    if recipe.rank and not tokenizer.is_decoder:
        raise UserError(f"rank: {recipe.base} is an encoder; LoRA adapters are for decoders, so set rank = 0")
    if recipe.rank:
        network.base = add_lora(base, recipe.rank, recipe.frozen)
    return network, tokenizer


def save_network(network: JudgeNetwork, path: Path) -> None:
    """Write the trained parameters of a network in half precision; the rest is the base's."""
    from safetensors.torch import save_file

    save_file(in_half({name: item for name, item in network.named_parameters() if item.requires_grad}), path)


def save_adapter(network: JudgeNetwork, folder: Path) -> None:
    """Write the LoRA adapter of a network as peft reads it, and its head, both in half precision."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    base: Any = network.base
    config = base.peft_config["default"]
    names = ("peft_type", "r", "lora_alpha", "target_modules", "layers_to_transform", "layers_pattern")
    settings = {name: getattr(config, name) for name in names} | {"inference_mode": True}
    settings["target_modules"] = sorted(config.target_modules)  # peft has a set of them
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    save_file(in_half(get_peft_model_state_dict(base)), folder / ADAPTER)
    save_file(in_half(network.head.state_dict()), folder / HEAD)


def in_half(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights in half precision on the CPU."""
    return {name: item.detach().half().cpu().contiguous() for name, item in weights.items()}


def load_network(recipe: Recipe, path: Path) -> tuple[JudgeNetwork, ReplyTokenizer]:
    """Read a network that `save_network` wrote."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    network, tokenizer = make_network(recipe)
    try:
        state = {name: tensor.float() for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: cannot be read ({error}); delete it and train again") from error
    missing, unknown = network.load_state_dict(state, strict=False)
    trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    if unknown or trained & set(missing):
        raise UserError(f"{path}: was not made by this recipe; delete it and train again")
    return network.eval(), tokenizer


@cache
def load_base(name: str) -> tuple[Any, ReplyTokenizer]:
    """Load a base by the name of the package that carries it, or a transformers folder by its path."""
    folder = find_base(name)
    base, tokenizer = load_pretrained(next(folder.glob("*.gguf"), folder))
    kind = base.config.model_type
    if kind in UNSUPPORTED:
        raise UserError(f"{folder}: a {kind} base; encoders must be of the kind {' or '.join(ENCODERS)}")
    return base, ReplyTokenizer(tokenizer, is_decoder=kind not in ENCODERS)
