"""The device that a classifier runs on: the CPU, or a GPU where it is requested or faster."""

import ctypes
import os
import sys
from functools import cache
from importlib.util import find_spec
from typing import Final

from data.errors import UserError
from judge.base import AUTO, CPU, CUDA, DEVICE, DEVICES
from judge.engine import count_cores

REPLIES_PER_CORE: Final = 150  # `auto` takes the GPU from so many replies a core on: docs/performance.md


def check_device(device: str) -> str:
    """Return the device that a judge was given, or the one that the command set."""
    device = device or DEVICE.get()
    if device not in DEVICES:
        raise UserError(f"device: one of {', '.join(DEVICES)} expected, not {device!r}")
    return device


def choose_device(device: str, judge: str, *, is_decoder: bool, count: int) -> str:
    """Return the device for so many replies; warn once where a GPU was requested and there is none."""
    is_worth_it = count >= REPLIES_PER_CORE * count_cores()
    if device == CPU or (device == AUTO and not is_worth_it):
        return CPU
    problem = why_no_gpu() if is_decoder else f"{judge} runs on the CPU only"
    if problem and device == CUDA:
        _warn_once(f"No GPU is used: {problem}. Judging on the CPU instead.")
    return CPU if problem else CUDA


@cache
def why_no_gpu() -> str:
    """Return why no GPU can be used, or an empty text; torch is imported only where a driver exists."""
    missing = [name for name in ("onnx", "torch") if find_spec(name) is None]
    if missing:
        return f"packages are missing: pip install {' '.join(missing)}"
    try:
        ctypes.CDLL("libcuda.so.1" if os.name == "posix" else "nvcuda.dll")
    except OSError:
        return "this machine has no NVIDIA driver"
    import torch

    return "" if torch.cuda.is_available() else "torch finds no CUDA device"


@cache
def _warn_once(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
