"""The errors a person can mend; `cli.py` prints them without a traceback. Bugs keep theirs."""

import shlex
import sys
import tomllib
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINNED = ROOT / "constraints.txt"  # there in a checkout, and not in an installed package


class UserError(Exception):
    """Wrong input or usage: the message names the place, the thing and the way out."""

    exit_code = 2


class OperationalError(UserError):
    """The world failed (disk, lock, endpoint): the same command may work later."""

    exit_code = 5


class Interrupted(UserError):
    """Stopped by the person at the keyboard; what was done is kept."""

    exit_code = 130


class BudgetSpent(OperationalError):
    """The money allowed for a run is spent; what was judged is kept, and the run can be taken up again."""


class StaleCalibration(UserError):
    """The calibration asked for has expired or is of another judge: it must be made anew."""

    exit_code = 4


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
    """Return the command that installs extras or other packages; it works in any folder.

    >>> "pip install mlflow" in install_hint("mlflow")
    True
    """
    words = ["install", *(item for name in names for item in requirements().get(name, [name]))]
    words += ["-c", str(PINNED)] if PINNED.exists() else []
    if find_spec("pip"):
        return shlex.join([sys.executable, "-m", "pip", *words])
    return shlex.join(["uv", "pip", *words, "--python", sys.executable])
