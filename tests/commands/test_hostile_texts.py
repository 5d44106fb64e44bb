"""What a server or a file says is quoted on a terminal without what would steer it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from servers import Answer, ScriptedServer

from empathy_judge.commands import main as cli
from empathy_judge.data.tables import write_rows

HOSTILE = "\x1b]0;owned\x07\x1b[2Jgone\x9b31m\u202esdrawkcab"
STEERS = set("\x1b\x07\x9b\u202e\r")


def said_by(*arguments: object) -> str:
    done = CliRunner().invoke(cli.main, [str(item) for item in arguments], terminal_width=80)
    assert not done.exception or isinstance(done.exception, SystemExit), done.exception
    return done.output


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 401])
def test_what_a_server_says_steers_no_terminal(tmp_path: Path, status: int) -> None:
    body = {"error": {"message": f"sorry: {HOSTILE}"}}
    rows = [{"prompt": "p", "response": f"r{number}"} for number in range(2)]
    write_rows(tmp_path / "r.jsonl", rows)
    with ScriptedServer(lambda _: Answer(status=status, body=body)) as server:
        (tmp_path / "judge.toml").write_text(
            f"kind = 'prompted'\nmodel = 'm'\nbase_url = '{server.base_url}'\nretries = 0\n"
        )
        words = ("--judge", tmp_path / "judge.toml", "--out", tmp_path / "run", "--verbose")
        said = said_by("score", tmp_path / "r.jsonl", *words)
    rows = (
        list(map(json.loads, (tmp_path / "run" / "judgments.jsonl").read_bytes().splitlines()))
        if status == 400
        else []
    )
    for text in [row["unscored"] for row in rows] or [said]:
        assert "sorry" in text and not STEERS & set(text)
    assert not STEERS & set(said)


def test_what_a_file_says_steers_no_terminal(tmp_path: Path) -> None:
    row = {"prompt": "p", "response": "r", "model": HOSTILE, "dialogue": [{HOSTILE: 1}]}
    (tmp_path / "r.jsonl").write_text(json.dumps(row) + "\n" + json.dumps([HOSTILE]) + "\n", encoding="utf-8")
    (tmp_path / "c.csv").write_text(f"{HOSTILE},b\n1,2\n", encoding="utf-8")
    for words in (
        ("score", "r.jsonl"),
        ("score", "c.csv"),
        ("compare", "c.csv"),
        ("calibrate", "c.csv", "c.csv"),
    ):
        out = ("--out", tmp_path / "run") if words[0] == "score" else ()
        said = said_by(words[0], *(tmp_path / name for name in words[1:]), *out)
        assert "error" in said
        assert not STEERS & set(said), words


def test_no_name_of_a_model_steers_a_terminal_as_json_either(tmp_path: Path) -> None:
    """JSON itself escapes only what is below a space."""
    names = (HOSTILE, "b")
    rows = [{"prompt": f"p{n}", "response": "r", "model": name} for n in range(4) for name in names]
    write_rows(tmp_path / "r.jsonl", rows)
    plan = tmp_path / "plan"
    for words in (
        ("rate", "plan", tmp_path / "r.jsonl", "--people", 1, "--each", 8, "--out", plan),
        ("rate", "status", plan, "--baseline", HOSTILE),
        ("score", tmp_path / "r.jsonl", "--judge", "length", "--out", tmp_path / "run"),
        ("compare", tmp_path / "run", "--calibration", "none"),
    ):
        said = said_by(*words, "--json")
        assert "owned" in said, said
        assert not STEERS & set(said), words
