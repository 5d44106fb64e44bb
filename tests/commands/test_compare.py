"""The command `compare` through the real door: ratings and runs, at 80 columns, as JSON and for CI."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from command_line import run
from repository import SHARED
from rows import write_csv
from topics import on_topic

RATINGS = SHARED / "empathy-study" / "ratings-without-texts.csv"


def ratings(column: str = "model", **shares: float) -> list[dict[str, object]]:
    """Sixty raters of each model, five ratings each; Good with the model's chance, else Bad."""
    rng = np.random.default_rng(0)
    return [
        {
            column: name,
            "rater": f"{name}-{rater}",
            "rating": "Good" if rng.random() < share else "Bad",
            "emotion": ("proud", "sad")[at % 2],
        }
        for name, share in shares.items()
        for rater in range(60)
        for at in range(5)
    ]


def test_the_studys_ratings_print_their_figures_within_80_columns() -> None:
    if not RATINGS.exists():
        pytest.skip("the study's ratings are missing: set EMPATHY_DATA to a folder with empathy-study")
    done = run(
        "compare", RATINGS, "--models", "gpt-4,llama-2-70b-chat,gemini-1.0-pro,mixtral-8x7b-instruct", code=0
    )
    printed = "+31.34 +15.45 96.77 7.8e-23 134.12 7.5e-30 0.156 1295 64.75 173.89,"
    assert set(printed.split()) <= set(done.stdout.split())
    assert "below 0.05: 28 of 128; 4 after Benjamini-Hochberg, 1 after Holm." in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Left out: gpt-4-plain" in done.stdout


@pytest.mark.parametrize("column", ["model", "system"])
def test_a_table_of_ratings_is_compared(column: str) -> None:
    path = write_csv(Path("ratings.csv"), ratings(column, human=0.5, better=0.8, same=0.5))
    done = run("compare", path, "--json", code=0)
    result = json.loads(done.stdout)
    rows = {row["model"]: row for row in result["groups"][0]["models"]}
    assert result["baseline"] == "human" and result["kind"] == "ratings"
    assert rows["better"]["p_holm"] < 0.001 and rows["same"]["p_holm"] > 0.05
    assert rows["better"]["test"]["difference"]["low"] > 0.2
    assert rows["human"]["raters"] == 60 and len(result["emotions"]) == 4


def test_ratings_that_name_no_model_learn_it_from_their_exchanges() -> None:
    exchanges, rows = [], []
    for number, row in enumerate(ratings(human=0.5, b=0.9)):
        exchanges.append(
            {"id": number, "prompt": "p", "response": "r", "model": row["model"], "emotion": row["emotion"]}
        )
        rows.append({"id": number, "rater": row["rater"], "rating": row["rating"]})
    Path("exchanges.jsonl").write_text("".join(json.dumps(row) + "\n" for row in exchanges))
    Path("ratings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    refused = run("compare", "ratings.jsonl")
    assert refused.exit_code == 2 and "pass the rated replies with --exchanges" in refused.stderr
    done = run("compare", "ratings.jsonl", "--exchanges", "exchanges.jsonl", code=0)
    assert "b: Good more often than human" in done.stdout


def replies(path: str, words: int, *, rows: int = 24, **keys: object) -> str:
    """Replies of about so many words, by which the judge `length` goes, and no model's name."""
    lines = [
        {"prompt": prompt, "response": " ".join([opening, *["kind"] * (words - 2 + at % 5)]), **keys}
        for at in range(rows)
        for prompt, opening in [on_topic(at)]
    ]
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_two_files_of_replies_are_scored_compared_and_shown_side_by_side() -> None:
    one, other = replies("new.jsonl", 2000), replies("old.jsonl", 1)
    done = run("compare", one, other, "--judge", "length", "--html", "page.html", "--margin", 0.5, code=0)
    text = " ".join(done.stdout.split())
    assert text.startswith("new is probably better than old.")
    assert "scores new higher on 24 of 24 prompts and old higher on 0." in text
    assert "Largest differences" in text and text.count("all I can think about") == 3
    assert max(map(len, done.stdout.splitlines())) <= 80
    page = Path("page.html").read_text(encoding="utf-8")
    assert page.count('class="replies"') == 10 and "What to do next" in page and "24 of 24" in page
    folders = sorted(Path("runs").iterdir())
    before = [(folder / "judgments.jsonl").stat().st_mtime_ns for folder in folders]
    again = run("compare", folders[0], other, "--json")  # by the judge of the run
    assert json.loads(again.stdout)["pairs"][0]["wins"]["prompts"] == 24
    assert [(folder / "judgments.jsonl").stat().st_mtime_ns for folder in folders] == before


def test_the_exit_code_and_files_for_ci_speak_where_they_are_asked_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    Path("summary.md").write_text("# before\n")
    rows = [
        {"prompt": prompt, "response": f"{opening} {model}", "model": model, "id": f"{model}-{at}"}
        for model in "ab"
        for at in range(60)
        for prompt, opening in [on_topic(at)]
    ]
    Path("replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rng = np.random.default_rng(0)
    rated = [
        {"id": row["id"], "rater": f"{row['model']}-{at % 12}", "rating": 3 if rng.random() < share else 1}
        for at, row in enumerate(rows)
        for share in [0.95 if row["model"] == "a" else 0.2]
    ]
    Path("ratings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rated))
    given = ("compare", "replies.jsonl", "--judge", "length", "--ratings", "ratings.jsonl", "--check")
    assert run(*given).exit_code == 0  # the first model is better
    run(*given, "--baseline", "a", code=1)
    run(*given, "--baseline", "b", code=0)
    alone = ("compare", "replies.jsonl", "--judge", "length")
    run(*alone, "--check", "--junit", "out/c.xml", "--github-summary", code=3)
    (pair,) = json.loads(run(*alone, "--json", code=0).stdout)["pairs"]
    (skipped,) = ElementTree.parse("out/c.xml").getroot().iter("skipped")
    assert skipped.attrib["message"] == pair["sentence"]
    summary = Path("summary.md").read_text(encoding="utf-8")
    assert summary.startswith("# before\n# ") and "| a |" in summary and "violin" not in summary


def test_many_models_that_cannot_be_told_apart_fit_on_a_screen() -> None:
    lines = [
        {"prompt": prompt, "response": opening + " so" * (4 * model - 2 + at % 7), "model": f"m{model}"}
        for model in range(1, 21)
        for at in range(20)
        for prompt, opening in [on_topic(at)]
    ]
    Path("many.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run("compare", "many.jsonl", "--judge", "length", "--html", "many.html", code=0)
    assert len(done.stdout.splitlines()) < 45 and done.stdout.startswith("m20, m19, ")
    assert all(f"m{model} " in done.stdout for model in range(1, 21))


def test_ratings_of_other_replies_are_counted_and_left_out() -> None:
    one, other = replies("new.jsonl", 30), replies("old.jsonl", 5)
    rows = [json.loads(line) for name in (one, other) for line in Path(name).read_text().splitlines()]
    rated = [{**row, "rater": f"r{at % 6}", "rating": 1 + at % 3} for at, row in enumerate(rows)]
    strange = [{**row, "response": f"Elsewhere {at}."} for at, row in enumerate(rated[:7])]
    Path("ratings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*strange, *rated]))
    given = ("compare", one, other, "--judge", "length", "--ratings", "ratings.jsonl", "--exchanges", one)
    done = run(*given, "--exchanges", other, "--json", code=0)
    assert "7 ratings are of replies that were not passed" in done.stderr
    assert [level["ratings"] for level in json.loads(done.stdout)["models"]] == [24, 24]
    Path("ratings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in strange))
    run(*given, "--exchanges", other, code=2)
