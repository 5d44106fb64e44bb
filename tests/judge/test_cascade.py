"""The cascade: who is asked when, by which rule, what stays unscored and what it saved."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from servers import Answer, ScriptedServer, answer

import cli
from data.errors import UserError
from data.records import Exchange
from data.tables import read_judgments
from judge.base import load_judge
from judge.cascade import CascadeJudge

Write = Callable[..., Path]
SHORT = Exchange(id="1", prompt="My dog died.", response="Oh.")
LONG = Exchange(id="2", prompt="My dog died.", response="I am so very sorry to hear that. " * 30)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_second(server: ScriptedServer, name: str = "asked.toml") -> str:
    about = {"kind": "decision", "base_url": server.base_url, "model": "gpt-6-luna", "retries": 0}
    Path(name).write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in about.items()))
    return name


def write_cascade(**options: Any) -> str:
    about = {"kind": "cascade", "first": "length", "second": "asked.toml", **options}
    Path("cascade.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in about.items()))
    return "cascade.toml"


def score(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, ["score", *map(str, arguments)], terminal_width=100)


def test_only_where_the_first_is_unsure_the_second_is_asked() -> None:
    sure = load_judge("length").judge(LONG).probabilities
    unsure = load_judge("length").judge(SHORT).probabilities
    border = (max(sure.values()) + max(unsure.values())) / 2
    assert max(unsure.values()) < border < max(sure.values())
    with ScriptedServer(answer) as server:
        write_second(server)
        judge = CascadeJudge(first="length", second="asked.toml", ask_below=border)
        quick, asked = judge.judge(LONG), judge.judge(SHORT)
        judge.close()
        lone = load_judge("asked.toml")
        alone = lone.judge(SHORT)
        lone.close()
        assert len(server.calls) == 2
    assert quick.rationale == "decided by length" and quick.probabilities == sure and quick.usage is None
    assert (quick.decided_by, asked.decided_by, alone.decided_by) == ("length", "asked", None)
    assert asked.rationale.startswith("decided by asked; left open by length (Bad 0.")
    assert asked.probabilities == alone.probabilities and asked.usage == alone.usage
    assert asked.components == alone.components and quick.components is None


def test_what_the_second_leaves_unscored_stays_so(write_responses: Write) -> None:
    with ScriptedServer(lambda call: Answer(status=400, body={"error": {"message": "no"}})) as server:
        write_second(server)
        done = score(write_responses(12), "--judge", write_cascade(ask_below=1.0), "--out", "run", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["counts"] == {"judged": 0, "unscored": 12, "set_aside": 0}
    for judgment in read_judgments(Path("run/judgments.jsonl")):
        assert judgment.unscored == "HTTP 400: no" and judgment.label is None
        assert judgment.rationale.startswith("decided by asked; left open by length")


@pytest.mark.slow
def test_a_run_says_what_was_saved_and_says_it_again(write_responses: Write) -> None:
    path = write_responses(210)
    said = [max(load_judge("length").judge(item).probabilities.values()) for item in _read(path)]
    border = float(np.median(said)) + 1e-9
    asked = sum(value < border for value in said)
    assert 0 < asked < 210
    with ScriptedServer(answer) as server:
        write_second(server)
        judge = write_cascade(ask_below=border)
        done = score(path, "--judge", judge, "--out", "run", "-v")
        assert done.exit_code == 0, done.output
        assert len(server.calls) == asked
    saved = 210 - asked
    part = f"{100 * saved / 210:.0f} % of calls"
    line = f"asked asked for {asked} of 210: saved {part}, about USD {saved / 1e4:.4f}"
    assert line in done.stdout
    again = score(path, "--judge", judge, "--out", "run", "-v")
    assert line in again.stdout and "nothing left to judge" in again.stdout
    assert json.loads(Path("run/summary.json").read_text())["report"] == [line]


def _read(path: Path) -> list[Exchange]:
    from data.tables import read_exchanges

    return list(read_exchanges(path))


def test_versions_follow_the_rule_and_the_judges() -> None:
    with ScriptedServer(answer) as server:
        write_second(server)
        options: list[dict[str, Any]] = [
            {},
            {"ask_below": 0.7},
            {"first": "majority"},
        ]
        versions = {load_judge(write_cascade(**option)).version for option in options}
    assert len(versions) == 3


def test_what_is_no_cascade_is_refused() -> None:
    with ScriptedServer(answer) as server:
        write_second(server)
        for options, problem in [
            ({"second": ""}, "second: missing"),
            ({"ask_below": 1.5}, "no probability"),
            ({"second": "length"}, "the same judge"),
            ({"second": "cascade.toml"}, "part of itself"),
        ]:
            with pytest.raises(UserError, match=problem):
                load_judge(write_cascade(**options))
