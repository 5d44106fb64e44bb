"""The command line, in the process of the test, and files of settings for it."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from empathy_judge.commands import main as cli


def run(*words: object, code: int | None = None) -> Result:
    """Run a command, which has to end with `code` if one is given."""
    done = CliRunner().invoke(cli.main, list(map(str, words)), prog_name="empathy-judge", terminal_width=80)
    assert code is None or done.exit_code == code, done.output
    return done


def write_toml(name: str, **options: Any) -> str:
    """Write settings as a file, and return its name."""
    Path(name).write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items()))
    return name


run_checked = partial(run, code=0)  # a command that has to succeed, or to end with another `code`
