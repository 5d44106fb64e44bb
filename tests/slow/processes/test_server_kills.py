"""Runs that ask a server, directly or in batches, killed while they wait for it."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from batch_servers import BatchServer
from servers import Answer, Call, ScriptedServer, answer

from data.tables import read_judgments

Start = Callable[..., "subprocess.Popen[str]"]
Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_judge(base_url: str, **options: object) -> str:
    about = {"kind": "decision", "model": "gpt-6-luna", "base_url": base_url, **options}
    Path("judge.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in about.items()))
    return "judge.toml"


def test_a_run_killed_three_times_ends_as_an_unbroken_one(write_responses: Write, start: Start) -> None:
    allowed = 0  # so many calls are answered; the others hang, and their client is killed

    def script(call: Call) -> Answer:
        return answer(call) if call.number < allowed else Answer(hang=True)

    path = write_responses(200)
    with ScriptedServer(script) as server:
        judge = write_judge(server.base_url, concurrency=4)
        for _ in range(3):
            allowed = len(server.calls) + 40
            process = start("score", path, "--judge", judge, "--out", "killed")
            server.wait_for_calls(allowed + 4)  # all four threads hang
            process.kill()
            assert process.wait(timeout=60) == -signal.SIGKILL
            assert not Path("killed/manifest.json").exists()
        assert 0 < Path("killed/journal.jsonl").read_bytes().count(b"\n") <= 120
        before = len(server.calls)
        allowed = 10**6
        resumed = start("score", path, "--judge", judge, "--out", "killed")
        assert resumed.wait(timeout=60) == 0
        assert 80 <= len(server.calls) - before <= 92, "asked again only for what was not kept"
        unbroken = start("score", path, "--judge", judge, "--out", "unbroken")
        assert unbroken.wait(timeout=60) == 0
    for name in ("judgments.jsonl", "summary.json"):
        assert Path("killed", name).read_bytes() == Path("unbroken", name).read_bytes()


@pytest.mark.parametrize("step", ["ask", "upload", "submit", "list", "poll", "download"])
def test_killed_in_any_step_nothing_is_submitted_twice(
    step: str, write_responses: Write, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "sk-test-7f3a9c1e5b2d8f60")
    path = write_responses(30)
    with BatchServer() as server:
        judge = write_judge(server.base_url, key_env="TEST_KEY", retries=2)
        server.is_done = True
        server.hang_after = {step}
        arguments = ("score", path, "--judge", judge, "--batch", "--wait", "--out", "run")
        process = start(*arguments)
        server.wait_for(step)
        process.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL, "killed while at work"
        server.hang_after = set()
        done = start(*arguments)
        output, errors = done.communicate(timeout=60)
        assert done.returncode == 0, output + errors
        assert server.steps["submit"] == len(server.batches) == 1, "never twice"
        asked = [json.loads(line)["custom_id"] for line in server.files["file-1"].splitlines()]
        assert len(asked) == len(set(asked)) == 29
    judgments = list(read_judgments(Path("run/judgments.jsonl")))
    assert [item.id for item in judgments] == [f"r{n}" for n in range(30)]
    assert not any(item.unscored for item in judgments)
