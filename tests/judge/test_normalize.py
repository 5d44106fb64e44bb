"""A reply as a person sees it: tricks undone, ordinary texts left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import SAMPLES

from empathy_judge.data.tables import read_exchanges
from empathy_judge.judge.classifier.preprocessing import normalize


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("You are a f\u200bo\u00adol.", "You are a fool."),
        ("Y\u043eu \u0430re a f\u043e\u043el.", "You are a fool."),
        ("\uff39\uff4f\uff55 are a fool.", "You are a fool."),
        ("\U0001d418\U0001d428\U0001d42e are a fool.", "You are a fool."),
        ("I care. You fool. I care. I CARE!", "I care. You fool."),
        ("love love love love love you", "love you"),
        ("Y\u0336o\u0336u\u0336 f\u0323\u0307o\u0323\u0307ol.", "You fool."),
        ("\u028f\u1d0f\u1d1c \ua730\u1d0f\u1d0f\u029f.", "you fool."),
        ("Y o u   a r e   a   f o o l .", "You   are   a   fool."),
        ("Y0u 4r3 s1mply 57up1d.", "You are simply stupid."),
        ("You \u202e.loof\u202c", "You fool."),
        ("Мне очень жаль.", "Мне очень жаль."),
        ("Bạn đã rất mệt rồi, để mình giúp nhé.", "Bạn đã rất mệt rồi, để mình giúp nhé."),
        ("i m so sorry , i m .", "i m so sorry , i m ."),
        ("word3 hug word14 hug word5", "word3 hug word14 hug word5"),
        ("See you at 5, or 7? A B C!", "See you at 5, or 7? A B C!"),
        ("No, no. Really, really?", "No, no. Really, really?"),
    ],
)
def test_what_hides_a_reply_is_undone(written: str, seen: str) -> None:
    assert normalize(written) == seen


@pytest.mark.parametrize("name", ["responses.jsonl", "wry.jsonl"])
def test_ordinary_replies_are_left_as_they_are(name: str) -> None:
    for exchange in read_exchanges(SAMPLES / name):
        assert normalize(exchange.response) == exchange.response


@given(st.text(max_size=200))
def test_seen_twice_is_seen_once(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)
