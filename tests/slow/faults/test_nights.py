"""Nights under bad stars: killed at every step, two at once, and clocks put back over midnight."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner, Result
from faults import tally
from nightly_world import CURT, PROMPTS, World, start_world
from repository import ROOT

import cli
from calibration.artifact import Calibration, JudgeIdentity, misfit
from data.runs import ScorePlan, discard_run, open_run
from nightly.config import read_config
from nightly.history import open_history
from nightly.night import run_night
from nightly.output import FinishedNight

CLI = ROOT / "cli.py"
REGRESSED = frozenset(("bob", feeling) for feeling in CURT)
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
        tally("nightly", f"clock {name}")
        world.mood = str(number)
        record = live(world, f"2026-12-0{number}", Stepping(*times)).record
        started, finished = (datetime.fromisoformat(text) for text in (record.started, record.finished))
        assert finished >= started, name
        assert all((model.seconds or 0.0) >= 0.0 for model in record.models), name
        assert record.night == f"2026-12-0{number}", "a night keeps the name it began with"
    with open_history(world.folder / "nights.sqlite", must_exist=True) as history:
        nights = [point.night.night for point in history.all_series(config="n")["ann"]]
    assert nights == sorted(nights), "in the order of their names, whatever the clocks said"


def test_a_night_named_by_a_clock_that_was_put_back_is_the_one_before(world: World) -> None:
    path = world.write(models=("ann",))

    def run(now: str) -> dict[str, object]:
        done = CliRunner().invoke(cli.main, ["nightly", str(path), "--now", now, "--json"])
        assert done.exit_code == 0, done.output
        found: dict[str, object] = json.loads(done.stdout)
        return found

    assert run("2026-12-01T23:58:00+00:00")["is_new"]
    assert run("2026-12-02T00:03:00+00:00")["is_new"]
    asked = sum(world.asked.values())
    again = run("2026-12-01T23:59:00+00:00")
    assert (again["night"], again["is_new"]) == ("2026-12-01", False)
    assert sum(world.asked.values()) == asked, "and asks for nothing twice"


def test_a_calibration_outlives_a_clock_put_back_over_midnight() -> None:
    made = Calibration(
        judge="j",
        version="1",
        rubric="r",
        ratings="x",
        created=datetime(2026, 12, 2).date(),
        days=2,
        count=1,
        between={"Bad": {}, "Okay": {}, "Good": {}},
    )

    def on(day: str) -> str | None:
        today = datetime.fromisoformat(day).date()
        return misfit(made, JudgeIdentity(name="j", version="1", rubric="r"), today=today)

    assert on("2026-11-01") is None, "it holds before it was made, too"
    assert on("2026-12-03") is None
    assert on("2026-12-04") == "expired on 2026-12-04"


def test_the_real_clock_put_back_does_not_reach_a_night(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command takes the time once and then counts on what nobody can put back."""
    import nightly.night

    seen: list[timedelta] = []

    def watch(config: object, *, clock: object, **_: object) -> None:
        times = [clock() for _ in range(3)]  # type: ignore[operator]
        seen.extend(later - earlier for earlier, later in pairwise(times))
        raise KeyboardInterrupt

    monkeypatch.setattr(nightly.night, "run_night", watch)
    CliRunner().invoke(cli.main, ["nightly", str(world.write())])
    assert len(seen) == 2
    assert all(step >= timedelta(0) for step in seen)


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
        tally("nightly", "two at once")
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


def test_a_run_is_taken_away_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "plan.json").write_text("{}")

    def die(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(shutil, "rmtree", die)
        discard_run(folder)
    assert not folder.exists(), "never half of it"
    with open_run(folder, ScorePlan(judge="j", version="1", rubric="r", input="i")):
        assert [item.name for item in tmp_path.iterdir()] == ["run"], "what was left of it is gone as well"


# The steps of a night in their order, and how often each is called before the process dies there.
STEPS = (
    ("judge.llm.decision:DecisionJudge.judge", 5),  # among the anchors
    ("judge.llm.answer_prompts:Responder.respond", 7),  # among the first model's answers
    ("judge.llm.decision:DecisionJudge.judge", 5),  # among its judgments
    ("judge.llm.answer_prompts:Responder.respond", 1),  # before the second model
    ("nightly.night:check_gates", 1),
    ("nightly.history:_forget_judgments", 1),  # within the transaction
    ("nightly.night:build_dashboard", 1),
)
KILLED = """
import importlib, os, sys
place, count = sys.argv[1], int(sys.argv[2])
module, _, name = place.partition(":")
owner = importlib.import_module(module)
*parts, last = name.split(".")
for part in parts:
    owner = getattr(owner, part)
real = getattr(owner, last)
def fatal(*arguments, **options):
    global count
    count -= 1
    if count <= 0:
        os.kill(os.getpid(), 9)
    return real(*arguments, **options)
setattr(owner, last, fatal)
import cli
cli.main(sys.argv[3:])
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, ["nightly", *map(str, arguments)], terminal_width=80)


def test_a_kill_at_any_step_and_a_rerun_end_in_the_same_history(world: World) -> None:
    unbroken = World(world.folder / "unbroken", server=world.server)
    unbroken.folder.mkdir()
    for place in (world, unbroken):
        config = place.write(head='dashboard = "site"\n')
        assert run(config, "--night", "2026-12-01", *NOW).exit_code == 0
    world.mood, world.curt = "2", REGRESSED
    assert run(config, "--night", "2026-12-02", *NOW).exit_code == 1
    world.asked.clear()
    arguments = ["nightly", str(world.folder / "n.toml"), "--night", "2026-12-02", *NOW]
    for place, count in STEPS:
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, place, str(count), *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            timeout=120,
        )
        assert killed.returncode == -signal.SIGKILL, (place, killed.stderr.decode())
    done = run(*arguments[1:])
    assert done.exit_code == 1, done.output
    assert world.export() == unbroken.export()
    assert world.asked["ann"] <= PROMPTS + 4, "at most the calls in flight are made twice"
    pages = [sorted((place.folder / "site").iterdir()) for place in (world, unbroken)]
    assert [page.name for page in pages[0]] == [page.name for page in pages[1]]
    for one, other in zip(*pages, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
