"""The judge `classifier-large`: a toy base, and the published base where it is at hand."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import Result
from command_line import run
from repository import SAMPLES
from transformers import Qwen2Config, Qwen2Model

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import Exchange
from empathy_judge.data.storage import digest_file
from empathy_judge.data.tables import read_exchanges
from empathy_judge.judge.base import WEIGHTS
from empathy_judge.judge.classifier import large_judge
from empathy_judge.judge.classifier.judge import ClassifierJudge
from empathy_judge.judge.classifier.large_judge import LargeJudge, PublishedBase
from empathy_judge.judge.onnx_model import CARD
from empathy_judge.judge.scoring import ScoringRequest, score_file
from empathy_judge.training import network as networks
from empathy_judge.training.make import hash_files
from empathy_judge.training.network import JudgeNetwork, TrainedNetworks
from empathy_judge.training.recipe import Recipe

RESPONSES = SAMPLES / "responses.jsonl"


def score(*arguments: object) -> Result:
    return run("score", RESPONSES, *arguments)


def make_random(recipe: Recipe, std: float) -> TrainedNetworks:
    """Return a network with random adapters and head."""
    network, tokenizer = networks.make_network(recipe)
    for name, weights in network.named_parameters():
        if "lora_B" in name or name == "head.weight":
            torch.nn.init.normal_(weights, std=std)
    return TrainedNetworks([network], tokenizer)


def write_judge(network: JudgeNetwork, folder: Path, base: PublishedBase) -> None:
    networks.save_adapter(network, folder)
    files = hash_files(folder, (large_judge.ADAPTER, large_judge.SETTINGS, large_judge.HEAD))
    (folder / CARD).write_text(json.dumps({"files": files, "caveat": "", "base": asdict(base)}))


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainedNetworks:
    """A network with random adapters on two of four layers; `large.toml` names the judge made of it."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = Qwen2Config(vocab_size=49152, intermediate_size=48, initializer_range=0.3, **sizes)
    Qwen2Model(config).save_pretrained("base")
    Path("base/tokenizer.json").write_bytes((WEIGHTS / "classifier" / "tokenizer.json").read_bytes())
    recipe = Recipe(base=str(tmp_path / "base"), rank=4, frozen=2)
    (network,) = make_random(recipe, 0.2).networks
    Path("judge").mkdir()
    digest = digest_file(Path("base/model.safetensors"))
    write_judge(network, Path("judge"), PublishedBase("toy/base", "model.safetensors", digest))
    networks.save_network(network, Path("network"))
    Path("large.toml").write_text('kind = "classifier-large"\nweights = "judge"\nbase = "base"\n')
    network, tokenizer = networks.load_network(recipe, Path("network"))
    return TrainedNetworks([network], tokenizer)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # of a CPU without bfloat16
def test_the_judge_predicts_as_trained(trained: TrainedNetworks, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges = list(read_exchanges(RESPONSES))[:12]
    done = score("--judge", "large.toml", "--out", "run", "--limit", 12, "--explain", exchanges[0].id)
    assert done.exit_code == 0 and exchanges[0].response[:20] in done.stdout, done.output
    rows = [json.loads(line) for line in Path("run/judgments.jsonl").read_text().splitlines()]
    judged = np.array([list(row["probabilities"].values()) for row in rows])
    assert judged.std(axis=0).max() > 0.05, "else nothing could differ"
    assert np.abs(judged - trained.predict(exchanges)).max() < 1e-4
    # With the CPU in place of a GPU: bfloat16, and batches over the whole file.
    monkeypatch.setattr("empathy_judge.judge.classifier.judge.why_no_gpu", lambda: "")
    monkeypatch.setattr(large_judge, "CUDA", "cpu")
    on_gpu = LargeJudge(weights="judge", base="base/model.safetensors")
    on_gpu.decoder = large_judge.AdaptedNetwork(on_gpu.pretrained[0], on_gpu.folder, "cpu", None)
    whole = list(score_file(ScoringRequest(source=RESPONSES, judge=on_gpu, out=Path("gpu"))).judgments())
    assert on_gpu.device == "cuda" and len(whole) > 100
    assert np.abs([list((row.probabilities or {}).values()) for row in whole[:12]] - judged).mean() < 0.02
    assert on_gpu.decoder.network.rotary_emb.inv_freq.dtype == torch.float32, "else positions are rounded"


def test_probabilities_are_averaged_with_the_default_judge(trained: TrainedNetworks) -> None:
    alone = LargeJudge(weights="judge", base="base")
    Path("judge", CARD).write_text(json.dumps({**alone.card, "average_with": "classifier"}))
    both = LargeJudge(weights="judge", base="base")
    assert len({judge.version for judge in (alone, both, ClassifierJudge())}) == 3
    exchange = next(iter(read_exchanges(RESPONSES)))
    logs = np.log([judge.predict(exchange) for judge in (alone, ClassifierJudge())]).mean(axis=0)
    assert both.predict(exchange) == pytest.approx(np.exp(logs) / np.exp(logs).sum(), abs=1e-6)


def test_refusals_name_the_fix(trained: TrainedNetworks, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="run `hf download toy/base model"):
        LargeJudge(weights="judge")
    card = json.loads(Path("judge", CARD).read_text())
    Path("judge", CARD).write_text(json.dumps(card | {"base": card["base"] | {"repository": ""}}))
    with pytest.raises(UserError, match="`base`"):
        LargeJudge(weights="judge")
    Path("base/model.safetensors").write_bytes(b"another")
    assert "SHA-256" in score("--judge", "large.toml").stderr
    monkeypatch.setattr(large_judge, "find_spec", lambda name: name != "peft" or None)
    assert "peft" in score("--judge", "large.toml").stderr


def test_the_published_base_is_read_with_its_tokenizer(tmp_path: Path) -> None:
    base = large_judge.PUBLISHED_BASES["qwen2.5-coder-1.5b"]
    try:
        base.find()
    except UserError as error:
        pytest.skip(str(error))
    trained = make_random(Recipe(base="qwen2.5-coder-1.5b", rank=2, frozen=27), 0.1)
    write_judge(trained.networks[0], tmp_path, base)
    exchange = Exchange(id="1", prompt="I lost my job.", response="I am so sorry. How are you?")
    expected = trained.predict([exchange])[0]
    del trained  # a second copy takes 6 GB
    found = LargeJudge(weights=str(tmp_path), device="cpu").predict(exchange)
    assert found == pytest.approx(expected, abs=1e-3)
