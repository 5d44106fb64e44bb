"""Three nights of recorded answers under the configuration of the examples, with the default judge."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import run_checked
from repository import ROOT, SAMPLES

from empathy_judge.data.records import LABELS

NIGHTS = {"2026-12-01": "demo-warm", "2026-12-02": "demo-warm", "2026-12-03": "demo-curt"}


def run(*arguments: object, exit_code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_checked(*arguments, "--json", code=exit_code).stdout)
    return found


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The example's file, with a model whose answers are samples: warm on two nights, then curt."""
    rows = [json.loads(line) for line in (SAMPLES / "responses.jsonl").read_text().splitlines()]
    (tmp_path / "nights" / "answers").mkdir(parents=True)
    for night, model in NIGHTS.items():
        answers = [row for row in rows if row["model"] == model][::3]
        unnamed = ({key: row[key] for key in ("prompt", "response")} for row in answers)
        path = tmp_path / "nights" / "answers" / f"{night}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in unnamed))
    (tmp_path / "anchors.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[::8]))
    settings, _, rest = (ROOT / "examples" / "nightly.toml").read_text().partition("[[models]]")
    assert 'judge = "classifier"' in settings
    model = '[[models]]\nname = "mine"\nresponses = "answers/{night}.jsonl"\n[gates]'
    path = tmp_path / "nights" / "nightly.toml"
    path.write_text(f'anchors = "../anchors.jsonl"\n{settings}{model}{rest.partition("[gates]")[2]}')
    return path


def test_a_quiet_night_passes_and_curt_answers_are_a_regression(config: Path) -> None:
    first, quiet = (run("nightly", config, "--night", night) for night in list(NIGHTS)[:2])
    assert (first["outcome"], quiet["outcome"]) == ("pass", "pass")
    fallen = run("nightly", config, "--night", "2026-12-03", exit_code=1)
    failed = {item["gate"]: item for item in fallen["findings"] if item["outcome"] == "regression"}
    assert {"good_share_drop against baseline", "good_share_drop against last night"} <= set(failed)
    assert fallen["judge_moved"] is None, "the anchors show that it was the model"
    again = run("nightly", config, "--night", "2026-12-03", exit_code=1)
    assert again["is_new"] is False

    # A night has the figures that `score` gives for its answers.
    answers = config.parent / "answers" / "2026-12-03.jsonl"
    (scored,) = run("score", answers, "--out", config.parent / "run")["models"]
    (judged,) = fallen["models"]
    assert judged["n"] == scored["judged"] == 22
    for label in LABELS:
        assert judged["raw"][label]["value"] == pytest.approx(scored["shares"][label]["value"], abs=1e-6)
    assert (config.parent.parent / "runs" / "dashboard" / "index.html").is_file()
