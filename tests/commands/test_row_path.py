"""Through how many modules a row goes on its way from `score` to the table of shares."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from click.testing import CliRunner
from repository import ROOT, SAMPLES

from empathy_judge.calibration.shares.tally import JudgedShares, Tally
from empathy_judge.commands import main as cli
from empathy_judge.data.records import Exchange, Judgment
from empathy_judge.judge.scoring import SummarizedRun

pytestmark = pytest.mark.slow  # every call is traced

ROW = (Exchange, Judgment)
FIGURES = (*ROW, Tally, JudgedShares, SummarizedRun)  # what becomes of it, up to the screen


class Trace:
    """The modules of ours in which a function runs while a row, or what became of it, is in its hands.

    A function has it in its hands where it takes or returns one, and so have those that it calls.
    """

    def __init__(self, holders: tuple[type, ...]) -> None:
        self.holders = holders
        self.modules: set[str] = set()
        self._calls = threading.local()

    def note(self, frame: FrameType, event: str, returned: Any) -> None:
        """Called by Python at every call and return."""
        path, stack = Path(frame.f_code.co_filename), self._calls.__dict__.setdefault("stack", [])
        if not frame.f_code.co_flags & CO_NEWLOCALS or ROOT not in path.parents or ".venv" in path.parts:
            return
        if event == "call":
            count = frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount
            taken = [frame.f_locals.get(name) for name in frame.f_code.co_varnames[:count]]
            is_held = any(isinstance(item, self.holders) or is_row(item) for item in taken)
            stack.append((frame, is_held or bool(stack and stack[-1][1])))
            if stack[-1][1]:
                self.modules.add(path.relative_to(ROOT).as_posix())
        elif event == "return" and stack and stack[-1][0] is frame:
            stack.pop()
            if isinstance(returned, self.holders):
                self.modules.add(path.relative_to(ROOT).as_posix())


def is_row(item: object) -> bool:
    return isinstance(item, dict) and "prompt" in item


@contextmanager
def tracing(holders: tuple[type, ...]) -> Iterator[Trace]:
    trace = Trace(holders)
    threading.setprofile(trace.note)
    sys.setprofile(trace.note)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("judge", "holders", "most"),
    [("length", ROW, 14), ("classifier", ROW, 19), ("length", FIGURES, 21), ("classifier", FIGURES, 32)],
)
def test_a_row_meets_few_modules(
    judge: str, holders: tuple[type, ...], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "empathy_judge.data.runs.SYNC_SECONDS", float("inf")
    )  # how often that comes, the clock decides
    command = ["score", str(SAMPLES / "responses.jsonl"), "--judge", judge, "--limit", "12", "--out"]
    # Once before: what is loaded with the first row is not on the way of every row.
    assert CliRunner().invoke(cli.main, [*command, str(tmp_path / "first")]).exit_code == 0
    with tracing(holders) as trace:
        done = CliRunner().invoke(cli.main, [*command, str(tmp_path / "second")])
    assert done.exit_code == 0
    modules = {name for name in trace.modules if not name.startswith("tests/")}
    assert {"data/tables.py", "judge/engine.py", "data/runs.py"} <= modules
    assert len(modules) <= most, sorted(modules)
