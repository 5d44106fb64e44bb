"""Rows and conversations: one row that holds a talk is split, rows of one talk are put together."""

from dataclasses import replace

from empathy_judge.data.readers.conversations import (
    has_earlier_replies,
    join_conversations,
    opening_digest,
    split_conversation,
)
from empathy_judge.data.records import Exchange, Turn


def row(number: int, prompt: str, response: str, **extra) -> Exchange:
    model = extra.pop("model", "bot")
    return Exchange(id=f"r{number}", prompt=prompt, response=response, model=model, extra=extra)


def test_rows_of_one_conversation_are_put_together_in_order():
    rows = [
        row(1, "It still hurts.", "Poor you.", conversation="a", turn=2),
        row(2, "I won!", "Lovely!", conversation="b"),
        row(3, "I fell.", "Ouch!", conversation="a", turn=1),
        row(4, "I fell.", "So what.", conversation="a", turn=1, model="other"),
        row(5, "Alone.", "Yes?"),
    ]
    first, second, other, alone = join_conversations(rows)
    assert [turn.text for turn in first.dialogue] == ["I fell.", "Ouch!"]
    assert (first.id, first.prompt, other.id, second.id, alone.id) == (
        "a",
        "It still hurts.",
        "a/other",
        "b",
        "r5",
    )
    replies = split_conversation(first)
    assert [reply.response for reply in replies] == ["Ouch!", "Poor you."]
    assert has_earlier_replies(first)
    assert not has_earlier_replies(alone)


def test_a_row_that_tells_what_came_before_is_the_whole_conversation():
    before = (Turn(speaker="user", text="I fell."), Turn(speaker="assistant", text="Ouch!"))
    last = replace(row(2, "Ow.", "Oh.", conversation="a"), dialogue=before)
    (whole,) = join_conversations([row(1, "I fell.", "Ouch!", conversation="a"), last])
    assert whole.dialogue == before


def test_conversations_that_began_alike_are_known_by_it():
    long = "My sister told me today that she will move abroad."
    one, two = (row(number, long, text) for number, text in enumerate(("Oh.", "Really?")))
    assert opening_digest(one) == opening_digest(two)
    hello, hi = (row(number, "Hello!", text) for number, text in enumerate(("Hi.", "Hey.")))
    assert opening_digest(hello) != opening_digest(hi)
    scripted = [row(number, "Hello!", text, scenario="moving") for number, text in enumerate("ab")]
    assert len({opening_digest(talk) for talk in scripted}) == 1
