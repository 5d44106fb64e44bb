"""Pruning of a decoder's vocabulary: the tokens that English texts use, and their rows of the table."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from empathy_judge.data.records import Exchange
from empathy_judge.judge.classifier.preprocessing import ReplyTokenizer, write_context
from empathy_judge.training.network import TrainedNetworks

MAX_TOKENS = 32_000  # all that the training texts use; 19 MB of a table with 576 columns in int8


def prune_vocabulary(
    trained: TrainedNetworks, exchanges: Iterable[Exchange], *, max_tokens: int = MAX_TOKENS
) -> TrainedNetworks:
    """Return copies of networks with at most so many tokens: those that the exchanges use most.

    A removed token is read as the two tokens that its merge joins. Single bytes and special tokens are never
    removed, so any text can still be read; a text without removed tokens has the same tokens as before.
    """
    state = json.loads(trained.tokenizer.backend.to_str())
    model, ids = state["model"], trained.tokenizer.backend.get_vocab()
    parts = {left + right: (left, right) for left, right in model.get("merges", ())}
    pairs = dict.fromkeys((write_context(exchange), exchange.response) for exchange in exchanges)
    uses = Counter(number for tokens in trained.tokenizer.encode_all(list(pairs)) for number in tokens.ids)
    # The first merges are the most frequent, and sorting is stable: unused tokens follow in that order.
    by_use = sorted(parts, key=lambda token: -uses[ids[token]])
    kept = _add_with_parts(ids.keys() - parts.keys(), by_use, parts, max_tokens)
    tokens = sorted(kept, key=ids.__getitem__)
    new_ids = {token: number for number, token in enumerate(tokens)}
    model["vocab"] = {token: number for token, number in new_ids.items() if token in model["vocab"]}
    if parts:
        model["merges"] = [pair for token, pair in parts.items() if token in kept]
    for added in state["added_tokens"]:
        added["id"] = new_ids[added["content"]]
    rows = torch.tensor([ids[token] for token in tokens])
    networks = deepcopy(trained.networks)
    for network in networks:
        base: Any = network.base
        table = base.get_input_embeddings().weight.detach()[rows]
        base.set_input_embeddings(nn.Embedding(len(rows), table.shape[1], _weight=table, _freeze=True))
        base.config.vocab_size = len(rows)
    tokenizer = Tokenizer.from_str(json.dumps(state))
    return TrainedNetworks(networks, ReplyTokenizer(tokenizer, is_decoder=trained.tokenizer.is_decoder))


def _add_with_parts(
    always: Iterable[str], order: Iterable[str], parts: Mapping[str, tuple[str, str]], limit: int
) -> set[str]:
    """Return tokens in the order given up to a limit, each with all that have to be merged for it."""
    kept = set(always)
    for token in order:
        added: set[str] = set()
        missing = [token]
        while missing:
            if (part := missing.pop()) not in kept and part not in added:
                added.add(part)
                missing += parts[part]
        if len(kept) + len(added) > limit:
            break
        kept |= added
    return kept
