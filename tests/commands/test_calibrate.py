"""`calibrate` through the real door, on small tables whose answers are known; then `score` with it."""

import json
from collections.abc import Iterable, Mapping
from contextlib import chdir
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from command_line import run
from topics import on_topic

from empathy_judge.calibration.artifact import read_calibration, write_calibration
from empathy_judge.data.records import LABELS
from empathy_judge.data.tables import write_rows
from empathy_judge.judge.base import load_judge

LEVELS = {"ada": (1, 5, 14), "bea": (4, 6, 10), "cyd": (6, 7, 7), "dot": (9, 6, 5)}  # Bad, Okay, Good of 20


def calibrate(*arguments: object, code: int | None = None) -> Result:
    return run("calibrate", *arguments, "--out", "out", code=code)


def rated_rows() -> list[dict[str, Any]]:
    """Four models of known shares; a dozen batches of each, twenty responses apiece, a rater each."""
    rows = []
    for model, (bad, okay, good) in LEVELS.items():
        labels = [1] * bad + [2] * okay + [3] * good
        for batch in range(12):
            for number in range(len(labels)):
                # Every batch has the model's own shares, dealt out in another order.
                rating = labels[(number * 7 + batch) % len(labels)]
                name = f"{model}-{batch}-{number}"
                rows.append(
                    {"id": name, "model": model, "rater": name, "batch": f"{model}{batch}", "rating": rating}
                )
    return rows


def write_ratings(rows: Iterable[Mapping[str, Any]]) -> Path:
    path = Path("ratings.csv")
    write_rows(path, ({key: row[key] for key in ("id", "rater", "batch", "rating")} for row in rows))
    return path


def write_exchanges(rows: Iterable[Mapping[str, Any]]) -> Path:
    """Longer responses were rated higher, so that a judge that counts words is no fool here."""
    texts = (
        {
            "id": row["id"],
            "model": row["model"],
            "prompt": prompt,
            "response": f"{opening} {'so sorry ' * (4 * row['rating'] - 1 + number % 5)}",
            "emotion": ("sad", "joyful")[number % 2],
        }
        for number, row in enumerate(rows)
        for prompt, opening in [on_topic(number)]
    )
    write_rows(Path("texts.jsonl"), texts)
    return Path("texts.jsonl")


def test_another_tool_that_says_what_people_say_agrees_fully() -> None:
    rows = rated_rows()
    write_rows(Path("theirs.csv"), ({key: row[key] for key in ("id", "model", "rating")} for row in rows))
    done = calibrate("theirs.csv", write_ratings(rows), code=0)
    report = json.loads(Path("out/report.json").read_text())
    for metric in ("exact", "balanced_accuracy", "qwk", "alpha_ordinal", "spearman"):
        assert report["agreement"][metric]["value"] == pytest.approx(1), metric
    assert report["confusion"]["rows"] == [[240, 0, 0], [0, 288, 0], [0, 0, 432]]
    shares = {row["model"]: row["crowd"]["Good"] for row in report["models"]}
    assert shares == {name: good / 20 for name, (_, _, good) in LEVELS.items()}
    assert [row["model"] for row in report["models"]] == ["ada", "bea", "cyd", "dot"]
    assert report["ceiling"]["not_identifiable"].startswith("not identifiable")
    assert {path.name for path in Path("out").iterdir()} == {
        *("calibration.json", "report.html", "report.md", "report.json")
    }
    assert read_calibration(Path("out/calibration.json")).judge == "theirs"
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_json_is_the_whole_report_and_nothing_else() -> None:
    rows = rated_rows()
    write_rows(Path("theirs.csv"), ({"id": row["id"], "score": row["rating"]} for row in rows))
    done = calibrate("theirs.csv", write_ratings(rows), "--json", "--exchanges", write_exchanges(rows))
    report = json.loads(done.stdout)
    assert report["verdict"]
    assert report["data"]["models"] == sorted(LEVELS), "models are learnt from the exchanges"
    assert [row["name"] for row in report["runs"]] == ["theirs", "majority", "length", "people"]
    assert {item["audit"] for item in report["findings"]} >= {"level", "length", "valence"}


def test_a_judge_that_always_errs_is_shown_with_texts() -> None:
    rows = rated_rows()
    write_rows(Path("kind.csv"), ({"id": row["id"], "model": row["model"], "label": "Good"} for row in rows))
    calibrate("kind.csv", write_ratings(rows), "--exchanges", write_exchanges(rows), code=3)
    report = json.loads(Path("out/report.json").read_text())
    assert report["agreement"]["qwk"]["value"] == 0
    worst = report["disagreements"]["too_kind"][0]
    assert (worst["label"], worst["ratings"]) == ("Good", ["Bad"])
    assert "so sorry" in worst["response"]
    assert report["disagreements"]["too_harsh"] == []
    assert report["verdict"][0].startswith("Do not rely on it yet")


@pytest.mark.parametrize("rating", [1, 3])
def test_ratings_of_one_level_are_inconclusive_and_no_crash(rating: int) -> None:
    rows = [{**row, "rating": rating} for row in rated_rows()]
    write_rows(
        Path("kind.csv"),
        ({"id": row["id"], "model": row["model"], "label": LABELS[rating - 1]} for row in rows),
    )
    done = calibrate("kind.csv", write_ratings(rows), code=3)
    assert "differ from the most common one" in " ".join(done.stdout.split())


def test_several_judges_of_one_table_are_compared() -> None:
    rows = rated_rows()
    table = [
        {"id": row["id"], "model": row["model"], "judge": name, "rating": 1 + (row["rating"] - 1 + shift) % 3}
        for row in rows
        for name, shift in (("exact", 0), ("off", 1))
    ]
    write_rows(Path("both.csv"), table)
    ratings = write_ratings(rows)
    one = calibrate("both.csv", ratings, "--judge", "off")
    assert one.exit_code == 0 and "exact" not in one.stdout
    calibrate("both.csv", ratings, code=0)
    found = {row["name"]: row for row in json.loads(Path("out/report.json").read_text())["runs"]}
    assert found["exact"]["metrics"]["exact"]["value"] == 1
    assert found["off"]["metrics"]["exact"]["value"] == 0
    assert found["people"]["kind"] == "people"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibration of the length judge."""
    with chdir(tmp_path_factory.mktemp("fitted")):
        rows = rated_rows()
        run("score", write_exchanges(rows), "--judge", "length", "--out", "run", code=0)
        calibrate("run", write_ratings(rows), code=0)
        return Path("out/calibration.json").resolve()


def score_new(*options: object, code: int | None = None) -> Result:
    """Score two models nobody rated: one like the others, one of a single word."""
    rows = [
        {"model": model, "prompt": prompt, "response": f"{opening} {'so sorry ' * words}"}
        for number in range(60)
        for prompt, opening in [on_topic(number)]
        for model, words in (("new", 5 + number % 9), ("terse", number % 2))
    ]
    write_rows(Path("new.jsonl"), rows)
    return run("score", "new.jsonl", "--judge", "length", "--out", "new", *options, code=code)


def test_score_corrects_by_a_calibration_and_bounds_what_leaves_its_range(fitted: Path) -> None:
    calibration = read_calibration(fitted)
    assert (calibration.judge, calibration.version) == ("length", load_judge("length").version)
    done = score_new("--calibration", fitted, "--verbose", code=0)
    summary = json.loads(Path("new/summary.json").read_text())
    assert summary["calibration"] == calibration.digest
    assert json.loads(Path("new/plan.json").read_text())["calibration"] == calibration.digest
    models = {row["model"]: row for row in summary["models"]}
    good = models["new"]["corrected"]["Good"]
    assert good["low"] < good["value"] < good["high"]
    assert sum(share["value"] for share in models["new"]["corrected"].values()) == pytest.approx(1, abs=1e-5)
    raw = models["new"]["shares"]["Good"]
    assert good["high"] - good["low"] > raw["high"] - raw["low"], "a line's error is added to that of prompts"
    bound = models["terse"]["corrected"]["Good"]
    assert bound["low"] == 0 < bound["high"] < good["high"] and bound["value"] is None
    assert f"{100 * bound['high']:.0f} or less" in done.stdout
    assert "terse scores below every model with human ratings, so only an upper bound" in " ".join(
        done.stdout.split()
    )
    assert f"calibration {calibration.digest[:12]} applies" in done.stdout
    compared = json.loads(run("compare", "new", "--json", code=0).stdout)
    assert compared["calibration"]["digest"] == calibration.digest, "the one of the run"


def test_a_calibration_that_expired_is_refused_with_code_4(fitted: Path) -> None:
    write_calibration(Path("old.json"), replace(read_calibration(fitted), created=date(2020, 1, 1)))
    assert "expired on 2020-03-31" in score_new("--calibration", "old.json", code=4).stderr
    run("compare", "new.jsonl", "--judge", "length", "--calibration", "old.json", code=4)
    assert not Path("new").exists() and not Path("runs").exists()
