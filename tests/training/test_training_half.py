"""Training with our own replies: the test half and its families of forms are out of reach."""

import random
from collections import Counter

import pytest

from judge.robustness.attacks import read_attacks
from judge.robustness.replies import read_replies
from training import graded_replies
from training.examples import examples_from_graded_replies
from training.graded_replies import read_graded_prompts, read_graded_replies, read_grades


def test_training_meets_no_reply_and_no_form_of_the_test_half() -> None:
    lessons = examples_from_graded_replies(1.0, random.Random(0))
    shown = [exchange for lesson in lessons for exchange in lesson.exchanges]
    tested = [reply for number in (1, 2) for reply in read_replies("test", number)]
    assert not {exchange.prompt for exchange in shown} & {reply.prompt for reply in tested}
    assert not {e.exchange.response for e in read_graded_replies()} & {
        s for reply in tested for s in reply.stages()
    }
    dressed = {e.id.rpartition("[")[2].removesuffix("]") for e in shown if "[" in e.id}
    met = {attack.family for attack in read_attacks().attacks if attack.name in dressed}
    unmet = {attack.family for attack in read_attacks().attacks if attack.is_unmet}
    assert met and not met & unmet


@pytest.mark.parametrize("number", [1, 2])
def test_training_refuses_the_test_half(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(graded_replies, "read_replies", lambda half: read_replies("test", number))
    with pytest.raises(ValueError, match="test half"):
        read_graded_replies.__wrapped__()


def test_scenes_have_kind_and_unkind_replies_to_the_same_words() -> None:
    everything = read_graded_prompts()
    assert len({scene.turns for scene in everything}) == len(everything)
    for scene in everything:
        kinds = Counter(reply.kind for reply in scene.replies)
        assert len(scene.turns) % 2, "the speaker speaks first and last"
        assert kinds["excellent"] + kinds["good"] >= 1 <= kinds["cruel"] + kinds["insult"], scene.turns
        assert all(0 <= reply.score <= 100 for reply in scene.replies)
        assert {turn.speaker for reply in scene.graded() for turn in reply.exchange.dialogue} <= {
            "speaker",
            "listener",
        }


def test_grades_are_digests_with_scores() -> None:
    assert all(len(digest) >= 12 and 0 <= score <= 100 for digest, score in read_grades().items())
