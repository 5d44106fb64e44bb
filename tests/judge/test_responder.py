"""A model that answers prompts: what it is asked, what is made of every kind of answer, and what is kept."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from servers import Answer, Call, ScriptedServer, answer_chat

from empathy_judge.data.errors import BudgetSpent, UserError
from empathy_judge.data.readers.table_rows import read_rows
from empathy_judge.data.records import Exchange
from empathy_judge.data.runs import FinishedRun
from empathy_judge.data.tables import read_exchanges, write_rows
from empathy_judge.judge.llm.responder import (
    ModelConfig,
    Responder,
    read_model_config,
    read_response,
    respond_to,
    write_messages,
)

PROMPT = Exchange(id="7", prompt="My dog died.", response="", situation="A walk.", emotion="sad")
WARM = "I'm so sorry about your dog. I can't imagine how quiet the house must be. Would you like to tell me?"
PRICES = {"input": 1.0, "output": 1.0}


def chat_body(content: Any = WARM, finish: str = "stop", **message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": content, **message}, "finish_reason": finish}]}


def write_prompts(path: Path, count: int) -> Path:
    about = {"emotion": "sad", "note": 3}
    write_rows(path, [{"id": f"p{n}", "prompt": f"I lost {n} coins.", **about} for n in range(count)])
    return path


def ask(prompts: Path, folder: Path, base_url: str, **settings: Any) -> FinishedRun:
    max_cost = settings.pop("max_cost", None)
    responder = Responder(ModelConfig(**{"model": "m", "base_url": base_url, "retries": 0, **settings}))
    responder.endpoint.budget.most = max_cost
    return respond_to(prompts, responder, responder.plan(prompts), folder)


def test_a_model_is_told_what_the_study_told_and_not_what_only_raters_saw() -> None:
    (message,) = write_messages(PROMPT)
    text = message["content"]
    assert message["role"] == "user"
    assert all(word in text for word in ("cognitive", "affective", "compassionate", "28 words", "97 words"))
    assert text.endswith("Their situation: A walk.\n\nThey say: My dog died.")
    assert "sad" not in text, "the emotion is for the raters"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "no answer: the server sent no message"),
        (chat_body(None), "empty: no text"),
        (chat_body("<think>hm</think>"), "empty: only reasoning"),
        (chat_body(None, reasoning_content="hm"), "empty: only reasoning"),
        (chat_body("I am so", "length"), "cut short: ran out of tokens; raise max_tokens"),
        (chat_body("", "content_filter"), "refused: by the server"),
        (chat_body(None, refusal="No."), "refused: by the server"),
        (chat_body("I'm sorry, but I can't assist with that request."), "refused: by the model"),
        (chat_body("As an AI language model, I am unable to help with that."), "refused: by the model"),
        (chat_body("x" * 100_001), "too long: more than 100,000 characters"),
        (chat_body("I'm sorry, I can't fix this for you, but I am here."), None),
        (chat_body("I cannot imagine that. How are you holding up?"), None),
        (chat_body("I won't pretend I know what to say, but thank you for telling me."), None),
        (chat_body("I'm sorry. I can't answer for him, but you did nothing wrong."), None),
    ],
)
def test_what_is_no_reply_is_a_failure_with_its_reason(body: Mapping[str, Any], reason: str | None) -> None:
    found = read_response(body)
    assert found.get("failed") == reason
    assert ("response" in found) == (reason is None)


def test_responses_are_ready_to_score_and_the_manifest_says_who_answered_how(tmp_path: Path) -> None:
    def script(call: Call) -> Answer:
        body = answer_chat(call, f"{WARM} {call.text[-9:]}").body
        return Answer(body={**body, "model": "m-2026-01-02"})

    prompts = write_prompts(tmp_path / "p.jsonl", 6)
    settings = {"name": "ours", "temperature": 0.3, "seed": 4, "prices": PRICES}
    with ScriptedServer(script) as server:
        done = ask(prompts, tmp_path / "run", server.base_url, **settings)
    rows = list(read_exchanges(done.folder / "responses.jsonl"))
    assert [row.id for row in rows] == [f"p{n}" for n in range(6)]
    assert rows[3].response.endswith("3 coins.")
    assert (rows[3].model, rows[3].emotion) == ("ours", "sad")
    assert rows[3].extra == {"note": 3, "served": "m-2026-01-02"}
    sent = server.calls[0].body
    assert (sent["model"], sent["temperature"], sent["seed"], sent["max_tokens"]) == ("m", 0.3, 4, 512)
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert {key: manifest[key] for key in manifest.keys() - {"digest", "files", "format"}} == done.manifest
    expected = {
        "counts": {"prompts": 6, "responses": 6, "failed": 0},
        "served": {"m-2026-01-02": 6},
        **{"model": "ours", "asked_for": "m", "style": "empathy"},
        "decoding": {"temperature": 0.3, "max_tokens": 512, "seed": 4, "extra_body": {}},
        "cost": pytest.approx(6 * 205e-6),
        "tokens": {"input": 1200, "output": 30},
        "words": {"mean": 23.0, "too_long": 0},
    }
    assert {key: manifest[key] for key in expected} == expected


def test_failures_are_kept_counted_and_never_responses(tmp_path: Path) -> None:
    def script(call: Call) -> Answer:
        if "temperature" in call.body:
            return Answer(status=400, body={"error": {"message": "temperature is not supported"}})
        number = int(call.text.split()[-2])
        if number == 1:
            return Answer(status=400, body={"error": {"message": "no such thing"}})
        texts = {0: "I cannot assist with that.", 2: "", 3: " ".join(["very"] * 98)}
        body = answer_chat(call, texts.get(number, WARM)).body
        if number == 4:
            body["choices"][0]["finish_reason"] = "length"
        return Answer(body=body)

    prompts = write_prompts(tmp_path / "p.jsonl", 6)
    with ScriptedServer(script) as server:
        done = ask(prompts, tmp_path / "run", server.base_url, concurrency=1)
        again = ask(prompts, tmp_path / "run", server.base_url)
        insisted = ask(prompts, tmp_path / "other", server.base_url, temperature=1.0)
    assert [row.id for row in read_exchanges(done.folder / "responses.jsonl")] == ["p3", "p5"]
    assert done.manifest["counts"] == {"prompts": 6, "responses": 2, "failed": 4}
    assert done.manifest["reasons"] == {
        "HTTP 400: no such thing": 1,
        "cut short: ran out of tokens; raise max_tokens": 1,
        "empty: no text": 1,
        "refused: by the model": 1,
    }
    assert done.manifest["words"]["too_long"] == 1
    kept = {row["id"]: row for _, row in read_rows(tmp_path / "run/answers.jsonl")}
    assert kept["p0"]["raw"] == "I cannot assist with that."
    assert again.asked == 0, "failures are not asked again either"
    assert done.manifest["left_out"] == ["temperature"]
    assert insisted.manifest["counts"]["failed"] == 6, "what a person asked for is not dropped in silence"


def test_the_money_allowed_is_not_exceeded_and_the_run_goes_on_later(tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path / "p.jsonl", 8)
    with ScriptedServer(lambda call: answer_chat(call, WARM)) as server:
        settings: dict[str, Any] = {"prices": PRICES, "concurrency": 1, "max_tokens": 5}
        with pytest.raises(BudgetSpent):
            ask(prompts, tmp_path / "run", server.base_url, max_cost=0.001, **settings)
        before = len(server.calls)
        assert 0 < before < 8
        done = ask(prompts, tmp_path / "run", server.base_url, max_cost=1.0, **settings)
    assert done.asked == 8 - before
    assert done.manifest["counts"]["responses"] == 8


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("base_url = 'x'", "model: "),
        ("model = 'm'\nstile = 'plain'", "stile: unknown key"),
        ("model = 'm'\nstyle = 'warm'", "style: input should be 'empathy' or 'plain'"),
        ("model = 'm'\nmax_tokens = 0", "max_tokens: must be at least 1"),
        ("model = ", "not TOML"),
    ],
)
def test_a_model_file_is_checked(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "model.toml"
    path.write_text(content)
    with pytest.raises(UserError, match=rf"model\.toml: {said}"):
        read_model_config(path, {})
