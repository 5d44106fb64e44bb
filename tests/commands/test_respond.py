"""The command `respond`: prompts answered once, mistakes refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import run
from servers import Answer, Call, ScriptedServer, answer_chat

COUNT = 60


@pytest.fixture
def prompts() -> Path:
    rows = ({"id": f"p{n}", "prompt": f"I lost {n} coins.", "emotion": "sad"} for n in range(COUNT))
    Path("prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Path("prompts.jsonl")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(reply) as server:
        yield server


def reply(call: Call) -> Answer:
    return answer_chat(call, f"That hurts, all the more when it is {call.text.split()[-2]} coins.")


def test_the_samples_are_answered_without_a_file_and_scored(server: ScriptedServer) -> None:
    words = ("respond", "--base-url", server.base_url, "--model", "m", "--limit", 6, "--out", "answers")
    done = run(*words, code=0)
    assert "6 of 6 prompts answered by m" in done.stdout
    assert "served as m (6)" in done.stdout
    assert done.stdout.splitlines()[-1] == "answers/responses.jsonl"
    scored = run("score", "answers/responses.jsonl", "--judge", "length", code=0)
    assert scored.stdout.splitlines()[1].split()[0] == "m"
    assert "complete; nothing was sent" in run(*words).stdout
    assert len(server.calls) == 6


def test_a_file_sets_the_model_and_options_override_it(
    server: ScriptedServer, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", "sk-not-to-be-seen")
    Path("m.toml").write_text(
        f"model = 'm/1'\nbase_url = '{server.base_url}'\nkey_env = 'OUR_KEY'\nseed = 3\n"
    )
    options = ("--style", "plain", "--seed", 5, "--limit", 2, "--json")
    done = run("respond", prompts, "--model-config", "m.toml", *options, code=0)
    found = json.loads(done.stdout)
    assert (found["model"], found["style"], found["asked"]) == ("m/1", "plain", 2)
    assert found["decoding"]["seed"] == 5
    assert found["run"].startswith("responses/prompts-m-1-")
    assert server.calls[0].headers["authorization"] == "Bearer sk-not-to-be-seen"
    written = "".join(path.read_text() for path in Path(found["run"]).iterdir())
    assert "sk-not-to-be-seen" not in written + done.output


def test_a_limit_of_cost_needs_prices_and_no_response_at_all_is_a_failure(prompts: Path) -> None:
    with ScriptedServer(lambda call: answer_chat(call, "")) as server:
        words = (prompts, "--model", "m", "--base-url", server.base_url, "--limit", 3, "--out", "a")
        # With a key, a proxy may charge.
        unpriced = run("respond", *words, "--key-env", "HOME", "--max-cost", 1)
        assert unpriced.exit_code == 2 and "needs prices" in unpriced.stderr and not server.calls
        done = run("respond", *words)
    assert done.exit_code == 5
    assert "no responses: empty: no text (3)" in done.stderr
