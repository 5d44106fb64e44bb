"""What drove a score: exact for a judge whose words have known weights, and shown without harm."""

import json
from dataclasses import replace
from html import unescape
from io import StringIO
from pathlib import Path
from re import match, sub

import pytest
from command_line import run_checked
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from empathy_judge.data.records import Exchange, Judgment, unscored
from empathy_judge.data.rubric import Rubric, read_rubric
from empathy_judge.data.tables import write_rows
from empathy_judge.judge.base import Judge
from empathy_judge.judge.explanation import MOST_PARTS, Explanation, Part, explain, split_reply
from empathy_judge.reports.highlight import as_html, print_explanations

WEIGHTS = {"sorry": 0.5, "hug": 0.25, "whatever": -0.5}


class WordJudge(Judge):
    """Every word has its weight beside that of all, so leaving one out moves the score by exactly that."""

    name, version, concurrency = "words", "1", 2

    def __init__(self, per_word: float = 0.0) -> None:
        self.per_word, self.asked = per_word, list[str]()

    @property
    def rubric(self) -> Rubric:
        return read_rubric("crowd")

    def judge(self, exchange: Exchange) -> Judgment:
        self.asked.append(exchange.response)
        assert exchange.response.strip(), "no judge is asked for an empty reply"
        if "refuse" in exchange.response:
            return unscored(exchange, "refused")
        words = exchange.response.lower().replace(".", " ").replace(",", " ").split()
        score = 2.0 + sum(self.per_word + WEIGHTS.get(word, 0.0) for word in words)
        return Judgment(id="1", model="m", content_digest="", prompt_digest="", score=score)


@pytest.mark.parametrize(
    ("reply", "parts"),
    [
        (
            "So sorry. A hug for you.\n\nWhatever.",
            [("So sorry. ", 0.5), ("A hug for you.\n\n", 0.25), ("Whatever.", -0.5)],
        ),
        ("So sorry, whatever.", [("So sorry, ", 0.5), ("whatever.", -0.5)]),
        ("I am so sorry for you", [("I am so ", 0.0), ("sorry for you", 0.5)]),
        (" Sorry. ", [(" Sorry. ", None)]),
        ("I refuse. A hug.", [("I refuse. ", None), ("A hug.", None)]),
    ],
)
def test_each_part_has_exactly_its_own_effect(reply: str, parts: list[tuple[str, float | None]]) -> None:
    explanation = explain(WordJudge(), Exchange(id="1", prompt="p", response=reply))
    assert [(part.text, part.effect) for part in explanation.parts] == parts
    assert (explanation.unscored == "refused") == ("refuse" in reply) == (explanation.score is None)


def test_only_what_is_not_known_is_asked() -> None:
    judge = WordJudge()
    exchange = Exchange(id="1", prompt="p", response="So sorry. A hug.")
    found = explain(judge, exchange, whole=judge.judge(exchange))
    swapped = ["I read it. A hug.", "So sorry. I read it."]
    assert sorted(judge.asked) == ["A hug.", swapped[0], "So sorry.", "So sorry. A hug.", swapped[1]]
    assert found.score == 2.75
    explain(judge, replace(exchange, response="Oh no, what a day."))
    assert "What a day." in judge.asked, "a reply keeps its capital"


def test_an_effect_that_is_only_length_is_told_from_one_of_what_is_said() -> None:
    """Without three words a reply is shorter; with three others in their place it is as good."""
    exchange = Exchange(id="1", prompt="p", response="So very kind. Whatever you say.")
    found = explain(WordJudge(per_word=0.05), exchange)
    assert [(part.effect, part.swapped, part.is_doubtful) for part in found.parts] == [
        (0.15, 0.0, True),
        (-0.35, -0.5, False),
    ]


@pytest.mark.slow
@given(st.one_of(st.text(alphabet="aB .!?,;\n\u2026\u3002'\")-"), st.text()))
def test_parts_join_to_the_reply_and_none_is_blank(reply: str) -> None:
    parts = split_reply(reply)
    assert "".join(parts) == reply
    assert all(part.strip() for part in parts) or not reply.strip()
    assert len(parts) <= MOST_PARTS


def test_figures_stay_whole_and_a_huge_reply_is_split_into_few_parts() -> None:
    assert split_reply("It cost 3.5 euros. Dr. Lee said so") == ["It cost 3.5 euros. ", "Dr. ", "Lee said so"]
    assert split_reply('"Really?" Yes.') == ['"Really?" ', "Yes."]
    for piece in (".", ". ", "\n", ".'", "a. ", "a ", ", ", " - "):
        assert len(split_reply(piece * (100_000 // len(piece)))) <= MOST_PARTS


def test_colour_follows_the_effect_and_plain_text_says_the_same() -> None:
    effects = {"much": 0.9, "some": 0.1, "bad\x1b[2J": -0.3, "nothing": 0.001, "x": None}
    parts = (*map(Part, effects, effects.values()), Part("long", 0.15, swapped=0.0))
    explained = Explanation(id="a", model="m", score=2.0, parts=parts)
    outs = StringIO(), StringIO()
    terminal = Console(file=outs[1], width=80, force_terminal=True, color_system="truecolor")
    for console in (Console(file=outs[0], width=80), terminal):
        print_explanations([explained], console)
    plain, coloured = (out.getvalue() for out in outs)
    assert "\x1b" not in plain and "\x1b[2J" not in coloured
    written = [line.split()[0] for line in plain.splitlines()[2:7]]
    assert written == ["+0.90", "+0.10", "\N{MINUS SIGN}0.30", "0.00", "undefined"]
    assert "48;2;46;158;91mmuch" in coloured, "the full green"
    counts = [line.count("48;2;") for line in coloured.splitlines()[2:8]]
    assert counts == [1, 1, 1, 0, 0, 0] and "? +0.15" in plain, "no colour for what does not hold"


def test_html_is_escaped_and_marks_follow_the_effect() -> None:
    parts = (Part("<script>alert('&')</script> ", 0.25), Part("So \ud83d bad.", -2.0), Part("x", None))
    explained = Explanation(id="a", model="m", score=2.0, parts=(*parts, Part("y", 0.15, swapped=0.0)))
    html = as_html(explained)
    assert [part["is_doubtful"] for part in explained.as_row()["parts"]] == [False, False, False, True]
    assert html.count("<sup>? +0.15</sup>") == 1 and html.count("0.00); color") == 2
    assert "<script" not in html
    assert html.count("<mark ") == html.count("</mark>") == 4
    assert all(color in html for color in ("rgba(46, 158, 91, 0.30)", "rgba(214, 69, 65, 0.60)", ", 0.00)"))
    text = unescape(sub(r"<sup>.*?</sup>|<[^>]*>", "", html))
    assert text == "<script>alert('&')</script> So ? bad.xy"
    html.encode("utf-8")


def test_score_explains_after_the_table_and_leaves_the_run_as_it_was() -> None:
    long = "I am so very sorry to hear that this has happened to you and yours this week. " * 2
    rows = [
        {"id": "a", "prompt": "I lost my job.", "response": f"Oh no. {long}[red]You must be angry."},
        {"id": "b", "prompt": "I lost my job.", "response": "Pity."},
    ]
    write_rows(Path("r.jsonl"), rows)
    score = ("score", "r.jsonl", "--judge", "length", "--out", "run")
    run_checked(*score)
    before = {item: item.read_bytes() for item in Path("run").iterdir()}
    lines = run_checked(*score, "--explain", "b", "--explain", "a", "--explain", "b").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split(":")[0] for line in lines if ": score " in line] == ["b by r", "a by r"]
    assert any(match(r" *[+\u2212]?0\.\d\d  \[red\]You must be angry\.", line) for line in lines)
    assert {item: item.read_bytes() for item in Path("run").iterdir()} == before
    (explained,) = json.loads(run_checked(*score, "--json", "--explain", "a").stdout)["explanations"]
    assert "".join(part["text"] for part in explained["parts"]) == rows[0]["response"]
    assert any(abs(part["effect"]) > 0.001 for part in explained["parts"])
