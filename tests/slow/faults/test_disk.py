"""A real disk that is full, and files that may not grow."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from repository import ROOT
from servers import ScriptedServer, answer

Write = Callable[..., Path]


def run(
    folder: Path, *words: object, limit: int = resource.RLIM_INFINITY
) -> "subprocess.CompletedProcess[str]":
    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")}
    return subprocess.run(
        [sys.executable, "-B", str(ROOT / "cli.py"), *map(str, words)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit)),
    )


def assert_full(done: "subprocess.CompletedProcess[str]", place: Path) -> None:
    assert done.returncode == 5 and "Traceback" not in done.stderr, done.stdout + done.stderr
    assert str(place) in done.stderr
    kept = (place / "journal.jsonl").read_bytes()
    assert kept.endswith(b"\n") and 20 < kept.count(b"\n") < 200, "no half line is left"


def test_once_there_is_room_on_a_full_disk_nothing_is_asked_twice(
    tmp_path: Path, write_responses: Write
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True
    ).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        with ScriptedServer(answer) as server:
            judge = tmp_path / "judge.toml"
            about = f'model = "x"\nbase_url = "{server.base_url}"\nconcurrency = 4\n'
            judge.write_text(f'kind = "decision"\n{about}')
            arguments = ("score", write_responses(200), "--judge", judge, "--out", disk / "run")
            (disk / "ballast").write_bytes(bytes((1 << 20) - 40_000))
            assert_full(run(tmp_path, *arguments), disk / "run")
            (disk / "ballast").unlink()
            done = run(tmp_path, *arguments)
            assert done.returncode == 0, done.stderr
            assert len(server.calls) <= 200 + 4, "but for those in flight"
        assert (disk / "run" / "judgments.jsonl").read_bytes().count(b"\n") == 200
        assert not (disk / "run" / "journal.jsonl").exists()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_files_that_may_not_grow(tmp_path: Path, write_responses: Write) -> None:
    """The system's own limit stands for the disk."""
    arguments = ("score", write_responses(300), "--judge", "length", "--out", tmp_path / "run")
    assert_full(run(tmp_path, *arguments, limit=20_000), tmp_path / "run")
    assert run(tmp_path, *arguments).returncode == 0
