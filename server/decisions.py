"""`/v1/decisions` as OpenAI's clients speak it: what is asked, and how we answer."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from data.records import LABELS
from server import questions
from server.questions import MESSAGES, PARTS, TEXT, Answer
from server.requests import StrictModel

# What is described here is what we can read of a request, not all we let pass.
THREE: Final = {"type": "array", "minItems": len(LABELS), "maxItems": len(LABELS)}
LEVELS: Final = THREE | {
    "prefixItems": [
        {
            "type": "object",
            "required": ["label"],
            "properties": {"label": {"const": label}, "description": TEXT},
        }
        for label in LABELS
    ],
}
CHOICES: Final = THREE | {
    "uniqueItems": True,
    "items": {"type": "object", "required": ["value"], "properties": {"value": {"enum": list(LABELS)}}},
}

# Not read: the judge has its own.
Instructions = Annotated[str | list[dict[str, Any]], WithJsonSchema({"anyOf": [TEXT, PARTS]})]


class Predicate(StrictModel):
    """Would a crowd call the reply Good (named `good`)? Or: does the component of that name show in it?"""

    type: Literal["predicate"]
    instructions: Instructions
    name: str | None = None


class Option(StrictModel):
    """One choice."""

    value: str | bool
    description: str | None = None


class Choice(StrictModel):
    """Which label would a crowd give? The values must be Bad, Okay and Good."""

    type: Literal["choice"]
    instructions: Instructions
    choices: Annotated[list[Option], Field(min_length=2, max_length=255), WithJsonSchema(CHOICES)]
    name: str | None = None


class Level(StrictModel):
    """One level of a score."""

    label: str
    description: str | None = None


class Score(StrictModel):
    """How empathetic is the reply? The levels must be Bad, Okay and Good, in this order, from 0."""

    type: Literal["score"]
    instructions: Instructions
    levels: Annotated[list[Level], Field(min_length=1), WithJsonSchema(LEVELS)]
    name: str | None = None


Question = Annotated[Predicate | Choice | Score, Field(discriminator="type")]


class DecisionRequest(StrictModel):
    """An exchange and questions about it.

    `input` carries the exchange. Messages: the last, the assistant's, is the reply that is judged, the user's
    before it the prompt, what came earlier the dialogue; system and developer messages are left out. Or text,
    alone or as the only message: a JSON object with prompt and response (or input and output, user and
    assistant, question and answer, messages; and, if you have them, emotion, situation, dialogue), the same
    two between tags or behind labels, or an exchange as our own judges fence it. Text without an exchange is
    answered with refusals that say so.
    """

    model: str
    input: Annotated[str | list[dict[str, Any]], WithJsonSchema({"anyOf": [TEXT, MESSAGES]})]
    questions: list[Question] = Field(min_length=1, max_length=400)


class Decision(BaseModel):
    """Answers in the order of the questions."""

    answers: list[dict[str, Any]]
    model: str
    usage: dict[str, Any]


def read_questions(request: DecisionRequest) -> list[questions.Question]:
    """Read the questions in the form both wires share."""
    return [_read(question, f"questions.{place}") for place, question in enumerate(request.questions)]


def _read(question: Predicate | Choice | Score, place: str) -> questions.Question:
    if isinstance(question, Predicate):
        return questions.Question(place=place, kind="predicate", name=question.name)
    if isinstance(question, Choice):
        values = [option.value for option in question.choices]
        return questions.Question(place=place, kind="choice", options=values)
    return questions.Question(place=place, kind="score", options=[level.label for level in question.levels])


def write_decision(request: DecisionRequest, answers: Sequence[Answer], tokens: int) -> dict[str, Any]:
    """Write the answers to all questions about one judged exchange."""
    return {
        "model": request.model,
        "answers": [_write(*pair) for pair in zip(request.questions, answers, strict=True)],
        "usage": {
            "input_tokens": tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens,
        },
    }


def _write(question: Predicate | Choice | Score, answer: Answer) -> dict[str, Any]:
    if answer.value is None:
        return {"type": "refusal", "name": question.name, "reason": answer.reason}
    row = {"type": question.type, "name": question.name}
    if isinstance(question, Predicate):
        return {**row, "probability": answer.value}
    options: list[dict[str, Any]] = (
        [{"value": option.value} for option in question.choices]
        if isinstance(question, Choice)
        else [{"value": value, "label": level.label} for value, level in enumerate(question.levels)]
    )
    pairs = zip(options, answer.probabilities, strict=True)
    return {
        **row,
        question.type: answer.value,
        "confidence": answer.confidence,
        "probabilities": [{**option, "probability": probability} for option, probability in pairs],
    }
