"""The commands through the real door: what people bring, what they are told, and how it ends."""

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import Result
from command_line import run

Write = Callable[..., Path]
GOOD = {"prompt": "I lost my job.", "response": "I'm so sorry to hear that."}


def score(path: object, *options: object, code: int | None = None) -> Result:
    return run("score", path, "--judge", "length", *options, code=code)


def lines_of(*rows: object) -> str:
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def test_skip_invalid_loses_no_row() -> None:
    rows = [
        {**GOOD, "id": "a"},
        '{"broken',
        {"prompt": "p"},
        {**GOOD, "id": "a"},
        {**GOOD, "response": "x" * 200_000},
        {**GOOD, "response": "half \ud83d"},
        '"text"',
        GOOD,
    ]
    Path("r.jsonl").write_text(lines_of(*rows))
    done = score("r.jsonl", "--skip-invalid", "--out", "run", code=0)
    assert "skipped rows: 5;" in done.stdout
    judged = [json.loads(line) for line in Path("run/judgments.jsonl").read_text().splitlines()]
    aside = [json.loads(line) for line in Path("run/set_aside.jsonl").read_text().splitlines()]
    assert [row["line"] for row in aside] == [2, 3, 4, 5, 7]
    assert all(set(row) == {"line", "problem", "raw"} for row in aside)
    assert aside[0]["raw"].strip() == '{"broken'
    assert len(judged) + len(aside) == len(rows)
    assert json.loads(Path("run/manifest.json").read_text())["counts"]["set_aside"] == 5
    strict = score("r.jsonl", "--out", "run")
    assert (strict.exit_code, strict.stdout) == (2, ""), (
        "a whole run does not hide bad rows from a strict command"
    )
    assert "r.jsonl:2: not JSON" in strict.stderr
    assert "already complete" in score("r.jsonl", "--skip-invalid", "--out", "run", "-v").stdout


def test_a_lone_surrogate_is_scored_everywhere_it_may_stand() -> None:
    half = "half \ud83d"
    row = {"id": half, "model": half, "prompt": half, "response": half, "emotion": half, "note": half}
    Path("r.jsonl").write_text(lines_of(row))
    done = score("r.jsonl", "--out", "run", code=0)
    assert "half \N{REPLACEMENT CHARACTER}" in done.stdout
    assert json.loads(Path("run/judgments.jsonl").read_text())["id"] == half
    assert json.loads(score("r.jsonl", "--out", "run", "--json").stdout)["models"][0]["model"] == half


def test_a_limit_is_continued_by_the_same_command_without_it(write_responses: Write) -> None:
    path = write_responses(30)
    assert "10 judged in" in score(path, "--limit", 10, "-v").stdout
    assert "20 judged in" in score(path, "-v").stdout
    assert "already complete" in score(path, "--limit", 5, "-v").stdout
    assert "more than --limit 5: this run had the others already" in score(path, "--limit", 5).stdout
    score(path, "--out", "unbroken")
    (limited,) = Path("runs").iterdir()
    for name in ("judgments.jsonl", "summary.json"):
        assert (limited / name).read_bytes() == Path("unbroken", name).read_bytes()


def test_another_seed_changes_the_intervals_alone(write_responses: Write) -> None:
    path = write_responses(60)
    first, second = (json.loads(score(path, "--json", "--seed", seed).stdout)["models"] for seed in (0, 1))
    assert first[0]["shares"]["Good"]["value"] == second[0]["shares"]["Good"]["value"]
    assert first != second
    assert "already complete" in score(path, "--seed", 2, "-v").stdout
