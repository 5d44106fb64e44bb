"""Real disks that are full or cannot be written to, and files where folders should be."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faults import ROOT
from histories import write_history
from servers import ScriptedServer, answer

Write = Callable[..., Path]
IS_ROOT = os.geteuid() == 0
NEEDS_ROOT = "only root may mount a small disk"


def run(
    folder: Path, *words: object, limit: int | None = None, nobody: bool = False
) -> "subprocess.CompletedProcess[str]":
    def prepare() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        if nobody:
            os.setgid(65534)
            os.setuid(65534)

    env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")}
    env |= {"PYTHONDONTWRITEBYTECODE": "1"}
    words = (sys.executable, str(ROOT / "cli.py"), *map(str, words))
    return subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, timeout=100, preexec_fn=prepare
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if not IS_ROOT:
        pytest.skip(NEEDS_ROOT)
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip(NEEDS_ROOT)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(place: Path, *, leave: int) -> Path:
    """A file that leaves so many bytes of a disk free."""
    free = os.statvfs(place)
    ballast = place / "ballast"
    ballast.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - leave)))
    return ballast


def assert_full(done: "subprocess.CompletedProcess[str]", place: str) -> None:
    assert done.returncode == 5, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert place in done.stderr
    assert "free some space" in done.stderr or "allow larger files" in done.stderr


def test_a_full_disk_is_said_and_once_there_is_room_nothing_is_asked_twice(
    small_disk: Path, write_responses: Write
) -> None:
    path = write_responses(200)
    with ScriptedServer(answer) as server:
        judge = path.with_name("judge.toml")
        judge.write_text(f'kind = "decision"\nmodel = "x"\nbase_url = "{server.base_url}"\nconcurrency = 4\n')
        arguments = ("score", path, "--judge", judge, "--out", small_disk / "run")
        ballast = fill(small_disk, leave=40_000)
        assert_full(run(path.parent, *arguments), str(small_disk / "run"))
        kept = (small_disk / "run" / "journal.jsonl").read_bytes()
        assert kept.endswith(b"\n"), "no half line is left"
        assert 20 < kept.count(b"\n") < 200
        ballast.unlink()
        done = run(path.parent, *arguments)
        assert done.returncode == 0, done.stderr
        assert len(server.calls) <= 200 + 4, "but for those in flight"
    lines = (small_disk / "run" / "judgments.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [f"r{n}" for n in range(200)]
    assert {item.name for item in (small_disk / "run").iterdir()} == {
        *("judgments.jsonl", "summary.json", "manifest.json", "plan.json", "lock")
    }


@pytest.mark.parametrize("leave", [0, 8_192])
def test_a_history_on_a_full_disk_is_as_it_was(leave: int, small_disk: Path) -> None:
    path = write_history(small_disk / "nights.sqlite", nights=2, responses=2)
    fill(small_disk, leave=leave)
    assert_full(
        run(small_disk, "dashboard", "nights.sqlite", "--out", "site"), "nights.sqlite" if leave == 0 else "s"
    )
    (small_disk / "ballast").unlink()
    done = run(small_disk, "history", "export", "--history", path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 8


def test_files_that_may_not_grow_are_said(tmp_path: Path, write_responses: Write) -> None:
    """Needs no root: the system's own limit stands for the disk."""
    arguments = ("score", write_responses(300), "--judge", "length", "--out", "run")
    assert_full(run(tmp_path, *arguments, limit=20_000), "run")
    assert (tmp_path / "run" / "journal.jsonl").read_bytes().endswith(b"\n")
    assert run(tmp_path, *arguments).returncode == 0


def test_a_disk_that_is_read_only(small_disk: Path, write_responses: Write) -> None:
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    done = run(small_disk, "score", write_responses(3), "--judge", "length", "--out", small_disk / "run")
    assert done.returncode == 5
    assert f"{small_disk / 'run'}: read-only file system; choose a folder on a writable disk" in done.stderr
