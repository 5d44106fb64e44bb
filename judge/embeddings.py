"""Sentence embeddings by all-MiniLM-L6-v2 as published, quantized to int8 (`training/export_embedder.py`)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from judge.base import WEIGHTS
from judge.classifier.judge import MODEL, TOKENIZER, check_files, open_session, read_card
from judge.engine import count_cores

if TYPE_CHECKING:
    import numpy as np

FOLDER: Final = WEIGHTS / "minilm"
WIDTH: Final = 384  # of an embedding
MAX_TOKENS: Final = 128  # what the model was trained with; 256, its published limit, takes twice the time
MAX_CHARACTERS: Final = 2_000  # more than 128 tokens of prose


class SentenceEmbedder:
    """Embeddings of length 1, so that a dot product is a cosine; the model loads with the first text.

    Texts run one at a time, as the judge's replies do: in a batch, the quantization of a text would depend
    on the other texts.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder

    @cached_property
    def session(self) -> Any:
        check_files(self.folder, read_card(self.folder)["files"])
        return open_session(self.folder / MODEL)

    @cached_property
    def tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.folder / TOKENIZER))
        tokenizer.enable_truncation(MAX_TOKENS)
        return tokenizer

    def embed(self, texts: Sequence[str]) -> "np.ndarray":
        """Return one row per text; equal texts are computed once."""
        import numpy as np

        if not texts:
            return np.empty((0, WIDTH))
        different = list(dict.fromkeys(texts))
        # A lone surrogate cannot be encoded; the replacement character stands for it.
        clean = [
            text[:MAX_CHARACTERS].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
            for text in different
        ]
        session = self.session
        tokens = [item.ids for item in self.tokenizer.encode_batch(clean)]

        def run(ids: list[int]) -> Any:
            return session.run(["sentence_embedding"], {"ids": np.array([ids], dtype=np.int64)})[0][0]

        with ThreadPoolExecutor(count_cores()) as pool:
            rows = dict(zip(different, pool.map(run, tokens), strict=True))
        return np.array([rows[text] for text in texts], dtype=float)


@cache
def shared_embedder() -> SentenceEmbedder:
    """Return the embedder of this process."""
    return SentenceEmbedder()
