"""Decoder judges on a GPU: length-sorted batches, and a process pool that prepares them."""

import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, islice
from multiprocessing import spawn
from multiprocessing.context import SpawnContext, SpawnProcess
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from empathy_judge.data.records import Exchange
from empathy_judge.data.runs import Run
from empathy_judge.data.tables import to_line, to_row
from empathy_judge.judge.base import CUDA
from empathy_judge.judge.classifier.preprocessing import PreparedReply, ReplyTokenizer, judgments_of, prepare
from empathy_judge.judge.classifier.quantization import DOWN_PROJ, SCALE, TABLE, rotate_inner
from empathy_judge.judge.engine import count_cores, in_threads, still_to_judge

if TYPE_CHECKING:
    from torch import Tensor

MAX_TOKENS: Final = 1_024  # of a context and a reply; both are cut to fewer
BATCH_TOKENS: Final = 65_536  # of one batch, padding included
CHUNK: Final = 4_096  # replies that are prepared, sorted by length and judged together
# The settings of a decoder's architecture that its card holds.
CONFIG_KEYS: Final = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "rms_norm_eps",
    "rope_parameters",
)
Chunk = list[tuple[int, Exchange]]  # with their positions in the input
Check = tuple[str | None, tuple[str, ...]]  # why a reply is not judged, and notes on it
_to_tuple: Final = attrgetter(*Exchange.__slots__)


class Decoder:
    """A Llama decoder with a classification head on the last token of each reply.

    Not `transformers.LlamaModel`: importing it takes 8 s, most of the time that one reply may take.
    """

    batch_tokens = BATCH_TOKENS

    def __init__(self, weights: Mapping[str, np.ndarray], config: Mapping[str, Any], device: str) -> None:
        import torch

        dtype = torch.bfloat16 if device == CUDA else torch.float32
        self.device, self._lock = device, Lock()
        self.weights = {name: torch.tensor(value).to(device, dtype) for name, value in weights.items()}
        self.head, self.bias = (self.weights[f"head.{part}"].float() for part in ("weight", "bias"))
        self.layers, self.epsilon = range(config["num_hidden_layers"]), config["rms_norm_eps"]
        self.head_width = config["hidden_size"] // config["num_attention_heads"]
        steps = torch.arange(0, self.head_width, 2, device=device) / self.head_width
        angles = torch.outer(
            torch.arange(MAX_TOKENS, device=device), config["rope_parameters"]["rope_theta"] ** -steps
        )
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def predict(self, replies: "Sequence[Sequence[int] | np.ndarray]") -> np.ndarray:
        """Return probabilities of Bad, Okay and Good, [replies, 3], in the order given."""
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        lengths = np.array([len(ids) for ids in replies], dtype=np.int64)
        order, start, batches = np.argsort(-lengths, kind="stable"), 0, []
        while start < len(order):
            batch = order[start : start + max(1, self.batch_tokens // lengths[order[start]])]
            padded = np.zeros((len(batch), lengths[batch[0]]), dtype=np.int64)
            for row, index in enumerate(batch):
                padded[row, : lengths[index]] = replies[index]
            batches.append((torch.from_numpy(padded), torch.from_numpy(lengths[batch] - 1)))
            start += len(batch)
        probabilities = np.empty((len(replies), 3), dtype=np.float32)
        if batches:
            # Without cuDNN's attention, which plans every new shape of a batch for longer than it runs.
            kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
            with self._lock, torch.inference_mode(), sdpa_kernel(kernels):
                results = [self(ids.to(self.device), last.to(self.device)) for ids, last in batches]
                probabilities[order] = torch.cat(results).cpu().numpy()
        return probabilities

    def __call__(self, ids: "Tensor", last: "Tensor") -> "Tensor":
        """Return probabilities [replies, 3] for token ids [replies, tokens], read at positions `last`."""
        import torch
        from torch.nn.functional import linear, scaled_dot_product_attention, silu

        weights = self.weights
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        state = weights[TABLE][ids.int()]
        for layer in self.layers:
            part = f"base.layers.{layer}"
            normed = self._norm(state, f"{part}.input_layernorm")
            query, key, value = (
                linear(normed, weights[f"{part}.self_attn.{name}_proj.weight"])
                .view(*ids.shape, -1, self.head_width)
                .transpose(1, 2)
                for name in "qkv"
            )
            query, key = _rotate(query, cos, sin), _rotate(key, cos, sin)
            mixed = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
            mixed = mixed.transpose(1, 2).flatten(2)
            state = state + linear(mixed, weights[f"{part}.self_attn.o_proj.weight"])
            normed = self._norm(state, f"{part}.post_attention_layernorm")
            gate, up = (linear(normed, weights[f"{part}.mlp.{name}_proj.weight"]) for name in ("gate", "up"))
            state = state + linear(silu(gate) * up, weights[f"{part}.mlp.down_proj.weight"])
        state = state[torch.arange(len(ids), device=ids.device), last]
        return linear(self._norm(state, "base.norm").float(), self.head, self.bias).softmax(dim=-1)

    def _norm(self, state: "Tensor", name: str) -> "Tensor":
        from torch.nn.functional import rms_norm

        return rms_norm(state, state.shape[-1:], self.weights[f"{name}.weight"], self.epsilon)


def _rotate(state: "Tensor", cos: "Tensor", sin: "Tensor") -> "Tensor":
    """Apply rotary position embeddings (RoPE)."""
    import torch

    left, right = state.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


def read_weights(model: Path) -> dict[str, np.ndarray]:
    """Return the weights of an ONNX file and its external data, as they are stored."""
    import onnx
    from onnx import numpy_helper

    held = onnx.load(model).graph.initializer
    return {
        item.name: numpy_helper.to_array(item) for item in held if item.name.startswith(("base.", "head."))
    }


def dequantize(stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights that int8 values and their scales stand for."""
    weights = {}
    for name, value in stored.items():
        if name.endswith(SCALE):
            continue
        if (scale := stored.get(name + SCALE)) is not None:
            value = value.astype(np.float32) * scale
            value = value if name == TABLE else value.T
        weights[name] = rotate_inner(value) if name.endswith(DOWN_PROJ) else value
    return weights


def score_in_batches(
    decoder: Decoder,
    tokenizer: ReplyTokenizer,
    exchanges: Iterable[Exchange],
    run: Run,
    *,
    limit: int | None = None,
) -> None:
    """Judge on the GPU every exchange that `run` does not hold yet; a pool of processes prepares the replies.

    Rows travel as tuples, which are pickled several times faster than records.
    """
    coming = still_to_judge(exchanges, run, limit)
    chunks = iter(lambda: list(islice(coming, CHUNK)), [])
    first = list(islice(chunks, 2))

    def ask(chunk: Chunk) -> list[bytes]:
        rows = [_to_tuple(exchange) for _, exchange in chunk]
        ids, lengths, checks = call(_prepare, rows)
        probabilities = decoder.predict(np.split(ids, np.cumsum(lengths)[:-1]) if len(lengths) else [])
        lines: list[bytes] = call(_judge, rows, checks, probabilities)
        return lines

    def keep(chunk: Chunk, lines: list[bytes]) -> None:
        run.keep_lines([position for position, _ in chunk], lines)

    if len(first) < 2:  # too few for a pool
        call: Callable[..., Any] = lambda function, *values: function(*values)  # noqa: E731
        _set_tokenizer(tokenizer)
        for chunk in first:
            keep(chunk, ask(chunk))
        return
    # A CUDA context does not survive a fork. Some threads wait for the GPU while others wait for the pool.
    workers = count_cores()
    with ProcessPoolExecutor(workers, WorkerContext(), _start_worker, (tokenizer,)) as pool:
        call = lambda function, *values: pool.submit(function, *values).result()  # noqa: E731
        in_threads(workers + 2, chain(first, chunks), ask, keep)


class _Worker(SpawnProcess):
    """A process that does not import the main module, so that a caller's script needs no `__main__` guard."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with _STARTING:
            describe = spawn.get_preparation_data
            spawn.get_preparation_data = lambda name: {
                key: value for key, value in describe(name).items() if not key.startswith("init_main")
            }
            try:
                return SpawnProcess._Popen(process_obj)
            finally:
                spawn.get_preparation_data = describe


_STARTING = Lock()


class WorkerContext(SpawnContext):
    """Spawned processes that can be started from any script."""

    Process = _Worker


_TOKENIZER: ReplyTokenizer  # of this process, where it prepares replies


def _set_tokenizer(tokenizer: ReplyTokenizer) -> None:
    global _TOKENIZER
    _TOKENIZER = tokenizer


def _start_worker(tokenizer: ReplyTokenizer) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # every core has a process already
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent process
    _set_tokenizer(tokenizer)


def _from_tuple(row: tuple[Any, ...]) -> Exchange:
    return Exchange(**dict(zip(Exchange.__slots__, row, strict=True)))


def _prepare(rows: Sequence[tuple[Any, ...]]) -> tuple[np.ndarray, list[int], list[Check]]:
    """Return the token ids of all replies that are judged, their lengths, and every reply's checks."""
    prepared = prepare([_from_tuple(row) for row in rows], _TOKENIZER)
    judged = [item.ids for item in prepared if not item.reason]
    ids = np.fromiter(chain.from_iterable(judged), dtype=np.int32)
    return ids, [len(item) for item in judged], [(item.reason, item.notes) for item in prepared]


def _judge(
    rows: Sequence[tuple[Any, ...]], checks: Sequence[Check], probabilities: np.ndarray
) -> list[bytes]:
    """Return the judgments as lines of JSON."""
    prepared = [PreparedReply(reason, None, notes) for reason, notes in checks]
    judgments = judgments_of([_from_tuple(row) for row in rows], prepared, probabilities.tolist())
    return [to_line(to_row(judgment)) for judgment in judgments]
