"""Every part of the benchmark runs; its figures on a busy machine do not matter here."""

import json
import math
import subprocess
import sys
from pathlib import Path

from repository import TESTS

PARTS = ("start", "rows", "judges", "endpoint")


def test_each_part_runs(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    command = [sys.executable, str(TESTS / "bench" / "bench.py"), "--quick", "--json", str(out), "--only"]
    result = subprocess.run([*command, *PARTS], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    parts = json.loads(out.read_text())["parts"]
    assert set(parts) == set(PARTS)
    for figures in parts.values():
        assert figures and not any(math.isnan(figure["value"]) for figure in figures)
