"""Ratings as people have them, through `calibrate` and `compare`: the same verdict from every form."""

import json
import random
import shutil
from collections.abc import Iterable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from command_line import run
from rows import write_csv

from empathy_judge.data.tables import write_rows

MODELS = ("ada", "bea")
RATERS = tuple(f"r{number}" for number in range(6))
Row = dict[str, Any]


def calibrate(*arguments: object, code: int | None = None) -> Result:
    return run("calibrate", *arguments, "--out", "out", code=code)


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
        run("score", "replies.jsonl", "--judge", "length", "--out", "run", code=0)
        return Path().resolve()


@pytest.fixture
def scored(made: Path) -> list[Row]:
    """Replies and their run, `run`."""
    shutil.copytree(made, Path(), dirs_exist_ok=True)
    return replies()


def test_stars_are_cut_into_labels_and_it_is_said(scored: list[Row]) -> None:
    rated = ratings(scored)
    rows = [{"id": row["id"], "rater": row["rater"], "Stars": 2 * row["rating"] - 1} for row in rated]
    done = calibrate("run", write_csv(Path("sheet.csv"), rows), code=0)
    said = (
        "stars 1 to 5 read as Bad 1-2, Okay 3, Good 4-5 (thirds of the scale; --cut OKAY,GOOD sets another)"
    )
    assert said in done.stderr and said in Path("out/report.md").read_text()
    counts = [sum(row["rating"] == level for row in rated) for level in (1, 2, 3)]
    assert [round(share * 240) for share in report()["data"]["shares"].values()] == counts


def test_bad_rows_are_set_aside_where_asked_and_told(scored: list[Row]) -> None:
    rows = [{"id": row["id"], "rater": row["rater"], "rating": row["rating"]} for row in ratings(scored)]
    rows[5]["rating"], rows[9]["rater"] = "lovely", ""
    sheet = write_csv(Path("sheet.csv"), rows)
    done = calibrate("run", sheet, "--skip-invalid", code=0)
    assert "2 rows skipped: sheet.csv:7: rating: 'lovely'" in done.stderr
    assert "sheet.csv:11: rater: missing or empty" in done.stderr
    assert report()["data"]["ratings"] == 238
    write_rows(
        Path("broken.jsonl"), [{**row, "response": ""} if row["id"] == "3-ada" else row for row in scored]
    )
    asked = ("compare", "broken.jsonl", "--judge", "length", "--ratings", sheet, "--json")
    assert "--skip-invalid" in run(*asked).stderr
    compared = run(*asked, "--skip-invalid", code=0)
    assert "2 rows skipped" in compared.stderr
    assert {item["model"]: item["judged"] for item in json.loads(compared.stdout)["models"]}["ada"] == 59


@pytest.mark.slow
def test_two_models_runs_of_one_judge_are_one_judge(scored: list[Row]) -> None:
    """Every rating counts, whether ids are apart or each model's file counts from one."""
    calibrate("run", write_csv(Path("all.csv"), ratings(scored)), code=0)
    expected = report()
    for has_own_ids in (True, False):
        rows = replies(has_own_ids=has_own_ids)
        for model in MODELS:
            write_rows(Path(f"{model}.jsonl"), [row for row in rows if row["model"] == model])
            out = f"runs/{model}-{has_own_ids}"
            run("score", f"{model}.jsonl", "--judge", "length", "--out", out, code=0)
        sheet = write_csv(Path("sheet.csv"), ratings(rows))
        texts = ("--exchanges", "ada.jsonl", "--exchanges", "bea.jsonl")
        folders = [f"runs/{model}-{has_own_ids}" for model in MODELS]
        done = calibrate(*folders, sheet, *texts, code=0)
        assert f"ada-{has_own_ids} and bea-{has_own_ids} were scored by length" in done.stderr
        found = report()
        assert [row["name"] for row in found["runs"] if row["kind"] == "judge"] == ["length"]
        assert found["agreement"] == expected["agreement"] and found["models"] == expected["models"]
        assert found["data"]["ratings"] == 240 and found["data"]["unjudged"] == 0
        assert found["disagreements"]["too_kind"][0]["response"]
        compared = run("compare", *folders, "--ratings", sheet, "--json")
        assert {row["ratings"] for row in json.loads(compared.stdout)["models"]} == {120}


@pytest.mark.slow
def test_of_a_mixed_file_people_s_ratings_are_used(scored: list[Row]) -> None:
    people = [{key: row[key] for key in ("id", "model", "rater", "rating")} for row in ratings(scored)]
    calibrate("run", write_csv(Path("people.csv"), people), code=0)
    expected = report()
    ais = [{**row, "rater": "claude-3-opus", "rater_kind": "ai", "rating": 3} for row in people[::2]]
    mixed = write_csv(Path("mixed.csv"), [*({**row, "rater_kind": ""} for row in people), *ais])
    note = "120 ratings by AI raters (claude-3-opus) left out"
    done = calibrate("run", mixed)
    assert done.exit_code == 0 and note in done.stderr
    assert report()["agreement"] == expected["agreement"]
    assert Path("out/calibration.json").exists()
    tables = [run("compare", file, "--baseline", "ada", "--json") for file in ("people.csv", mixed)]
    assert note in tables[1].stderr
    figures = [json.loads(table.stdout) | {"source": "", "notes": ""} for table in tables]
    assert figures[0] == figures[1]
