"""Scripted speakers: words for every turn whatever is replied, branches by signs, wrong files refused."""

from pathlib import Path

import pytest

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import EMOTIONS, danger_in
from empathy_judge.judge.scripted_conversations import OURS, next_words, read_sign, read_situations

REPLIES = {
    "asked": "That sounds hard. What happened then?",
    "advised": "I hear you. You should talk to somebody about it.",
    "brushed_off": "Get over it.",
    "story": "I am so sorry, that must have been a very long day for you.",
}


def test_ours_has_words_for_eight_turns_whatever_is_replied_and_never_says_a_thing_twice() -> None:
    situations = read_situations(OURS)
    assert len(situations) >= 40
    assert {item.emotion for item in situations} == set(EMOTIONS)
    assert not [item.id for item in situations if danger_in(item.first_turn)]
    for item in situations:
        for sign, reply in REPLIES.items():
            assert read_sign(reply) == sign
            said = [next_words(item, [reply] * turn) for turn in range(7)]
            assert len({*said, next_words(item, [reply] * 7, is_last=True)}) == 8, item.id


def test_the_branch_follows_the_reply_and_the_end_follows_the_talk() -> None:
    item = read_situations(OURS)[0]
    talk = [REPLIES["asked"], REPLIES["brushed_off"], REPLIES["asked"], REPLIES["asked"], REPLIES["advised"]]
    said = [next_words(item, talk[:turn]) for turn in range(len(talk) + 1)]
    branches = (item.asked[0], item.brushed_off[0], item.asked[1], item.story[0], item.advised[0])
    assert said == [item.opening, *branches]
    assert next_words(item, talk, is_last=True) == item.heard
    assert next_words(item, [REPLIES["brushed_off"]] * 7, is_last=True) == item.unheard


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("id = ", "name = "), "situation 1: "),
        (('heard = "', 'heard = "" # '), "situation 1: an empty text"),
        (("afraid-stairwell", "angry-credit"), "situation 2: id: 'angry-credit' is a duplicate"),
        (("[[situations]]", "[[others]]"), "no situations; write each in a table [[situations]]"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OURS.read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    with pytest.raises(UserError, match=r"mine\.toml") as refused:
        read_situations(path)
    assert said in str(refused.value)
