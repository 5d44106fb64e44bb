"""What `compare` and `nightly` tell other tools: JUnit and GitHub's summary of a job."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from nightly_world import CURT, start_world
from repository import SAMPLES

from empathy_judge.commands import main as cli


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    Path("summary.md").write_text("# before\n", encoding="utf-8")
    rows = (SAMPLES / "responses.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    for model in ("warm", "curt"):
        kept = (row for row in rows if json.loads(row)["model"] == f"demo-{model}")
        Path(f"{model}.jsonl").write_text("".join(kept), encoding="utf-8")


def compare(*arguments: str) -> Result:
    line = ["compare", "curt.jsonl", "warm.jsonl", "--judge", "length", "--calibration", "none", *arguments]
    return CliRunner().invoke(cli.main, line)


def test_a_comparison_is_written_for_ci() -> None:
    done = compare("--check", "--junit", "out/c.xml", "--github-summary")
    assert done.exit_code == 3, done.output  # a judge alone is at most probable
    (pair,) = json.loads(compare("--json").stdout)["pairs"]
    (skipped,) = ElementTree.parse("out/c.xml").getroot().iter("skipped")
    assert skipped.attrib["message"] == pair["sentence"]
    summary = Path("summary.md").read_text(encoding="utf-8")
    assert summary.startswith("# before\n# ") and "| demo-warm |" in summary.replace("\\", "")
    replies = [json.loads(row)["response"] for row in Path("warm.jsonl").read_text().splitlines()]
    assert not any(reply in summary for reply in replies)


@pytest.mark.parametrize("command", ["score", "compare", "calibrate"])
def test_a_password_in_a_url_is_not_printed(command: str) -> None:
    place = "https://me:hunter2@127.0.0.1:9/replies.jsonl"
    done = CliRunner().invoke(cli.main, [command, place, place])
    assert done.exit_code == 2 and "hunter2" not in done.output, done.output


def test_more_than_two_models_need_a_baseline_to_be_checked() -> None:
    line = ["compare", str(SAMPLES / "responses.jsonl"), "--judge", "length", "--junit", "c.xml"]
    done = CliRunner().invoke(cli.main, [*line, "--calibration", "none"])
    assert done.exit_code == 2 and "--baseline" in done.stderr


@pytest.mark.slow
def test_a_night_is_added_to_the_summary_of_a_job(tmp_path: Path) -> None:
    with start_world(tmp_path) as world:
        path = world.write()
        path.write_text(path.read_text() + "[outputs]\ngithub = true\n")
        for night, code in (("1", 0), ("2", 1)):
            world.mood = night
            assert CliRunner().invoke(cli.main, ["nightly", str(path), "--night", night]).exit_code == code
            world.curt = frozenset(("bob", feeling) for feeling in CURT)
    summary = Path("summary.md").read_text(encoding="utf-8")
    assert "night 1: pass" in summary and "night 2: regression" in summary
