"""What a file says starts no workflow command in a job of GitHub Actions."""

import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from repository import ROOT

from empathy_judge.commands import main as cli
from empathy_judge.reports.outputs import EscapedStream, escape_commands

OWNED = "::error file=app.py::owned"
# At the start of a line, after a line that was folded, after white space, and in the form before `::`.
NAMES = (OWNED, f"{'a long name ' * 9}{OWNED}", f"\u3000{OWNED}", "x ##[error]owned", "##[add-path]/tmp")
PROMPTS = [f"I lost my {thing} today." for thing in ("job", "keys", "dog", "way", "temper", "watch")]


def obeyed(text: str) -> list[str]:
    """Return the lines that the runner takes for commands: its own rules, which allow white space."""
    lines = re.split(r"\r\n|\r|\n", text)
    return [line for line in lines if line.lstrip().startswith("::") or "##[" in line]


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": f"{name}{n}", "model": name, "prompt": prompt, "response": f"{OWNED}\n{OWNED} {'hm ' * n}"}
        for name in NAMES
        for n, prompt in enumerate(PROMPTS)
    ]
    Path("replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("bad.jsonl").write_text(json.dumps({"prompt": "p", f"x\n{OWNED}": "r"}) + "\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    return tmp_path


COMMANDS = {
    "score": ("score", "replies.jsonl", "--judge", "length", "--verbose"),
    "score --json": ("score", "replies.jsonl", "--judge", "length", "--json"),
    "compare": ("compare", "replies.jsonl", "--judge", "length", "--github-summary"),
    "compare two": ("compare", "replies.jsonl", "--judge", "length", "--models", ",".join(NAMES[:2])),
    "compare --json": ("compare", "replies.jsonl", "--judge", "length", "--json"),
    "no such model": ("compare", "replies.jsonl", "--judge", "length", "--models", OWNED + "\n" + OWNED),
    "a bad file": ("score", "bad.jsonl", "--judge", "length"),
    "no such file": ("score", f"x\n{OWNED}.jsonl"),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_no_line_starts_a_command(case: str) -> None:
    done = CliRunner().invoke(cli.main, COMMANDS[case])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "owned" in done.output, "the text is shown"
    assert obeyed(done.output) == []
    if case.startswith("compare") and "--github-summary" in COMMANDS[case]:
        summary = Path("summary.md").read_text()
        assert "owned" in summary and obeyed(summary) == []


@pytest.mark.parametrize("encoding", ["utf-8", "ascii:replace"])
def test_a_process_escapes_both_streams_and_a_file_keeps_its_bytes(encoding: str) -> None:
    words = [sys.executable, str(Path(str(ROOT / "cli.py"))), "score", "replies.jsonl", "--judge", "length"]
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(words, capture_output=True, env=env, timeout=120)
    text = (done.stdout + done.stderr).decode()
    assert done.returncode == 0 and "owned" in text and obeyed(text) == []
    with Path("out.txt").open("wb") as out:
        subprocess.run(words, stdout=out, env=env, timeout=120, check=True)
    assert "##[add-path]" in Path("out.txt").read_text()


def test_a_command_written_in_parts_is_escaped_once() -> None:
    texts = [
        f"{OWNED}\n",
        " :",
        ":x\n",
        "a::b\n",
        "\t",
        "::y",
        "::z\n",
        "##",
        "[error]",
        "\n",
        "::",
        "w##",
        "[x\r::v",
    ]
    for parts in (texts, list("".join(texts)), ["".join(texts)]):
        out = StringIO()
        stream = EscapedStream(out)
        for part in parts:
            stream.write(part)
        assert out.getvalue() == escape_commands("".join(texts))
        assert obeyed(out.getvalue()) == []


def test_outside_of_a_job_nothing_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert "##[add-path]" in CliRunner().invoke(cli.main, COMMANDS["score"]).output
