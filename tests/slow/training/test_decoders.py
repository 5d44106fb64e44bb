"""Decoders as files: int8 predicts what torch predicts."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from repository import SAMPLES
from safetensors.numpy import load_file

import empathy_judge.training.export as onnx_export
from empathy_judge.data.errors import UserError
from empathy_judge.data.rating_files.rated_inputs import RatedExchange
from empathy_judge.data.records import Exchange
from empathy_judge.data.tables import read_exchanges
from empathy_judge.judge.classifier.judge import ClassifierJudge
from empathy_judge.judge.classifier.preprocessing import normalize, prepare
from empathy_judge.judge.onnx_model import CARD, MODEL
from empathy_judge.training.make import export, make_judge
from empathy_judge.training.network import TrainedNetworks, load_network, make_network, save_network
from empathy_judge.training.recipe import Recipe
from empathy_judge.training.training_data import TrainingData

TEXT = {"name": "tiny", "summary": "", "licence": "", "data": "", "limits": []}


def said_by(folder: Path, exchanges: list[Exchange]) -> np.ndarray:
    found = ClassifierJudge(weights=str(folder))
    return np.array([found.predict(exchange) for exchange in exchanges])


@pytest.fixture(scope="module")
def decoder(tiny_recipe: Recipe, tiny_decoder: Path) -> Recipe:
    return replace(tiny_recipe, base=str(tiny_decoder), epochs=2)


def test_what_is_made_says_what_was_trained(
    tmp_path: Path, examples: list[RatedExchange], decoder: Recipe
) -> None:
    make_judge(TrainingData(ratings=examples), [decoder], tmp_path, text=TEXT)
    card = json.loads((tmp_path / CARD).read_text())
    assert card["int8"]["replies"] == 120
    assert card["int8"]["largest_probability"] < 0.02
    assert card["int8"]["score_correlation"] > 0.999
    assert set(card["files"]) == {MODEL, "tokenizer.json", "weights-0.bin"}


def test_adapters_are_saved_without_their_base(tmp_path: Path, decoder: Recipe) -> None:
    recipe, path = replace(decoder, rank=2), tmp_path / "network.safetensors"
    network, tokenizer = make_network(recipe)
    save_network(network, path)
    assert all("lora_" in name or name.startswith("head.") for name in load_file(path))
    reply = [Exchange(id="1", prompt="rain", response="hug")]
    before, after = (
        TrainedNetworks([each], tokenizer).predict(reply) for each in (network, load_network(recipe, path)[0])
    )
    assert np.abs(after - before).max() < 1e-3  # saved in half precision


def test_too_large_files_are_refused(
    tmp_path: Path, decoder: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, tokenizer = make_network(decoder)
    base: Any = network.base
    width = base.config.hidden_size
    base.embed_tokens = torch.nn.Embedding(25_000 // width, width)  # more than its graph takes
    monkeypatch.setattr(onnx_export, "MAX_FILE_SIZE", 30_000)
    names = onnx_export.write_decoder(network, tokenizer, tmp_path / "many")
    assert {"weights-0.bin", "weights-1.bin"} <= set(names)
    assert all((tmp_path / "many" / name).stat().st_size <= 30_000 for name in names)
    monkeypatch.setattr(onnx_export, "MAX_FILE_SIZE", 1_000)
    with pytest.raises(UserError, match="1,000 bytes"):
        onnx_export.write_decoder(network, tokenizer, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.fixture(scope="module")
def replies() -> list[Exchange]:
    found = list(read_exchanges(SAMPLES / "responses.jsonl"))[::5]
    return [replace(exchange, response=normalize(exchange.response)) for exchange in found]


@pytest.fixture(scope="module")
def ten_layers() -> TrainedNetworks:
    """The first ten layers of the real base with an untrained head, as if all of them had been trained."""
    torch.manual_seed(0)
    network, tokenizer = make_network(Recipe(base="smollm2", layers=10))
    return TrainedNetworks([network.eval()], tokenizer)


@pytest.fixture(scope="module")
def exported(
    tmp_path_factory: pytest.TempPathFactory, ten_layers: TrainedNetworks, replies: list[Exchange]
) -> Path:
    folder = tmp_path_factory.mktemp("ten")
    export(ten_layers, folder, replies[::4], texts=replies)
    return folder


def test_ten_layers_in_8_bits_say_what_torch_says(
    exported: Path, ten_layers: TrainedNetworks, replies: list[Exchange]
) -> None:
    assert len(replies) == 39
    exact = ten_layers.predict(replies)
    change = said_by(exported, replies) - exact
    assert np.abs(change).max() < 0.015  # .0124 on the processor that rounded worst
    assert np.abs(change).mean() < 0.004
    sizes = [path.stat().st_size for path in exported.iterdir()]
    assert max(sizes) <= 50e6
    assert sum(sizes) <= 57e6


def test_a_kept_context_order_and_threads_change_no_bit(exported: Path, replies: list[Exchange]) -> None:
    """Each reply also answers the prompt of another, so that contexts are met again."""
    asked = [replace(other, response=reply.response) for other in replies[:3] for reply in replies[3:7]]
    fresh = np.concatenate([said_by(exported, [exchange]) for exchange in asked])  # nothing is kept
    judge = ClassifierJudge(weights=str(exported))
    kept = np.array([judge.predict(exchange) for exchange in asked])
    assert judge.read_context.cache_info().hits > 0
    assert np.array_equal(kept, fresh)
    several = ClassifierJudge(weights=str(exported))
    several.read_context = lru_cache(2)(several._read_context)  # so that some are dropped and read again
    with ThreadPoolExecutor(4) as pool:
        found = np.array(list(pool.map(several.predict, reversed(asked))))
    assert np.array_equal(found[::-1], fresh)
    (prepared,) = prepare(asked[:1], judge.tokenizer)
    assert prepared.tokens is not None
    one_step = judge._run_decoder(replace(prepared, tokens=replace(prepared.tokens, before=0)))[0]
    assert np.abs(np.array(one_step) - fresh[0]).max() < 0.02, "positions continue after the context"
