"""Exchanges as token ids: what a network reads of a text, and that scoring reads what training read."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.records import Exchange, Turn
from judge.classifier.judge import ClassifierJudge
from judge.classifier.make import hash_files
from judge.classifier.preprocessing import CONTEXT_TOKENS, RESPONSE_TOKENS, Tokeniser, write_context
from judge.classifier.recipe import Recipe

EXCHANGE = Exchange(
    id="1",
    prompt="word3 rain",
    response="hug word1",
    situation="word2",
    emotion="happy",
    dialogue=(Turn(speaker="Listener", text="word4"),),
)


@pytest.fixture
def pairs(tiny_tokenizer: Path) -> Tokeniser:
    return Tokeniser.read(tiny_tokenizer, is_decoder=False)


@pytest.fixture
def one_text(tiny_tokenizer: Path) -> Tokeniser:
    return Tokeniser.read(tiny_tokenizer, is_decoder=True)


def words(tokeniser: Tokeniser, ids: tuple[int, ...]) -> str:
    return " ".join(tokeniser.tokenizer.id_to_token(number) for number in ids)


def test_a_pair_is_two_segments_between_separators(pairs: Tokeniser) -> None:
    tokens = pairs.encode("Speaker: rain", "hug word1")
    assert words(pairs, tokens.ids) == "[CLS] speaker : rain [SEP] hug word1 [SEP]"
    assert tokens.segments == (0, 0, 0, 0, 0, 1, 1, 1)
    assert not tokens.cut


def test_a_decoder_reads_one_text_that_asks_at_its_end(one_text: Tokeniser) -> None:
    tokens = one_text.encode("Speaker: rain", "hug word1")
    assert words(one_text, tokens.ids) == "speaker : rain listener : hug word1 empathy :"
    assert tokens.segments == (0,) * 9


@pytest.mark.parametrize("is_decoder", [False, True])
def test_of_a_long_context_the_end_is_kept_and_of_a_long_reply_the_start(
    tiny_tokenizer: Path, is_decoder: bool
) -> None:
    tokeniser = Tokeniser.read(tiny_tokenizer, is_decoder=is_decoder)
    tokens = tokeniser.encode("word1 " * 500 + "word2", "word3 " + "word4 " * 500)
    said = words(tokeniser, tokens.ids).split()
    assert said.count("word1") == CONTEXT_TOKENS - 1
    assert said.count("word2") == said.count("word3") == 1
    assert said.count("word4") == RESPONSE_TOKENS - 1
    assert tokens.cut
    assert not tokeniser.encode("word1 " * 500, "word4 " * RESPONSE_TOKENS).cut


@pytest.mark.parametrize("response", ["word1 " * 16_666, "a" * 100_000, " " * 99_999 + "x", "." * 100_000])
def test_the_longest_reply_is_cut(pairs: Tokeniser, response: str) -> None:
    tokens = pairs.encode("Speaker: rain", response)
    assert len(tokens.ids) <= CONTEXT_TOKENS + RESPONSE_TOKENS + 3
    assert tokens.cut, "even where it comes to few tokens, its end was not read"


def test_a_lone_surrogate_is_no_question_and_a_pair_of_them_is_one_character(pairs: Tokeniser) -> None:
    assert pairs.encode("c", "hug \ud83d") == pairs.encode("c", "hug \N{REPLACEMENT CHARACTER}")
    assert pairs.encode("c", "hug \ud83d") != pairs.encode("c", "hug ?")
    assert pairs.encode("c", "hug \ud83d\ude00") == pairs.encode("c", "hug \N{GRINNING FACE}")


@pytest.mark.parametrize("response", ["", " ", "\x00", "😀"])
def test_a_reply_of_nothing_is_still_a_pair(pairs: Tokeniser, response: str) -> None:
    tokens = pairs.encode("Speaker: rain", response)
    assert words(pairs, tokens.ids).count("[SEP]") == 2
    assert len(tokens.ids) == len(tokens.segments)


def test_a_context_is_all_that_came_before_in_order() -> None:
    assert write_context(EXCHANGE) == (
        "Feeling: happy.\nSituation: word2\nListener: word4\nSpeaker: word3 rain"
    )
    assert write_context(Exchange(id="1", prompt="rain", response="hug", emotion="")) == "Speaker: rain"


def test_training_drops_emotion_and_situation_each_on_its_own() -> None:
    bare = write_context(EXCHANGE, chance=random.Random(0), drop=1.0)
    assert bare == "Listener: word4\nSpeaker: word3 rain", "what was said is never dropped"
    chance = random.Random(0)
    contexts = [write_context(EXCHANGE, chance=chance, drop=0.3) for _ in range(2000)]
    has_emotion = np.array(["Feeling" in context for context in contexts])
    has_situation = np.array(["Situation" in context for context in contexts])
    assert has_emotion.mean() == pytest.approx(0.7, abs=0.04)
    assert has_situation.mean() == pytest.approx(0.7, abs=0.04)
    assert (has_emotion & has_situation).mean() == pytest.approx(0.49, abs=0.04)


class Recorder:
    """Stands where the ONNX session does, and keeps what it is given."""

    def __init__(self) -> None:
        self.inputs: dict[str, Any] = {}

    def run(self, _: None, inputs: dict[str, Any]) -> list[np.ndarray]:
        self.inputs = self.inputs or inputs  # the first: a long reply is read in parts after that
        return [np.array([[0.2, 0.3, 0.5]])]


@pytest.mark.parametrize("is_decoder", [False, True])
def test_training_and_scoring_read_the_same(
    tmp_path: Path, tiny_base: Path, tiny_decoder: Path, is_decoder: bool
) -> None:
    from judge.classifier.examples import Example
    from judge.classifier.network import load_base
    from judge.classifier.training import Effects, make_batches

    base = tiny_decoder if is_decoder else tiny_base
    recipe = Recipe(base=str(base), drop_context=0.0)
    long = Exchange(id="2", prompt="rain " * 300, response=" ".join(f"hug{n} \ud83d" for n in range(300)))
    for exchange in (EXCHANGE, long):
        example = Example(exchange=exchange, target=(0.0, 0.0, 1.0), rater="r")
        _, tokeniser = load_base(str(base))
        batches = make_batches(
            [example], tokeniser, recipe, Effects([example], recipe), random.Random(0), "cpu"
        )
        (batch,) = batches

        shutil.copy(base / "tokenizer.json", tmp_path)
        (tmp_path / "model.onnx").write_bytes(b"")
        card = {"files": hash_files(tmp_path), "caveat": "", "is_decoder": is_decoder}
        (tmp_path / "card.json").write_text(json.dumps(card))
        judge = ClassifierJudge(weights=str(tmp_path))
        judge.session = Recorder()
        judge.judge(exchange)
        inputs = judge.session.inputs
        assert inputs["ids"].tolist() == batch.ids.tolist()
        assert inputs["segments"].tolist() == batch.segments.tolist()
        assert inputs["style"] == pytest.approx(batch.style.numpy())
