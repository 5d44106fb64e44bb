"""Where the judge starts, as a command or as a child process: our packages before others of their names."""

import os
import sys
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

HOME = Path(__file__).resolve().parents[1]  # with all of our packages: a checkout, or site-packages
OURS = ["data", "calibration", "judge", "reports", "nightly", "emotionbench", "server", "rating"]
OURS += ["commands"]
HOW = (
    "install the judge in its own environment (python -m venv), and set the environment variable "
    "EMPATHY_JUDGE_PYTHON to that Python"
)


def main() -> Any:
    """The command line, also where PYTHONPATH names a project with its own `data`."""
    put_ours_first()
    from importlib import import_module

    return import_module("empathy_judge.commands.main").main()


def put_ours_first() -> None:
    """Move folders with packages of our names behind ours, and see that ours are whole."""
    home = str(HOME)
    # Isolated mode leaves out folders that we may lie in, such as the user's own site-packages.
    path = sys.path if home in sys.path else [home, *sys.path]
    later = [entry for entry in path if entry != home and _has_our_names(Path(entry))]
    sys.path[:] = [entry for entry in path if entry not in later] + later
    for name in OURS:
        if not any((HOME / name).with_suffix(suffix).exists() for suffix in ("", ".py")):
            sys.exit(f"error: the package {name!r} is missing from {HOME}; {HOW}")
    if not (HOME / "data" / "records.py").exists():
        sys.exit(f"error: another package named 'data' was installed over this one in {HOME}; {HOW}")


def _has_our_names(folder: Path) -> bool:
    return any((folder / name / "__init__.py").exists() or (folder / f"{name}.py").exists() for name in OURS)


def _run_child() -> None:
    """Run a command that ends with the parent process."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends us
    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    sys.argv[0] = "empathy-judge"
    main()


def _end_with(parent: int) -> None:
    """A fork of the parent can hold our stdin open after it is gone."""
    while os.getppid() == parent:
        sleep(1)
    os._exit(0)


if __name__ == "__main__":
    _run_child()
