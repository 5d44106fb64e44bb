"""Nights by the real command, with baseline judges: another judge, missing replies, several baselines."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import cli
from nightly.history import open_history
from nightly.schema import NightRecord

NIGHTS = [f"2026-12-0{number}" for number in range(1, 7)]
CONFIG = """
judge = "{judge}"
calibration = "none"
dashboard = "site"
bridge_nights = 1
{head}
[[models]]
name = "ann"
responses = "answers/{{night}}.jsonl"
[gates]
good_share_drop = 5
max_unscored = 5
"""


def write_config(folder: Path, judge: str = "length", head: str = "") -> Path:
    path = folder / "n.toml"
    path.write_text(CONFIG.format(judge=judge, head=head))
    return path


def answer(folder: Path, night: str, *, words: int = 12, cut: int = 0) -> None:
    rows = [
        {
            "id": str(n),
            "prompt": f"Case {n} of my day.",
            "response": " ".join(["well"] * (words + n % 5 + len(night) * n % 3)),
            "finish_reason": "length" if n < cut else "stop",
        }
        for n in range(24)
    ]
    path = folder / "answers" / f"{night}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(path: Path, night: str, *more: str) -> Result:
    return CliRunner().invoke(cli.main, ["nightly", str(path), "--night", night, *more])


def read(folder: Path, night: str) -> NightRecord:
    with open_history(folder / "nights.sqlite") as history:
        record = history.night("n", night)
    assert record is not None
    return record


@pytest.mark.slow
def test_when_the_judge_is_another_history_is_restated_and_gates_go_on(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    for night in NIGHTS[:4]:
        answer(tmp_path, night)
        assert run(path, night).exit_code == 0
    answer(tmp_path, NIGHTS[4])
    done = run(write_config(tmp_path, judge="majority"), NIGHTS[4])
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert "The judge is another: majority" in said and "On the same 192 anchors" in said
    assert "It judged the replies of 2 earlier nights again." in said
    assert "Levels of 2 earlier nights are shifted by what the anchors tell" in said
    tonight, old = read(tmp_path, NIGHTS[4]), read(tmp_path, NIGHTS[1])
    levels = tonight.details["bridge"]["levels"]
    assert {night: level["ann"]["how"] for night, level in levels.items()} == {
        NIGHTS[0]: "judged again",  # the baseline
        NIGHTS[1]: "shifted by the anchors",
        NIGHTS[2]: "shifted by the anchors",
        NIGHTS[3]: "judged again",  # the newest
    }
    again = levels[NIGHTS[0]]["ann"]["raw"]["Good"]["share"]
    assert again == pytest.approx(tonight.models[0].raw["Good"].share), "the same replies, the same judge"
    shifted, was = levels[NIGHTS[1]]["ann"]["raw"]["Good"], old.models[0].raw["Good"]
    apart = [
        (new.good or 0.0) - (then.good or 0.0) for new, then in zip(tonight.anchors, old.anchors, strict=True)
    ]
    assert was.share is not None and was.low is not None
    assert shifted["share"] == pytest.approx(was.share + sum(apart) / len(apart))
    assert shifted["share"] - shifted["low"] > was.share - was.low, "the anchors' interval comes to its own"
    assert (old.judge, tonight.judge) == ("length", "majority"), "what was judged stays as it was"
    page = (tmp_path / "site" / "index.html").read_text()
    assert "It judged the replies of 2 earlier nights again." in page

    # The night after holds itself against the same baseline, and tells nothing twice.
    answer(tmp_path, NIGHTS[5])
    later = run(path, NIGHTS[5])
    assert later.exit_code == 0 and "The judge is another" not in later.stdout
    kept = read(tmp_path, NIGHTS[5]).models[0].details
    assert (kept["since_baseline"]["night"], kept["watch"]["nights"]) == (NIGHTS[0], 3)


def test_answers_cut_short_are_missing_and_no_regression(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    answer(tmp_path, NIGHTS[0])
    run(path, NIGHTS[0])
    answer(tmp_path, NIGHTS[1], cut=6)
    done = run(path, NIGHTS[1], "--json")
    assert done.exit_code == 5
    found = json.loads(done.stdout)
    assert [(item["gate"], item["outcome"]) for item in found["findings"]] == [("max_unscored", "failed")]
    assert "cut short: ran out of tokens; allow more (max_tokens) (6)" in found["findings"][0]["sentence"]
    assert any(
        "6 of 24 replies are missing, which is not counted as worse" in line for line in found["sentences"]
    )
    assert (found["models"][0]["n"], found["models"][0]["cost"]) == (18, 0.0)


@pytest.mark.slow
def test_a_baseline_of_several_nights(tmp_path: Path) -> None:
    path = write_config(tmp_path, head="baseline_nights = 2\n")
    for night, words in zip(NIGHTS[:4], (8, 12, 11, 11), strict=True):
        answer(tmp_path, night, words=words)
        run(path, night)
    details = read(tmp_path, NIGHTS[3]).models[0].details
    assert details["since_baseline"]["averaged"] == NIGHTS[:2]
    assert details["watch"]["nights"] == 2
    goods = [
        {item.prompt: item.good or 0.0 for item in read(tmp_path, night).judgments}
        for night in (*NIGHTS[:2], NIGHTS[3])
    ]
    expected = sum(goods[2][key] - (goods[0][key] + goods[1][key]) / 2 for key in goods[0])
    assert details["since_baseline"]["sums"]["good"][1] == pytest.approx(expected)
    page = (tmp_path / "site" / "index.html").read_text()
    assert f"{NIGHTS[0]} and {NIGHTS[1]}" in page


@pytest.mark.slow
def test_a_calibration_holds_for_nights_before_it_was_made(tmp_path: Path) -> None:
    path = write_config(tmp_path, judge="classifier")
    path.write_text(path.read_text().replace('calibration = "none"\n', "explain = 0\n"))
    answer(tmp_path, "2020-01-01")
    done = run(path, "2020-01-01")
    assert done.exit_code in (0, 3), done.output
    assert "after 2020-01-01, and is taken to hold for then too" in " ".join(done.stdout.split())
    assert read(tmp_path, "2020-01-01").calibration is not None
