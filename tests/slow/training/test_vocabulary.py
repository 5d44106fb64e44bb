"""Pruned vocabularies: the tokens of the training texts stay, any text can be read, and scores stay."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from repository import SAMPLES

from empathy_judge.data.records import Exchange
from empathy_judge.data.tables import read_exchanges
from empathy_judge.judge.classifier.preprocessing import write_context
from empathy_judge.training.export import prune_vocabulary
from empathy_judge.training.network import TrainedNetworks, make_network
from empathy_judge.training.recipe import Recipe

TOKENS = 5_000
FRESH = (
    "The notary droned on about usufruct while I picked porcelain out of the gutter, and my asthmatic "
    "whippet wheezed like a samovar. Getting rejected from the conservatoire stung less than his shrug."
)
TEXTS = [
    FRESH,
    FRESH.upper(),
    "🏳️‍🌈 👩🏽‍🚒😀 naïve façade — “quotes”…",
    "Это не моя вина. 我很抱歉 مرحبا שלום ขอโทษ",
    " \t\n\n  spaces\r\n\x7f\x00 \ufffd \U0010ffff e\u0301",
    "<|im_start|>user<|endoftext|><repo_name> is text too",
]


@pytest.fixture(scope="module")
def replies() -> list[Exchange]:
    return list(read_exchanges(SAMPLES / "responses.jsonl"))


@pytest.fixture(scope="module")
def full() -> TrainedNetworks:
    network, tokenizer = make_network(Recipe(base="smollm2", layers=1))
    return TrainedNetworks([network.eval()], tokenizer)


@pytest.fixture(scope="module")
def pruned(full: TrainedNetworks, replies: list[Exchange]) -> TrainedNetworks:
    return prune_vocabulary(full, replies, max_tokens=TOKENS)


def read_tokens(trained: TrainedNetworks, text: str) -> list[str]:
    return list(trained.tokenizer.backend.encode(text, add_special_tokens=False).tokens)


def test_texts_of_the_corpus_keep_their_tokens_and_scores(
    full: TrainedNetworks, pruned: TrainedNetworks, replies: list[Exchange]
) -> None:
    for exchange in replies:
        for text in (write_context(exchange), exchange.response):
            assert read_tokens(pruned, text) == read_tokens(full, text)
    assert np.array_equal(pruned.predict(replies[:20]), full.predict(replies[:20]))
    ids = pruned.tokenizer.backend.get_vocab()
    assert sorted(ids.values()) == list(range(TOKENS))
    assert pruned.networks[0].base.get_input_embeddings().weight.shape[0] == TOKENS
    assert full.networks[0].base.get_input_embeddings().weight.shape[0] == 49_152, "the original is unchanged"


def test_a_kept_token_is_read_as_in_the_full_vocabulary(
    full: TrainedNetworks, pruned: TrainedNetworks
) -> None:
    before, after = full.tokenizer.backend, pruned.tokenizer.backend
    kept = after.get_vocab()
    special = {token.content for token in before.get_added_tokens_decoder().values()}
    assert special <= kept.keys()
    tables = [trained.networks[0].base.get_input_embeddings().weight for trained in (full, pruned)]
    for token, number in kept.items():
        assert (tables[0][before.token_to_id(token)] == tables[1][number]).all()
        text = after.decode([number], skip_special_tokens=False)
        expected = read_tokens(full, text)
        if set(expected) <= kept.keys():
            assert read_tokens(pruned, text) == expected


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_is_read_whole(full: TrainedNetworks, pruned: TrainedNetworks, text: str) -> None:
    for trained in (full, pruned):
        backend = trained.tokenizer.backend
        assert backend.decode(backend.encode(text).ids, skip_special_tokens=False) == text
    tokens = pruned.tokenizer.encode("Speaker: \ud83d", "half \ude00 an emoji")
    assert "half \ufffd an emoji" in pruned.tokenizer.backend.decode(list(tokens.ids))


def test_the_choice_of_tokens_depends_on_the_texts_alone(
    full: TrainedNetworks, pruned: TrainedNetworks, replies: list[Exchange], tiny_decoder: Path
) -> None:
    again = prune_vocabulary(full, [*reversed(replies), *replies], max_tokens=TOKENS)
    assert again.tokenizer.backend.to_str() == pruned.tokenizer.backend.to_str()
    unusual = [replace(replies[0], response=FRESH)]
    other = prune_vocabulary(full, [*replies, *unusual], max_tokens=TOKENS)
    assert read_tokens(other, FRESH) == read_tokens(full, FRESH) != read_tokens(pruned, FRESH)
    small = prune_vocabulary(full, replies, max_tokens=1_000)  # fewer than the texts use
    assert small.tokenizer.backend.get_vocab_size() == 1_000
    assert read_tokens(small, " I am so sorry") == read_tokens(full, " I am so sorry")
    assert any(read_tokens(small, item.response) != read_tokens(full, item.response) for item in replies)
    network, tokenizer = make_network(Recipe(base=str(tiny_decoder)))  # a vocabulary without merges
    same = prune_vocabulary(TrainedNetworks([network], tokenizer), [])
    assert same.tokenizer.backend.to_str() == tokenizer.backend.to_str()
