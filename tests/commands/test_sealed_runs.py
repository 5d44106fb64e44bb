"""Finished runs are sealed: a file that has changed is refused by every command that reads it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import run

from empathy_judge.data.tables import write_rows

Edit = Callable[[Path], None]
PROMPTS = [f"I {verb} my {thing} today." for verb in ("lost", "found", "broke") for thing in ("job", "keys")]
REPLIES = [
    {"id": f"{model}-{n}", "model": model, "prompt": prompt, "response": text}
    for model, text in (("warm", "I am so sorry, that must be hard for you."), ("cold", "Okay."))
    for n, prompt in enumerate(PROMPTS)
]
RATINGS = [
    {"id": row["id"], "rater": f"p{n}", "rating": 1 + (n + len(row["response"])) % 3}
    for row in REPLIES
    for n in range(3)
]
SCORE = ("score", "replies.jsonl", "--judge", "length", "--calibration", "none", "--out", "run")
READERS = {
    "score": SCORE,
    "score a larger part": (*SCORE, "--seed", "1"),
    "score and explain": (*SCORE, "--explain", "warm-0"),
    "compare": ("compare", "run"),
    "compare with a file": ("compare", "run", "other.jsonl"),
    "calibrate": ("calibrate", "run", "ratings.jsonl", "--out", "fit"),
    "rate next": ("rate", "next", "plan", "replies.jsonl", "--run", "run", "--each", "2"),
}


@pytest.fixture(autouse=True)
def finished() -> None:
    write_rows(Path("replies.jsonl"), REPLIES)
    write_rows(Path("other.jsonl"), [{**row, "model": "other", "response": "Hm."} for row in REPLIES[:6]])
    write_rows(Path("ratings.jsonl"), RATINGS)
    run(*SCORE, code=0)
    run("rate", "plan", "replies.jsonl", "--each", 5, "--people", 1, "--out", "plan", code=0)


def edit_judgment(folder: Path) -> None:
    path = folder / "judgments.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[-1] |= {"label": "Good", "score": 3.0, "probabilities": {"Bad": 0.0, "Okay": 0.0, "Good": 1.0}}
    write_rows(path, rows)


def edit_summary(folder: Path) -> None:
    path = folder / "summary.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 7'))


def edit_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"cost": 0.0', '"cost": 9.0'))


def remove_seal(folder: Path) -> None:
    """Write the manifest as versions without seals did."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for key in ("digest", "files", "format"):
        manifest.pop(key, None)
    path.write_text(json.dumps(manifest))


EDITS: dict[str, Edit] = {
    "judgments.jsonl": edit_judgment,
    "summary.json": edit_summary,
    "manifest.json": edit_manifest,
    "manifest.json of an earlier version": remove_seal,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("edited", EDITS)
def test_a_changed_run_is_refused_by_the_name_of_the_file_and_the_fix(edited: str, reader: str) -> None:
    before = {item: item.read_bytes() for item in Path("run").iterdir()}
    EDITS[edited](Path("run"))
    assert {item: item.read_bytes() for item in Path("run").iterdir()} != before
    refused = run(*READERS[reader], code=2)
    assert str(Path("run", edited.split()[0])) in refused.stderr and "`score`" in refused.stderr
    assert not Path("runs").exists(), "nothing is scored before the refusal"
    shutil.rmtree("run")
    assert run(*SCORE).exit_code == 0, "the fix that the message names"
    assert run(*READERS[reader]).exit_code in (0, 3)


@pytest.mark.parametrize("reader", READERS)
def test_a_copy_of_a_run_is_read(reader: str) -> None:
    shutil.copytree("run", "elsewhere/copy")
    for path in Path("elsewhere/copy").iterdir():
        path.touch()
    shutil.rmtree("run")
    words = ["elsewhere/copy" if word == "run" else word for word in READERS[reader]]
    read = run(*words)
    assert read.exit_code in (0, 3), read.output


def test_a_night_refuses_a_run_that_changed_before_the_night_was_stored() -> None:
    Path("n.toml").write_text(
        "judge = 'length'\ncalibration = 'none'\nanchors = false\ndashboard = false\n"
        "[[models]]\nname = 'warm'\nresponses = 'replies.jsonl'\n"
    )
    night = ("nightly", "n.toml", "--night", "n1")
    run(*night, code=0)
    (judgments,) = Path("nights").glob("**/judgments.jsonl")
    edit_judgment(judgments.parent)
    Path("nights.sqlite").unlink()  # as if it had been stopped before its last step
    refused = run(*night)
    assert refused.exit_code == 2 and str(judgments) in refused.stderr, refused.output
    shutil.rmtree(judgments.parent)
    run(*night, code=0)


def test_a_run_without_its_summary_is_completed_from_sealed_judgments_only() -> None:
    Path("run/summary.json").unlink()
    assert "run/summary.json" in run("compare", "run").stderr
    edit_judgment(Path("run"))
    assert "run/judgments.jsonl" in run(*SCORE).stderr
    shutil.rmtree("run")
    run(*SCORE)
    Path("run/summary.json").unlink()
    assert run(*SCORE).exit_code == 0 and Path("run/summary.json").is_file()
