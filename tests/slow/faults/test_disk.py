"""A real disk that is full, and files that may not grow: once there is room, nothing is asked twice."""

import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from servers import ScriptedServer, answer

Start = Callable[..., "subprocess.Popen[str]"]
SIZE = 40_000  # bytes that are left


@contextmanager
def full_disk(folder: Path) -> Iterator[Path]:
    """Mount a small disk, and yield the file that fills it."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        (folder / "ballast").write_bytes(bytes((1 << 20) - SIZE))
        yield folder / "ballast"
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def check(start: Start, path: Path, folder: Path, make_room: Callable[[], None], **limited: object) -> None:
    judge, run = path.with_name("judge.toml"), folder / "run"
    with ScriptedServer(answer) as server:
        about = f'model = "x"\nbase_url = "{server.base_url}"\nconcurrency = 4\n'
        judge.write_text(f'kind = "decision"\n{about}')
        words = ("score", path, "--judge", judge, "--out", run)
        process = start(*words, **limited)
        _, problems = process.communicate(timeout=100)
        assert process.returncode == 5 and "Traceback" not in problems and str(run) in problems, problems
        kept = (run / "journal.jsonl").read_bytes()
        assert kept.endswith(b"\n") and 20 < kept.count(b"\n") < 200, "no half line is left"
        make_room()
        assert start(*words).wait(timeout=100) == 0
        assert len(server.calls) <= 200 + 4, "but for those in flight"
    assert (run / "judgments.jsonl").read_bytes().count(b"\n") == 200
    assert not (run / "journal.jsonl").exists()


def test_a_full_disk(start: Start, tmp_path: Path, write_responses: Callable[..., Path]) -> None:
    path, folder = write_responses(200), tmp_path / "disk"
    folder.mkdir()
    with full_disk(folder) as ballast:
        check(start, path, folder, ballast.unlink)


def test_files_that_may_not_grow(start: Start, tmp_path: Path, write_responses: Callable[..., Path]) -> None:
    """The system's own limit stands for the disk."""
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (SIZE, SIZE))
    check(start, write_responses(200), tmp_path, lambda: None, preexec_fn=limit)
