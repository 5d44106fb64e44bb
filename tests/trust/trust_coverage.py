"""How much of our code the fast tests run: lines and branches, processes that they start included, as JSON.

python tests/trust/trust_coverage.py

Code that only the slow tests reach (training, browsers, Ray) counts as not run. What each folder of tests ran
is kept in `build/coverage` under the commit's name: the same command goes on with the folders that are left.
"""

import json
import os
import subprocess
import sys
import tomllib
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = (
    "calibration", "commands", "data", "emotionbench", "empathy_judge", "judge", "nightly", "rating",
    "reports", "server",
)  # fmt: skip
SETTINGS: Final = """
[run]
branch = true
parallel = true
patch = subprocess
concurrency = thread
data_file = {folder}/coverage
include =
    {root}/cli.py
    {rooms}
"""


def main() -> int:
    """Run the fast tests under coverage.py and print what was reached, by folder of code."""
    if find_spec("coverage") is None:
        print("coverage skipped: coverage.py is not installed: make .venv/.coverage")
        return 1
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    folder = ROOT / "build" / "coverage" / commit.stdout.strip()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    rooms = "\n    ".join(f"{ROOT}/{room}/*" for room in ROOMS)
    settings = folder / "settings"
    settings.write_text(SETTINGS.format(folder=folder, root=ROOT, rooms=rooms), encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    failed = [path for path in project["tool"]["pytest"]["ini_options"]["testpaths"] if not run(path, folder)]
    for words in (("combine", "-q", "--keep"), ("json", "-q", "-o", f"{folder}/found.json")):
        _coverage(words[0], f"--rcfile={settings}", *words[1:])
    found = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    print(json.dumps({"failures_in": failed, **count(found["files"])}, indent=2))
    return int(bool(failed))


def run(path: str, folder: Path) -> bool:
    """Run the tests of one folder, unless they ran before; whether they passed."""
    done = folder / f"{path.replace('/', '-')}.code"
    if not done.exists():
        words = ("-m", "pytest", "-p", "no:cacheprovider", path)
        code = _coverage("run", f"--rcfile={folder / 'settings'}", *words)
        done.write_text(str(code), encoding="utf-8")
    return done.read_text(encoding="utf-8") == "0"


def _coverage(*words: str) -> int:
    # What pytest says goes to the other stream: ours is for the JSON.
    command = [sys.executable, "-m", "coverage", *words]
    return subprocess.run(command, cwd=ROOT, env=dict(os.environ), stdout=sys.stderr).returncode


def count(files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Lines and branches, and the part of them that ran: in all, by folder, and where it is least."""
    rooms: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, row in files.items():
        path = Path(name)
        rooms[(path.relative_to(ROOT) if path.is_absolute() else path).parts[0]].append(row["summary"])
    least = sorted(files, key=lambda name: files[name]["summary"]["percent_covered"])[:12]
    return {
        "all": _sum([row["summary"] for row in files.values()]),
        "rooms": {room: _sum(rows) for room, rows in sorted(rooms.items())},
        "least": {name: round(files[name]["summary"]["percent_covered"], 1) for name in least},
    }


def _sum(rows: list[dict[str, Any]]) -> dict[str, float]:
    total = {
        name: sum(row[name] for row in rows)
        for name in ("num_statements", "covered_lines", "num_branches", "covered_branches")
    }
    return {
        "lines": total["num_statements"],
        "lines_run_%": round(100 * total["covered_lines"] / max(1, total["num_statements"]), 1),
        "branches": total["num_branches"],
        "branches_run_%": round(100 * total["covered_branches"] / max(1, total["num_branches"]), 1),
    }


if __name__ == "__main__":
    sys.exit(main())
