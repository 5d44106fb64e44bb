"""Runs that are killed, interrupted, met by another or out of disk: processes of their own, as in life."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

Start = Callable[..., "subprocess.Popen[str]"]
Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def journal_size(folder: Path) -> int:
    try:
        return (folder / "journal.jsonl").stat().st_size
    except FileNotFoundError:
        return 0


def wait_for_journal(process: "subprocess.Popen[str]", folder: Path, size: int) -> None:
    """Returns as soon as the journal has grown past `size`."""
    deadline = monotonic() + 600  # against hanging only
    while journal_size(folder) <= size and process.poll() is None:
        assert monotonic() < deadline, "the run does not get on"


def test_an_interrupted_run_says_how_to_go_on(write_responses: Write, start: Start) -> None:
    process = start(
        "score", write_responses(5000, words=40), "--judge", "length", "--limit", 4900, "--out", "a b"
    )
    wait_for_journal(process, Path("a b"), 100_000)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "finished judgments are saved" in said
    assert "responses.jsonl --judge length --out 'a b' --limit 4900" in said
    assert "Traceback" not in said


def test_two_processes_do_not_share_a_folder(write_responses: Write, start: Start) -> None:
    path = write_responses(5000, words=40)
    first = start("score", path, "--judge", "length", "--out", "run")
    wait_for_journal(first, Path("run"), 0)
    first.send_signal(signal.SIGSTOP)
    try:
        second = start("score", path, "--judge", "length", "--out", "run")
        _, said = second.communicate(timeout=60)
    finally:
        first.send_signal(signal.SIGCONT)
    assert second.returncode == 5
    assert f"process {first.pid} " in said
    assert first.wait(timeout=60) == 0
