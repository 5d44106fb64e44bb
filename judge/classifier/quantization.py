"""Int8 quantization of a decoder's weights.

Weights are rotated before (QuaRot): a few activations are huge, and after a rotation all have a similar size.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

import numpy as np

SCALE: Final = ".scale"
HEAD_PREFIX: Final = "head."
HEAD: Final = "head.weight"
TABLE: Final = "base.embed_tokens.weight"
LAST_NORM: Final = "base.norm.weight"
NORM: Final = "norm.weight"  # the end of the names of norms
# The linear layers that read the output of a norm, and which.
NORM_BEFORE: Final = {
    "q_proj": "input_layernorm",
    "k_proj": "input_layernorm",
    "v_proj": "input_layernorm",
    "gate_proj": "post_attention_layernorm",
    "up_proj": "post_attention_layernorm",
}
SAME_INPUT: Final = {"k_proj": "q_proj", "v_proj": "q_proj", "up_proj": "gate_proj"}
# Seven bits: with eight, processors without VNNI overflow, and results would depend on the processor.
MAX_INT: Final = 63
DOWN_PROJ: Final = "down_proj.weight"  # no linear layer writes its input, so the graph has to rotate that
ROTATION: Final = "mix"  # the matrix by which the graph does so; shipped graphs have this name
ROTATION_WIDTH: Final = 64  # more would take longer
Quantize = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@cache
def hartley_matrix(width: int) -> np.ndarray:
    """Return Hartley's matrix, a rotation that is its own inverse and spreads each value over all others."""
    steps = np.arange(width)
    angles = 2 * np.pi * (np.outer(steps, steps) % width) / width
    return np.asarray((np.cos(angles) + np.sin(angles)) / np.sqrt(width))


class Rotation:
    """A change of basis of the residual stream and of attention's values, after which activations are even.

    The network computes the same once the weights of its norms are merged into the layers that read them.
    """

    def __init__(self, weights: Mapping[str, np.ndarray], head_width: int) -> None:
        self.norms = {name: value for name, value in weights.items() if name.endswith(NORM)}
        self.width, self.head_width = len(self.norms[LAST_NORM]), head_width

    def apply(self, name: str, weight: np.ndarray) -> np.ndarray:
        """Return a weight of the network in the new basis."""
        if name.endswith(NORM):
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


def rotate_blocks(weight: np.ndarray, width: int) -> np.ndarray:
    """Rotate each block of `width` columns."""
    blocks = weight.reshape(-1, width) @ hartley_matrix(width).astype(weight.dtype)
    return np.asarray(blocks).reshape(weight.shape)


def rotate_inner(weight: np.ndarray) -> np.ndarray:
    """Rotate the input side of `DOWN_PROJ` as the graph rotates its activations."""
    return rotate_blocks(weight, inner_width(weight.shape[1]))


def inner_width(columns: int) -> int:
    return int(np.gcd(ROTATION_WIDTH, columns))


def quantize_rows(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a matrix as integers up to `MAX_INT`, and the scale of each row."""
    scale = np.maximum(np.abs(weight).max(axis=1) / MAX_INT, 1e-20).astype(np.float32)
    return np.rint(weight / scale[:, None]).astype(np.int8), scale


def quantize_weight(
    name: str, weight: np.ndarray, quantize: Quantize = quantize_rows
) -> dict[str, np.ndarray]:
    """Return a rotated weight as the graph takes it: large matrices in int8 and transposed, else float32."""
    if name == TABLE:
        scale = np.maximum(np.abs(weight).max(axis=1, keepdims=True) / 127, 1e-20).astype(np.float32)
        return {name: np.rint(weight / scale).astype(np.int8), name + SCALE: scale}
    if not name.endswith("_proj.weight"):
        return {name: np.asarray(weight, dtype=np.float32)}
    rounded, scale = quantize(rotate_inner(weight) if name.endswith(DOWN_PROJ) else weight)
    return {name: np.ascontiguousarray(rounded.T), name + SCALE: scale}
