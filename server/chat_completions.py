"""`/v1/chat/completions`: the judge for tools that only know chat models; it answers a label or JSON."""

import json
from collections.abc import Mapping, Sequence
from secrets import token_hex
from time import time
from typing import Any, Final

from pydantic import BaseModel, Field

from empathy_judge.data.files import LONGEST_OPTION, MOST_FIELDS
from empathy_judge.data.records import LABELS, Exchange, Judgment, judgment_of
from empathy_judge.server import requests
from empathy_judge.server.middleware import RequestRefused

JsonSchema = Mapping[str, Any]
GOOD: Final = LABELS[-1]
LABEL_NAMES: Final = ("label", "rating", "verdict", "category", "choice", "grade")
SAMPLE: Final = judgment_of(Exchange(id="", prompt="", response=""), {"Bad": 0.2, "Okay": 0.3, "Good": 0.5})
MOST_ON_SCALE: Final = 1e9
KINDS: Final = {"label": "string", "score": "number", "pass": "boolean", "reason": "string"}
# The fields that tools look for in JSON without a schema.
TOOL_SCHEMA: Final[JsonSchema] = {
    "properties": {name: {"type": KINDS.get(name, "object")} for name in (*KINDS, "probabilities")}
}
FILLABLE: Final = "labels (an enum), booleans, numbers, texts and probabilities by label"


class AnswerSchema(requests.StrictModel):
    """The JSON Schema of an answer."""

    content: dict[str, Any] = Field(alias="schema")


class ResponseFormat(requests.StrictModel):
    """A label as text, or JSON."""

    type: str
    json_schema: AnswerSchema | None = None


class ChatRequest(requests.StrictModel):
    """An exchange in the messages, and the format of the answer.

    The messages end with the assistant's reply. Or the last one is a user's, and its whole text is a JSON
    object with `prompt` and `response`, and optionally `situation`, `emotion` and `dialogue`. Instructions
    are not read: the judge has its own rubric.
    """

    model: str
    messages: requests.Messages = Field(min_length=1)
    response_format: ResponseFormat | None = None
    tools: requests.Objects | None = None
    logprobs: bool | None = None
    n: int | None = None
    stream: bool | None = None


class Completion(BaseModel):
    """A chat completion with one choice; `judgment` is the row of `/v1/score`, unrounded."""

    id: str
    object: str
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, Any]
    judgment: dict[str, Any]


def read_chat(request: ChatRequest) -> Exchange:
    """Read the exchange to judge."""
    for name, only in (("stream", False), ("logprobs", False), ("tools", []), ("n", 1)):
        if getattr(request, name) not in (None, only):
            raise RequestRefused.of_field(name, "not supported; leave it out")
    if request.messages[-1].role != "user":
        return requests.read_row(requests.join_messages(request.messages, "messages"), place="messages")
    place = f"messages.{len(request.messages) - 1}.content"
    try:
        row = requests.parse_object(request.messages[-1].content.encode())
    except RequestRefused as refused:
        expected = "a JSON object with prompt and response, or messages that end with the assistant's reply"
        raise RequestRefused.of_field(place, f"expected {expected}: {refused.detail}") from None
    return requests.read_row(row, place=place)


def read_format(request: ChatRequest) -> JsonSchema | None:
    """Read the schema of the answer, None for a label; refuse one that no judgment fits."""
    wanted = request.response_format
    schema: JsonSchema | None = None
    if wanted is not None and wanted.type == "json_schema":
        if wanted.json_schema is None:
            raise _unsupported("response_format", "json_schema: missing")
        schema = wanted.json_schema.content
    elif wanted is not None and wanted.type == "json_object":
        schema = TOOL_SCHEMA
    _write_text(schema, SAMPLE, "")  # raises where a field cannot be filled in
    return schema


def write_completion(
    request: ChatRequest, schema: JsonSchema | None, judgment: Judgment, judge: str
) -> dict[str, Any]:
    """Write the completion; an unscored exchange is a refusal, so that no tool takes it for a grade."""
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    if judgment.probabilities is None:
        message["refusal"] = f"unscored: {judgment.unscored}"
    else:
        message["content"] = _write_text(schema, judgment, judge)
    tokens = int((judgment.usage or {}).get("input_tokens", 0))
    return {
        "id": f"chatcmpl-{token_hex(12)}",
        "object": "chat.completion",
        "created": int(time()),
        "model": request.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens},
        "judgment": {
            name: getattr(judgment, name) for name in ("label", "score", "probabilities", "unscored")
        },
    }


def _write_text(schema: JsonSchema | None, judgment: Judgment, judge: str) -> str:
    """Return the label, or JSON with the fields of the schema."""
    assert judgment.probabilities is not None and judgment.label is not None
    if schema is None:
        return judgment.label
    parts = ", ".join(f"{label} {part:.0%}" for label, part in judgment.probabilities.items())
    reason = f"{judge}: {parts}. {judgment.rationale or ''}".strip()
    return json.dumps(_fill_schema(schema, judgment, reason))


def _fill_schema(schema: JsonSchema, judgment: Judgment, reason: str) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not 0 < len(properties) <= MOST_FIELDS:
        raise _unsupported("response_format", f"the schema must have 1 to {MOST_FIELDS} properties")
    filled = {}
    for name, described in properties.items():
        value = _fill_field(name, _resolve(described, schema), judgment, reason)
        if value is not None:
            filled[name] = value
        elif name in _listed(schema.get("required")):
            problem = f"{name[:40]!r} is not supported; the judge returns {FILLABLE}"
            raise _unsupported("response_format", problem)
    return filled


def _fill_field(name: str, schema: JsonSchema, judgment: Judgment, reason: str) -> Any:
    """Return a field's value by what its schema allows; None where no judgment has such a value."""
    if choices := _listed(schema.get("enum")):
        by_label = _find_labels(choices)
        return by_label[judgment.label] if by_label else None
    kind = schema.get("type")
    if kind == "boolean":
        return judgment.label == GOOD
    if kind in ("number", "integer"):
        ends = schema.get("minimum"), schema.get("maximum")
        has_scale = all(isinstance(end, int | float) and abs(end) <= MOST_ON_SCALE for end in ends)
        value = _number(judgment, ends if has_scale else (0, 1))
        return round(value) if kind == "integer" else value
    if kind == "string":
        return judgment.label if name.lower() in LABEL_NAMES else reason
    if kind == "object":
        inner = schema.get("properties")
        by_label = _find_labels(list(inner) if isinstance(inner, Mapping) else LABELS)
        return {item: (judgment.probabilities or {})[label] for label, item in by_label.items()} or None
    return None


def _find_labels(options: Sequence[Any]) -> dict[Any, Any]:
    """Return each label's option, in any case, with or without a description; nothing unless all are there.

    >>> _find_labels([" bad", "Good: warm", "OKAY"])
    {'Bad': ' bad', 'Okay': 'OKAY', 'Good': 'Good: warm'}
    >>> _find_labels(["Bad", "Good"]), _find_labels([True, 1, "Bad"])
    ({}, {})
    """
    short = [item[:LONGEST_OPTION] if isinstance(item, str) else "" for item in options[: len(LABELS) + 1]]
    names = [item.partition(":")[0].strip().capitalize() for item in short]
    if sorted(names) != sorted(LABELS):
        return {}
    return {label: options[names.index(label)] for label in LABELS}


def _resolve(described: Any, schema: JsonSchema) -> Mapping[str, Any]:
    """Return a property's schema, with references and the null of an optional field resolved."""
    for _ in range(4):
        if not isinstance(described, Mapping):
            return {}
        if isinstance(described.get("$ref"), str):
            definitions = schema.get("$defs")
            name = described["$ref"].rpartition("/")[2]
            described = definitions.get(name) if isinstance(definitions, Mapping) else None
        elif options := _listed(described.get("anyOf"))[:MOST_FIELDS]:
            described = next((item for item in options if item != {"type": "null"}), None)
        else:
            return described
    return {}


def _number(judgment: Judgment, scale: tuple[Any, Any]) -> float:
    """Return the expected label on a scale: the low end is Bad, the middle Okay, the high end Good."""
    assert judgment.score is not None
    low, high = map(float, scale)
    return round(low + (high - low) * (judgment.score - 1) / 2, 6)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _unsupported(place: str, message: str) -> RequestRefused:
    return RequestRefused.of_field(place, message, code="unsupported_form")
