"""The bundle of what was checked: it holds what it says, texts stay out of it, and a change is noticed."""

import json
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest
from click.testing import CliRunner, Result

import cli
from data.tables import read_judgments

ROWS = [
    {"id": str(n), "model": "kind", "prompt": f"{text} {n}", "response": "I'm so sorry. Are you safe?"}
    for n, text in enumerate(["I want to die.", "My cat ran off.", "I lost my keys."] * 4)
]


def run(*words: object) -> Result:
    return CliRunner().invoke(cli.main, list(map(str, words)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert run("score", "r.jsonl", "--judge", "length", "--out", "run").exit_code == 0
    return tmp_path


def test_a_bundle_says_what_was_checked_and_what_was_not(folder: Path) -> None:
    listed = [item for item in read_judgments(Path("run/judgments.jsonl")) if item.flag]
    Path("plan").mkdir()
    ratings = [
        {"id": item.id, "rater": "ann", "rating": 3, "content_digest": item.content} for item in listed[:3]
    ]
    Path("plan/ratings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ratings))
    done = run("evidence", "run", "plan", "--out", "e.zip", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["sha256"] == sha256(Path("e.zip").read_bytes()).hexdigest()
    assert "run: people read 3 of 4 replies for people to read" in told["shown"]
    assert "plan: 3 ratings by 1 people" in told["shown"]
    assert "run: 1 replies of to-read.jsonl were not read" in told["missing"]
    assert any("no calibration" in line for line in told["missing"])
    with ZipFile("e.zip") as bundle:
        manifest = json.loads(bundle.read("manifest.json"))
        inside = {name: bundle.read(name) for name in bundle.namelist()}
    for row in manifest["files"]:
        assert row["content"] is (row["name"] in inside)
        path = folder / row["name"].removeprefix("runs/")
        content = inside.get(row["name"]) or path.read_bytes()
        assert row["sha256"] == sha256(content).hexdigest(), row["name"]
    assert {"rubric/crowd.toml", "runs/run/summary.json", "versions.txt"} <= set(inside)
    assert not any(b"cat ran off" in content for content in inside.values()), "texts of people stay out"
    assert run("evidence", "run", "--with-texts", "--out", "all.zip").exit_code == 0
    with ZipFile("all.zip") as bundle:
        assert b"I want to die." in bundle.read("runs/run/to-read.jsonl")


def test_a_change_to_a_bundle_is_noticed(folder: Path) -> None:
    assert run("evidence", "run", "--out", "e.zip").exit_code == 0
    assert run("evidence", "--check", "e.zip").exit_code == 0
    with ZipFile("e.zip") as bundle:
        inside = {name: bundle.read(name) for name in bundle.namelist()}
    inside["runs/run/summary.json"] = inside["runs/run/summary.json"].replace(b"Good", b"good")
    with ZipFile("e.zip", "w") as bundle:
        for name, content in inside.items():
            bundle.writestr(name, content)
    done = run("evidence", "--check", "e.zip")
    assert done.exit_code == 2
    assert "changed since it was made: runs/run/summary.json" in done.stderr
    Path("e.zip").write_bytes(b"PK")
    assert "no bundle of `evidence`, or a damaged one" in run("evidence", "--check", "e.zip").stderr


def test_what_cannot_be_shown_is_refused(folder: Path) -> None:
    assert "name a run at least" in run("evidence").stderr
    assert "r.jsonl: no run" in run("evidence", "r.jsonl").stderr
    Path("run/manifest.json").unlink()
    assert "run: not whole yet" in run("evidence", "run").stderr
