"""What the commands print and write is what they did; `walk.py --update` says that a change was meant."""

import re
import subprocess
import sys
from collections.abc import Sequence
from difflib import unified_diff
from math import isclose
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LINES = 12  # of a difference; the files have the rest
NUMBER = re.compile(r"-?\d+\.\d{6,}(?:e[+-]?\d+)?")  # in full: its last digits differ by processor


@pytest.fixture(scope="session")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what came of all walks, taken once."""
    out = tmp_path_factory.mktemp("golden")
    command = [sys.executable, str(HERE / "walk.py"), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def read_all(folder: Path) -> dict[str, list[str]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8").splitlines() for path in files
    }


def is_same(before: Sequence[str], now: Sequence[str]) -> bool:
    """Whether two files say the same: every word, and every number up to the last digits of one in full."""
    if len(before) != len(now):
        return False
    return all(
        one == other
        or (
            NUMBER.sub("", one) == NUMBER.sub("", other)
            and all(
                isclose(float(this), float(that), rel_tol=1e-6, abs_tol=1e-7)
                for this, that in zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
            )
        )
        for one, other in zip(before, now, strict=True)
    )


@pytest.mark.slow
def test_everything_is_as_it_was(walked: Path) -> None:
    expected, found = read_all(HERE / "expected"), read_all(walked)
    told = []
    for name in sorted(expected.keys() | found.keys()):
        before, now = expected.get(name), found.get(name)
        if before is None or now is None:
            told.append(f"{name}: {'new' if before is None else 'gone'}")
        elif not is_same(before, now):
            lines = list(unified_diff(before, now, "expected", "now", n=1, lineterm=""))
            more = [f"... {len(lines) - LINES} lines more"] if len(lines) > LINES else []
            told.append("\n".join([f"{name}: differs", *lines[:LINES], *more]))
    if told:
        pytest.fail("\n\n".join([f"{len(told)} files differ", *told]), pytrace=False)
