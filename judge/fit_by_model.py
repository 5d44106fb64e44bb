"""Prompt fit of every model in a file, from at most 200 of its replies."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from calibration.prompt_fit import PromptFit, measure_fit
from data.records import REPLY, Exchange
from judge.classifier.preprocessing import normalize
from judge.embeddings import MAX_CHARACTERS, shared_embedder
from judge.input_checks import FOREIGN, why_unreadable

MAX_REPLIES: Final = 200  # of a model
TURNS_BEFORE: Final = 2  # earlier turns that are read with the prompt


class FitCollector:
    """Replies by model, as many as fit is measured on: those with the smallest content digests.

    The choice depends neither on the order of the rows nor on a resumed run. A reply that occurs twice counts
    once. Conversations are not collected: their replies share one speaker's topic.
    """

    def __init__(self, unit: str = REPLY) -> None:
        self.unit = unit
        self.rows: dict[str, list[tuple[str, str, str]]] = {}  # digest, prompt and reply, sorted

    def add(self, exchange: Exchange) -> None:
        """Add a row; memory is bounded for each model."""
        if self.unit != REPLY:
            return
        rows, digest = self.rows.setdefault(exchange.model, []), exchange.content_digest
        position = bisect_left(rows, (digest,))
        if position == MAX_REPLIES or (position < len(rows) and rows[position][0] == digest):
            return
        reply = normalize(exchange.response[:MAX_CHARACTERS])
        rows.insert(position, (digest, prompt_text(exchange), reply))
        del rows[MAX_REPLIES:]

    def result(self) -> dict[str, PromptFit | None]:
        """Return the fit of every model; None where it answered fewer than ten different prompts."""
        # Together, as models mostly answer the same prompts.
        texts = {text: None for rows in self.rows.values() for _, *pair in rows for text in pair}
        embeddings = dict(zip(texts, shared_embedder().embed(list(texts)), strict=True))
        return {model: _fit(rows, embeddings) for model, rows in self.rows.items()}


def fit_by_model(exchanges: Iterable[Exchange], unit: str = REPLY) -> dict[str, PromptFit | None]:
    """Return the prompt fit of every model; empty for conversations."""
    collector = FitCollector(unit)
    for exchange in exchanges:
        collector.add(exchange)
    return collector.result()


def prompt_text(exchange: Exchange) -> str:
    """Return the prompt, then the two turns before it, latest first: what is cut is what is oldest."""
    turns = [exchange.prompt, *(turn.text for turn in exchange.dialogue[: -TURNS_BEFORE - 1 : -1])]
    return "\n".join(turns)[:MAX_CHARACTERS]


def _fit(rows: list[tuple[str, str, str]], embeddings: Mapping[str, np.ndarray]) -> PromptFit | None:
    replies = [reply for _, _, reply in rows]
    prompts = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompt for _, prompt, _ in rows))}
    foreign = sum((why_unreadable(reply) or "").startswith(FOREIGN) for reply in replies)
    return measure_fit(
        np.array([embeddings[reply] for reply in replies]),
        np.array([embeddings[prompt] for prompt in prompts]),
        np.array([prompts[prompt] for _, prompt, _ in rows]),
        replies,
        is_english=2 * foreign <= len(replies),
    )
