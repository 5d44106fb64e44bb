"""Commands on whole conversations: what people's ratings of them calibrate, and how they are spoken of."""

import json
import random
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from servers import ScriptedServer, answer_chat

import cli

OF_REPLIES = re.compile(r"(?<![\w./`-])(repl(y|ies)|responses?|prompts?)(?![\w/`-]|\.\w)", re.IGNORECASE)
# True of conversations too: how they were read, whose replies are meant, what a command line is called.
MEANT = (
    re.compile(r"conversation"),
    re.compile(r"Reply \d"),
    re.compile(r"Anchors are responses"),
    re.compile(r"calibration covers replies"),
)
WORDS = ("work", "dog", "exam", "move", "letter", "garden", "sister", "night")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Texts(HTMLParser):
    """The texts of a page, and of the data that it draws from."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.inside.append(tag)
        self.found += [value for name, value in attrs if name in ("aria-label", "title") and value]

    def handle_endtag(self, tag: str) -> None:
        while self.inside and self.inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "style" not in self.inside and not ("script" in self.inside and data.lstrip()[:1] != "{"):
            self.found.append(data)


def sentences_of(text: str) -> list[str]:
    """The sentences of an output: lines that a terminal broke are one again."""
    return re.split(r"(?<=[.:;])\s+|\n\n|\n(?=[-|#])", text.replace("\n  ", " "))


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str) and " " in value:  # one word is a name that programs know
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)


def wrong(text: str) -> list[str]:
    """The sentences that speak of replies."""
    return [
        line.strip()
        for line in sentences_of(text)
        if OF_REPLIES.search(line) and not any(meant.search(line) for meant in MEANT)
    ]


def wrong_on(*pages: Path) -> list[str]:
    found = []
    for page in pages:
        if page.suffix == ".html":
            reader = Texts()
            reader.feed(page.read_text(encoding="utf-8"))
            texts = reader.found
        elif page.suffix == ".json":
            texts = list(texts_in(json.loads(page.read_text(encoding="utf-8"))))
        else:
            texts = [page.read_text(encoding="utf-8")]
        found += [f"{page.name}: {line}" for text in texts for line in wrong(text)]
    return found


def write_talks(model: str, count: int, longest: int, seed: int) -> str:
    """Conversations of one model; nothing anybody says has one of the words that are looked for."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        turns = [
            {"role": role, "content": " ".join(rng.choices(WORDS, k=rng.randrange(3, longest)))}
            for _ in range(3)
            for role in ("user", "assistant")
        ]
        about = {"id": f"{model}-{number}", "model": model, "scenario": f"s{number}", "emotion": "sad"}
        rows.append({**about, "messages": turns})
    Path(f"{model}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"{model}.jsonl"


def run(*words: object) -> str:
    done = CliRunner().invoke(cli.main, list(map(str, words)), terminal_width=200)
    assert done.exit_code in (0, 1, 3), done.output
    return done.output


def test_score_prints_a_level_of_conversations_without_an_interval_and_says_why() -> None:
    path = write_talks("one", 30, 60, 1)
    for verbose in ((), ("--verbose",)):
        printed = run("score", path, "--judge", "length", "--out", "run", *verbose, "--html", "page.html")
        table = printed.partition("Shares by the judge alone, without intervals")[0]
        assert table != printed and "[" not in printed.partition("run run")[0], printed
    assert "95 % sure:" not in Path("page.html").read_text()


@pytest.mark.slow
def test_ratings_by_the_id_of_a_conversation_calibrate_its_judge() -> None:
    rng, rows, ratings = random.Random(4), [], []
    for model, longest in (("one", 40), ("two", 20), ("three", 8)):
        for number in range(12):
            words = 0
            for turn in range(3):
                said = " ".join(rng.choices(WORDS, k=rng.randrange(3, longest)))
                words += len(said.split())
                about = {"conversation": f"{model}-{number}", "turn": turn, "model": model}
                rows.append({**about, "prompt": "Today it went wrong.", "response": said})
            for rater in range(3):
                level = min(3, max(1, round(words / 25 + rng.gauss(0, 0.5))))
                ratings.append({"id": f"{model}-{number}", "rater": f"p{rater}", "rating": level})
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("ratings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ratings))
    run("score", "rows.jsonl", "--judge", "length", "--out", "run")
    words = ("ratings.jsonl", "--exchanges", "rows.jsonl", "--out", "cal", "--json")
    report = json.loads(CliRunner().invoke(cli.main, ["calibrate", "run", *map(str, words)]).stdout)
    assert report["judge"]["unit"] == "conversation"
    assert (report["data"]["responses"], report["data"]["unjudged"]) == (36, 0)
    assert report["agreement"]["spearman"]["low"] > 0.2
    page = Path("cal/report.md").read_text()
    assert "Model: " in page and "Speaker: " in page, "a conversation is shown whole"
    said = run(
        "score", "rows.jsonl", "--judge", "length", "--calibration", "cal/calibration.json", "--out", "new"
    )
    assert "conversations" in said
    summary = json.loads(Path("new/summary.json").read_text())
    assert all(model["corrected"] or model["refused"] for model in summary["models"])
    run("score", "rows.jsonl", "--judge", "length", "--unit", "reply", "--out", "replies")
    mixed = CliRunner().invoke(cli.main, ["calibrate", "run", "replies", "ratings.jsonl"])
    assert "calibrate each alone" in mixed.output


@pytest.mark.slow
def test_score_compare_and_calibrate_speak_of_conversations() -> None:
    files = [write_talks(*about) for about in (("one", 30, 60, 1), ("two", 30, 9, 2), ("few", 4, 30, 3))]
    many = [write_talks(f"m{number}", 12, 40, number) for number in range(5)]
    said = [run("score", *files, *many[:2], "--judge", "length", "--out", "run", "--verbose")]
    said.append(run("score", files[2], "--judge", "length", "--out", "few", "--limit", 2))
    said.append(run("compare", *files[:2], "--judge", "length", "--html", "two.html"))
    said.append(run("compare", *files, "--judge", "length", "--out", "three"))
    said.append(run("compare", *many, "--judge", "length", "--html", "many.html"))
    said.append(run("compare", "run", files[2], "--judge", "length", "--out", "four"))
    rng = random.Random(5)
    rows = [
        {
            "id": f"{model}-{number}",
            "rater": f"p{rater}",
            "rating": min(3, max(1, round(rng.gauss(mean, 0.7)))),
        }
        for model, mean in (("one", 2.5), ("two", 1.7), ("m0", 2.1), ("m1", 2.0))
        for number in range(12)
        for rater in range(4)
    ]
    Path("ratings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = [word for file in (*files, *many[:2]) for word in ("--exchanges", file)]
    said.append(run("calibrate", "run", "ratings.jsonl", "--out", "cal", "--verbose", *options))
    told = run("compare", *files[:2], "--judge", "length", "--ratings", "ratings.jsonl", "--out", "rated")
    said.append(told)
    corrected = ("--judge", "length", "--calibration", "cal/calibration.json")
    said.append(run("score", *many, *corrected, "--verbose", "--out", "corrected"))
    said.append(run("compare", files[0], *many[:2], *corrected, "--variants"))
    pages = [Path("two.html"), Path("many.html"), *Path("three").iterdir(), *Path("rated").iterdir()]
    found = [line for text in said for line in wrong(text)]
    found += wrong_on(*pages, Path("cal/report.html"), Path("cal/report.md"))
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_nights_and_their_dashboard_speak_of_conversations() -> None:
    warm = "I am so sorry, that must have been such a hard day for you. What was the worst of it?"
    said = {"words": warm}
    with ScriptedServer(lambda call: answer_chat(call, said["words"])) as server:
        about = 'turns = 2\nlimit = 12\njudge = "length"\ncalibration = "none"\nanchors = "none"\n'
        model = f'name = "bot"\nmodel = "bot"\nbase_url = "{server.base_url}"\n'
        gates = "[gates]\ngood_share_drop = 5\nmax_unscored = 1\n"
        Path("n.toml").write_text(f"{about}[[models]]\n{model}{gates}")
        told = [run("nightly", "n.toml", "--night", "2026-12-01")]
        said["words"] = "Okay then."
        told.append(run("nightly", "n.toml", "--night", "2026-12-02"))
        told += texts_in(json.loads(run("nightly", "n.toml", "--night", "2026-12-02", "--json")))
    found = [line for text in told for line in wrong(text)] + wrong_on(*Path("dashboard").glob("*.html"))
    assert not found, "\n".join(found)
