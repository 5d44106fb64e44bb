"""`/v1/chat/completions`: the judge for tools that only know chat models; it answers a label or JSON."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from secrets import token_hex
from time import time
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, WithJsonSchema

from data.records import LABELS, Exchange, Judgment, judgment_of
from server.http_errors import Refused
from server.questions import TEXT, label_of
from server.requests import StrictModel, read_content, read_input

GOOD: Final = LABELS[-1]
LEAST_LOGPROB: Final = -9999.0  # as OpenAI writes what has no probability
MOST_ALTERNATIVES: Final = 20
# "an integer between 0 and 10", "on a scale from 1 to 5", "score (0-1)"
SCALE: Final = re.compile(
    r"\b(?:between|from|scale(?: of| from)?|score[^\n.]{0,20}?)[ \t]*[(\[]?"
    r"(\d{1,3}(?:\.\d)?)[ \t]*(?:to|and|-|\u2013)[ \t]*(\d{1,3}(?:\.\d)?)\b",
    re.IGNORECASE,
)
LABEL_NAMES: Final = ("label", "rating", "verdict", "category", "choice", "grade")
SAMPLE: Final = judgment_of(Exchange(id="", prompt="", response=""), {"Bad": 0.2, "Okay": 0.3, "Good": 0.5})
MESSAGE: Final = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {"role": {"enum": ["user"]}, "content": TEXT},
}


class ChatRequest(StrictModel):
    """An exchange in the last message, and the form of the answer.

    The last message is a user's with the exchange in it: a JSON object, tags, labels or fenced text, all as
    `/v1/decisions` reads them. Or it is an assistant's: then the messages are the conversation. Instructions
    are not followed, since the judge has its own rubric; what they say of the form of the answer is.
    """

    model: str
    messages: Annotated[
        list[dict[str, Any]], Field(min_length=1), WithJsonSchema({"type": "array", "items": MESSAGE})
    ]
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_ALTERNATIVES)] | None = None
    n: int | None = None
    stream: bool | None = None


class Completion(BaseModel):
    """A chat completion with one choice; `judgment` is what `/v1/score` gives, to all digits."""

    id: str
    object: str
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, Any]
    judgment: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """How to answer: as a label where `is_json` is not set, else by a `schema`, as a call of `tool` if named.

    `scale` are the ends of a number that a schema does not bound.
    """

    is_json: bool = False
    schema: Mapping[str, Any] | None = None
    tool: str = ""
    scale: tuple[float, float] = (0.0, 1.0)


class _Label(str):
    """A label in an answer: its place is where the alternatives stand."""

    __slots__ = ()


def read_chat(request: ChatRequest) -> Exchange:
    """Read the exchange that is to be judged; raises `NoExchange` where there is none."""
    for name, value, least in (("stream", request.stream, False), ("n", request.n, 1)):
        if value not in (None, least):
            raise Refused(400, f"{name}: one whole answer is given; leave it out", param=name)
    place = len(request.messages) - 1
    if request.messages[place].get("role") == "user":
        return read_input([request.messages[place]], place=f"messages.{place}")
    return read_input(request.messages, place="messages")


def read_form(request: ChatRequest, exchange: Exchange | None) -> AnswerForm:
    """Read how the answer is to look, and refuse a form that no judgment fits."""
    form = _read_form(request, exchange)
    _pieces(form, SAMPLE, "")
    return form


def _read_form(request: ChatRequest, exchange: Exchange | None) -> AnswerForm:
    told = _instructions(request, exchange)
    form = AnswerForm(is_json="json" in told.lower(), scale=_read_scale(told, "messages") or (0.0, 1.0))
    if request.tools and request.tool_choice != "none":
        return _as_tool(request, form)
    wanted = request.response_format or {}
    if wanted.get("type") == "json_schema":
        described = wanted.get("json_schema")
        schema = described.get("schema") if isinstance(described, Mapping) else None
        if not isinstance(schema, Mapping):
            raise _unfit("response_format", "json_schema.schema: missing")
        return AnswerForm(is_json=True, schema=schema, scale=form.scale)
    if wanted.get("type") == "json_object":
        return AnswerForm(is_json=True, scale=form.scale)
    return form


def _as_tool(request: ChatRequest, form: AnswerForm) -> AnswerForm:
    functions = [tool.get("function") for tool in request.tools or ()]
    choice = request.tool_choice if isinstance(request.tool_choice, Mapping) else {}
    chosen = choice.get("function")
    name = chosen.get("name") if isinstance(chosen, Mapping) else None
    named = [
        item
        for item in functions
        if isinstance(item, Mapping) and isinstance(item.get("name"), str) and name in (None, item["name"])
    ]
    if len(named) != 1:
        raise _unfit("tools", "name in tool_choice the one function that the answer is to call")
    schema = named[0].get("parameters")
    if not isinstance(schema, Mapping):
        raise _unfit("tools", f"{named[0]['name'][:40]}: parameters: missing")
    return AnswerForm(is_json=True, schema=schema, tool=named[0]["name"], scale=form.scale)


def _instructions(request: ChatRequest, exchange: Exchange | None) -> str:
    """All that is said beside the exchange."""
    texts = []
    for number, message in enumerate(request.messages):
        is_last = number == len(request.messages) - 1
        if message.get("role") in ("system", "developer") or (is_last and message.get("role") == "user"):
            content = read_content(message.get("content"), f"messages.{number}")
            texts.append(content if isinstance(content, str) else "")
    told = "\n".join(texts).replace("```json", "")
    for text in (exchange.prompt, exchange.response) if exchange else ():
        told = told.replace(text, "").replace(json.dumps(text)[1:-1], "")
    return told


def _read_scale(text: str, place: str) -> tuple[float, float] | None:
    """The one scale that a text names.

    >>> _read_scale("an integer between 0 and 10, with 10 the best", "")
    (0.0, 10.0)
    """
    scales = {(float(low), float(high)) for low, high in SCALE.findall(text)}
    scales = {(low, high) for low, high in scales if low < high}
    if len(scales) > 1:
        named = " and ".join(sorted(f"{low:g} to {high:g}" for low, high in scales))
        raise _unfit(place, f"several scales are named, {named}; give minimum and maximum in a schema")
    return scales.pop() if scales else None


def write_completion(
    request: ChatRequest, form: AnswerForm, judgment: Judgment, about: str
) -> dict[str, Any]:
    """Write the answer; `about` says which judge it was. Unscored is a refusal, as models refuse."""
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    finish, logprobs = "stop", None
    if judgment.probabilities is None:
        message["refusal"] = f"unscored: {judgment.unscored}"
    else:
        pieces = _pieces(form, judgment, about)
        text = "".join(pieces)
        if form.tool:
            call = {"name": form.tool, "arguments": text}
            message["tool_calls"] = [{"id": f"call_{token_hex(8)}", "type": "function", "function": call}]
            finish = "tool_calls"
        else:
            message["content"] = text
        if request.logprobs and not form.tool:
            count = request.top_logprobs or 0
            logprobs = {
                "content": [_token(piece, judgment.probabilities, count) for piece in pieces],
                "refusal": None,
            }
    tokens = int((judgment.usage or {}).get("input_tokens", 0))
    return {
        "id": f"chatcmpl-{token_hex(12)}",
        "object": "chat.completion",
        "created": int(time()),
        "model": request.model,
        "choices": [{"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens},
        "judgment": {
            "label": judgment.label,
            "score": judgment.score,
            "probabilities": judgment.probabilities,
            "set": judgment.set,
            "unscored": judgment.unscored,
        },
    }


def _pieces(form: AnswerForm, judgment: Judgment, about: str) -> list[str]:
    """The text of an answer, with a label as a piece of its own."""
    if not form.is_json:
        return [_Label(judgment.label)]
    filled = _fill(form, judgment, about)
    pieces = ["{"]
    for number, (name, value) in enumerate(filled.items()):
        pieces[-1] += f"{', ' if number else ''}{json.dumps(name)}: "
        if isinstance(value, _Label):
            pieces[-1] += '"'
            pieces += [value, '"']
        else:
            pieces[-1] += json.dumps(value)
    pieces[-1] += "}"
    return pieces


def _token(piece: str, probabilities: Mapping[str, float], count: int) -> dict[str, Any]:
    """A piece as a token with its alternatives: the labels, where it is one."""
    spoken = {label_of(piece): piece} if isinstance(piece, _Label) else {}
    parts = {spoken.get(label, label): part for label, part in probabilities.items()} if spoken else {}
    likeliest = sorted(parts, key=lambda text: -parts[text])[:count]

    def write(text: str, part: float) -> dict[str, Any]:
        logprob = log(part) if part > 0 else LEAST_LOGPROB
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    alternatives = [write(text, parts[text]) for text in likeliest]
    return {**write(str(piece), parts.get(piece, 1.0)), "top_logprobs": alternatives}


def _fill(form: AnswerForm, judgment: Judgment, about: str) -> dict[str, Any]:
    """The fields of the answer: those of the schema, or those that tools look for."""
    assert judgment.probabilities is not None
    parts = ", ".join(f"{label} {100 * part:.0f} %" for label, part in judgment.probabilities.items())
    reason = f"{parts}, says {about}. {judgment.rationale or ''}".strip()
    if form.schema is None:
        return {
            "label": _Label(judgment.label),
            "score": _number(judgment, form.scale),
            "pass": judgment.label == GOOD,
            "reason": reason,
            "probabilities": dict(judgment.probabilities),
        }
    properties = form.schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        raise _unfit("response_format", "the schema has no properties")
    filled: dict[str, Any] = {}
    for name, described in properties.items():
        value = _fill_one(name, described, form, judgment, reason)
        if value is not None:
            filled[name] = value
        elif name in _listed(form.schema.get("required")):
            ways = "labels (an enum), booleans, numbers, texts and probabilities by label"
            raise _unfit("response_format", f"{name[:40]!r} cannot be filled in; this judge gives {ways}")
    return filled


def _fill_one(name: str, described: Any, form: AnswerForm, judgment: Judgment, reason: str) -> Any:
    """One field by what its schema allows; None where that is nothing a judge can say."""
    about = _resolve(described, form.schema or {})
    probabilities = judgment.probabilities or {}
    if choices := _listed(about.get("enum")):
        if sorted(map(label_of, choices)) == sorted(LABELS):
            return next(_Label(choice) for choice in choices if label_of(choice) == judgment.label)
        if not all(map(_is_number, choices)):
            return None
        if len(choices) == len(LABELS):
            return sorted(choices)[LABELS.index(judgment.label or "")]
        value = _number(judgment, (min(choices), max(choices)))
        return min(choices, key=lambda number: abs(number - value))
    kind = about.get("type")
    if kind == "boolean":
        return judgment.label == GOOD
    if kind in ("number", "integer"):
        low, high = about.get("minimum"), about.get("maximum")
        is_bounded = _is_number(low) and _is_number(high)
        said = str(about.get("description") or "")
        scale = (low, high) if is_bounded else _read_scale(said, "response_format") or form.scale
        value = _number(judgment, scale)
        return round(value) if kind == "integer" else value
    if kind == "string":
        return _Label(judgment.label) if name.lower() in LABEL_NAMES else reason
    if kind == "object":
        inner = about.get("properties")
        names = list(inner) if isinstance(inner, Mapping) else list(LABELS)
        if sorted(map(label_of, names)) == sorted(LABELS):
            return {item: probabilities[label_of(item)] for item in names}
    return None


def _resolve(described: Any, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A property's schema, past references and the null that an optional one allows."""
    for _ in range(4):
        if not isinstance(described, Mapping):
            return {}
        if isinstance(described.get("$ref"), str):
            definitions = schema.get("$defs")
            name = described["$ref"].rpartition("/")[2]
            described = definitions.get(name) if isinstance(definitions, Mapping) else None
        elif ways := [item for item in _listed(described.get("anyOf")) if item != {"type": "null"}]:
            described = ways[0]
        else:
            return described
    return {}


def _number(judgment: Judgment, scale: tuple[Any, Any]) -> float:
    """The expected label on a scale: its low end for Bad, its middle for Okay, its high end for Good."""
    assert judgment.score is not None
    low, high = map(float, scale)
    return round(low + (high - low) * (judgment.score - 1) / 2, 6)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unfit(place: str, message: str) -> Refused:
    return Refused(400, f"{place}: {message}", param=place, code="unsupported_form")
