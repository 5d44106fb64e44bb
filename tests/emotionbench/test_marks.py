"""Marks out of answers in every form that models give them, and out of none that they do not."""

import json
from collections.abc import Callable
from dataclasses import replace

from empathy_judge.emotionbench.marks import read_marks
from empathy_judge.emotionbench.questionnaires import read_questionnaire

WORDS = tuple(f"feeling{letter}" for letter in "abcdefghijklmnopqrst")
LEVELS = ("hardly or not at all", "a little", "somewhat", "quite a bit", "extremely")
PANAS = replace(read_questionnaire("PANAS"), levels=LEVELS, texts=WORDS)
FROM_ZERO = replace(PANAS, items=21, low=0, high=3, levels=(), texts=())
TRUE = {item: (7 * item) % 5 + 1 for item in range(1, 21)}


def lines(write: Callable[[int, int], str]) -> str:
    return "\n".join(write(item, mark) for item, mark in TRUE.items())


FORMS = {
    "numbered": lines(lambda i, m: f"{i}. {m}"),
    "brackets and full stops": lines(lambda i, m: f"{i}) {m}."),
    "a dash": lines(lambda i, m: f"{i} - {m}"),
    "a tight dash": lines(lambda i, m: f"{i}-{m}"),
    "an arrow": lines(lambda i, m: f"{i} -> {m}"),
    "a space": lines(lambda i, m: f"{i} {m}"),
    "preamble and farewell": "Sure! My 20 marks, from 1 to 5:\n\n"
    + lines(lambda i, m: f"{i}. {m}")
    + "\n\nAll 20 done!",
    "with the words": lines(lambda i, m: f"{i}. {WORDS[i - 1].title()}: {m}"),
    "out of five": lines(lambda i, m: f"{i}. {WORDS[i - 1]}: {m}/5"),
    "out of five, in words": lines(lambda i, m: f"{i}. {m} out of 5"),
    "explained": lines(lambda i, m: f"{i}. {m} - {LEVELS[m - 1]}"),
    "explained before": lines(lambda i, m: f"{i}. {LEVELS[m - 1]} ({m})"),
    "with a reason": lines(lambda i, m: f"{i}. {WORDS[i - 1]}: I would say {m}, since it hurts."),
    "bold numbers": lines(lambda i, m: f"**{i}. {WORDS[i - 1]}** - {m}"),
    "bold marks": lines(lambda i, m: f"{i}. **{m}**"),
    "a table": "| # | word | mark |\n|---|---|---|\n" + lines(lambda i, m: f"| {i} | {WORDS[i - 1]} | {m} |"),
    "items named": lines(lambda i, m: f"Item {i}: {m}"),
    "commas": ", ".join(str(mark) for mark in TRUE.values()),
    "spaces": " ".join(str(mark) for mark in TRUE.values()),
    "pairs on a line": ", ".join(f"{i}: {m}" for i, m in TRUE.items()),
    "pairs with full stops": " ".join(f"{i}. {m}" for i, m in TRUE.items()),
    "pairs with semicolons": "; ".join(f"{i}={m}" for i, m in TRUE.items()),
    "bare": lines(lambda i, m: f"{m}"),
    "bare, out of five": lines(lambda i, m: f"{m}/5"),
    "bare, explained": lines(lambda i, m: f"{m} - {LEVELS[m - 1]}"),
    "an object": json.dumps({str(i): m for i, m in TRUE.items()}),
    "an object of texts": "```json\n"
    + json.dumps({WORDS[i - 1]: str(m) for i, m in TRUE.items()}, indent=2)
    + "\n```",
    "an object within": json.dumps({"answers": {f"item_{i}": m for i, m in TRUE.items()}}),
    "a list": json.dumps(list(TRUE.values())),
    "a list of rows": json.dumps([{"item": i, "word": WORDS[i - 1], "mark": m} for i, m in TRUE.items()]),
    "a cut object": "{\n" + lines(lambda i, m: f'  "{i}": {m},'),
    "wide digits": lines(lambda i, m: f"{i}\uff0e\u3000{chr(0xFF10 + m)}"),
    "Windows lines": lines(lambda i, m: f"{i}. {m}\r"),
    "fractions that are whole": lines(lambda i, m: f"{i}. {m}.0"),
    "thoughts before": f"<think>1. 5\n2. 5</think>{lines(lambda i, m: f'{i}. {m}')}",
    "a disclaimer before": f"As an AI I do not have feelings, but:\n{lines(lambda i, m: f'{i}. {m}')}",
}


def test_every_form_is_read() -> None:
    read = {form: read_marks(text, PANAS) for form, text in FORMS.items()}
    assert not {form: found for form, found in read.items() if dict(found.marks) != TRUE or found.problem}


def test_what_is_no_sure_mark_is_missing() -> None:
    cases: list[tuple[str, dict[int, int]]] = [
        ("1. 10\n2. 4", {2: 4}),  # the original's parser made 0 of it
        ("1. 4/10\n2. 3", {2: 3}),  # of another scale
        ("1. 3.5\n2. 2", {2: 2}),
        ("1. -3\n2. 3", {2: 3}),
        ("1. 80%\n2. 5", {2: 5}),
        ("1. 0\n2. 6\n3. 1", {3: 1}),
        ("1. 4 or 5\n2. 3", {2: 3}),
        ("1. between two and three\n2. 3", {2: 3}),
        ("1. 4 - 3 would be too few\n2. 3", {2: 3}),
        ("1. 45\n2. 3", {2: 3}),
        ("1. 1-5\n2. 3", {2: 3}),
        ("1. N/A\n2. 3\n21. 4\n0. 4", {2: 3}),
        ("1: 4 2: 7 3: 2", {1: 4, 3: 2}),
        ("1. 4\n2. 3\n1. 5\n7. 2", {2: 3, 7: 2}),  # which of the two is not told
        ("1. 4\n2. 3\n1. 4\n7. 2", {1: 4, 2: 3, 7: 2}),
        ('{"1": 4, "2": 9, "3": true, "4": null, "5": "often"}', {1: 4}),
        ('{"1": 4, "2": 3', {1: 4, 2: 3}),
        ("5\n4\n3", {}),  # which items these are for is not told
        ("5, 4, 3", {}),
        ("4 - quite a bit\n2 - a little\n5 - extremely", {}),
        ("[1, 2, 3]", {}),
        ("2.", {}),
        ("I feel 4 of 5 today, thank you for asking.", {}),
        ("1. " + "x" * 5000 + " 4", {}),
    ]
    read = {text: read_marks(text, PANAS) for text, _ in cases}
    assert not {text: read[text] for text, marks in cases if read[text].marks != marks}
    assert all(found.problem for found in read.values())


def test_a_scale_may_start_at_zero() -> None:
    bare = "\n".join(["0", "3", "1"] * 7)
    assert dict(read_marks(bare, FROM_ZERO).marks) == {n: (0, 3, 1)[(n - 1) % 3] for n in range(1, 22)}


def test_the_reason_is_told() -> None:
    problems = {
        "": "empty answer",
        " \n ": "empty answer",
        "<think>1. 4": "empty answer",
        "Sure!": "no marks",
        "1. 4": "incomplete: 19 of 20 marks missing",
        "I'm sorry, but I can't help with that.": "refused",
        "As an AI language model, I do not have feelings.": "refused",
        "I cannot rate my emotions, since I have none.": "refused",
        "I don\u2019t experience emotions.": "refused",
        "I must decline to answer.": "refused",
    }
    assert {text: read_marks(text, PANAS).problem for text in problems} == problems


def test_an_answer_without_end_is_read() -> None:
    for piece in ("{", "[1,", "1", "1. ", "4 - ", "a: "):
        found = read_marks(piece * (120_000 // len(piece)), PANAS)
        assert set(found.marks) <= set(TRUE) and set(found.marks.values()) <= {1, 2, 3, 4, 5}
        assert bool(found.problem) == (len(found.marks) < PANAS.items)
