"""Decoders as files: int8 predicts what torch predicts, for full networks and for LoRA adapters."""

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from repository import ROOT, SAMPLES
from safetensors.numpy import load_file

import training.export
from data.errors import UserError
from data.rated_exchanges import RatedExchange
from data.records import Exchange
from data.storage import digest_file
from data.tables import read_exchanges
from judge.base import load_judge
from judge.classifier.judge import MEANS, NETWORK, ClassifierJudge
from judge.classifier.preprocessing import normalize, prepare
from judge.classifier.quantization import find_base_file
from judge.onnx_model import CARD, MODEL
from training.make import export, make_judge
from training.network import LoraLinear, TrainedNetworks, make_network
from training.recipe import Recipe, read_recipe
from training.training_data import TrainingData

SHIPPED = ROOT / "judge" / "weights" / "classifier-large"
TEXT = {"name": "tiny", "summary": "", "licence": "", "data": "", "limits": [], "caveat": "not measured"}


def said_by(folder: Path, exchanges: list[Exchange]) -> np.ndarray:
    found = ClassifierJudge(weights=str(folder))
    return np.array([found.predict(exchange) for exchange in exchanges])


# A tiny base, trained.


@pytest.fixture(scope="module")
def decoder(tiny_recipe: Recipe, tiny_decoder: Path) -> Recipe:
    return replace(tiny_recipe, base=str(tiny_decoder), epochs=2)


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory, examples: list[RatedExchange], decoder: Recipe) -> Path:
    """A judge of two networks, each a change to the base."""
    folder = tmp_path_factory.mktemp("changes")
    recipe = replace(decoder, rank=2, networks=["all", "all"])
    make_judge(TrainingData(ratings=examples), [recipe], folder, text=TEXT, evidence={})
    return folder


@pytest.mark.parametrize("rank", [0, 2])
def test_what_is_made_says_what_was_trained(
    tmp_path: Path, changes: Path, examples: list[RatedExchange], decoder: Recipe, rank: int
) -> None:
    folder = changes
    if not rank:
        folder = tmp_path / "whole"
        make_judge(TrainingData(ratings=examples), [decoder], folder, text=TEXT, evidence={})
    card = json.loads((folder / CARD).read_text())
    assert card["int8"]["replies"] == 120
    assert card["int8"]["largest_probability"] < 0.02
    assert card["int8"]["score_correlation"] > 0.999
    weights = {NETWORK.format(0), NETWORK.format(1), MEANS} if rank else {"weights-0.bin"}
    assert set(card["files"]) == {MODEL, "tokenizer.json"} | weights
    assert not (folder / "weights-0.bin").exists() or not rank, "the base is not kept twice"
    if rank:
        names = set(load_file(folder / NETWORK.format(0)))
        assert any(name.endswith(".up") for name in names), "only the adapters and the head are saved"
        assert not any("frozen" in name or "embed" in name for name in names)


def test_two_full_networks_and_too_large_files_are_refused(
    tmp_path: Path, decoder: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, tokenizer = make_network(decoder)
    reply = [Exchange(id="1", prompt="rain", response="hug")]
    with pytest.raises(UserError, match="a decoder without LoRA adapters is exported as one"):
        export(TrainedNetworks([network, network], tokenizer), decoder, tmp_path, reply)
    base: Any = network.base
    width = base.config.hidden_size
    base.embed_tokens = torch.nn.Embedding(25_000 // width, width)  # more than its graph takes
    monkeypatch.setattr(training.export, "MAX_FILE_SIZE", 30_000)
    names = training.export.write_decoder(network, tokenizer, tmp_path / "many")
    assert {"weights-0.bin", "weights-1.bin"} <= set(names)
    assert all((tmp_path / "many" / name).stat().st_size <= 30_000 for name in names)
    monkeypatch.setattr(training.export, "MAX_FILE_SIZE", 1_000)
    with pytest.raises(UserError, match="would have more than 1,000 bytes"):
        training.export.write_decoder(network, tokenizer, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_damaged_files_and_another_base_are_refused(tmp_path: Path, changes: Path) -> None:
    damaged = Path(shutil.copytree(changes, tmp_path / "damaged"))
    whole = (damaged / NETWORK.format(1)).read_bytes()
    (damaged / NETWORK.format(1)).write_bytes(whole[:-1])
    with pytest.raises(UserError, match="damaged or changed"):
        ClassifierJudge(weights=str(damaged))
    (damaged / NETWORK.format(1)).write_bytes(whole)
    card = json.loads((damaged / CARD).read_text())
    exchange = Exchange(id="1", prompt="rain", response="hug word1")
    for base, said in (
        ({next(iter(card["base"])): "0" * 64}, "not the file on the card"),
        ({"gone": "0" * 64}, "unknown base 'gone'"),
        ("smollm2", "a name and a hash expected"),
    ):
        (damaged / CARD).write_text(json.dumps({**card, "base": base}))
        with pytest.raises(UserError, match=said):
            ClassifierJudge(weights=str(damaged)).judge(exchange)
    # A graph that names the same weights in another form, as those of former versions do.
    graph = onnx.load(damaged / MODEL, load_external_data=False)
    changed = next(item for item in graph.graph.initializer if item.name.endswith("q_proj.weight"))
    changed.dims[0] += 1
    onnx.save(graph, damaged / MODEL)
    files = {**card["files"], MODEL: digest_file(damaged / MODEL)}
    (damaged / CARD).write_text(json.dumps({**card, "files": files}))
    with pytest.raises(UserError, match="train again with this version"):
        ClassifierJudge(weights=str(damaged)).judge(exchange)


# The real base, with an untrained head.


@pytest.fixture(scope="module")
def replies() -> list[Exchange]:
    found = list(read_exchanges(SAMPLES / "responses.jsonl"))[::5]
    return [replace(exchange, response=normalize(exchange.response)) for exchange in found]


@pytest.fixture(scope="module")
def smollm2() -> TrainedNetworks:
    torch.manual_seed(0)
    network, tokenizer = make_network(Recipe(base="smollm2", rank=16))
    for module in network.modules():
        if isinstance(module, LoraLinear):
            torch.nn.init.normal_(module.up, std=0.005)
    return TrainedNetworks([network.eval()], tokenizer)


@pytest.fixture(scope="module")
def ten_layers(smollm2: TrainedNetworks) -> TrainedNetworks:
    """Its first ten layers, as if all of them had been trained."""
    network, tokenizer = make_network(Recipe(base="smollm2", layers=10))
    network.head.load_state_dict(smollm2.networks[0].head.state_dict())
    return TrainedNetworks([network.eval()], tokenizer)


@pytest.fixture(scope="module")
def exported(
    tmp_path_factory: pytest.TempPathFactory, ten_layers: TrainedNetworks, replies: list[Exchange]
) -> Path:
    folder = tmp_path_factory.mktemp("ten")
    export(ten_layers, Recipe(base="smollm2"), folder, replies[::4])
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
    assert sum(sizes) <= 69e6


def test_a_kept_context_order_and_threads_change_no_bit(exported: Path, replies: list[Exchange]) -> None:
    """Each reply also answers the prompt of another, so that contexts are met again."""
    asked = [replace(other, response=reply.response) for other in replies[:3] for reply in replies[3:7]]
    anew = np.concatenate([said_by(exported, [exchange]) for exchange in asked])  # nothing is kept
    judge = ClassifierJudge(weights=str(exported))
    kept = np.array([judge.predict(exchange) for exchange in asked])
    assert judge.read_context.cache_info().hits > 0
    assert np.array_equal(kept, anew)
    several = ClassifierJudge(weights=str(exported))
    several.read_context = lru_cache(2)(several._read_context)  # so that some are dropped and read again
    with ThreadPoolExecutor(4) as pool:
        found = np.array(list(pool.map(several.predict, reversed(asked))))
    assert np.array_equal(found[::-1], anew)
    one_step = read_in_one_step(judge, asked[0])
    assert np.abs(one_step - anew[0]).max() < 0.02, "positions and what is seen go on behind the context"


def read_in_one_step(judge: ClassifierJudge, exchange: Exchange) -> np.ndarray:
    """Return the probabilities of a text that is read in one step."""
    (prepared,) = prepare([exchange], judge.tokenizer)
    assert prepared.tokens is not None
    return np.array(judge._run_decoder(replace(prepared, tokens=replace(prepared.tokens, before=0)))[0])


def test_changes_to_the_base_say_what_torch_says(
    tmp_path: Path, smollm2: TrainedNetworks, replies: list[Exchange]
) -> None:
    """The base is read from its package here by numpy, and there by transformers."""
    recipe = Recipe(base="smollm2", rank=16)
    card = export(smollm2, recipe, tmp_path, replies[::6])
    assert card["int8"]["largest_probability"] < 0.03
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 15e6
    (path,) = card["base"]
    assert find_base_file(path).suffix == ".gguf"


# The judge that ships.


def test_the_shipped_graph_is_what_export_writes(tmp_path: Path) -> None:
    network, tokenizer = make_network(read_recipe("large"))
    for name in training.export.write_decoder(network, tokenizer, tmp_path):
        assert (tmp_path / name).read_bytes() == (SHIPPED / name).read_bytes(), name


def test_the_shipped_changes_are_small_and_need_no_torch() -> None:
    assert load_judge("classifier-large").name == "classifier-large"  # checks the hashes; merges nothing yet
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 40_000_000
    code = (
        "import sys\n"
        "from data.records import Exchange\n"
        "from judge.base import load_judge\n"
        "judge = load_judge('classifier-large')\n"
        "said = ('I am so sorry. That must be frightening. Is anybody with you?', 'Nobody cares. Grow up.')\n"
        "asked = [Exchange(id='1', prompt='I lost my job.', response=reply) for reply in said]\n"
        "kind, unkind = map(judge.predict, asked)\n"
        "assert kind[2] > unkind[2] + 0.3, (kind, unkind)\n"
        "print(sorted({'torch', 'transformers', 'sklearn', 'scipy', 'onnx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
