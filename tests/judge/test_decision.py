"""The decision judge over both protocols: known numbers and unusable answers."""

import math
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from servers import Answer, Call, Script, ScriptedServer, answer, known_component, known_probabilities

from empathy_judge.data.errors import OperationalError
from empathy_judge.data.records import LABELS, Exchange, Judgment
from empathy_judge.judge.llm.decision import DecisionJudge

PROTOCOLS = ("decisions", "systemone")
COMPONENTS = ("cognitive", "affective", "compassionate")
EXCHANGE = Exchange(id="1", prompt="My dog died.", response="I am so sorry.", emotion="sad")


def ask(script: Script = answer, **options: Any) -> tuple[Judgment, Call]:
    """Return the judgment of an exchange by a server that follows a script, and its call."""
    with ScriptedServer(script) as server:
        judge = DecisionJudge(**{"base_url": server.base_url, "model": "gpt-6-luna", **options})
        with closing(judge):
            judgment = judge.judge(EXCHANGE)
        (call,) = server.calls
        assert [call.body] == judge.write_requests(EXCHANGE)
        return judgment, call


def changed(change: Callable[[dict[str, Any]], None]) -> Script:
    """A good answer with one change in its body."""

    def script(call: Call) -> Answer:
        body = answer(call).body
        change(body)
        return Answer(body=body)

    return script


def overall(body: dict[str, Any]) -> dict[str, Any]:
    answers = body["answers"]
    found: dict[str, Any] = answers[0] if isinstance(answers, list) else answers["empathy"]
    return found


def set_level(body: dict[str, Any], position: int, value: Any) -> None:
    levels = overall(body)["probabilities"]
    if isinstance(levels, list):
        levels[position]["probability"] = value
    else:
        levels[str(position)] = value


def refuse(body: dict[str, Any], name: str) -> None:
    answers = body["answers"]
    items = {item["name"]: item for item in answers} if isinstance(answers, list) else answers
    items[name].clear()
    items[name].update(type="refusal", name=name)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_becomes_a_judgment(protocol: str) -> None:
    judgment, call = ask(protocol=protocol)
    assert call.path == f"/v1/{protocol}"
    known = known_probabilities(call.text)
    assert judgment.probabilities == pytest.approx(known, abs=2e-6)
    assert judgment.label == max(LABELS, key=lambda label: known[label])
    assert judgment.score == pytest.approx(known["Bad"] + 2 * known["Okay"] + 3 * known["Good"], abs=1e-5)
    assert judgment.components == {name: known_component(call.text, name) for name in COMPONENTS}
    assert judgment.usage == {"input_tokens": 1000, "output_tokens": 0, "cost": 0.0001}
    assert (judgment.rationale, judgment.unscored) == (None, None)
    assert (judgment.id, judgment.content_digest) == ("1", EXCHANGE.content_digest)


def test_the_questions_are_typed_as_the_decisions_api_has_them() -> None:
    _, call = ask()
    assert sorted(call.body) == ["input", "model", "questions"]
    score, *predicates = call.body["questions"]
    assert sorted(score) == ["instructions", "levels", "name", "type"]
    assert [level["label"] for level in score["levels"]] == list(LABELS)
    assert all(level["description"] for level in score["levels"])
    assert all(sorted(item) == ["instructions", "name", "type"] for item in predicates)
    assert [item["name"] for item in predicates if item["type"] == "predicate"] == list(COMPONENTS)


Change = Callable[[dict[str, Any]], Any]
CHANGES: list[tuple[Change, str]] = [
    (lambda body: refuse(body, "empathy"), "refused"),
    (lambda body: set_level(body, 1, math.nan), "no probability for Okay"),
    (lambda body: set_level(body, 2, "0.5"), "no probability for Good"),
    (lambda body: set_level(body, 0, True), "no probability for Bad"),
    (lambda body: set_level(body, 0, 10**400), "no probability for Bad"),
    (lambda body: [set_level(body, i, 0.0) for i in range(3)], "probabilities sum to 0"),
    (lambda body: [set_level(body, i, 0.3) for i in range(3)], "probabilities sum to 0.9"),
    (lambda body: overall(body).update(probabilities=None), "no probabilities for the labels"),
    (lambda body: overall(body).update(type="choice"), "answered with 'choice' instead of a score"),
    (lambda body: body.clear(), "no answer"),
]
ONE_PROTOCOL: list[tuple[str, Change, str]] = [
    ("decisions", lambda body: overall(body)["probabilities"].pop(), "probabilities for Bad, Okay, not our"),
    ("decisions", lambda body: body["answers"].pop(), "3 answers to 4 questions"),
    ("decisions", lambda body: body["answers"].reverse(), "answers are not in the order of the questions"),
    ("systemone", lambda body: overall(body)["probabilities"].pop("2"), "probabilities for 0, 1, not our"),
]


@pytest.mark.parametrize(
    ("protocol", "change", "reason"),
    [*((protocol, *case) for case in CHANGES for protocol in PROTOCOLS), *ONE_PROTOCOL],
)
def test_an_unusable_answer_is_unscored_and_kept(protocol: str, change: Change, reason: str) -> None:
    judgment, _ = ask(changed(change), protocol=protocol)
    assert judgment.unscored is not None and judgment.unscored.startswith(reason)
    assert (judgment.label, judgment.probabilities, judgment.score) == (None, None, None)
    assert (judgment.rationale or "").startswith("{")
    assert (judgment.usage or {})["cost"] > 0, "what was paid for is counted"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refused_component_leaves_the_judgment(protocol: str) -> None:
    judgment, _ = ask(changed(lambda body: refuse(body, "affective")), protocol=protocol)
    assert judgment.label
    assert set(judgment.components or {}) == set(COMPONENTS) - {"affective"}


def test_a_server_without_decisions_ends_the_run() -> None:
    refusal = Answer(status=501, body={"error": {"message": "This model is not a decision model"}})
    with pytest.raises(OperationalError, match="does not support typed questions at /systemone"):
        ask(lambda call: refusal, protocol="systemone")
