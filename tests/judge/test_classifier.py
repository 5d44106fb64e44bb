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

from data.errors import UserError
from data.records import LABELS, Exchange
from judge.classifier.judge import WEIGHTS, ClassifierJudge

SAMPLES = ROOT / "data" / "samples"
WARM, PLAIN, CURT = "demo-warm", "demo-plain", "demo-curt"


# What the shipped judge answers.


EXTREMES = ["x", "😀" * 50, "\ud83d", "\x00", "对不起", "Sorry. " * 14_000, "a" * 100_000, "." * 99_999 + "x"]


@pytest.mark.parametrize("response", EXTREMES, ids=lambda text: ascii(text[:8]))
def test_any_text_gets_probabilities(shipped: ClassifierJudge, response: str) -> None:
    exchange = Exchange(id="1", prompt=response, response=response)
    judgment = shipped.judge(exchange)
    assert judgment.probabilities is not None
    assert list(judgment.probabilities) == list(LABELS)
    assert sum(judgment.probabilities.values()) == pytest.approx(1, abs=5e-6)
    assert judgment.label in LABELS


# What a judgment must not depend on.


def test_order_neighbours_and_threads_change_nothing(
    shipped: ClassifierJudge, samples: dict[str, list[Exchange]]
) -> None:
    exchanges = [exchange for found in samples.values() for exchange in found[:8]]
    alone = {exchange.id: ClassifierJudge().judge(exchange) for exchange in exchanges[:2]}
    first = {exchange.id: shipped.judge(exchange) for exchange in exchanges}
    assert {identity: first[identity] for identity in alone} == alone
    random.Random(0).shuffle(exchanges)
    with ThreadPoolExecutor(4) as pool:
        assert dict(zip([e.id for e in exchanges], pool.map(shipped.judge, exchanges), strict=True)) == first


def test_the_model_and_the_id_are_not_seen(
    shipped: ClassifierJudge, samples: dict[str, list[Exchange]]
) -> None:
    exchange = samples[WARM][0]
    other = replace(exchange, id="other", model="other", extra={"rating": 1})
    assert shipped.predict(other) == shipped.predict(exchange)


def test_scoring_loads_neither_torch_nor_transformers() -> None:
    code = (
        "import sys\n"
        "from data.records import Exchange\n"
        "from judge.base import load_judge\n"
        "load_judge('classifier').judge(Exchange(id='1', prompt='I lost my job.', response='Oh no.'))\n"
        "print(sorted({'torch', 'transformers', 'sklearn', 'scipy', 'onnx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


# The files.


def test_the_shipped_files_are_small_and_those_on_their_card() -> None:
    card = json.loads((WEIGHTS / "card.json").read_text(encoding="utf-8"))
    for name, stated in card["files"].items():
        assert sha256((WEIGHTS / name).read_bytes()).hexdigest() == stated
    assert sum(path.stat().st_size for path in WEIGHTS.iterdir()) <= 30e6
    assert "CC BY-NC" in card["licence"]
    assert "On a model it has not met" in card["caveat"]
    assert {"raters-apart", "model-apart"} <= set(card["evidence"])


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A judge's files, to be spoilt."""
    return Path(shutil.copytree(WEIGHTS, tmp_path / "judge"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def forget_files(path: Path) -> None:
    card = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**card, "files": {}}))


SPOILT = {
    "one bit": ("model.onnx", flip, r"model\.onnx: damaged or changed .* install again"),
    "half a model": ("model.onnx", truncate, r"model\.onnx: damaged or changed"),
    "no model": ("model.onnx", Path.unlink, r"model\.onnx: cannot be read: No such file"),
    "another tokenizer": ("tokenizer.json", flip, r"tokenizer\.json: damaged or changed"),
    "no card": ("card.json", Path.unlink, r"no trained judge here \(card\.json is missing\)"),
    "half a card": ("card.json", truncate, r"card\.json: cannot be read"),
    "an empty card": ("card.json", lambda path: path.write_text("{}"), r"card\.json: lacks caveat, files"),
    "a list": ("card.json", lambda path: path.write_text("[]"), r"card\.json: lacks caveat, files"),
    "a number": ("card.json", lambda path: path.write_text("5"), r"card\.json: lacks caveat, files"),
    "no text": ("card.json", lambda path: path.write_bytes(b"\xff"), r"card\.json: cannot be read"),
    "no files": ("card.json", forget_files, r"card\.json: files: .* expected, not \{\}"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_damaged_judge_is_refused(copied: Path, case: str) -> None:
    name, spoil, said = SPOILT[case]
    spoil(copied / name)
    with pytest.raises(UserError, match=said):
        ClassifierJudge(weights=str(copied))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no trained judge here"):
        ClassifierJudge(weights=str(tmp_path / "none"))


def test_the_shipped_model_says_nothing_of_the_machine_that_made_it() -> None:
    assert b"site-packages" not in (WEIGHTS / "model.onnx").read_bytes()


def test_a_response_longer_than_what_is_read_is_said_to_be() -> None:
    judge = ClassifierJudge()
    short = Exchange(id="1", prompt="I lost my job.", response="That is hard. I am here for you.")
    things = ("desk", "team", "plans", "mornings", "coffee", "jokes", "office", "lunches", "friends", "money")
    kind = " ".join(
        f"I can see how much you must miss the {thing}, and I am here for you." for thing in things
    )
    long = Exchange(id="2", prompt=short.prompt, response=kind)
    spoilt = Exchange(id="3", prompt=short.prompt, response=f"{kind} Nobody cares. Grow up and stop whining.")
    assert judge.judge(short).rationale is None
    assert (
        judge.judge(long).rationale == "longer than 160 tokens: judged by its start, no later part being Bad"
    )
    assert judge.judge(spoilt).rationale == "longer than 160 tokens: judged by its worst part"
    assert (judge.judge(long).label != "Bad", judge.judge(spoilt).label) == (True, "Bad")
    again = Exchange(id="4", prompt=short.prompt, response=" ".join([short.response] * 40))
    assert judge.judge(again).probabilities == judge.judge(short).probabilities, "said again adds nothing"
