"""Sentence embeddings by all-MiniLM-L6-v2 (`training/export.py`), and prompt fit by them."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final
from zlib import crc32

import numpy as np

from empathy_judge.calibration.prompt_fit import FEWEST_PROMPTS, PromptFit, measure_fit
from empathy_judge.data.records import REPLY, Exchange
from empathy_judge.data.text import clean
from empathy_judge.judge.base import WEIGHTS
from empathy_judge.judge.engine import count_cores
from empathy_judge.judge.input_checks import FOREIGN, why_unreadable
from empathy_judge.judge.onnx_model import MODEL, TOKENIZER, check_files, open_session, read_card

FOLDER: Final = WEIGHTS / "minilm"
WIDTH: Final = 384  # of an embedding
MAX_TOKENS: Final = 128  # what the model was trained with; 256, its published limit, takes twice the time
MAX_CHARACTERS: Final = 2_000  # more than 128 tokens of prose
MAX_REPLIES: Final = 200  # of a model
TURNS_BEFORE: Final = 2  # earlier turns that are read with the prompt


@cache
def _load() -> tuple[Any, Any]:
    """Return the network and its tokenizer."""
    from tokenizers import Tokenizer

    check_files(FOLDER, read_card(FOLDER)["files"])
    tokenizer = Tokenizer.from_file(str(FOLDER / TOKENIZER))
    tokenizer.enable_truncation(MAX_TOKENS)
    return open_session(FOLDER / MODEL), tokenizer


def embed(texts: Sequence[str]) -> np.ndarray:
    """Return one row of length 1 per text, so that a dot product is a cosine."""
    if not texts:
        return np.empty((0, WIDTH))
    different = list(dict.fromkeys(texts))
    # A lone surrogate cannot be encoded; the replacement character stands for it.
    encodable = [
        text[:MAX_CHARACTERS].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        for text in different
    ]
    session, tokenizer = _load()
    tokens = [item.ids for item in tokenizer.encode_batch(encodable)]

    def run(ids: list[int]) -> Any:
        return session.run(["sentence_embedding"], {"ids": np.array([ids], dtype=np.int64)})[0][0]

    # One at a time: in a batch, the quantization of a text would depend on the other texts.
    with ThreadPoolExecutor(count_cores()) as pool:
        rows = dict(zip(different, pool.map(run, tokens), strict=True))
    return np.array([rows[text] for text in texts], dtype=float)


Row = tuple[int, str, str, str]  # checksum, conversation, prompt and reply


class FitCollector:
    """Replies by model, as many as fit is measured on: those with the smallest checksums.

    Conversations are not collected: their replies share one speaker's topic.
    """

    def __init__(self, unit: str = REPLY) -> None:
        self.unit = unit
        self.rows: dict[str, list[Row]] = {}  # sorted by checksum

    def add(self, exchange: Exchange) -> None:
        """Add a row; memory is bounded for each model."""
        if self.unit != REPLY:
            return
        rows = self.rows.setdefault(exchange.model, [])
        # A checksum, since a million content digests would take as long as reading the file.
        digest = crc32(f"{exchange.prompt}\n{exchange.response}".encode("utf-8", "surrogatepass"))
        position = bisect_left(rows, digest, key=lambda row: row[0])
        if position == MAX_REPLIES or (position < len(rows) and rows[position][0] == digest):
            return
        reply = clean(exchange.response[:MAX_CHARACTERS])
        rows.insert(position, (digest, group_of(exchange), prompt_text(exchange), reply))
        del rows[MAX_REPLIES:]

    def result(self) -> dict[str, PromptFit | None]:
        """Return the fit of every model; None where it answered fewer than ten different prompts."""
        enough = {
            model: rows
            for model, rows in self.rows.items()
            if len({group for _, group, *_ in rows}) >= FEWEST_PROMPTS
        }
        # Together, as models mostly answer the same prompts.
        texts = {text: None for rows in enough.values() for _, _, *pair in rows for text in pair}
        embeddings = dict(zip(texts, embed(list(texts)), strict=True))
        fits = {model: _fit(rows, embeddings) for model, rows in enough.items()}
        return {model: fits.get(model) for model in self.rows}


def prompt_text(exchange: Exchange) -> str:
    """Return the prompt, then the two turns before it, latest first: what is cut is what is oldest."""
    turns = [exchange.prompt, *(turn.text for turn in exchange.dialogue[: -TURNS_BEFORE - 1 : -1])]
    return "\n".join(turns)[:MAX_CHARACTERS]


def group_of(exchange: Exchange) -> str:
    """Return what names the conversation, its first two turns: its prompts share a topic."""
    turns = [*(turn.text for turn in exchange.dialogue[:2]), exchange.prompt, exchange.response]
    return "\n".join(turns[:2])


def _fit(rows: list[Row], embeddings: Mapping[str, np.ndarray]) -> PromptFit | None:
    replies = [reply for *_, reply in rows]
    groups = {prompt: group for _, group, prompt, _ in rows}
    number = {prompt: index for index, prompt in enumerate(groups)}
    foreign = sum((why_unreadable(reply) or "").startswith(FOREIGN) for reply in replies)
    return measure_fit(
        np.array([embeddings[reply] for reply in replies]),
        np.array([embeddings[prompt] for prompt in groups]),
        np.array([number[prompt] for _, _, prompt, _ in rows]),
        replies,
        groups=np.unique(list(groups.values()), return_inverse=True)[1],
        is_english=2 * foreign <= len(replies),
    )
