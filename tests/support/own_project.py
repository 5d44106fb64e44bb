"""Somebody's project whose packages bear the names of ours, and an environment with the judge in it."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from repository import ROOT

NAMES = ("data", "judge", "server", "cli", "commands", "calibration")


def make_project(folder: Path) -> Path:
    """A folder in which `import data` finds something else than ours."""
    for name in NAMES:
        package = folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("OWN = True\n", encoding="utf-8")
    return folder


def make_judge_environment(folder: Path) -> Path:
    """The Python of an environment with this checkout and the packages of these tests; made in a moment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    paths = [str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    (site / "empathy_judge.judge.pth").write_text("\n".join(dict.fromkeys(paths)) + "\n", encoding="utf-8")
    return folder / "bin" / "python"


def run_in(project: Path, code: str, *, python: str | Path = sys.executable, **variables: str) -> Any:
    """What a program of the project prints as JSON; ours is only importable behind its own packages."""
    path = os.pathsep.join([str(project), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    done = subprocess.run(
        [str(python), "-c", code], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
