"""A reply as a person sees it: tricks undone, ordinary texts left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import SAMPLES

from data.tables import read_exchanges
from judge.classifier.preprocessing import WINDOW, normalise, windows


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("You are a f\u200bo\u00adol.", "You are a fool."),
        ("Y\u043eu \u0430re a f\u043e\u043el.", "You are a fool."),
        ("\uff39\uff4f\uff55 are a fool.", "You are a fool."),
        ("\U0001d418\U0001d428\U0001d42e are a fool.", "You are a fool."),
        ("I care. You fool. I care. I CARE!", "I care. You fool."),
        ("love love love love love you", "love you"),
        ("Мне очень жаль.", "Мне очень жаль."),
        ("No, no. Really, really?", "No, no. Really, really?"),
    ],
)
def test_what_hides_a_reply_is_undone(written: str, seen: str) -> None:
    assert normalise(written) == seen


@pytest.mark.parametrize("name", ["responses.jsonl", "wry.jsonl"])
def test_ordinary_replies_are_left_as_they_are(name: str) -> None:
    for exchange in read_exchanges(SAMPLES / name):
        assert normalise(exchange.response) == exchange.response


@given(st.lists(st.text(alphabet="ab. !\n", min_size=1, max_size=9), max_size=400))
def test_windows_hold_every_word_once_and_none_too_many(parts: list[str]) -> None:
    text = " ".join(parts)
    found = list(windows(text))
    assert " ".join(found).split() == text.split()
    assert all(len(window.split()) <= WINDOW for window in found)


@given(st.text(max_size=200))
def test_seen_twice_is_seen_once(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)
