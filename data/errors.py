"""Errors that the user can fix; the CLI prints them without a traceback and exits with their code.

    UserError, 2                       wrong input or usage
      ├─ OperationalError, 5           a disk, lock or endpoint failed
      │    └─ BudgetSpent, 5           the spending limit is reached
      ├─ StaleCalibration, 4           the calibration does not fit any more
      ├─ Interrupted, 130              the user stopped the command
      ├─ BatchUnderWay, 3              the batch has no answers yet
      └─ served_judge.BadJudgment      a judge on a server gave no usable judgment

Other exceptions never reach the user: `Cancelled` (the client disconnected), `CallFailed` and
`UnusableDecision` (one answer of a language model), `BadValue` and `BadCell` (one value of a file),
`DamagedRecord` (one row of a history), `RequestRefused`, `QueueFull` and `Conflict` (HTTP answers).
"""

import shlex
import sys
import tomllib
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINNED = ROOT / "constraints.txt"  # exists in a checkout only


class UserError(Exception):
    """Wrong input or usage; the message names the file and line, the problem and the fix."""

    exit_code = 2


class OperationalError(UserError):
    """A failure of a disk, lock or endpoint; the same command may succeed later."""

    exit_code = 5


class Interrupted(UserError):
    """An interruption by the user; finished work is saved."""

    exit_code = 130


class BudgetSpent(OperationalError):
    """A reached spending limit; finished judgments are saved, and the run can be resumed."""


class StaleCalibration(UserError):
    """A calibration that has expired or is for another judge; a new one is needed."""

    exit_code = 4


class BatchUnderWay(UserError):
    """A batch that has no answers yet; the same command collects them later."""

    exit_code = 3


def requirements() -> dict[str, list[str]]:
    """Return the packages that each extra needs; those that every installation needs are under ""."""
    source = ROOT / "pyproject.toml"
    if source.exists():  # a checkout: what is installed may be older
        project = tomllib.loads(source.read_text(encoding="utf-8"))["project"]
        return {"": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, list[str]] = {}
    for line in requires("empathy-judge") or ():
        package, _, marker = line.partition(";")
        found.setdefault(marker.partition('extra == "')[2].rstrip('"'), []).append(package.strip())
    return found


def install_hint(*names: str) -> str:
    """Return the command that installs extras or other packages; it works in any folder."""
    words = ["install", *(item for name in names for item in requirements().get(name, [name]))]
    words += ["-c", str(PINNED)] if PINNED.exists() else []
    if find_spec("pip"):
        return shlex.join([sys.executable, "-m", "pip", *words])
    return shlex.join(["uv", "pip", *words, "--python", sys.executable])
