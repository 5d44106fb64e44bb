"""Runs that are killed, interrupted, met by another or out of disk: processes of their own, as in life."""

import json
import resource
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


def test_a_run_killed_twice_ends_as_an_unbroken_one(write_responses: Write, start: Start) -> None:
    path = write_responses(5000, words=40)
    arguments = ("score", path, "--judge", "length", "--out")
    unbroken = start(*arguments, "unbroken")
    assert unbroken.wait(timeout=60) == 0
    for share in (0.2, 0.6):
        process = start(*arguments, "killed")
        wait_for_journal(
            process, Path("killed"), int(share * Path("unbroken/judgments.jsonl").stat().st_size)
        )
        process.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL, "killed while at work"
        assert not Path("killed/manifest.json").exists()
    assert 0 < Path("killed/journal.jsonl").read_bytes().count(b"\n") < 5000
    resumed = start(*arguments, "killed")
    output, _ = resumed.communicate(timeout=60)
    assert resumed.returncode == 0
    assert "5,000 judged" not in output, "what was judged is not judged again"
    for name in ("judgments.jsonl", "summary.json"):
        assert Path("killed", name).read_bytes() == Path("unbroken", name).read_bytes()
    manifests = [json.loads(Path(run, "manifest.json").read_text()) for run in ("killed", "unbroken")]
    assert manifests[0] | {"wall_seconds": 0} == manifests[1] | {"wall_seconds": 0}


def test_an_interrupted_run_says_how_to_go_on(write_responses: Write, start: Start) -> None:
    process = start(
        "score", write_responses(5000, words=40), "--judge", "length", "--limit", 4900, "--out", "a b"
    )
    wait_for_journal(process, Path("a b"), 100_000)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "what was judged is kept" in said
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
    assert f"process {first.pid} is at work" in said
    assert first.wait(timeout=60) == 0


def test_a_full_disk_ends_with_exit_code_5_and_loses_nothing(write_responses: Write, start: Start) -> None:
    path = write_responses(1000)

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    process = start("score", path, "--judge", "length", "--out", "run", preexec_fn=small_disk)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 5
    assert said.startswith("error: run: file too large")
    kept = Path("run/journal.jsonl").read_bytes().count(b"\n")
    assert kept > 100
    output, _ = start("score", path, "--judge", "length", "--out", "run", "-v").communicate(timeout=60)
    assert f"{1000 - kept} judged in" in output
