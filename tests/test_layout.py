"""The layout of the code: imports run one way without cycles, names are unique, nothing heavy loads early."""

import ast
import os
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from repository import MODULES, PACKAGE, ROOT, STEPS

from empathy_judge.commands import main as cli

ROOMS = {room: height for height, step in enumerate(STEPS) for room in step}
# Modules of ours that a command needs, counted by its imports, lazy ones included.
LIMITS = {
    **{"score": 45, "compare": 63, "calibrate": 58, "nightly": 76, "respond": 33, "robustness": 38},
    **{"rate": 43, "doctor": 53, "train": 78, "serve": 62, "align": 48, "import_data": 29, "optimize": 43},
}
HEAVY = {
    *("numpy", "torch", "transformers", "sklearn", "scipy"),
    *("dspy", "openai", "httpx", "pydantic", "rich", "pyarrow"),
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_by(tree: ast.AST) -> Iterator[str]:
    """Name what a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def room_of(module: str) -> str:
    """Return the room of a module; the Python interface is in none."""
    return next((part for part in module.split(".")[1:2] if part in ROOMS), PACKAGE)


def test_imports_run_one_way() -> None:
    wrong = []
    for importer, path in MODULES.items():
        for name in imported_by(parsed(path)):
            room, imported = room_of(importer), room_of(name)
            is_ours = name.partition(".")[0] == PACKAGE
            if name.startswith(".") or (
                is_ours and room != imported != PACKAGE and ROOMS[imported] >= ROOMS.get(room, len(STEPS))
            ):
                wrong.append(f"{importer} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_the_client_needs_nothing_but_python() -> None:
    code = (
        "import sys; before = set(sys.modules); import empathy_judge.client; "
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(names - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['empathy_judge']"


def test_every_module_says_what_it_is_for() -> None:
    silent = [name for name, path in MODULES.items() if not ast.get_docstring(parsed(path))]
    assert not silent


def test_statistics_open_no_files() -> None:
    """Files are opened by data; of calibration, only artifact names one: calibration.json, through data."""
    opening = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "glob", "is_file"}
    found = [
        (name, node.lineno)
        for name, path in MODULES.items()
        if room_of(name) == "calibration" and not name.endswith(".artifact")
        for node in ast.walk(parsed(path))
        if (isinstance(node, ast.Name) and node.id == "open")
        or (isinstance(node, ast.Attribute) and node.attr in opening)
    ]
    assert not found


def test_no_module_name_is_used_twice() -> None:
    names = Counter(path.name for path in MODULES.values() if path.name != "__init__.py")
    assert not {name: count for name, count in names.items() if count > 1}


def test_no_class_name_is_used_twice() -> None:
    names = Counter(
        node.name
        for path in MODULES.values()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    )
    assert not {name: count for name, count in names.items() if count > 1}


@cache
def needs(module: str) -> frozenset[str]:
    """Return the modules of ours that a module imports, lazily or not."""
    needed = set()
    for node in ast.walk(parsed(MODULES[module])):
        if isinstance(node, ast.Import):
            needed |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            needed |= (
                submodules & MODULES.keys() if submodules <= MODULES.keys() else {*submodules, node.module}
            )
    return frozenset(needed & MODULES.keys())


def closure(module: str) -> set[str]:
    """Return everything of ours that a module needs, itself included."""
    reached, waiting = set(), [module]
    while waiting:
        if (one := waiting.pop()) not in reached:
            reached.add(one)
            waiting += needs(one)
    return reached


def test_no_imports_run_in_a_cycle() -> None:
    circular = {name for name in MODULES if any(name in closure(other) for other in needs(name))}
    assert not circular


@pytest.mark.parametrize("command", LIMITS)
def test_a_command_needs_few_modules(command: str) -> None:
    modules = closure(f"empathy_judge.commands.{command}")
    print(f"{command}: {len(modules)} modules")
    assert len(modules) <= LIMITS[command], sorted(modules)


def test_no_command_imports_a_command() -> None:
    commands = {name for name in MODULES if name.startswith(f"{PACKAGE}.commands.") and name.count(".") == 2}
    commands -= {f"{PACKAGE}.commands.main", f"{PACKAGE}.commands.shared"}
    assert {name.rpartition(".")[2] for name in commands} == LIMITS.keys()
    assert not {name: found for name in commands if (found := needs(name) & commands)}


def test_every_package_is_installed_under_one_name() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    packages = {
        name if path.stem == "__init__" else name.rpartition(".")[0] for name, path in MODULES.items()
    }
    assert packages == {*tools["packages"]}
    assert tools["package-dir"] == {PACKAGE: PACKAGE} | {f"{PACKAGE}.{room}": room for room in ROOMS}


def test_the_list_of_commands_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom empathy_judge.commands.main import main\n"
        f"main(['--help'], standalone_mode=False)\nprint(sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_version_is_said_once() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert tools["setuptools"]["dynamic"]["version"] == {"attr": "empathy_judge.__version__"}
    assert cli.__version__


def test_scoring_leaves_nothing_in_the_home_and_reports_nothing(tmp_path: Path) -> None:
    """ONNX Runtime would write a device id there and send its use to its makers."""
    home = tmp_path / "home"
    home.mkdir()
    clean = {
        key: value
        for key, value in os.environ.items()
        if key not in ("XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY")
    }
    words = ["cli.py", "score", "data/samples/wry.jsonl", "--limit", "1", "--out", str(tmp_path / "run")]
    command = [sys.executable, *words]
    subprocess.run(command, cwd=ROOT, env=clean | {"HOME": str(home)}, check=True, capture_output=True)
    assert list(home.rglob("*")) == []
