"""One label rule for every kind of judge: Good needs a probability above 0.55."""

from math import log
from typing import Any

import pytest
from command_line import write_toml
from repository import SAMPLES
from servers import Answer, Call, ScriptedServer, answer, answer_chat

from empathy_judge.data.judgments import judgment_of_row
from empathy_judge.data.records import LABELS, Exchange, Turn, label_of
from empathy_judge.data.tables import read_exchanges
from empathy_judge.judge.base import load_judge

WEAK_GOOD = dict(zip(LABELS, (0.15, 0.32, 0.53), strict=True))
EXCHANGE = Exchange(
    id="1",
    prompt="He was eleven.",
    response="I am so sorry.",
    dialogue=(Turn(speaker="user", text="My dog died."), Turn(speaker="assistant", text="Oh no.")),
)


def answer_weak_good(call: Call) -> Answer:
    """Answer a decision or a chat request with the probabilities of `WEAK_GOOD`."""
    if call.path.endswith("/decisions"):
        body = answer(call).body
        for level in body["answers"][0]["probabilities"]:
            level["probability"] = WEAK_GOOD[level["label"]]
        return Answer(body=body)
    tokens = [{"token": label, "logprob": log(chance)} for label, chance in WEAK_GOOD.items()]
    reply = answer_chat(call, "Good")
    content = [{"token": "Good", "logprob": 0.0, "top_logprobs": tokens}]
    reply.body["choices"][0]["logprobs"] = {"content": content}
    return reply


JUDGES: dict[str, dict[str, Any]] = {
    "decision": {},
    "prompted": {"mode": "label", "probabilities": "logprobs"},
    "panel": {"judges": ["decision.toml", "prompted.toml"]},
    "cascade": {"first": "length", "second": "decision.toml", "ask_below": 1.0},
    "conversation": {"replies": "decision.toml"},
}


@pytest.mark.parametrize("kind", JUDGES)
def test_a_likeliest_good_below_the_threshold_is_okay(kind: str) -> None:
    with ScriptedServer(answer_weak_good) as server:
        for name, options in JUDGES.items():
            asked = {"base_url": server.base_url, "model": "m"} if name in ("decision", "prompted") else {}
            write_toml(f"{name}.toml", kind=name, **asked, **options)
        judge = load_judge(f"{kind}.toml")
        judgment = judge.judge(EXCHANGE)
        judge.close()  # type: ignore[attr-defined]
    assert judgment.probabilities == pytest.approx(WEAK_GOOD, abs=1e-5)
    assert judgment.label == "Okay"


@pytest.mark.parametrize("name", ["classifier", "length", "majority"])
def test_shipped_judges_label_by_the_rule(name: str) -> None:
    judge = load_judge(name)
    judgments = [judge.judge(exchange) for exchange in list(read_exchanges(SAMPLES / "responses.jsonl"))[:30]]
    assert [item.label for item in judgments] == [label_of(item.probabilities or {}) for item in judgments]


def test_the_rule_itself_and_a_table_of_probabilities() -> None:
    cases = {
        (0.2, 0.249999, 0.550001): "Good",
        (0.2, 0.25, 0.55): "Okay",
        (0.35, 0.2, 0.45): "Okay",
        (0.4, 0.25, 0.35): "Bad",
        (0.45, 0.1, 0.45): "Bad",
    }
    assert {chances: label_of(dict(zip(LABELS, chances, strict=True))) for chances in cases} == cases
    assert judgment_of_row({"id": "1", **WEAK_GOOD}, scale=LABELS).label == "Okay"
