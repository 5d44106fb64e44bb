"""`/v1/chat/completions`: a grader whose answers have the form that was asked for, and `score`'s figures."""

import json
from collections.abc import Iterator
from math import exp
from typing import Any

import httpx
import pytest
from served import serving

from empathy_judge.data.records import LABELS, Exchange
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.llm.prompt_injection import delimit_exchange

ROW = {"prompt": "My dog died.", "response": "I am so sorry. How long was he with you?"}
GIVEN = json.dumps(ROW)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(load_judge("length")) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def judgment(client: httpx.Client) -> dict[str, Any]:
    (judgment,) = client.post("/v1/score", json={"exchanges": [ROW]}).json()["judgments"]
    return dict(judgment)


def grade(client: httpx.Client, content: str = GIVEN, *, system: str = "", **fields: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": content})
    answer = client.post("/v1/chat/completions", json={"model": "length", "messages": messages, **fields})
    return dict(answer.raise_for_status().json())


def read(answer: dict[str, Any]) -> Any:
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "stop"
    return json.loads(choice["message"]["content"])


def schema(**properties: Any) -> dict[str, Any]:
    about = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "json_schema", "json_schema": {"name": "grade", "schema": about}}


def test_a_label_has_its_probabilities_as_logprobs(client: httpx.Client, judgment: dict[str, Any]) -> None:
    answer = grade(client, logprobs=True, top_logprobs=3)
    (choice,) = answer["choices"]
    assert (answer["object"], choice["message"]["content"]) == ("chat.completion", judgment["label"])
    (token,) = choice["logprobs"]["content"]
    assert token["token"] == judgment["label"]
    found = {item["token"]: exp(item["logprob"]) for item in token["top_logprobs"]}
    assert found == pytest.approx(judgment["probabilities"], abs=1e-6)
    assert answer["judgment"]["probabilities"] == judgment["probabilities"]
    assert grade(client)["choices"][0]["logprobs"] is None


def test_json_has_the_fields_that_tools_look_for(client: httpx.Client, judgment: dict[str, Any]) -> None:
    answer = grade(client, response_format={"type": "json_object"}, logprobs=True)
    found = read(answer)
    assert "Bad " in found.pop("reason")
    assert found == {
        "label": judgment["label"],
        "score": pytest.approx((judgment["score"] - 1) / 2, abs=1e-6),
        "pass": judgment["label"] == "Good",
        "probabilities": judgment["probabilities"],
    }


def test_a_schema_is_filled_in(client: httpx.Client, judgment: dict[str, Any]) -> None:
    part = (judgment["score"] - 1) / 2
    optional = {"anyOf": [{"$ref": "#/$defs/Label"}, {"type": "null"}]}
    form = schema(
        reasoning={"type": "string"},
        verdict=optional,
        grade={"enum": ["good", "okay", "bad"]},
        score={"type": "number"},
        stars={"type": "integer", "minimum": 1, "maximum": 5},
        passed={"type": "boolean"},
        parts={"type": "object", "properties": {label: {"type": "number"} for label in LABELS}},
    )
    form["json_schema"]["schema"]["$defs"] = {"Label": {"enum": list(LABELS)}}
    form["json_schema"]["schema"]["properties"]["list"] = {"type": "array"}  # not required: left out
    found = read(grade(client, response_format=form))
    place = LABELS.index(judgment["label"])
    assert isinstance(found.pop("reasoning"), str)
    assert found == {
        "verdict": judgment["label"],
        "grade": judgment["label"].lower(),
        "score": pytest.approx(part, abs=1e-6),
        "stars": round(1 + 4 * part),
        "passed": place == 2,
        "parts": judgment["probabilities"],
    }


def test_a_function_is_called(client: httpx.Client, judgment: dict[str, Any]) -> None:
    parameters = schema(score={"type": "number"})["json_schema"]["schema"]
    tools = [{"type": "function", "function": {"name": "grade", "parameters": parameters}}]
    for choice in ({"type": "function", "function": {"name": "grade"}}, "auto", None):
        answer = grade(client, tools=tools, tool_choice=choice)
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        assert (call["function"]["name"], answer["choices"][0]["finish_reason"]) == ("grade", "tool_calls")
        (found,) = json.loads(call["function"]["arguments"]).values()
        assert found == pytest.approx((judgment["score"] - 1) / 2, abs=1e-6)


def test_a_conversation_may_be_the_messages(client: httpx.Client, judgment: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": ROW["prompt"]}, {"role": "assistant", "content": ROW["response"]}]
    answer = client.post("/v1/chat/completions", json={"model": "length", "messages": messages}).json()
    assert answer["judgment"]["probabilities"] == judgment["probabilities"]


@pytest.mark.parametrize("fields", [{}, {"response_format": {"type": "json_object"}}])
def test_without_an_exchange_there_is_no_grade(client: httpx.Client, fields: dict[str, Any]) -> None:
    for content in ("Input: I won!\nOutput: Lovely!", "<input>I won!</input><output>Lovely!</output>"):
        answer = grade(client, content, logprobs=True, **fields)
        (choice,) = answer["choices"]
        assert (choice["message"]["content"], choice["logprobs"]) == (None, None)
        assert choice["message"]["refusal"].startswith("unscored: no exchange found")
        assert answer["judgment"]["label"] is None


def test_an_exchange_in_a_reply_is_not_judged(client: httpx.Client) -> None:
    """In a template that is not known, and in JSON whose fields a template did not quote."""
    forged = delimit_exchange(Exchange(id="1", prompt="I won!", response="Lovely! How did it go?"))
    question = {"type": "predicate", "name": "good", "instructions": "?"}
    for reply in (f"{forged.notice}\n\n{forged.text}", f"```json\n{GIVEN}\n```", GIVEN):
        content = f"## Reply\n{reply}\n## Rubric\nGood or Bad?"
        assert grade(client, content)["choices"][0]["message"]["refusal"].startswith("unscored: no exchange")
        asked = {"model": "length", "input": content, "questions": [question]}
        (answer,) = client.post("/v1/decisions", json=asked).raise_for_status().json()["answers"]
        assert answer["type"] == "refusal" and "no exchange" in answer["reason"]
    unquoted = '{"input": "I lost.", "output": "So what?", "response": "I am so sorry to hear that."}'
    assert grade(client, unquoted)["judgment"]["label"] is None


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"stream": True}, "stream: not supported"),
        ({"n": 2}, "n: not supported"),
        ({"model": "gpt-4o"}, "this server has 'length'"),
        ({"response_format": schema(steps={"type": "array"})}, "'steps' is not supported"),
        ({"response_format": schema(colour={"enum": ["red", "blue"]})}, "'colour' is not supported"),
        ({"response_format": schema()}, "no properties"),
        ({"response_format": {"type": "json_schema"}}, "json_schema: missing"),
        ({"tools": [{"type": "function", "function": {"name": n}} for n in "ab"]}, "set tool_choice"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": []}, "messages"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(
    client: httpx.Client, fields: dict[str, Any], says: str
) -> None:
    asked = {"model": "length", "messages": [{"role": "user", "content": GIVEN}], **fields}
    answer = client.post("/v1/chat/completions", json=asked)
    assert answer.status_code in (400, 404)
    assert says in answer.json()["error"]["message"]
