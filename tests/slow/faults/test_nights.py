"""Nights under bad stars: two at once, and clocks put back over midnight."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner
from nightly_world import World, start_world
from repository import ROOT

import cli
from nightly.config import read_config
from nightly.history import open_history
from nightly.night import run_night
from nightly.output import FinishedNight

CLI = ROOT / "cli.py"
NOW = ("--now", "2026-12-01T02:00:00+00:00")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with start_world(tmp_path) as world:
        yield world


class Stepping:
    """A clock that goes through these times, and stays at the last."""

    def __init__(self, *times: datetime) -> None:
        self.times = list(times)

    def __call__(self) -> datetime:
        return self.times.pop(0) if len(self.times) > 1 else self.times[0]


def live(world: World, night: str, clock: Stepping) -> FinishedNight:
    return run_night(read_config(world.folder / "n.toml"), night=night, clock=clock)


BACK = [  # how a clock goes while a night runs
    ("over midnight", [datetime(2026, 12, 2, 0, 3, tzinfo=UTC), datetime(2026, 12, 1, 23, 58, tzinfo=UTC)]),
    ("by a year", [datetime(2026, 12, 2, tzinfo=UTC), datetime(2025, 12, 2, tzinfo=UTC)]),
    (
        "to winter time",
        [
            datetime(2026, 10, 25, 2, 59, tzinfo=ZoneInfo("Europe/Berlin")),
            datetime(2026, 10, 25, 2, 1, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        ],
    ),
    (
        "to summer time",
        [
            datetime(2026, 3, 29, 1, 59, tzinfo=ZoneInfo("Europe/Berlin")),
            datetime(2026, 3, 29, 3, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        ],
    ),
]


def test_no_clock_makes_a_night_end_before_it_began(world: World) -> None:
    world.write(models=("ann",))
    for number, (name, times) in enumerate(BACK, start=1):
        world.mood = str(number)
        record = live(world, f"2026-12-0{number}", Stepping(*times)).record
        started, finished = (datetime.fromisoformat(text) for text in (record.started, record.finished))
        assert finished >= started, name
        assert all((model.seconds or 0.0) >= 0.0 for model in record.models), name
        assert record.night == f"2026-12-0{number}", "a night keeps the name it began with"
    with open_history(world.folder / "nights.sqlite", must_exist=True) as history:
        nights = [point.night.night for point in history.all_series(config="n")["ann"]]
    assert nights == sorted(nights), "in the order of their names, whatever the clocks said"


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
    assert "another process is at this night; wait until it is done" in said
    assert first.returncode == 0
    asked = dict(world.asked)
    assert CliRunner().invoke(cli.main, ["nightly", str(path), "--night", "2026-12-01"]).exit_code == 0
    assert asked == world.asked, "no more is asked than one night asks"
