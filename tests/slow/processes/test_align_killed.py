"""A run of align that is killed at work ends as an unbroken one."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from servers import Answer, Call, ScriptedServer, answer_chat

from data.tables import read_rows

Start = Callable[..., "subprocess.Popen[str]"]


def test_a_run_killed_at_work_ends_as_an_unbroken_one(tmp_path: Path, start: Start) -> None:
    def slowly(call: Call) -> Answer:
        marks = json.dumps({str(number): 1 + number % 4 for number in range(1, 21)})
        return Answer(body=answer_chat(call, marks).body, delay=0.02)

    with ScriptedServer(slowly) as server:
        options = ["align", "run", "--model", "m", "--base-url", server.base_url]
        options += ["--per-factor", "1", "--orders", "3"]
        whole = start(*options, "--out", "whole")
        killed = start(*options, "--concurrency", "2", "--out", "killed")
        journal = tmp_path / "killed" / "journal.jsonl"
        while not (journal.exists() and journal.read_bytes().count(b"\n") > 10):
            assert killed.poll() is None
        killed.kill()
        assert killed.wait(timeout=60) == -signal.SIGKILL
        assert not (tmp_path / "killed" / "manifest.json").exists()
        kept = journal.read_bytes().count(b"\n")
        assert whole.wait(timeout=60) == 0
        before = len(server.calls)
        again = start(*options, "--out", "killed")
        output, _ = again.communicate(timeout=60)
        assert again.returncode == 0
        asked_again = len(server.calls) - before
    total = 10 + 36 * 3
    assert f"{total} of {total} sheets of PANAS filled in by m" in output
    assert asked_again == total - kept < total
    assert (tmp_path / "killed/sheets.jsonl").read_bytes() == (tmp_path / "whole/sheets.jsonl").read_bytes()
    assert [row["id"] for _, row in read_rows(tmp_path / "killed/answers.jsonl")][:2] == [
        "default/order-0/repeat-0",
        "default/order-1/repeat-0",
    ]
