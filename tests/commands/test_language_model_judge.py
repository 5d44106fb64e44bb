"""Runs of a language model's judge through the CLI: wrong keys, unusable answers, and what comes next."""

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from servers import Answer, Call, ScriptedServer, answer_chat

import cli
from data.records import LABELS
from data.tables import write_rows

MODELS = ("a", "b", "c", "d")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_KEY", "sk-wrong")


def run(*words: object) -> Result:
    return CliRunner().invoke(cli.main, [str(word) for word in words], prog_name="empathy-judge")


def score(server: ScriptedServer, *words: object) -> Result:
    rows = [
        {"id": f"{model}{n}", "model": model, "prompt": f"My cat died, number {n}.", "response": f"Oh {n}."}
        for n in range(10)
        for model in MODELS
    ]
    write_rows(Path("replies.jsonl"), rows)
    options = f"model = 'm'\nbase_url = '{server.base_url}'\nkey_env = 'SOME_KEY'\nretries = 0\n"
    Path("my judge.toml").write_text(f"kind = 'prompted'\n{options}")
    return run("score", "replies.jsonl", "--judge", "my judge.toml", "--out", "run", *words)


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_costs_one_call_and_its_variable_is_named(status: int) -> None:
    with ScriptedServer(lambda call: Answer(status=status, body={"error": {"message": "no"}})) as server:
        done = score(server)
    assert done.exit_code == 5
    assert len(server.calls) == 1
    assert "check the key in the variable SOME_KEY." in done.stderr
    assert "sk-wrong" not in done.output


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_run_in_which_nothing_could_be_judged_fails(words: tuple[str, ...]) -> None:
    with ScriptedServer(lambda call: answer_chat(call, text="Lovely weather.")) as server:
        assert score(server, *words).exit_code == 5


def test_the_judge_printed_after_a_calibration_runs() -> None:
    labels = iter(LABELS * 100)

    def script(call: Call) -> Answer:
        return answer_chat(call, text=json.dumps({"reason": "So.", "label": next(labels)}))

    with ScriptedServer(script) as server:
        assert score(server).exit_code == 0
        ratings = [
            {"id": f"{model}{n}", "rater": f"r{rater}", "rating": LABELS[(n + rater + len(model)) % 3]}
            for model in MODELS
            for n in range(10)
            for rater in range(5)
        ]
        write_rows(Path("ratings.jsonl"), ratings)
        calibrated = run("calibrate", "run", "ratings.jsonl", "--out", "calibration")
        hint, line = calibrated.stderr.splitlines()[-2:]
        options = shlex.split(hint.partition(": score with ")[2])
        assert options[:2] == ["--judge", "my judge.toml"]
        for words in (
            ["score", "replies.jsonl", *options],
            shlex.split(line.partition(": empathy-judge ")[2]),
        ):
            printed = run(*words)
            assert printed.exit_code == 0, printed.output
        write_rows(Path("other.jsonl"), [{"prompt": f"p{n}", "response": "Oh."} for n in range(10)])
        compared = run("compare", "run", "other.jsonl", "--calibration", "none")
        assert compared.exit_code == 0, "the file is judged by the judge of the run"
