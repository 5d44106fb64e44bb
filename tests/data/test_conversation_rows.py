"""Rows and conversations: a row that holds a conversation is split, rows of one conversation are joined."""

from dataclasses import replace

from empathy_judge.data.readers.conversations import (
    has_earlier_replies,
    join_conversations,
    opening_digest,
    split_conversation,
)
from empathy_judge.data.records import Exchange


def row(number: int, prompt: str, response: str, *, model: str = "bot", **extra) -> Exchange:
    return Exchange(id=f"r{number}", prompt=prompt, response=response, model=model, extra=extra)


def test_rows_of_one_conversation_are_joined_in_order():
    rows = [
        row(1, "It still hurts.", "Poor you.", conversation="a", turn=2),
        row(2, "I won!", "Lovely!", conversation="b"),
        row(3, "I fell.", "Ouch!", conversation="a", turn=1),
        row(4, "I fell.", "So what.", conversation="a", turn=1, model="other"),
        row(5, "Alone.", "Yes?"),
    ]
    first, second, other, alone = join_conversations(rows)
    assert [item.id for item in (first, second, other, alone)] == ["a", "b", "a/other", "r5"]
    assert [turn.text for turn in first.dialogue] == ["I fell.", "Ouch!"]
    assert [reply.response for reply in split_conversation(first)] == ["Ouch!", "Poor you."]
    assert has_earlier_replies(first) and not has_earlier_replies(alone)
    # A row with the earlier turns is the whole conversation.
    last = replace(rows[0], dialogue=first.dialogue)
    assert next(join_conversations([rows[2], last])).dialogue == first.dialogue


def test_conversations_with_the_same_long_opening_share_their_digest():
    long = "My sister told me today that she will move abroad."
    for prompt, is_shared in ((long, True), ("Hello!", False)):
        assert len({opening_digest(row(1, prompt, text)) for text in ("Oh.", "Really?")}) == 2 - is_shared
    assert len({opening_digest(row(1, "Hello!", text, scenario="moving")) for text in "ab"}) == 1
