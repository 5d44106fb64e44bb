"""What `compare` and `nightly` tell other tools: JUnit and GitHub's summary of a job."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import Result
from command_line import run
from repository import SAMPLES


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    Path("summary.md").write_text("# before\n", encoding="utf-8")
    rows = (SAMPLES / "responses.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    for model in ("warm", "curt"):
        kept = (row for row in rows if json.loads(row)["model"] == f"demo-{model}")
        Path(f"{model}.jsonl").write_text("".join(kept), encoding="utf-8")


def compare(*arguments: str, code: int | None = None) -> Result:
    line = ["compare", "curt.jsonl", "warm.jsonl", "--judge", "length", "--calibration", "none", *arguments]
    return run(*line, code=code)


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
