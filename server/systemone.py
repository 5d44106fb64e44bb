"""`/v1/systemone`: the same questions, keyed by name, with levels known by their position."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from data.records import LABELS
from server.questions import MESSAGES, TEXT, Answer, Question
from server.requests import FIELD_PAIRS, StrictModel

# What is described here is what we can read of a request, not all we let pass.
FIELDS: Final = [
    {
        "type": "object",
        "required": list(pair),
        "properties": dict.fromkeys(pair, TEXT) | {"emotion": TEXT, "situation": TEXT},
    }
    for pair in FIELD_PAIRS
]
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
    """Would a crowd call the reply Good (named `good`)? Or: does the component of that name show in it?"""

    type: Literal["noul"]
    instructions: Content | None = None
    criteria: dict[str, Content | None] | None = None


SystemOneQuestion = Annotated[SystemOneChoice | SystemOneScore | SystemOneNoul, Field(discriminator="type")]


class SystemOneRequest(StrictModel):
    """An exchange and questions about it.

    `state` carries the exchange: an object with prompt and response (or input and output, user and assistant,
    question and answer, messages; and, if you have them, emotion, situation, dialogue), the same as text,
    messages that end with the assistant's reply, or text as `/v1/decisions` reads it.
    """

    model: str
    state: Annotated[str | dict[str, Any] | list[Any], WithJsonSchema({"anyOf": [*FIELDS, TEXT, MESSAGES]})]
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
        return Question(place=place, kind="predicate", name=name)
    if isinstance(question, SystemOneChoice):
        return Question(place=place, kind="choice", options=list(question.criteria))
    return Question(place=place, kind="score", options=question.criteria)


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
            "score": answer.value,
            "legend": {str(place): item for place, item in enumerate(question.criteria)},
            "probabilities": {str(place): part for place, part in enumerate(answer.probabilities)},
        }
    return {"type": question.type, **about, "confidence": answer.confidence}
