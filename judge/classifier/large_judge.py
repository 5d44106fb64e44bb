"""The large judge: a LoRA adapter and a head on a pretrained base, run by torch on every device."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from warnings import catch_warnings

import numpy as np

from empathy_judge.data.errors import UserError, install_hint
from empathy_judge.data.storage import digest_file
from empathy_judge.data.tables import validate
from empathy_judge.judge.base import CUDA, WEIGHTS
from empathy_judge.judge.classifier.gpu_backend import Decoder
from empathy_judge.judge.classifier.judge import RULES_VERSION, ClassifierJudge
from empathy_judge.judge.classifier.preprocessing import PreparedReply, ReplyTokenizer, Tokens
from empathy_judge.judge.onnx_model import CARD

if TYPE_CHECKING:
    from torch import Tensor

FILES = ADAPTER, SETTINGS, HEAD = "adapter_model.safetensors", "adapter_config.json", "head.safetensors"
PACKAGES: Final = ("accelerate", "gguf", "peft", "safetensors", "torch", "transformers")


@dataclass(frozen=True, slots=True)
class PublishedBase:
    """A file with the weights of a base, in a repository of the Hugging Face hub, or in none (then '')."""

    repository: str
    file: str
    sha256: str

    def find(self, given: str = "") -> Path:
        """Return the path of the file: given, or in the given folder, or in the Hugging Face cache."""
        from huggingface_hub import try_to_load_from_cache

        download = f"run `hf download {self.repository} {self.file}`"
        if not self.repository:
            download = f"set `base` to the folder of the {self.file} that it was trained on"
        if given or not self.repository:
            path = Path(given, self.file) if Path(given).is_dir() else Path(given)
            if not path.is_file():
                hint = f"{download} and leave `base` out" if self.repository else download
                raise UserError(f"base: there is no file {path}; {hint}")
        elif isinstance(cached := try_to_load_from_cache(self.repository, self.file), str):
            path = Path(cached)
        else:
            raise UserError(f"the base is not in the Hugging Face cache: {download}")
        if (found := digest_file(path)) != self.sha256:
            raise UserError(f"{path}: SHA-256 {found} instead of {self.sha256}; delete it and {download}")
        return path


PUBLISHED_BASES: Final = {
    "qwen2.5-coder-1.5b": PublishedBase(
        "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


def load_pretrained(path: Path) -> tuple[Any, Any]:
    """Return a model in single precision and its tokenizer, from a GGUF file or a transformers folder."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    if path.suffix == ".gguf":
        with redirect_stderr(StringIO()):  # this progress bar cannot be switched off
            model = AutoModel.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        return model, AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).backend_tokenizer
    if missing := [name for name in ("config.json", "tokenizer.json") if not (path / name).exists()]:
        raise UserError(f"{path}: not the folder of a base ({' and '.join(missing)} missing)")
    model = AutoModel.from_pretrained(path, local_files_only=True, dtype=torch.float32)
    return model, Tokenizer.from_file(str(path / "tokenizer.json"))


class LargeJudge(ClassifierJudge):
    """A LoRA adapter on a language model of 1.5 billion parameters, `base`: the path of its file or folder.

    A GPU is used wherever there is one; on the CPU the judge takes about 8 GB of memory and several seconds
    a reply. Where the card names the default judge in `average_with`, log-probabilities of both are averaged.
    """

    name = "classifier-large"
    shipped = WEIGHTS / "classifier-large"
    required_files = FILES

    def __init__(self, *, weights: str = "", base: str = "", rubric: str = "crowd", device: str = "") -> None:
        super().__init__(weights=weights, rubric=rubric, device=device)
        if missing := [name for name in PACKAGES if find_spec(name) is None]:
            raise UserError(f"{self.name} needs {', '.join(missing)}: {install_hint('large')}")
        card = self.folder / CARD
        published = validate(PublishedBase, self.card.get("base", {}), f"{card}: base")
        self.base = published.find(base)
        self.is_decoder = True
        self.concurrency = 1  # torch uses all cores for one reply
        self.companion = ClassifierJudge(device=device) if self.card.get("average_with") else None
        parts = [RULES_VERSION, self.digest, published.sha256, self.companion and self.companion.version]
        self.version = sha256(" ".join(map(str, parts)).encode()).hexdigest()[:12]

    def prepare(self, count: int) -> None:
        """Choose a GPU for any number of replies; the other judge decides by their number."""
        super().prepare(sys.maxsize)
        if self.companion:
            self.companion.prepare(count)

    @cached_property
    def pretrained(self) -> tuple[Any, Any]:
        """The base and its tokenizer."""
        print(f"loading {self.base.name}: up to three minutes", file=sys.stderr, flush=True)
        return load_pretrained(self.base if self.base.suffix == ".gguf" else self.base.parent)

    @cached_property
    def tokenizer(self) -> ReplyTokenizer:
        own = ReplyTokenizer(self.pretrained[1], is_decoder=True)
        return PairedTokenizer(own, self.companion.tokenizer) if self.companion else own

    @cached_property
    def decoder(self) -> "AdaptedNetwork":
        return AdaptedNetwork(self.pretrained[0], self.folder, self.device, self.companion)

    def _run(self, prepared: Sequence[PreparedReply]) -> list[list[float]]:
        if self.device == CUDA:
            return self._run_torch(prepared)
        return [self._run_torch([item])[0] for item in prepared]


class PairedTokenizer(ReplyTokenizer):
    """Tokens of two judges in one row, behind the number of the first's ids and of the second's context."""

    def __init__(self, first: ReplyTokenizer, second: ReplyTokenizer) -> None:
        self.first, self.second, self.is_decoder = first, second, True

    def encode_all(self, pairs: Sequence[tuple[str, str]]) -> list[Tokens]:
        """Return the tokens of contexts and replies."""
        both = zip(self.first.encode_all(pairs), self.second.encode_all(pairs), strict=True)
        return [
            Tokens((len(one.ids), two.before, *one.ids, *two.ids), one.cut or two.cut, 0) for one, two in both
        ]


class AdaptedNetwork(Decoder):
    """A base with a merged LoRA adapter, and a classification head on the last token of each reply."""

    batch_tokens = 16_384

    def __init__(self, base: Any, folder: Path, device: str, companion: ClassifierJudge | None) -> None:
        from peft import PeftModel
        from safetensors.torch import load_file

        self.device, self.companion, self._lock = device, companion, Lock()
        # Merged in single precision, where the adapter's small changes are not rounded away.
        with catch_warnings(category=FutureWarning, action="ignore"):  # peft asks transformers by an old name
            merged = PeftModel.from_pretrained(base, folder).merge_and_unload().eval()
        for weights in merged.parameters() if device == CUDA else ():
            weights.data = weights.data.bfloat16()  # but not its buffers: the frequencies of RoPE
        self.network = merged.to(device)
        head = load_file(folder / HEAD, device=device)
        self.head, self.bias = head["weight"].float(), head["bias"].float()

    def predict(self, replies: Sequence[Sequence[int] | np.ndarray]) -> np.ndarray:
        """Return probabilities of Bad, Okay and Good, [replies, 3]; with a companion, averaged with its."""
        if self.companion is None or not replies:
            return super().predict(replies)
        own, others = [], []
        for row in replies:
            length, before, *ids = map(int, row)
            own.append(ids[:length])
            others.append(PreparedReply(None, Tokens(tuple(ids[length:]), False, before), ()))
        # The square root of the product is the exponential of the mean of logarithms.
        product = np.sqrt(super().predict(own) * np.array(self.companion._run(others)))
        return np.asarray(product / product.sum(axis=1, keepdims=True))

    def __call__(self, ids: "Tensor", last: "Tensor") -> "Tensor":
        """Return probabilities [replies, 3] for token ids [replies, tokens], read at positions `last`."""
        import torch
        from torch.nn.functional import linear

        # No mask: padding stands behind a reply, where causal attention does not see it.
        states = self.network(input_ids=ids, use_cache=False).last_hidden_state
        state = states[torch.arange(len(ids), device=ids.device), last].float()
        return linear(state, self.head, self.bias).softmax(dim=-1)
