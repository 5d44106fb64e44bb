"""The counts of style: known values, and texts nobody would send but somebody will."""

from math import isfinite, log

import pytest

from judge.classifier.preprocessing import STYLE, style_features


def style_of(response: str) -> dict[str, float]:
    return dict(zip(STYLE, style_features(response), strict=True))


def test_a_reply_counted_by_hand() -> None:
    """Eight words of 24 letters in three sentences: one question, one exclamation, one contraction."""
    assert style_of("Oh no! Are you okay? I'm so sorry.") == pytest.approx(
        {
            "length": log(8) - 3.5,
            "sentence_length": log(8 / 3) - 2.4,
            "sentences": 0.0,
            "questions": 1.0,
            "exclamations": 1.0,
            "word_length": 24 / 8 - 4.5,
            "contractions": 10 / 8,
            "addresses_speaker": 10 / 8,
            "speaks_of_itself": 10 / 8,
            "opens_formally": 0.0,
            "gives_advice": 0.0,
            "lower_case": 0.0,
        }
    )


STRANGE = (
    *("", " ", "😀", "😀😀😀!!!???", "\ud83d", "___", "\x00", "对不起", "a"),
    *("?" * 50, "you " * 50, "I'm " * 50),
)
LONG = ("a" * 100_000, "." * 99_999 + "x", "?!" * 50_000, "a'" * 50_000, " " * 100_000, "i " * 50_000)


def test_any_text_has_counts_of_the_order_of_one_and_the_longest_has_finite_ones() -> None:
    for response in STRANGE:
        counts = style_features(response)
        assert len(counts) == len(STYLE) and all(map(isfinite, counts)) and max(map(abs, counts)) <= 4.5
    assert all(isfinite(count) for response in LONG for count in style_features(response))
