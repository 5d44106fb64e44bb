"""The fine-tuned judges: ONNX Runtime on the CPU, torch on a GPU."""

import ctypes
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, lru_cache, partial
from hashlib import sha256
from importlib.metadata import version as version_of_package
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from empathy_judge.data.errors import UserError, install_hint
from empathy_judge.data.rated_range import RatedRange
from empathy_judge.data.records import Exchange, Judgment
from empathy_judge.data.rubric import read_rubric
from empathy_judge.data.tables import validate
from empathy_judge.judge.base import AUTO, CPU, CUDA, DEVICE, DEVICES, WEIGHTS, Judge, raise_if_cancelled
from empathy_judge.judge.classifier import preprocessing
from empathy_judge.judge.classifier.preprocessing import PreparedReply, ReplyTokenizer
from empathy_judge.judge.engine import count_cores
from empathy_judge.judge.onnx_model import CARD, MODEL, TOKENIZER, check_files, open_session, read_card

if TYPE_CHECKING:
    from empathy_judge.judge.classifier.gpu_backend import Decoder

# Part of the version, to which calibrations are bound: raise when normalizing, tokenizing, what is left
# unscored or how a label is found changes.
RULES_VERSION = 6
CACHED_NETWORKS = 2
CACHED_CONTEXTS = 16  # replies to one prompt mostly stand together
REPLIES_PER_CORE = 45  # `auto` takes the GPU from so many replies a core on

# What `doctor` asks, and the key of the answer on a judge's card.
SAMPLE: Final = Exchange(
    id="sample",
    prompt="I lost my job this morning and I do not know how to tell my family.",
    response="I'm so sorry. That is a lot to carry alone. Would it help to think about what to say first?",
    emotion="anxious",
)
SAMPLE_KEY: Final = "sample_probabilities"


class ClassifierJudge(Judge):
    """A fine-tuned judge of English replies.

    On the CPU every exchange goes through the network alone, so that a judgment does not depend on what else
    is judged. On a GPU replies of similar length share a batch. Version and calibration are the same on both.
    """

    name = "classifier"
    folder: Path
    shipped = WEIGHTS / "classifier"
    required_files: tuple[str, ...] = (MODEL,)

    def __init__(self, *, weights: str = "", rubric: str = "crowd", device: str = "") -> None:
        self.folder = Path(weights) if weights else self.shipped
        self.rubric = read_rubric(rubric)
        self.card = read_card(self.folder)
        self.name = str(self.card.get("name", self.name))
        if missing := [name for name in self.required_files if name not in self.card["files"]]:
            raise UserError(
                f"{self.folder}: no {' or '.join(missing)} on its card, so it is not a {self.name} judge"
            )
        self.digest = check_files(self.folder, self.card["files"])
        self.version = version_of(self.digest)
        self.caveat = self.card["caveat"]
        if "rated" in self.card:
            self.rated = validate(RatedRange, self.card["rated"], f"{self.folder / CARD}: rated")
        # An encoder's file holds all of it; a decoder's weights lie beside the graph.
        self.is_decoder = any(name.endswith(".bin") for name in self.card["files"])
        self.requested_device = device or DEVICE.get()
        if self.requested_device not in DEVICES:
            raise UserError(f"device: expected one of {', '.join(DEVICES)}, not {self.requested_device!r}")
        self._device = ""  # not chosen yet
        self.concurrency = count_cores()
        self.loading = Lock()
        # Thread-safe; a context that two threads read at once is read twice, with the same result.
        self.read_context = lru_cache(CACHED_CONTEXTS)(self._read_context)

    def prepare(self, count: int) -> None:
        """Choose the device for so many replies; warn once where a GPU was requested and there is none."""
        wanted, is_worth_it = self.requested_device, count >= REPLIES_PER_CORE * count_cores()
        if self._device == CUDA:
            return
        self._device = CPU
        if wanted == CUDA or (wanted == AUTO and is_worth_it):
            problem = why_no_gpu() if self.is_decoder else f"{self.name} runs on the CPU only"
            self._device = CPU if problem else CUDA
            if problem and wanted == CUDA:
                _warn_once(f"No GPU is used: {problem}. The CPU is used instead.")

    @property
    def device(self) -> str:
        """The device in use, cpu or cuda."""
        if not self._device:
            self.prepare(1)
        return self._device

    @cached_property
    def tokenizer(self) -> ReplyTokenizer:
        digest = self.card["files"][TOKENIZER]
        return _read_tokenizer(self.folder / TOKENIZER, digest, is_decoder=self.is_decoder)

    @cached_property
    def session(self) -> Any:
        """The network in ONNX Runtime."""
        return _open_session(self.folder / MODEL, self.digest)

    @cached_property
    def decoder(self) -> "Decoder":
        """The same network in torch."""
        from empathy_judge.judge.classifier.gpu_backend import Decoder, dequantize, read_weights

        if "config" not in self.card:
            raise UserError(f"{self.folder / CARD}: config: missing; use --device cpu, or train again")
        return Decoder(dequantize(read_weights(self.folder / MODEL)), self.card["config"], self.device)

    @cached_property
    def inputs(self) -> list[str]:
        """The inputs of the ONNX network: ids, and segments of an encoder or the past of a decoder."""
        return [item.name for item in self.session.get_inputs()]

    @property
    def score_stream(self) -> Callable[..., None] | None:
        """The function that scores a whole input at once on a GPU; None on the CPU."""
        if self.device != CUDA:
            return None
        from empathy_judge.judge.classifier.gpu_backend import score_in_batches

        return partial(score_in_batches, self.decoder, self.tokenizer)

    def judge(self, exchange: Exchange) -> Judgment:
        return self.judge_many([exchange])[0]

    def judge_many(self, exchanges: Sequence[Exchange]) -> list[Judgment]:
        """Return judgments in the order given."""
        with self.loading:  # once, however many threads come first
            tokenizer = self.tokenizer
        prepared = preprocessing.prepare(exchanges, tokenizer)
        probabilities = self._run([item for item in prepared if not item.reason])
        return list(preprocessing.judgments_of(exchanges, prepared, probabilities))

    def predict(self, exchange: Exchange) -> list[float]:
        """Return the probabilities of Bad, Okay and Good, whatever the reply is."""
        texts = preprocessing.write_context(exchange), preprocessing.normalize(exchange.response)
        with self.loading:
            tokens = self.tokenizer.encode(*texts)
        return self._run([PreparedReply(None, tokens, ())])[0]

    def _run(self, prepared: Sequence[PreparedReply]) -> list[list[float]]:
        """Return the probabilities of every reply."""
        if self.device == CUDA:
            return self._run_torch(prepared)
        with self.loading:
            run = self._run_decoder if "past" in self.inputs else self._run_encoder
        return [[float(part) for part in run(item)[0]] for item in prepared]

    def _run_torch(self, prepared: Sequence[PreparedReply]) -> list[list[float]]:
        with self.loading:
            decoder = self.decoder
        raise_if_cancelled()
        rows: list[list[float]] = decoder.predict([item.ids for item in prepared]).tolist()
        return rows

    def _run_encoder(self, prepared: PreparedReply) -> np.ndarray:
        assert prepared.tokens is not None
        ids, segments = prepared.ids, prepared.tokens.segments
        inputs = {"ids": np.array([ids], dtype=np.int64), "segments": np.array([segments], dtype=np.int64)}
        return self._read("probabilities", inputs)

    def _run_decoder(self, prepared: PreparedReply) -> np.ndarray:
        """Run the network on a reply behind its context, whose keys and values may be cached.

        Never both in one run: the order of sums, and so the last bits, would differ.
        """
        assert prepared.tokens is not None
        length = prepared.tokens.before
        reply = np.array([prepared.ids[length:]], dtype=np.int64)
        past = self.read_context(prepared.ids[:length])
        return self._read("probabilities", {"ids": reply, "past": past})

    def _read_context(self, ids: tuple[int, ...]) -> np.ndarray:
        """Return the keys and values of a context."""
        shape = self.session.get_inputs()[self.inputs.index("past")].shape
        empty = np.zeros([side if isinstance(side, int) else 0 for side in shape], dtype=np.float32)
        if not ids:
            return empty
        return self._read("present", {"ids": np.array([ids], dtype=np.int64), "past": empty})

    def _read(self, wanted: str, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        raise_if_cancelled()
        output: np.ndarray = self.session.run([wanted], inputs)[0]
        return output


# Each call of the Python interface loads its judge; what the files hold is loaded once a process.
@lru_cache(CACHED_NETWORKS)
def _open_session(path: Path, digest: str) -> Any:
    return open_session(path)


@lru_cache(CACHED_NETWORKS)
def _read_tokenizer(path: Path, digest: str, *, is_decoder: bool) -> ReplyTokenizer:
    return ReplyTokenizer.read(path, is_decoder=is_decoder)


@cache
def why_no_gpu() -> str:
    """Return why no GPU can be used, or an empty text; torch is imported only where a driver exists."""
    missing = [name for name in ("onnx", "torch") if find_spec(name) is None]
    if missing:
        return f"packages are missing: {install_hint(*missing)}"
    try:
        ctypes.CDLL("libcuda.so.1" if os.name == "posix" else "nvcuda.dll")
    except OSError:
        return "this machine has no NVIDIA driver"
    import torch

    return "" if torch.cuda.is_available() else "torch finds no CUDA device"


@cache
def _warn_once(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def version_of(weights: str) -> str:
    """Return a judge's version: from its weights, how it reads and labels, and what runs the network."""
    runtime = ".".join(version_of_package("onnxruntime").split(".")[:2])
    return sha256(f"{RULES_VERSION} {runtime} {weights}".encode()).hexdigest()[:12]
