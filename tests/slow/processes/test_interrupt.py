"""A run that is interrupted in a process of its own prints how to resume it."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import monotonic

Start = Callable[..., "subprocess.Popen[str]"]
Write = Callable[..., Path]


def test_an_interrupted_run_prints_how_to_resume(
    tmp_path: Path, write_responses: Write, start: Start
) -> None:
    path, journal = write_responses(5000, words=40), tmp_path / "a b" / "journal.jsonl"
    process = start("score", path, "--judge", "length", "--limit", 4900, "--out", "a b")
    deadline = monotonic() + 600  # against hanging only
    while process.poll() is None and not (journal.exists() and journal.stat().st_size > 100_000):
        assert monotonic() < deadline
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "responses.jsonl --judge length --out 'a b' --limit 4900" in printed
    assert "Traceback" not in printed
