"""The errors a person can mend; `cli.py` prints them without a traceback. Bugs keep theirs."""

from pathlib import Path

PINNED = Path(__file__).parents[1] / "constraints.txt"  # there in a checkout, and not in an installed package


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


def install_hint(extra: str = "") -> str:
    """Say how the packages of an extra are installed: in a checkout with its pinned versions.

    >>> install_hint("nightly").endswith("[nightly]'")
    True
    """
    if PINNED.exists():
        return f"pip install -c {PINNED.name} -e " + (f"'.[{extra}]'" if extra else ".")
    return f"pip install 'empathy-judge[{extra}]'" if extra else "pip install empathy-judge"
