"""What makes the command line pleasant: completion, colour, and tables of the terminal's width."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from command_line import run
from repository import ROOT

from empathy_judge.commands import main as cli

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
Write = Callable[..., Path]


def on_terminal(*arguments: object, columns: int = 80, **variables: str) -> str:
    """What a person sees at a terminal of this width, escapes included."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")
    }
    command = [sys.executable, str(ROOT / "cli.py"), *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=kept | {"TERM": "xterm-256color"} | variables
    ) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                part = os.read(master, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
    os.close(master)
    assert process.returncode == 0, seen
    return seen.decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    """The text alone, without what a bar that went away had written."""
    return "\n".join(line.split("\r")[-1] for line in ESCAPE.sub("", text).split("\n"))


@pytest.mark.parametrize(
    ("words", "incomplete", "expected", "has_files"),
    [
        ([], "cal", {"calibrate"}, False),
        (["score"], "--ju", {"--judge"}, False),
        (["score", "--judge"], "class", {"classifier", "classifier-large"}, True),
        (["history", "export", "--kind"], "em", {"emotions"}, False),
        (["compare"], "x", set(), True),
    ],
)
def test_names_and_files_complete(
    words: list[str], incomplete: str, expected: set[str], has_files: bool
) -> None:
    found = ShellComplete(cli.main, {}, "empathy-judge", "_X").get_completions(words, incomplete)
    assert {item.value for item in found if item.type == "plain"} == expected
    assert ("file" in {item.type for item in found}) == has_files


@pytest.fixture
def scored(write_responses: Write) -> str:
    run("score", write_responses(90), "--judge", "length", "--out", "run", code=0)
    return "run"


@pytest.mark.slow
def test_colour_is_for_terminals_and_never_changes_the_text(scored: str) -> None:
    command = ("compare", scored)
    piped = run(*command).stdout
    assert "\x1b" not in piped
    shown = on_terminal(*command)
    assert "\x1b[1m" in shown
    without = on_terminal(*command, NO_COLOR="1")
    start = piped[:20]  # what a terminal prints before it is progress
    body, _, step = without[without.index(start) :].partition("Next, ")
    assert "\x1b" not in body + step
    assert body == plain(shown)[plain(shown).index(start) :].partition("Next, ")[0] == piped


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_no_column_of_the_table_goes_missing(scored: str, write_responses: Write, columns: int) -> None:
    shown = plain(
        on_terminal("score", "responses.jsonl", "--judge", "length", "--out", scored, "-v", columns=columns)
    )
    summary = json.loads(Path(scored, "summary.json").read_text())
    for model in summary["models"]:
        assert model["model"] in shown
        for share in model["shares"].values():
            assert f"{100 * share['value']:.1f}" in shown
            assert f"[{100 * share['low']:.1f}, {100 * share['high']:.1f}]" in shown
    table = shown[: shown.index("% of replies, with 95% CI")].splitlines()
    assert max(map(len, table)) <= columns
    for name in ("Bad", "Okay", "Good", "unscored"):
        assert any(name in line for line in table)
