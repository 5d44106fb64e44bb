"""Exchanges as token ids: what a network reads of a text, and that scoring reads what training read."""

import random
from pathlib import Path

import numpy as np
import pytest

from empathy_judge.data.records import Exchange, Turn
from empathy_judge.judge.classifier.preprocessing import (
    CONTEXT_END,
    CONTEXT_START,
    ENCODER_TOKENS,
    RESPONSE_TOKENS,
    ReplyTokenizer,
    prepare,
    write_context,
)
from empathy_judge.training.recipe import Recipe

EXCHANGE = Exchange(
    id="1",
    prompt="word3 rain",
    response="hug word1",
    situation="word2",
    emotion="happy",
    dialogue=(Turn(speaker="Listener", text="word4"),),
)


@pytest.fixture
def both(tiny_tokenizer: Path) -> list[ReplyTokenizer]:
    """Tokenizers of an encoder, which reads pairs, and of a decoder, which reads one text."""
    return [ReplyTokenizer.read(tiny_tokenizer, is_decoder=is_decoder) for is_decoder in (False, True)]


def words(tokenizer: ReplyTokenizer, ids: tuple[int, ...]) -> str:
    return " ".join(tokenizer.backend.id_to_token(number) for number in ids)


def test_what_a_network_reads(both: list[ReplyTokenizer]) -> None:
    pairs, one_text = both
    tokens = pairs.encode("Speaker: rain", "hug word1")
    assert words(pairs, tokens.ids) == "[CLS] speaker : rain [SEP] hug word1 [SEP]"
    assert tokens.segments == (0, 0, 0, 0, 0, 1, 1, 1) and not tokens.cut
    tokens = one_text.encode("Speaker: rain", "hug word1")
    assert words(one_text, tokens.ids) == "speaker : rain listener : hug word1 empathy :"
    assert tokens.before == 3
    several = [("Speaker: rain", "hug " * count) for count in (0, 1, 700)]
    assert one_text.encode_all(several) == [one_text.encode(*pair) for pair in several]


@pytest.mark.parametrize("is_decoder", [False, True])
def test_a_long_context_is_read_at_both_ends(both: list[ReplyTokenizer], is_decoder: bool) -> None:
    tokenizer = both[is_decoder]
    context = "word1 " * CONTEXT_START + "word2 " * 500 + "word3 " * CONTEXT_END
    said = words(tokenizer, tokenizer.encode(context, "hug").ids).split()
    assert (said.count("word1"), said.count("word2"), said.count("word3")) == (CONTEXT_START, 0, CONTEXT_END)
    gap = said.index("word3") - max(n for n, word in enumerate(said) if word == "word1")
    assert gap == 2, "a gap is seen"
    short = "word1 " * CONTEXT_START + "word3 " * CONTEXT_END
    said = words(tokenizer, tokenizer.encode(short, "hug").ids)
    assert "[UNK]" not in said, "what fits has no gap"


def test_a_reply_is_cut_behind_what_fits(both: list[ReplyTokenizer]) -> None:
    pairs, one_text = both
    whole = "word1 " * 639 + "word2"
    tokens = one_text.encode("Speaker: rain " * 500, whole)
    assert words(one_text, tokens.ids).endswith("word1 word2 empathy :") and not tokens.cut
    longer = one_text.encode("Speaker: rain", f"{whole} word3")
    assert longer.cut and "word3" not in words(one_text, longer.ids)
    assert longer.ids[-2:] == tokens.ids[-2:], "the question stands at the end all the same"
    for response in ("word1 " * 16_666, "a" * 100_000, " " * 99_999 + "x", "." * 100_000):
        tokens = one_text.encode("Speaker: rain", response)
        assert tokens.cut and len(tokens.ids) <= CONTEXT_START + CONTEXT_END + RESPONSE_TOKENS + 8
    room = ENCODER_TOKENS - 3 - CONTEXT_START - CONTEXT_END - 1  # of an encoder; one for the gap
    for count in (room, room + 1):
        tokens = pairs.encode("word1 " * 500, "word4 " * count)
        assert len(tokens.ids) == len(tokens.segments) == ENCODER_TOKENS and tokens.cut == (count > room)


def test_a_context_is_all_that_came_before_without_what_training_drops() -> None:
    assert write_context(EXCHANGE) == (
        "Feeling: happy.\nSituation: word2\nListener: word4\nSpeaker: word3 rain"
    )
    assert write_context(Exchange(id="1", prompt="rain", response="hug", emotion="")) == "Speaker: rain"
    bare = write_context(EXCHANGE, chance=random.Random(0), drop=1.0)
    assert bare == "Listener: word4\nSpeaker: word3 rain", "what was said is never dropped"
    chance = random.Random(0)
    contexts = [write_context(EXCHANGE, chance=chance, drop=0.3) for _ in range(2000)]
    has = [np.array([word in context for context in contexts]) for word in ("Feeling", "Situation")]
    assert [each.mean() for each in has] == pytest.approx([0.7, 0.7], abs=0.04)
    assert (has[0] & has[1]).mean() == pytest.approx(0.49, abs=0.04)


@pytest.mark.parametrize("is_decoder", [False, True])
def test_training_and_scoring_read_the_same(tiny_base: Path, tiny_decoder: Path, is_decoder: bool) -> None:
    from empathy_judge.training.examples import TrainingExample
    from empathy_judge.training.fine_tune import RatingEffects, make_batches
    from empathy_judge.training.network import load_base

    base = tiny_decoder if is_decoder else tiny_base
    recipe, (_, tokenizer) = Recipe(base=str(base), drop_context=0.0), load_base(str(base))
    in_scoring = ReplyTokenizer.read(base / "tokenizer.json", is_decoder=is_decoder)
    long = Exchange(id="2", prompt="rain " * 300, response=" ".join(f"hug{n} \ud83d" for n in range(300)))
    for exchange in (EXCHANGE, long):
        examples = [TrainingExample(exchanges=(exchange,), target=(0.0, 0.0, 1.0), rater="r")]
        effects = RatingEffects(examples, recipe)
        (batch,) = make_batches(examples, tokenizer, recipe, effects, random.Random(0), "cpu")
        (prepared,) = prepare([exchange], in_scoring)
        assert prepared.tokens is not None
        assert (tuple(batch.ids[0]), tuple(batch.segments[0])) == (prepared.ids, prepared.tokens.segments)
