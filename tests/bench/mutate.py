"""Change one operator or number at a time in the statistics and records; count the changes that tests notice.

    python tests/bench/mutate.py [NUMBER] [SEED]

The tests of the changed module's room run in a copy of the checkout, until the first fails.
"""

import ast
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = {
    "calibration/shares": ["tests/calibration", "tests/test_doctests.py", "-k", "not bias and not bounds"],
    "data/records.py": [
        "tests/data/test_tables.py",
        "tests/data/test_runs.py",
        "tests/judge/test_label_rule.py",
    ],
}
SWAPPED: Final = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult},
    **{
        ast.Lt: ast.GtE,
        ast.GtE: ast.Lt,
        ast.Gt: ast.LtE,
        ast.LtE: ast.Gt,
        ast.Eq: ast.NotEq,
        ast.NotEq: ast.Eq,
    },
    **{ast.And: ast.Or, ast.Or: ast.And, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
}
SECONDS: Final = 600.0  # a change that makes the tests endless is noticed


def changes(tree: ast.AST) -> list[ast.AST]:
    """Return the nodes that can be changed."""
    return [
        node
        for node in ast.walk(tree)
        if type(getattr(node, "op", None) or getattr(node, "ops", [None])[0]) in SWAPPED
        or (isinstance(node, ast.Constant) and type(node.value) in (int, float))
    ]


def change(node: ast.AST) -> str:
    """Change a node, and describe it."""
    before = ast.unparse(node)
    if isinstance(node, ast.Constant):
        node.value = node.value * 2 + 1
    elif isinstance(node, ast.Compare):
        node.ops[0] = SWAPPED[type(node.ops[0])]()
    else:
        node.op = SWAPPED[type(node.op)]()  # type: ignore[attr-defined]
    return f"{before} -> {ast.unparse(node)}"


def run(copy: Path, tests: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    """Run tests in the copy until the first fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=copy, capture_output=True, timeout=SECONDS, check=False)


def main(number: int = 40, seed: int = 0) -> None:
    """Print every change that no test notices, and the score."""
    rng, noticed = random.Random(seed), 0
    places = [
        (place, path) for place in TESTS for path in [ROOT / place, *sorted((ROOT / place).glob("*.py"))]
    ]
    found = [
        (place, path, index)
        for place, path in places
        if path.is_file()
        for index in range(len(changes(ast.parse(path.read_text(encoding="utf-8")))))
    ]
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(".*", "build", "runs"))
        for tests in TESTS.values():
            run(copy, tests).check_returncode()  # without a change all pass
        for place, path, index in rng.sample(found, number):
            source, target = path.read_text(encoding="utf-8"), copy / path.relative_to(ROOT)
            tree = ast.parse(source)
            text = change(changes(tree)[index])
            target.write_text(ast.unparse(tree), encoding="utf-8")
            try:
                is_noticed = run(copy, TESTS[place]).returncode != 0
            except subprocess.TimeoutExpired:
                is_noticed = True
            noticed += is_noticed
            target.write_text(source, encoding="utf-8")
            if not is_noticed:
                print(f"not noticed: {path.relative_to(ROOT)}: {text}", flush=True)
    print(f"{noticed} of {number} changes were noticed (seed {seed})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
