"""Made examples: unkind cores stay Bad, and the words around them are met in good company as often."""

import random

import pytest

from data.records import Exchange
from judge.classifier.examples import DISMISSED, MISMATCHED, Example
from judge.classifier.synthetic import DISGUISED, FRONT, PHRASES, dress_up, make_disguised, read_unkind, spoil


@pytest.fixture
def rated() -> list[Example]:
    replies = ("Oh no. I am so sorry. How are you?", "Lovely! Tell me more.")
    return [
        Example(
            exchange=Exchange(
                id=str(n), prompt=f"Prompt {n}.", response=replies[n % 2], emotion=("sad", "joyful")[n % 2]
            ),
            target=(0.1, 0.3, 0.6),
            rater="r",
        )
        for n in range(20)
    ]


def test_every_disguised_example_has_a_counterpart(rated: list[Example]) -> None:
    made = make_disguised(rated, 300, random.Random(0))
    assert len(made) == 600
    assert {example.target for example in made[::2]} == {DISGUISED, DISMISSED, MISMATCHED}
    assert {example.target for example in made[1::2]} == {PHRASES, rated[0].target}
    assert not any(example.rater for example in made), "nobody rated them"
    assert made == make_disguised(rated, 300, random.Random(0))


def test_the_core_is_always_there_and_within_what_is_read(rated: list[Example]) -> None:
    cores = read_unkind()
    for example in make_disguised(rated, 400, random.Random(1))[::2]:
        if example.target != MISMATCHED:
            (first, *_) = sorted(
                example.exchange.response.find(core) for core in cores if core in example.exchange.response
            )
            assert first < 10 * FRONT


def test_a_spoilt_reply_keeps_its_own_words() -> None:
    reply, core = "Oh no. I am so sorry.", "Get over it."
    assert sorted(spoil(reply, core, random.Random(0)).split()) == sorted(f"{reply} {core}".split())


def test_no_more_covers_than_asked_for(rated: list[Example]) -> None:
    text = dress_up("Core.", (lambda example, chance: "Kind.",), rated[0], random.Random(0), most=1)
    assert text.count("Kind.") == 1 and "Core." in text
