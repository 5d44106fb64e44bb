"""Two nights at once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from nightly_world import World, start_world
from repository import ROOT

from empathy_judge.commands import main as cli

CLI = ROOT / "cli.py"
NOW = ("--now", "2026-12-01T02:00:00+00:00")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with start_world(tmp_path) as world:
        yield world


def start(*arguments: object) -> "subprocess.Popen[str]":
    words = [sys.executable, str(CLI), *map(str, arguments)]
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")}
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_of_two_nights_at_once_one_is_told_to_wait_and_nothing_is_doubled(world: World) -> None:
    path = world.write(models=("ann",))
    assert world.server is not None
    first = start("nightly", path, "--night", "2026-12-01", *NOW)
    try:
        world.server.wait_for_calls(3)
        first.send_signal(signal.SIGSTOP)
        second = start("nightly", path, "--night", "2026-12-01", *NOW)
        _, said = second.communicate(timeout=100)
        first.send_signal(signal.SIGCONT)
        first.communicate(timeout=100)
    finally:
        first.kill()
        first.communicate(timeout=100)
    assert second.returncode == 5
    assert "another process is running this night; wait until it is done" in said
    assert first.returncode == 0
    asked = dict(world.asked)
    assert CliRunner().invoke(cli.main, ["nightly", str(path), "--night", "2026-12-01"]).exit_code == 0
    assert asked == world.asked, "no more is asked than one night asks"
