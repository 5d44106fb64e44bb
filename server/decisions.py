"""`/v1/decisions` as OpenAI's clients speak it: what is asked, and how we answer."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from data.records import Judgment
from server.questions import (
    CHOICES,
    LEVELS,
    MESSAGES,
    PARTS,
    REFUSAL,
    TEXT,
    check_answerable,
    check_choices,
    check_component,
    check_levels,
    choice_confidence,
    choose,
    one_of,
    probabilities_of,
    score_confidence,
)
from server.served_judge import Served

# Not read: the judge has its own.
Instructions = Annotated[str | list[dict[str, Any]], WithJsonSchema(one_of(TEXT, PARTS))]


class Predicate(BaseModel):
    """Does a component of empathy show in the reply? Its name says which."""

    type: Literal["predicate"]
    instructions: Instructions
    name: str | None = None


class Option(BaseModel):
    """One choice."""

    value: str | bool
    description: str | None = None


class Choice(BaseModel):
    """Which label would a crowd give? The values must be Bad, Okay and Good."""

    type: Literal["choice"]
    instructions: Instructions
    choices: Annotated[list[Option], Field(min_length=2, max_length=255), WithJsonSchema(CHOICES)]
    name: str | None = None


class Level(BaseModel):
    """One level of a score."""

    label: str
    description: str | None = None


class Score(BaseModel):
    """How empathetic is the reply? The levels must be Bad, Okay and Good, in this order."""

    type: Literal["score"]
    instructions: Instructions
    levels: Annotated[list[Level], Field(min_length=1), WithJsonSchema(LEVELS)]
    name: str | None = None


Question = Annotated[Predicate | Choice | Score, Field(discriminator="type")]


class DecisionRequest(BaseModel):
    """An exchange and questions about it.

    `input` carries the exchange. Messages: the last, the assistant's, is the reply that is judged, the user's
    before it the prompt, what came earlier the dialogue; system and developer messages are left out. Or text,
    alone or as the only message: a JSON object with our fields (prompt, response, and if you have them
    emotion, situation, dialogue), or an exchange as our own judges fence it.
    """

    model: str
    input: Annotated[str | list[dict[str, Any]], WithJsonSchema(one_of(TEXT, MESSAGES))]
    questions: list[Question] = Field(min_length=1, max_length=400)


class Decision(BaseModel):
    """Answers in the order of the questions."""

    answers: list[dict[str, Any]]
    model: str
    usage: dict[str, Any]


def check_questions(questions: list[Predicate | Choice | Score], served: Served) -> None:
    """Refuse what the judge cannot be asked, before it is asked anything."""
    places = []
    for number, question in enumerate(questions):
        place = f"questions.{number}"
        if isinstance(question, Predicate):
            check_component(place, question.name, served)
        elif isinstance(question, Choice):
            check_choices(place, [option.value for option in question.choices])
        else:
            check_levels(place, [level.label for level in question.levels])
        places.append((place, not isinstance(question, Predicate) or question.name in served.component_names))
    check_answerable(places, served)


def answer_decisions(request: DecisionRequest, judgment: Judgment, served: Served) -> dict[str, Any]:
    """The answer to all questions about one judged exchange."""
    used = int((judgment.usage or {}).get("input_tokens", 0))
    return {
        "model": request.model,
        "answers": [_answer(question, judgment, served) for question in request.questions],
        "usage": {
            "input_tokens": used,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": used,
        },
    }


def _answer(question: Predicate | Choice | Score, judgment: Judgment, served: Served) -> dict[str, Any]:
    if judgment.probabilities is None:
        return {"type": REFUSAL, "name": question.name, "reason": judgment.unscored}
    if isinstance(question, Predicate):
        found = served.components(judgment).get(question.name or "")
        if found is None:
            reason = f"the judge {served.judge.name!r} gives no such component"
            return {"type": REFUSAL, "name": question.name, "reason": reason}
        return {"type": "predicate", "name": question.name, "probability": found}
    parts = probabilities_of(judgment)
    if isinstance(question, Score):
        rows = [
            {"value": value, "label": level.label, "probability": part}
            for value, (level, part) in enumerate(zip(question.levels, parts, strict=True), start=1)
        ]
        about = {"score": judgment.score, "confidence": score_confidence(parts)}
        return {"type": "score", "name": question.name, **about, "probabilities": rows}
    chosen, pairs = choose([option.value for option in question.choices], judgment)
    return {
        "type": "choice",
        "name": question.name,
        "choice": chosen,
        "confidence": choice_confidence(parts),
        "probabilities": [{"value": value, "probability": part} for value, part in pairs],
    }
