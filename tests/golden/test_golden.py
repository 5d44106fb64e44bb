"""The figures, counts, verdicts and exit codes of the commands; `walk.py --update` accepts a change."""

import json
import subprocess
import sys
from collections.abc import Iterator
from math import isclose
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"


def differences(expected: Any, found: Any, place: str = "") -> Iterator[str]:
    """Yield the places where two JSON values differ by more than rounding."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in expected.keys() | found.keys():
            yield from differences(expected.get(name), found.get(name), f"{place}/{name}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for at, pair in enumerate(zip(expected, found, strict=True)):
            yield from differences(*pair, f"{place}/{at}")
    elif isinstance(expected, float) and isinstance(found, int | float):
        if not isclose(expected, found, rel_tol=2e-5, abs_tol=1e-6):
            yield f"{place}: {expected} is now {found}"
    elif expected != found:
        yield f"{place}: {expected!r} is now {found!r}"


def read(folder: Path) -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}


@pytest.mark.slow
def test_commands_give_the_same_facts(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "walk.py"), "--out", str(tmp_path)]
    subprocess.run(command, capture_output=True, text=True, check=True)
    assert sorted(differences(read(EXPECTED), read(tmp_path))) == []
