"""The judge that ships, and one made here: what it refuses, what it must not depend on, what it must know."""

import json
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from repository import ROOT

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import LABELS, Exchange
from empathy_judge.judge.classifier import judge as classifier
from empathy_judge.judge.classifier.judge import ClassifierJudge, version_of
from empathy_judge.judge.classifier.preprocessing import RESPONSE_TOKENS

SHIPPED = ClassifierJudge.shipped
EXTREMES = ["x", "\ud83d x", "\x00x", "Sorry. " * 14_000, "a" * 100_000, "x" + "." * 99_999]


@pytest.mark.parametrize("response", EXTREMES, ids=lambda text: ascii(text[:8]))
def test_any_text_gets_probabilities(shipped: ClassifierJudge, response: str) -> None:
    exchange = Exchange(id="1", prompt=response, response=response)
    judgment = shipped.judge(exchange)
    assert judgment.probabilities is not None and list(judgment.probabilities) == list(LABELS)
    assert sum(judgment.probabilities.values()) == pytest.approx(1, abs=5e-6)


@pytest.mark.slow
def test_order_neighbours_and_threads_change_nothing(
    shipped: ClassifierJudge, samples: dict[str, list[Exchange]]
) -> None:
    exchanges = [exchange for found in samples.values() for exchange in found[:3]]
    alone = {exchange.id: ClassifierJudge().judge(exchange) for exchange in exchanges[:2]}
    first = {exchange.id: shipped.judge(exchange) for exchange in exchanges}
    assert {identity: first[identity] for identity in alone} == alone
    random.Random(0).shuffle(exchanges)
    with ThreadPoolExecutor(4) as pool:
        assert dict(zip([e.id for e in exchanges], pool.map(shipped.judge, exchanges), strict=True)) == first


def test_the_network_is_loaded_once_a_process_and_again_where_its_files_changed(copied: Path) -> None:
    one, same, other = ClassifierJudge(), ClassifierJudge(), ClassifierJudge(weights=str(copied))
    assert one.session is same.session is not other.session
    assert one.tokenizer is same.tokenizer
    card = json.loads((copied / "card.json").read_text(encoding="utf-8"))
    with (copied / "weights-0.bin").open("ab") as weights:
        weights.write(b"changed")
    card["files"]["weights-0.bin"] = sha256((copied / "weights-0.bin").read_bytes()).hexdigest()
    (copied / "card.json").write_text(json.dumps(card))
    assert ClassifierJudge(weights=str(copied)).session is not other.session


def test_scoring_loads_neither_torch_nor_transformers() -> None:
    code = (
        "import sys\n"
        "from empathy_judge.data.records import Exchange\n"
        "from empathy_judge.judge.base import load_judge\n"
        "load_judge('classifier').judge(Exchange(id='1', prompt='I lost my job.', response='Oh no.'))\n"
        "print(sorted({'torch', 'transformers', 'sklearn', 'scipy', 'onnx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_shipped_files_are_small_and_under_their_license() -> None:
    card = json.loads((SHIPPED / "card.json").read_text(encoding="utf-8"))
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 120e6
    assert b"site-packages" not in (SHIPPED / "model.onnx").read_bytes(), "nothing of the machine"
    assert "CC BY-NC" in card["licence"]
    assert {"raters-apart", "model-apart"} <= set(card["evidence"])


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A judge's files, to be spoilt."""
    return Path(shutil.copytree(SHIPPED, tmp_path / "judge"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("model.onnx", b"changed", r"model\.onnx: damaged or changed .* install again"),
        ("card.json", None, r"no trained judge \(card\.json is missing\)"),
        ("card.json", b"{", r"card\.json: cannot be read"),
        ("card.json", b'{"files": {}, "caveat": ""}', r"card\.json: files: expected .*, not \{\}"),
    ],
)
def test_a_damaged_judge_is_refused(copied: Path, name: str, content: bytes | None, said: str) -> None:
    (copied / name).unlink()
    if content is not None:
        (copied / name).write_bytes(content)
    with pytest.raises(UserError, match=said):
        ClassifierJudge(weights=str(copied))


def test_another_runtime_is_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    here = version_of("weights")
    for runtime, is_same in (("1.31.0", True), ("1.31.9", True), ("1.32.0", False), ("2.31.0", False)):
        monkeypatch.setattr(classifier, "version_of_package", lambda name, runtime=runtime: runtime)
        assert (version_of("weights") == here) is is_same


def test_a_response_longer_than_what_is_read_is_said_to_be(shipped: ClassifierJudge) -> None:
    short = Exchange(id="1", prompt="I lost my job.", response="That is hard. I am here for you.")
    words = ["apple", "bread", "cheese", "duck", "egg", "fish", "grape", "honey", "ink", "jam"]
    sentences = [f"I see that you like {one} and {other}." for one in words for other in words]
    long = replace(short, response=" ".join(sentences))
    assert shipped.judge(short).rationale is None
    assert shipped.judge(long).rationale == f"longer than {RESPONSE_TOKENS} tokens: only the start was read"
    again = Exchange(id="4", prompt=short.prompt, response=" ".join([short.response] * 40))
    assert shipped.judge(again).probabilities == shipped.judge(short).probabilities, "said again adds nothing"


def test_a_missing_gpu_is_reported_once_and_the_cpu_judges(capsys: pytest.CaptureFixture[str]) -> None:
    classifier._warn_once.cache_clear()
    quiet = [ClassifierJudge(device=device) for device in ("", "auto", "cpu")]
    assert {item.device for item in quiet} == {"cpu"} and capsys.readouterr().err == ""
    judges = [ClassifierJudge(device="cuda") for _ in range(2)]
    assert {item.device for item in judges} == {"cpu"} and judges[0].score_stream is None
    assert capsys.readouterr().err.count("No GPU is used") == 1
    assert len({item.version for item in (*quiet, *judges)}) == 1
    with pytest.raises(UserError, match="device: expected one of auto, cpu, cuda, not 'gpu'"):
        ClassifierJudge(device="gpu")
