"""What a file or a server says steers no terminal, and starts no workflow command of GitHub Actions."""

import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from command_line import run
from repository import ROOT
from servers import Answer, ScriptedServer

from empathy_judge.data.tables import write_rows
from empathy_judge.reports.outputs import EscapedStream, escape_commands

HOSTILE = "\x1b]0;owned\x07\x1b[2Jgone\x9b31m\u202esdrawkcab"
STEERS = set("\x1b\x07\x9b\u202e\r")
OWNED = "::error file=app.py::owned"
# At the start of a line, after a line that was folded, after white space, and in the form before `::`.
NAMES = (OWNED, f"{'a long name ' * 9}{OWNED}", f"\u3000{OWNED}", "x ##[error]owned", "##[add-path]/tmp")
PROMPTS = [f"I lost my {thing} today." for thing in ("job", "keys", "dog", "way", "temper", "watch")]


def obeyed(text: str) -> list[str]:
    """Return the lines that the runner takes for commands: its own rules, which allow white space."""
    lines = re.split(r"\r\n|\r|\n", text)
    return [line for line in lines if line.lstrip().startswith("::") or "##[" in line]


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"id": f"{name}{n}", "model": name, "prompt": prompt, "response": f"{OWNED}\n{OWNED} {'hm ' * n}"}
        for name in (*NAMES, HOSTILE)
        for n, prompt in enumerate(PROMPTS)
    ]
    write_rows(Path("replies.jsonl"), rows)
    write_rows(Path("bad.jsonl"), [{"prompt": "p", f"x\n{OWNED}{HOSTILE}": "r"}])
    Path("bad.csv").write_text(f"{HOSTILE},{OWNED}\n1,2\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")


JUDGED = ("replies.jsonl", "--judge", "length")
COMMANDS = [
    ("score", *JUDGED, "--verbose"),
    ("score", *JUDGED, "--json"),
    ("compare", *JUDGED, "--github-summary"),
    ("compare", *JUDGED, "--models", ",".join(NAMES[:2])),
    ("compare", *JUDGED, "--json"),
    ("compare", *JUDGED, "--models", OWNED + "\n" + OWNED),
    ("rate", "plan", "replies.jsonl", "--people", "1", "--each", "20", "--json"),
    ("rate", "status", "plan", "--baseline", HOSTILE + OWNED),
    ("score", "bad.jsonl", "--judge", "length"),
    ("score", "bad.csv"),
    ("compare", "bad.csv"),
    ("calibrate", "bad.csv", "bad.csv"),
    ("score", f"x\n{OWNED}.jsonl"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: "-".join(words[:2]))
def test_no_text_of_a_file_steers_a_terminal_or_starts_a_command(words: tuple[str, ...]) -> None:
    if words[:2] == ("rate", "status"):
        run("rate", "plan", "replies.jsonl", "--people", 1, "--each", 20, "--out", "plan", code=0)
    done = run(*words)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "owned" in done.output, "the text is shown"
    assert obeyed(done.output) == [] and not STEERS & set(done.output)
    if "--github-summary" in words:
        summary = Path("summary.md").read_text()
        assert "owned" in summary and obeyed(summary) == []


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 401])
def test_what_a_server_says_steers_no_terminal(status: int) -> None:
    body = {"error": {"message": f"sorry: {HOSTILE}"}}
    with ScriptedServer(lambda _: Answer(status=status, body=body)) as server:
        table = f"kind = 'prompted'\nmodel = 'm'\nbase_url = '{server.base_url}'\nretries = 0\n"
        Path("judge.toml").write_text(table)
        said = run("score", "replies.jsonl", "--judge", "judge.toml", "--out", "run", "--verbose").output
    texts = [said]
    if status == 400:
        rows = map(json.loads, Path("run/judgments.jsonl").read_bytes().splitlines())
        texts = [row["unscored"] for row in rows]
    assert all("sorry" in text and not STEERS & set(text) for text in texts) and not STEERS & set(said)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii:replace"])
def test_a_process_escapes_both_streams_and_a_file_keeps_its_bytes(encoding: str) -> None:
    words = [sys.executable, str(ROOT / "cli.py"), "score", *JUDGED]
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(words, capture_output=True, env=env, timeout=120)
    text = (done.stdout + done.stderr).decode()
    assert done.returncode == 0 and "owned" in text and obeyed(text) == []
    with Path("out.txt").open("wb") as out:
        subprocess.run(words, stdout=out, env=env, timeout=120, check=True)
    assert "##[add-path]" in Path("out.txt").read_text()


def test_a_command_written_in_parts_is_escaped_once() -> None:
    parts = [f"{OWNED}\n", " :", ":x\n", "a::b\n", "\t", "::y", "::z\n", "##", "[error]", "\n", "::", "w##"]
    texts = [*parts, "[x\r::v"]
    for written in (texts, list("".join(texts)), ["".join(texts)]):
        out = StringIO()
        stream = EscapedStream(out)
        for part in written:
            stream.write(part)
        assert out.getvalue() == escape_commands("".join(texts))
        assert obeyed(out.getvalue()) == []


def test_outside_of_a_job_nothing_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert "##[add-path]" in run(*COMMANDS[0]).output
