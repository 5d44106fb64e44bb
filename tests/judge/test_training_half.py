"""Training with our own replies: the test half and its families of forms are out of reach."""

import random

import pytest

from judge.classifier import examples
from judge.robustness.attacks import read_attacks
from judge.robustness.replies import read_replies


def test_training_meets_no_reply_and_no_form_of_the_test_half() -> None:
    lessons = examples.lessons_of_catalogue(3.0, random.Random(0))
    prompts = {exchange.prompt for lesson in lessons for exchange in lesson.exchanges}
    assert prompts <= {reply.prompt for reply in read_replies("training")}
    assert not prompts & {reply.prompt for number in (1, 2) for reply in read_replies("test", number)}
    dressed = {
        e.id.rpartition("[")[2].removesuffix("]")
        for lesson in lessons
        for e in lesson.exchanges
        if "[" in e.id
    }
    met = {attack.family for attack in read_attacks().attacks if attack.name in dressed}
    unmet = {attack.family for attack in read_attacks().attacks if attack.is_unmet}
    assert met and not met & unmet


@pytest.mark.parametrize("number", [1, 2])
def test_training_refuses_the_test_half(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(examples, "read_replies", lambda half: read_replies("test", number))
    examples._training_replies.cache_clear()
    try:
        with pytest.raises(ValueError, match="test half"):
            examples.lessons_of_catalogue(1.0, random.Random(0))
    finally:
        examples._training_replies.cache_clear()
