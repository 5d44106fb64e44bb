"""A user's project with packages that have the names of ours."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from repository import ROOT

NAMES = ("data", "judge", "server", "cli", "commands", "calibration", "training", "reports")


def make_project(folder: Path) -> Path:
    """Make a folder in which `import data` finds a package of the project."""
    for name in NAMES:
        package = folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("OWN = True\n", encoding="utf-8")
    return folder


def run_in(project: Path, code: str, **variables: str) -> Any:
    """Run a program of the project, whose packages come first, and return the JSON that it prints."""
    script = project / "script.py"
    script.write_text(code, encoding="utf-8")
    path = os.pathsep.join([str(project), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
