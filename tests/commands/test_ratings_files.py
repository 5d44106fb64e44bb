"""Ratings as people have them, through `calibrate` and `compare`: the same verdict from every form."""

import json
import random
import shutil
from collections.abc import Callable, Iterable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rows import write_csv

from empathy_judge.commands import main as cli
from empathy_judge.data.tables import write_rows

MODELS = ("ada", "bea")
RATERS = tuple(f"r{number}" for number in range(6))
Row = dict[str, Any]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(item) for item in arguments], terminal_width=80)


def calibrate(*arguments: object) -> Result:
    return run("calibrate", *arguments, "--out", "out")


def report() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("out/report.json").read_text())
    return found


def replies(models: Iterable[str] = MODELS, *, has_own_ids: bool = True) -> list[Row]:
    """Sixty replies of each model; bea's are longer."""
    chance = random.Random(7)
    return [
        {
            "id": f"{number}-{model}" if has_own_ids else str(number),
            "model": model,
            "prompt": f"It was day {number} of it, and I was tired.",
            "response": " ".join(["so", "sorry"] * chance.randint(1, 12) + [model] * (6 * (model == "bea"))),
        }
        for number in range(60)
        for model in models
    ]


def ratings(rows: Iterable[Row]) -> list[Row]:
    """Each reply rated by two of six people, who like long replies, and err."""
    chance = random.Random(8)
    rated = []
    for place, row in enumerate(rows):
        for turn in (0, 1):
            level = len(row["response"].split()) / 10 + chance.gauss(0, 0.7)
            rating = min(3, max(1, round(level + 0.7)))
            rated.append({**row, "rater": RATERS[(place + 3 * turn + turn) % 6], "rating": rating})
    return rated


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with chdir(tmp_path_factory.mktemp("made")):
        write_rows(Path("replies.jsonl"), replies())
        assert run("score", "replies.jsonl", "--judge", "length", "--out", "run").exit_code == 0
        return Path().resolve()


@pytest.fixture
def scored(made: Path) -> list[Row]:
    """Replies and their run, `run`."""
    shutil.copytree(made, Path(), dirs_exist_ok=True)
    return replies()


def test_a_sheet_in_other_words_gives_the_same_calibration(scored: list[Row]) -> None:
    rated = ratings(scored)
    plain = write_csv(
        Path("plain.csv"), ({key: row[key] for key in ("id", "rater", "rating")} for row in rated)
    )
    assert calibrate("run", plain).exit_code == 0
    expected = report()
    words = ("bad", "OK", "GOOD")
    rows = ({"ID": row["id"], "Rater": row["rater"], "Rating": words[row["rating"] - 1]} for row in rated)
    done = calibrate("run", write_csv(Path("sheet.csv"), rows))
    assert done.exit_code == 0, done.output
    found = report()
    assert found["calibration"]["ratings"] == expected["calibration"]["ratings"], "the same ratings"
    assert found["agreement"] == expected["agreement"] and found["data"] == expected["data"]


def test_stars_are_cut_into_labels_and_it_is_said(scored: list[Row]) -> None:
    rated = ratings(scored)
    rows = [{"id": row["id"], "rater": row["rater"], "Stars": 2 * row["rating"] - 1} for row in rated]
    done = calibrate("run", write_csv(Path("sheet.csv"), rows))
    assert done.exit_code == 0, done.output
    said = (
        "stars 1 to 5 read as Bad 1-2, Okay 3, Good 4-5 (thirds of the scale; --cut OKAY,GOOD sets another)"
    )
    assert said in done.stderr and said in Path("out/report.md").read_text()
    counts = [sum(row["rating"] == level for row in rated) for level in (1, 2, 3)]
    assert [round(share * 240) for share in report()["data"]["shares"].values()] == counts


WRONG: dict[str, tuple[list[Row], list[str], str]] = {
    "numbers of a scale not stated": (
        [{"id": f"{n}-ada", "rater": "r", "rating": n % 5 + 1} for n in range(20)],
        *([], "numbers from 1 to 5, outside the default scale 1 to 3"),
    ),
    "no rating": (
        [{"id": "0-ada", "rater": "r", "remark": "fine"}],
        *(
            [],
            "no column for the rating; columns: id, rater, remark. Name it: --column rating=NAME",
        ),
    ),
    "nothing tells the reply": (
        [{"rater": "r", "rating": 1}],
        *([], "no column for the reply that is rated (id, or prompt and response); columns: rater, rating"),
    ),
    "other texts": (
        [{"prompt": "p", "response": "other", "rater": "r", "rating": 1}],
        *([], "sheet.csv:2: response: no judged reply has this prompt and response"),
    ),
    "several without a rater": (
        [{"id": "0-ada", "rating": 1}, {"id": "0-ada", "rating": 2}],
        *([], "'0-ada' is rated 2 times, and there is no rater column"),
    ),
    "no such column": (
        [{"id": "0-ada", "rater": "r", "rating": 1}],
        *(["--column", "rating=overall"], "no such column; columns: id, rater, rating"),
    ),
    "a bad row": (
        [{"id": "0-ada", "rater": "r", "rating": "Good"}, {"id": "1-ada", "rater": "r", "rating": "lovely"}],
        *([], "sheet.csv:3: rating: 'lovely' is not on the scale from 1 to 3"),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_read_ends_with_the_way_out(scored: list[Row], case: str) -> None:
    rows, options, said = WRONG[case]
    done = calibrate("run", write_csv(Path("sheet.csv"), rows), *options)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert said in done.stderr
    assert not Path("out").exists()


def test_bad_rows_are_set_aside_where_asked_and_told(scored: list[Row]) -> None:
    rows = [{"id": row["id"], "rater": row["rater"], "rating": row["rating"]} for row in ratings(scored)]
    rows[5]["rating"], rows[9]["rater"] = "lovely", ""
    sheet = write_csv(Path("sheet.csv"), rows)
    done = calibrate("run", sheet, "--skip-invalid")
    assert done.exit_code == 0, done.output
    assert "2 rows skipped: sheet.csv:7: rating: 'lovely'" in done.stderr
    assert "sheet.csv:11: rater: missing or empty" in done.stderr
    assert report()["data"]["ratings"] == 238
    write_rows(
        Path("broken.jsonl"), [{**row, "response": ""} if row["id"] == "3-ada" else row for row in scored]
    )
    asked = ("compare", "broken.jsonl", "--judge", "length", "--ratings", sheet, "--json")
    assert "--skip-invalid" in run(*asked).stderr
    compared = run(*asked, "--skip-invalid")
    assert compared.exit_code == 0, compared.output
    assert "2 rows skipped" in compared.stderr
    assert {item["model"]: item["judged"] for item in json.loads(compared.stdout)["models"]}["ada"] == 59


@pytest.mark.slow
def test_two_models_runs_of_one_judge_are_one_judge(scored: list[Row]) -> None:
    """Every rating counts, whether ids are apart or each model's file counts from one."""
    assert calibrate("run", write_csv(Path("all.csv"), ratings(scored))).exit_code == 0
    expected = report()
    for has_own_ids in (True, False):
        rows = replies(has_own_ids=has_own_ids)
        for model in MODELS:
            write_rows(Path(f"{model}.jsonl"), [row for row in rows if row["model"] == model])
            out = f"runs/{model}-{has_own_ids}"
            assert run("score", f"{model}.jsonl", "--judge", "length", "--out", out).exit_code == 0
        sheet = write_csv(Path("sheet.csv"), ratings(rows))
        texts = ("--exchanges", "ada.jsonl", "--exchanges", "bea.jsonl")
        folders = [f"runs/{model}-{has_own_ids}" for model in MODELS]
        done = calibrate(*folders, sheet, *texts)
        assert done.exit_code == 0, done.output
        assert f"ada-{has_own_ids} and bea-{has_own_ids}: runs of one judge, pooled" in done.stderr
        found = report()
        assert [row["name"] for row in found["runs"] if row["kind"] == "judge"] == ["length"]
        assert found["agreement"] == expected["agreement"] and found["models"] == expected["models"]
        assert found["data"]["ratings"] == 240 and found["data"]["unjudged"] == 0
        assert found["disagreements"]["too_kind"][0]["response"]
        compared = run("compare", *folders, "--ratings", sheet, "--json")
        assert {row["ratings"] for row in json.loads(compared.stdout)["models"]} == {120}
    nameless = write_csv(
        Path("bare.csv"), ({key: row[key] for key in ("id", "rating")} for row in ratings(rows)[:1])
    )
    assert (
        "'0' is a reply of more than one model; add a column `model`" in calibrate(*folders, nameless).stderr
    )


AIS: dict[str, tuple[Callable[[Row], Row], list[str], str]] = {
    "by the file": (lambda row: {"rater": "grader", "rater_kind": "AI"}, [], "grader"),
    "by the command": (lambda row: {"rater": "grader"}, ["--ai-raters", "grader"], "grader"),
    "all of them": (lambda row: {"rater": "grader"}, ["--ai-raters", "all"], "grader"),
}


@pytest.mark.parametrize("case", AIS)
def test_ratings_by_an_ai_alone_are_refused(scored: list[Row], case: str) -> None:
    tell, options, name = AIS[case]
    rows = [{"id": row["id"], "rating": row["rating"], **tell(row)} for row in ratings(scored)[::2]]
    sheet = write_csv(Path("sheet.csv"), rows)
    for words in (
        ("calibrate", "run", sheet),
        ("compare", "run", "--ratings", sheet),
        ("compare", sheet, "--exchanges", "replies.jsonl"),
    ):
        refused = run(*words, *options)
        assert refused.exit_code == 2 and f"all ratings are by AI raters ({name})" in refused.stderr


@pytest.mark.slow
def test_of_a_mixed_file_people_s_ratings_are_used(scored: list[Row]) -> None:
    people = [{key: row[key] for key in ("id", "model", "rater", "rating")} for row in ratings(scored)]
    assert calibrate("run", write_csv(Path("people.csv"), people)).exit_code == 0
    expected = report()
    ais = [{**row, "rater": "claude-3-opus", "rater_kind": "ai", "rating": 3} for row in people[::2]]
    mixed = write_csv(Path("mixed.csv"), [*people, *ais])
    note = "120 ratings by AI raters (claude-3-opus) left out"
    done = calibrate("run", mixed)
    assert done.exit_code == 0 and note in done.stderr
    assert report()["agreement"] == expected["agreement"]
    assert Path("out/calibration.json").exists()
    tables = [run("compare", file, "--baseline", "ada", "--json") for file in ("people.csv", mixed)]
    assert note in tables[1].stderr
    figures = [json.loads(table.stdout) | {"source": "", "notes": ""} for table in tables]
    assert figures[0] == figures[1]
