"""Refused and filtered answers of language models: unscored with a reason, in direct runs and in batches."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from batch_servers import BatchServer
from command_line import run_checked, write_toml
from servers import Answer, Call, ScriptedServer, answer

from empathy_judge.data.tables import read_judgments, write_rows

# How a server refuses a reply that contains the word -> the start of the reason.
CHAT = {
    "field": "refused: I can't",
    "filter": "refused: by a content filter",
    "sentence": "refused: I'm sorry, but I cannot",
    "status": "HTTP 400: the text was filtered",
}
QUESTIONS = {"answer": "refused", "status": "HTTP 400: the text was filtered"}
JUDGES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "prompted": ({"kind": "prompted", "model": "gpt-4o-mini"}, CHAT),
    "label": ({"kind": "prompted", "model": "gpt-4o-mini", "mode": "label"}, CHAT),
    "decisions": ({"kind": "decision", "model": "gpt-6-luna"}, QUESTIONS),
    "systemone": ({"kind": "decision", "model": "gpt-6-luna", "protocol": "systemone"}, QUESTIONS),
}


def refuse(call: Call) -> Answer:
    """Answer as a model does, unless the reply names a way to refuse it."""
    fine = answer(call)
    way = next((name for name in (*CHAT, *QUESTIONS) if f"refuse-by-{name}" in call.text), None)
    if way is None:
        return fine
    if way == "status":
        return Answer(status=400, body={"error": {"message": "the text was filtered"}})
    if way == "answer":
        answers = fine.body["answers"]
        answers[0 if isinstance(answers, list) else "empathy"] = {"type": "refusal"}
        return fine
    (choice,) = fine.body["choices"]
    text = "I'm sorry, but I cannot rate this text." if way == "sentence" else ""
    refusal = {"refusal": "I can't rate this."} if way == "field" else {}
    choice["message"] = {"role": "assistant", "content": text, **refusal}
    choice["finish_reason"] = "content_filter" if way == "filter" else "stop"
    return fine


def refuse_line(row: dict[str, Any]) -> dict[str, Any]:
    """The same as a line of a batch's output."""
    said = refuse(Call(number=0, path=row["url"], headers={}, body=row["body"]))
    response = {"status_code": said.status, "body": said.body}
    return {"custom_id": row["custom_id"], "response": response, "error": None}


@pytest.mark.parametrize("by_batch", [False, True], ids=["direct", "batch"])
@pytest.mark.parametrize("name", JUDGES)
def test_a_refused_reply_is_unscored_and_counted(name: str, by_batch: bool) -> None:
    options, reasons = JUDGES[name]
    ways = [None, *reasons, None]  # the first request of a batch is asked directly
    about = {"prompt": "I won!", "model": "m"}
    rows = ({"id": str(n), **about, "response": f"Lovely! refuse-by-{way}"} for n, way in enumerate(ways))
    write_rows(Path("responses.jsonl"), rows)
    with BatchServer(refuse_line, is_done=True) if by_batch else ScriptedServer(refuse) as server:
        write_toml("judge.toml", **options, base_url=server.base_url, retries=0)
        words = ["score", "responses.jsonl", "--judge", "judge.toml", "--out", "run", "--json"]
        done = run_checked(*words, *(["--batch", "--wait"] if by_batch else []))
    assert json.loads(done.stdout)["counts"] == {"judged": 2, "unscored": len(reasons), "set_aside": 0}
    judged = list(read_judgments(Path("run/judgments.jsonl")))
    for item, way in zip(judged, ways, strict=True):
        assert (item.label is None) == (item.score is None) == (way is not None)
        assert (item.unscored or "").startswith(reasons[way]) if way else item.unscored is None
    (model,) = json.loads(done.stdout)["models"]
    assert model["reasons"] == Counter(reason.partition(":")[0] for reason in reasons.values())
