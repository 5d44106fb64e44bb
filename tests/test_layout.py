"""The house stays as it was built: imports run one way, and nothing heavy loads before it is needed."""

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from time import perf_counter

import pytest

import cli

ROOT = Path(__file__).parent.parent
ROOMS = {
    "data": {"data"},
    "judge": {"data", "judge"},
    "calibration": {"data", "calibration"},
    "nightly": {"data", "judge", "calibration", "nightly"},
}
MODULES = [ROOT / "cli.py", *sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))]
HEAVY = {
    "numpy",
    "torch",
    "transformers",
    "sklearn",
    "scipy",
    "dspy",
    "openai",
    "pydantic",
    "rich",
    "pyarrow",
}


def imported_by(tree: ast.AST) -> set[str]:
    """The top-level packages a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name their room"
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_module_says_what_it_is_for_and_imports_one_way(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "every module has a docstring"
    room = path.relative_to(ROOT).parts[0]
    ours = imported_by(tree) & {*ROOMS, "cli"}
    assert ours <= ROOMS.get(room, set(ROOMS))


def test_importing_the_commands_loads_nothing_heavy() -> None:
    code = f"import sys, cli; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_answers_at_once() -> None:
    took = []
    for _ in range(5):
        start = perf_counter()
        subprocess.run([sys.executable, "cli.py", "--help"], cwd=ROOT, capture_output=True, check=True)
        took.append(perf_counter() - start)
    assert min(took) <= 0.3


def test_the_version_is_said_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == cli.VERSION


def test_scoring_leaves_nothing_in_the_home_and_reports_nothing(tmp_path: Path) -> None:
    """ONNX Runtime would write a device id there and send its use to its makers."""
    home = tmp_path / "home"
    home.mkdir()
    clean = {
        key: value
        for key, value in os.environ.items()
        if key not in ("XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY")
    }
    command = [
        sys.executable,
        "cli.py",
        "score",
        "data/samples/wry.jsonl",
        "--limit",
        "1",
        "--out",
        str(tmp_path / "run"),
    ]
    subprocess.run(command, cwd=ROOT, env=clean | {"HOME": str(home)}, check=True, capture_output=True)
    assert list(home.rglob("*")) == []
