"""`/v1/systemone`: the same questions, keyed by name, with levels known by their position."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from data.records import LABELS
from server.questions import MESSAGES, TEXT, Answer, Question
from server.requests import StrictModel

# What is described here is what we can read of a request, not all we let pass.
FIELDS: Final = {
    "type": "object",
    "required": ["prompt", "response"],
    "properties": {"prompt": TEXT, "response": TEXT, "emotion": TEXT, "situation": TEXT},
}
CRITERIA: Final = {
    "type": "array",
    "minItems": len(LABELS),
    "maxItems": len(LABELS),
    "prefixItems": [{"type": "string", "pattern": f"^{label}(:|$)"} for label in LABELS],
}
KEYED_CRITERIA: Final = {
    "type": "object",
    "required": list(LABELS),
    "properties": {label: {"anyOf": [TEXT, {"type": "null"}]} for label in LABELS},
    "additionalProperties": False,
}

Content = Annotated[str | dict[str, Any] | list[Any], WithJsonSchema(TEXT)]  # a level's or question's words


class SystemOneChoice(StrictModel):
    """Which label would a crowd give? The criteria's keys must be Bad, Okay and Good."""

    type: Literal["choice"]
    instructions: Content | None = None
    criteria: Annotated[
        dict[str, Content | None], Field(min_length=1, max_length=26), WithJsonSchema(KEYED_CRITERIA)
    ]


class SystemOneScore(StrictModel):
    """How empathetic is the reply? The criteria begin with Bad, Okay and Good, as in "Bad: dismisses"."""

    type: Literal["score"]
    instructions: Content | None = None
    criteria: Annotated[list[Content], Field(min_length=1, max_length=26), WithJsonSchema(CRITERIA)]


class SystemOneNoul(StrictModel):
    """Does a component of empathy show in the reply? The question's name says which."""

    type: Literal["noul"]
    instructions: Content | None = None
    criteria: dict[str, Content | None] | None = None


SystemOneQuestion = Annotated[SystemOneChoice | SystemOneScore | SystemOneNoul, Field(discriminator="type")]


class SystemOneRequest(StrictModel):
    """An exchange and questions about it.

    `state` carries the exchange: an object with our fields (prompt, response, and if you have them emotion,
    situation, dialogue), the same as text, messages that end with the assistant's reply, or fenced text.
    """

    model: str
    state: Annotated[str | dict[str, Any] | list[Any], WithJsonSchema({"anyOf": [FIELDS, TEXT, MESSAGES]})]
    questions: dict[str, SystemOneQuestion] = Field(min_length=1, max_length=64)


class SystemOneAnswer(BaseModel):
    """Answers by the names of the questions."""

    model: str
    answers: dict[str, dict[str, Any]]
    usage: dict[str, Any]


def read_questions(request: SystemOneRequest) -> list[Question]:
    """Read the questions in the form both wires share."""
    return [_read(name, question) for name, question in request.questions.items()]


def _read(name: str, question: SystemOneChoice | SystemOneScore | SystemOneNoul) -> Question:
    place = f"questions.{name}"
    if isinstance(question, SystemOneNoul):
        return Question(place=place, kind="component", name=name)
    if isinstance(question, SystemOneChoice):
        return Question(place=place, kind="choice", options=list(question.criteria))
    heads = [item.partition(":")[0] if isinstance(item, str) else "" for item in question.criteria]
    return Question(place=place, kind="score", options=heads)


def write_systemone(request: SystemOneRequest, answers: Sequence[Answer], tokens: int) -> dict[str, Any]:
    """Write the answers to all questions about one judged exchange."""
    pairs = zip(request.questions.items(), answers, strict=True)
    return {
        "model": request.model,
        "answers": {name: _write(question, answer) for (name, question), answer in pairs},
        "usage": {"input_tokens": tokens, "output_tokens": 0},
    }


def _write(question: SystemOneChoice | SystemOneScore | SystemOneNoul, answer: Answer) -> dict[str, Any]:
    if answer.value is None:
        return {"type": "refusal", "reason": answer.reason}
    if isinstance(question, SystemOneNoul):
        return {"type": "noul", "noul": answer.value}
    if isinstance(question, SystemOneChoice):
        probabilities = dict(zip(question.criteria, answer.probabilities, strict=True))
        about: dict[str, Any] = {"choice": answer.value, "probabilities": probabilities}
    else:
        about = {
            "score": round(answer.value - 1, 6),  # positions here count from 0
            "legend": {str(place): item for place, item in enumerate(question.criteria)},
            "probabilities": {str(place): part for place, part in enumerate(answer.probabilities)},
        }
    return {"type": question.type, **about, "confidence": answer.confidence}
