"""Commands on whole conversations: intervals, and ratings that calibrate their judge."""

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from empathy_judge.commands import main as cli

WORDS = ("work", "dog", "exam", "move", "letter", "garden", "sister", "night")


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
    page = Path("page.html").read_text()
    assert "by the judge alone (n = 30)" in page and "95% CI" not in page
    (model,) = json.loads(Path("run/summary.json").read_text())["models"]
    assert all(share["low"] is share["high"] is None for share in model["shares"].values())


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
    assert "calibrate them separately" in mixed.output
