"""Every command helps with an example and ends with the next step; results go elsewhere."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from command_line import run
from repository import ROOT
from topics import on_topic

from empathy_judge.commands import main as cli


def commands(group: click.Group = cli.main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


def write_replies(path: str, count: int, models: int = 1) -> Path:
    rows = [
        {"id": f"{n}-{m}", "model": f"m{m}", "prompt": prompt, "response": opening + " Oh no." * m}
        for n in range(count)
        for m in range(models)
        for prompt, opening in [on_topic(n)]
    ]
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Path(path)


@pytest.mark.parametrize("path", list(commands()), ids=" ".join)
def test_every_help_has_an_example_and_no_line_is_cut_off(path: tuple[str, ...]) -> None:
    said = run(*path, "--help").stdout
    assert re.search(r"^  Examples?:\n    (eval \"\$\()?empathy-judge ", said, re.MULTILINE)
    short = said.split("\n\n")[1].strip()
    assert "\n" not in short and len(short) <= 64, "its line in the list of commands"


def test_no_figure_is_told_of_fewer_than_ten_replies() -> None:
    done = run("score", write_replies("few.jsonl", 9), "--judge", "length")
    assert "No figure from fewer than 10 replies: m0 (9)." in done.stdout
    assert "%" not in done.stdout.partition("\n")[2]
    assert done.stderr.splitlines()[-1] == "Next, add replies: an estimate needs 10 or more per model"
    enough = run("score", write_replies("enough.jsonl", 10), "--judge", "length").stdout
    assert "No figure" not in enough and "its interval is too narrow" in enough


def make_states() -> Iterator[tuple[str, ...]]:
    """Commands in the states that they can end in; each may use the files of those before it."""
    many, one = write_replies("many.jsonl", 24, 3), write_replies("one.jsonl", 12)
    few = write_replies("few.jsonl", 4)
    length = ("--judge", "length")
    yield "score", str(many), *length
    yield "score", str(many), *length, "--limit", "6", "--out", "limited"
    yield "score", str(one), "--out", "it's one"  # a name that needs quoting, and the default judge
    yield "score", str(few), *length
    yield "compare", str(many), *length
    yield "compare", str(many), *length, "--out", "compared"
    yield "rate", "plan", str(many), "--people", "4", "--out", "plan"
    yield "rate", "status", "plan"
    rated = [
        {"id": f"{n}-{m}", "model": f"m{m}", "rater": f"p{rater}", "rating": 1 + (n + m + rater) % 3}
        for n in range(24)
        for m in range(3)
        for rater in range(5)
    ]
    Path("ratings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rated))
    yield "score", str(many), *length, "--out", "run"
    yield "calibrate", "run", "ratings.jsonl", "--out", "calibrated"
    yield "score", str(many), *length, "--calibration", "calibrated/calibration.json", "--out", "again"
    yield "compare", "again", "--ratings", "ratings.jsonl"
    yield "compare", "ratings.jsonl", "--baseline", "m0"
    yield ("doctor",)


def test_every_next_step_runs_as_printed() -> None:
    """A command that is printed runs as it is printed; a file to open exists; nothing is a placeholder."""
    seen = set()
    for words in make_states():
        done = run(*words)
        assert done.exit_code in (0, 3) and "Next, " not in done.stdout, done.output
        line = done.stderr.splitlines()[-1] if done.stderr.strip() else ""
        if not line.startswith("Next, "):
            continue
        assert not re.search(r"\b(RESPONSES|OTHER|RUN|FILE)\b|\.\.\.", line), line
        what, _, command = line.partition(": empathy-judge ")
        if opened := re.search(r"open (\S+\.(?:html|md))$", what):
            assert Path(opened[1]).exists(), line
        next_words = shlex.split(command)
        if next_words and next_words[:2] != ["rate", "open"]:  # which serves a page until Ctrl-C
            assert run(*next_words).exit_code in (0, 3)
            seen.add(next_words[0])
    assert seen >= {"score", "compare", "rate"}


@pytest.mark.parametrize("words", [("--help",), ("score", "--help"), ("score", "f.jsonl"), ("compare",)])
def test_an_output_that_nobody_reads_is_no_error(words: tuple[str, ...]) -> None:
    """As with `| head -1`: 1 would mean a regression."""
    path = write_replies("f.jsonl", 12, models=2)
    words = (*words, str(path), "--check", "--calibration", "none") if words == ("compare",) else words
    reader, writer = os.pipe()
    os.close(reader)
    options = ("--judge", "length") if words[-1] != "--help" else ()
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), *words, *options],
        env=environment,
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, b"Traceback" in done.stderr) == (141, False)


def test_json_goes_without_a_next_step() -> None:
    done = run("score", write_replies("replies.jsonl", 30, models=2), "--judge", "length", "--json")
    assert json.loads(done.stdout) and done.stderr == ""


def test_the_shipped_weights_licence_is_said_at_the_first_run() -> None:
    path = write_replies("replies.jsonl", 2)
    licence = "no commercial use (CC BY-NC 4.0)"
    assert licence in run("score", path, "--out", "runs/first").stderr
    assert licence not in run("score", path, "--out", "runs/second").stderr
    assert licence not in run("score", path, "--judge", "length", "--out", "others/first").stderr
