"""The network of a classifier: a pretrained base, a pooled state, and three logits."""

from contextlib import redirect_stderr
from copy import deepcopy
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from data.errors import UserError
from judge.classifier.base_weights import find_base
from judge.classifier.preprocessing import Tokeniser
from training.recipe import Recipe

ENCODERS = ("bert", "electra", "deberta-v2")  # these read [CLS] one [SEP] two [SEP]; all others are decoders,
OTHER_ENCODERS = ("roberta", "xlm-roberta", "distilbert", "mpnet", "modernbert")  # save these: not supported


class LoraLinear(nn.Module):
    """A frozen linear map plus a small trained one (LoRA); by hand, as ten lines spare a dependency."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, frozen.in_features) / frozen.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, state: Tensor) -> Tensor:
        # One product with the changed weights: fewer and smaller steps than two products side by side.
        return nn.functional.linear(state, self.frozen.weight + 2.0 * (self.up @ self.down), self.frozen.bias)


def add_lora(base: nn.Module, rank: int) -> None:
    """Freeze a base and put a trainable low-rank change beside each of its linear maps."""
    base.requires_grad_(False)
    for parent in list(base.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(parent, LoraLinear):
                setattr(parent, name, LoraLinear(child, rank))


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
        """The last token's state of a decoder, the mean state of an encoder: [batch, width]."""
        if self.is_decoder:
            # No mask: what is padded stands behind the last token, which looks back only.
            states = self.base(input_ids=ids, use_cache=False).last_hidden_state
            last = mask.sum(dim=1) - 1
            return torch.as_tensor(states[torch.arange(len(ids), device=ids.device), last])
        states = self.base(input_ids=ids, attention_mask=mask, token_type_ids=segments).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        return torch.as_tensor((states * weights).sum(dim=1) / weights.sum(dim=1))

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        """Logits: [batch, 3]."""
        return torch.as_tensor(self.head(self.dropout(self.pool(ids, mask, segments).float())))


def make_network(recipe: Recipe) -> tuple[JudgeNetwork, Tokeniser]:
    """An untrained network as a recipe asks for it."""
    base, tokeniser = load_base(recipe.base)
    base = deepcopy(base)
    if recipe.layers:
        # A decoder has its layers itself, an encoder one floor below; one that has fewer keeps all.
        owner, name = (base, "layers") if tokeniser.is_decoder else (base.encoder, "layer")
        setattr(owner, name, getattr(owner, name)[: recipe.layers])
        base.config.num_hidden_layers = len(getattr(owner, name))
    # The words a base knows stay as they are: 35,000 replies meet few of them, and a file need not hold them.
    base.get_input_embeddings().requires_grad_(False)
    network = JudgeNetwork(base, is_decoder=tokeniser.is_decoder, dropout=recipe.dropout)
    if recipe.rank:
        add_lora(network.base, recipe.rank)
    return network, tokeniser


def save_network(network: JudgeNetwork, path: Path) -> None:
    """What was trained of a network, in half precision; the rest is the base's."""
    from safetensors.torch import save_file

    trained = {name: item for name, item in network.named_parameters() if item.requires_grad}
    save_file({name: item.detach().half().cpu().contiguous() for name, item in trained.items()}, path)


def load_network(recipe: Recipe, path: Path) -> tuple[JudgeNetwork, Tokeniser]:
    """A network as `save_network` left it."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    network, tokeniser = make_network(recipe)
    try:
        state = {name: tensor.float() for name, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"{path}: cannot be read ({error}); delete it and train again, or install again"
        ) from error
    missing, unknown = network.load_state_dict(state, strict=False)
    trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    if unknown or trained & set(missing):
        raise UserError(f"{path}: was not made by this recipe; train again, or install again")
    return network.eval(), tokeniser


@cache
def load_base(name: str) -> tuple[Any, Tokeniser]:
    """A base by the name of the package that carries it, or any transformers folder by its path."""
    from tokenizers import Tokenizer
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    folder = find_base(name)
    weights = next(folder.glob("*.gguf"), None)
    wanted = () if weights else ("config.json", "tokenizer.json")
    if missing := [name for name in wanted if not (folder / name).exists()]:
        raise UserError(f"{folder}: not the folder of a base ({' and '.join(missing)} missing)")
    disable_progress_bar()  # type: ignore[no-untyped-call]
    if weights is None:
        base = AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    else:
        with redirect_stderr(StringIO()):  # this progress bar has no switch
            base = AutoModel.from_pretrained(folder, gguf_file=weights.name, dtype=torch.float32)
    kind = base.config.model_type
    if kind in OTHER_ENCODERS:
        raise UserError(f"{folder}: a {kind} base; encoders must be of the kind {' or '.join(ENCODERS)}")
    if weights is None:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    else:
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=weights.name).backend_tokenizer
    return base, Tokeniser(tokenizer, is_decoder=kind not in ENCODERS)
