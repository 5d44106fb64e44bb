"""The command `compare` through the real door: ratings and runs, at 80 columns, as JSON and as Markdown."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from repository import SHARED

import cli
from calibration.comparison.differences import Difference
from calibration.estimate import Estimate
from reports.comparison.pair_sentences import say_sureness

RATINGS = SHARED / "empathy-study" / "ratings-without-texts.csv"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(item) for item in arguments], terminal_width=80)


def write_csv(path: str, rows: list[dict[str, object]]) -> Path:
    with Path(path).open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return Path(path)


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


PRINTED = """
+31.34 +15.45 96.77 7.8e-23 134.12 7.5e-30 0.156 +23.63 +11.65 54.40 1.6e-13 82.62 1.1e-18 0.117
+9.63 +4.75 8.85 .0029 19.34 6.3e-05 0.048 +20.89 +10.30 42.36 7.6e-11 57.53 3.2e-13 0.103
+36.34 +18.73 64.10 1.2e-15 92.41 8.6e-21 0.192 +28.41 +14.64 38.40 5.8e-10 59.52 1.2e-13 0.149
+5.95 +3.06 1.54 .2146 2.01 .3654 0.031 +24.89 +12.83 29.21 6.5e-08 33.95 4.3e-08 0.130
+27.07 +12.87 36.78 1.3e-09 51.94 5.3e-12 0.129 +19.55 +9.29 19.00 1.3e-05 30.42 2.5e-07 0.093
+12.78 +6.08 8.02 .0046 22.11 1.6e-05 0.061 +17.48 +8.31 15.15 1.0e-04 26.64 1.6e-06 0.083
342 17.10 672 33.60 986 49.30 142 7.10 563 28.15 1295 64.75 174 8.70 607 30.35 1219 60.95
248 12.40 671 33.55 1081 54.05 205 10.25 603 30.15 1192 59.60 2.322 2.577 2.523 2.417 2.494
133 15.10 294 33.37 454 51.53 34 3.86 228 25.88 619 70.26 48 5.45 250 28.38 583 66.17
117 13.28 283 32.12 481 54.60 76 8.63 238 27.01 567 64.36
209 18.68 378 33.78 532 47.54 108 9.65 335 29.94 676 60.41 126 11.26 357 31.90 636 56.84
131 11.71 388 34.67 600 53.62 129 11.53 365 32.62 625 55.85 173.89, 138.83, 67.04, 121.10,
20.72 10.62 10.33 11.44 9.20 8.36 8.14 7.70 6.86 6.62 6.36 6.34 6.23 6.22 6.02 5.69 5.41 4.97 4.66 4.59
4.57 4.27 4.06 3.91 3.85 +104.0 +79.2 +75.0 +70.8 0.001 0.042 0.062 0.069 0.078 0.101 0.106 0.122 0.128
0.157 0.173 0.199 0.217 0.227 .0309 .0481 .0101 .0258 .0024 .0126 .0497 .0325 .0290
"""


def test_the_studys_ratings_print_every_published_figure_within_80_columns() -> None:
    if not RATINGS.exists():
        pytest.skip("the study's ratings are not at hand: set EMPATHY_DATA to a folder with empathy-study")
    done = run("compare", RATINGS)
    assert done.exit_code == 0, done.output
    words = set(done.stdout.split())
    assert not [figure for figure in PRINTED.split() if figure not in words]
    assert "Below .05: 28 alone, 4 after Benjamini-Hochberg, 1 after Holm." in done.stdout
    assert "Emotions with p < .05: 28 of 128 cells" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Left out: gpt-4-plain" in done.stdout
    assert done.stderr == "" or done.stderr.startswith("comparing")


@pytest.mark.parametrize("column", ["model", "system"])
def test_a_table_of_ratings_is_compared(column: str) -> None:
    path = write_csv("ratings.csv", ratings(column, human=0.5, better=0.8, same=0.5))
    done = run("compare", path, "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    rows = {row["model"]: row for row in result["groups"][0]["models"]}
    assert result["baseline"] == "human" and result["kind"] == "ratings"
    assert rows["better"]["p_holm"] < 0.001 and rows["same"]["p_holm"] > 0.05
    assert rows["better"]["raters"]["difference"]["low"] > 0.2
    assert result["clusters"]["human"]["raters"] == 60
    assert result["emotions"]["tests"] == 4


def test_another_baseline_and_fewer_models() -> None:
    path = write_csv("ratings.csv", ratings(a=0.5, b=0.8, c=0.5))
    refused = run("compare", path)
    assert refused.exit_code == 2
    assert "no ratings of 'human'; name the model to compare with: --baseline a or b or c" in refused.stderr
    done = run("compare", path, "--baseline", "a", "--models", "b", "--json")
    assert json.loads(done.stdout)["models"] == ["a", "b"]
    assert json.loads(done.stdout)["left_out"] == ["c"]


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
    assert refused.exit_code == 2 and "or the rated responses with --exchanges" in refused.stderr
    done = run("compare", "ratings.jsonl", "--exchanges", "exchanges.jsonl")
    assert done.exit_code == 0, done.output
    assert "b: Good more often than human" in done.stdout


BAD = {
    "another scale": ([{"model": "human", "rater": "a", "rating": 5, "emotion": "sad"}], "--scale 1-5"),
    "one model": ([{"model": "human", "rater": "a", "rating": 2, "emotion": "sad"}], "one model only"),
    "no rater": ([{"id": 1, "model": "human", "rating": 2}] * 2, "no column tells by whom"),
    "twice": ([{"id": 1, "model": "human", "rater": "a", "rating": 2}] * 2, "'a' rated '1' 2 times"),
}


@pytest.mark.parametrize("case", BAD)
def test_ratings_that_cannot_be_compared_are_told_why(case: str) -> None:
    rows, said = BAD[case]
    done = run("compare", write_csv("ratings.csv", [dict(row) for row in rows]))
    assert done.exit_code == 2 and said in done.stderr and "Traceback" not in done.output


def test_markdown_and_a_folder() -> None:
    path = write_csv("ratings.csv", ratings(human=0.5, b=0.8))
    done = run("compare", path, "--markdown", "--out", "compared")
    assert done.exit_code == 0 and done.stdout.startswith("# Models compared with human")
    assert Path("compared/report.md").read_text(encoding="utf-8").strip() == done.stdout.strip()
    assert json.loads(Path("compared/report.json").read_text())["baseline"] == "human"


def test_runs_are_compared_from_score_on(write_responses) -> None:
    path = write_responses(90)
    scored = run("score", path, "--judge", "length", "--out", "runs/one")
    assert scored.exit_code == 0, scored.output
    done = run("compare", "runs/one")
    assert done.exit_code == 0, done.output
    assert max(map(len, done.stdout.splitlines())) <= 80
    for said in ("of 30 prompts", "by the judge alone", "What would settle it", "Not corrected"):
        assert said in " ".join(done.stdout.split())
    assert done.stderr.splitlines()[-1].startswith("Next, ")
    result = json.loads(run("compare", "runs/one", "--json").stdout)
    assert len(result["pairs"]) == 3
    only = run("compare", "runs/one", "--models", "model-0")
    assert only.exit_code == 2 and "study:human" in only.stderr


def replies(path: str, words: int, *, rows: int = 24, **keys: object) -> str:
    """Replies of about so many words, by which the judge `length` goes, and no model's name."""
    lines = [
        {"prompt": f"My day {at} was hard.", "response": " ".join(["kind"] * (words + at % 5)), **keys}
        for at in range(rows)
    ]
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_two_files_of_replies_are_scored_compared_and_shown_side_by_side() -> None:
    one, other = replies("new.jsonl", 400), replies("old.jsonl", 8)
    done = run("compare", one, other, "--judge", "length", "--html", "page.html", "--margin", 2)
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert text.startswith("It leans to new over old.")
    assert "The judge prefers new on 24 of 24 prompts, old on 0." in text
    assert "Where they differ most" in text and text.count("My day") == 3
    assert max(map(len, done.stdout.splitlines())) <= 80
    page = Path("page.html").read_text(encoding="utf-8")
    assert page.count('class="replies"') == 10 and "What to do next" in page and "24 of 24" in page
    folders = sorted(Path("runs").iterdir())
    before = [(folder / "judgments.jsonl").stat().st_mtime_ns for folder in folders]
    again = run("compare", folders[0], other, "--json")  # by the judge of the run
    assert json.loads(again.stdout)["pairs"][0]["wins"]["prompts"] == 24
    assert [(folder / "judgments.jsonl").stat().st_mtime_ns for folder in folders] == before
    mixed = run("compare", one, write_csv("ratings.csv", ratings(human=0.5, b=0.8)))
    assert mixed.exit_code == 2 and "--ratings" in mixed.stderr
    assert run("compare", one, one).exit_code == 2


def test_too_few_replies_are_said_to_be_that_and_names_stand_as_they_are() -> None:
    done = run(
        "compare", replies("new.jsonl", 40, rows=5), replies("old.jsonl", 8, rows=5), "--judge", "length"
    )
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[1] == "new has 5 replies the judge could score; at least 10 are needed."
    assert "beyond" not in done.stdout
    assert lines[lines.index("What would settle it") + 1].startswith("- Give 10 replies of each or more")


@pytest.mark.parametrize(("p", "says"), [(0.0534, "as low as 94 %"), (1.0, "nothing is known")])
def test_a_lean_beyond_the_rated_models_says_what_its_chance_hangs_on(p: float, says: str) -> None:
    pair = Difference(
        one="a",
        other="b",
        how="line",
        reason=None,
        shared_prompts=64,
        unit="ratings",
        verdict="leans better",
        p=p,
        error=0.05,
        detects=0.2,
        shares={},
        judge=Estimate(0.2, None),
        beyond={"b": "below"},
        bound="at least",
        points=1,
        doubt=0.013,
    )
    told = say_sureness(pair)
    assert "about 99 % if it is as right about b" in told and says in told and told.endswith("takes 95 %.")


def test_the_exit_code_speaks_where_it_is_asked_to(tmp_path: Path) -> None:
    rows = [
        {"prompt": f"p {at}", "response": f"{model} {at}", "model": model, "id": f"{model}-{at}"}
        for model in "ab"
        for at in range(60)
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
    assert run(*given, "--baseline", "a").exit_code == 1
    assert run(*given, "--baseline", "b").exit_code == 0
    assert run("compare", "replies.jsonl", "--judge", "length", "--check").exit_code == 3
    assert run("compare", "replies.jsonl", "--judge", "length").exit_code == 0


def test_many_models_are_one_table_of_groups() -> None:
    lines = [
        {"prompt": f"My day {at}.", "response": " ".join(["so"] * (4 * model + at % 7)), "model": f"m{model}"}
        for model in range(1, 21)
        for at in range(20)
    ]
    Path("many.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run("compare", "many.jsonl", "--judge", "length", "--html", "many.html")
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) < 45 and "is in front" in done.stdout
    assert all(f"m{model} " in done.stdout for model in range(1, 21))
    refused = run("compare", "many.jsonl", "--judge", "length", "--check")
    assert refused.exit_code == 2 and "--baseline" in refused.stderr


def test_siblings_are_stated_or_measured_and_never_assumed() -> None:
    one, other = replies("new.jsonl", 20, model="m"), replies("old.jsonl", 16, model="m")
    bad = run("compare", one, other, "--judge", "length", "--siblings", "1.2")
    assert bad.exit_code == 2 and "from 0" in bad.stderr
    done = run("compare", "--siblings", one, other, "--judge", "length", "--json")
    assert done.exit_code == 0, done.output  # without a calibration nothing is narrowed
    result = json.loads(done.stdout)
    assert [model["model"] for model in result["models"]] == ["m (new)", "m (old)"]
    assert result["pairs"][0]["correlation"] == 0


def test_a_hostile_name_prints_as_text() -> None:
    name = "\x1b[31m<b>|evil\n"
    rows = [
        row | {"model": name if row["model"] == "b" else row["model"]} for row in ratings(human=0.5, b=0.8)
    ]
    Path("ratings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("compare", "ratings.jsonl")
    assert done.exit_code == 0 and "\x1b" not in done.stdout
    marked = run("compare", "ratings.jsonl", "--markdown")
    assert "<b>" not in marked.stdout


def test_help_shows_an_example() -> None:
    done = run("compare", "--help")
    assert done.exit_code == 0 and "study:human" in done.stdout
