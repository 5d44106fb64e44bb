"""`respond --turns`: a model talks with scripted speakers, killed and taken up again."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from servers import Answer, Call, ScriptedServer, answer_chat

import cli
from judge.scripted_conversations import OURS, read_situations

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, ["respond", *map(str, arguments)], terminal_width=80)


def reply(call: Call) -> Answer:
    """Asks something in every other turn."""
    messages = call.body["messages"]
    asks = "What did you do then?" if len(messages) % 4 == 1 else "I am with you in this, all the way."
    return answer_chat(call, f"I see that you said {len(messages[-1]['content'])} letters. {asks}")


def write_model(server: ScriptedServer) -> None:
    about = f"base_url = '{server.base_url}'\nconcurrency = 2\nprices = {{input = 1.0, output = 2.0}}\n"
    Path("listens.toml").write_text(f"model = 'listens'\n{about}")


def talks(folder: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, "conversations.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_model_talks_with_scripted_speakers() -> None:
    with ScriptedServer(reply) as server:
        write_model(server)
        words = ("--turns", 8, "--model-config", "listens.toml", "--out", "talks")
        done = run(*words, "--limit", 3)
        assert done.exit_code == 0, done.output
        assert "3 of 3 conversations of 8 turns held by listens" in done.stdout
        assert "score talks/conversations.jsonl" in done.stderr
        assert len(server.calls) == 24
        first = read_situations(OURS)[0]
        talk = talks("talks")[0]
        assert talk["speaker"] == "scripted" and talk["scenario"] == talk["id"] == first.id
        said = [turn["content"] for turn in talk["messages"]]
        assert (said[0], said[2], said[14], len(said)) == (first.opening, first.asked[0], first.heard, 16)
        sent = max((call.body["messages"] for call in server.calls), key=len)
        assert [message["role"] for message in sent] == ["user", "assistant"] * 7 + ["user"]
        assert "empathetic reply" in sent[0]["content"] and "situation" not in sent[0]["content"]
        assert "nothing left to ask" in run(*words, "--limit", 2).stdout
        assert run(*words, "--limit", 4).exit_code == 0
        assert len(server.calls) == 32, "three of the four are there"
    assert len(talks("talks")) == 4
    scored = CliRunner().invoke(cli.main, ["score", "talks/conversations.jsonl", "--judge", "length"])
    assert scored.exit_code == 0, scored.output


def test_a_conversation_that_fails_is_counted_and_not_among_the_whole_ones() -> None:
    def script(call: Call) -> Answer:
        is_third = len(call.body["messages"]) == 5 and "behind me again" in call.text + str(call.body)
        return answer_chat(call, "") if is_third else reply(call)

    with ScriptedServer(script) as server:
        write_model(server)
        words = ("--turns", 4, "--model-config", "listens.toml", "--limit", 2, "--out", "talks")
        done = run(*words)
        again = run(*words)
    assert "1 of 2 conversations of 4 turns" in done.stdout
    assert "failed, and not among the conversations: empty: no text (1)" in done.stdout
    assert len(talks("talks")) == 1 and "nothing left to ask" in again.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--turns", 9), "has words for 8 turns; ask for fewer"),
        (("rows.jsonl", "--turns", 3), "prompts have no script; name a .toml file of situations"),
    ],
)
def test_a_mistake_ends_with_a_word_and_exit_code_2(arguments: tuple[object, ...], said: str) -> None:
    Path("rows.jsonl").write_text('{"prompt": "I won!"}\n')
    done = run(*arguments, "--model", "m", "--base-url", "http://127.0.0.1:9/v1")
    assert (done.exit_code, said in done.stderr) == (2, True), done.output
    assert not Path("conversations").exists()
