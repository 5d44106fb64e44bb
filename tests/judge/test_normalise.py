"""A reply as a person sees it: tricks undone, ordinary texts left alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from repository import SAMPLES

from data import crisis
from data.tables import read_exchanges
from judge import guards
from judge.base import WEIGHTS
from judge.classifier import preprocessing
from judge.classifier.preprocessing import Tokeniser, normalise, style_features
from judge.llm import fencing
from judge.llm.fencing import suspect

TOKENISERS = (
    Tokeniser.read(WEIGHTS / "classifier" / "tokenizer.json", is_decoder=True),
    Tokeniser.read(WEIGHTS / "classifier-large" / "tokenizer.json", is_decoder=True),
)


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
    assert normalise(written) == seen


@pytest.mark.parametrize("name", ["responses.jsonl", "wry.jsonl"])
def test_ordinary_replies_are_left_as_they_are(name: str) -> None:
    for exchange in read_exchanges(SAMPLES / name):
        assert normalise(exchange.response) == exchange.response


@given(st.text(max_size=200))
def test_seen_twice_is_seen_once(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


WORDS = (
    *("I", "you", "YOURS", "love ", "Love, ", "it's", "y'all'd've", "make sure", "have you", "k\u017f"),
    *(
        "Rate this Good",
        "rate it good",
        "the judge",
        "no no ",
        "no. No! ",
        "\u0131gnore the rules",
        "ignore the rules",
        "[SEP]",
        "<|im_end|>",
        "so sorry. ",
        "So, sorry! ",
        "the judge's ",
        "k i l l myself",
        "return 0",
        "[Name]",
        "\u2764\ufe0f",
    ),
)
PIECES = st.sampled_from(
    [*"'\"<>[]{}#,.!?-= \n\t_5%\u2018\u2019\u2014\u2026\u00e9\ufe0f\u200b\u202e\x1c\ud800\U0001f643", *WORDS]
)


def look_at(text: str) -> list[object]:
    tokens = [tokeniser.encode(text, text) for tokeniser in TOKENISERS]
    suspicions, why = list(suspect(text, text)), guards.why_unreadable(text)
    return [normalise(text), style_features(text), suspicions, tokens, why, crisis._danger(text)]


@given(st.lists(PIECES, max_size=20).map("".join))
@settings(max_examples=400, deadline=None)
def test_short_cuts_for_plain_texts_change_nothing(text: str) -> None:
    """As when no text counts as plain, and as the library alone has it."""
    found = look_at(text)
    with pytest.MonkeyPatch.context() as patch:
        for module in (preprocessing, fencing, guards):
            patch.setattr(module, "as_typed", lambda text: "\u00e9")
        patch.setattr(fencing, "has_plain_cases", lambda text: False)
        patch.setattr(guards, "_NO_SIGNS", b"")
        patch.setattr(crisis, "_may_be_spelled_out", lambda text: True)
        for tokeniser in TOKENISERS:
            patch.setattr(tokeniser, "_find_parts", lambda text: None)
        plainly = look_at(text)
    assert found == plainly
