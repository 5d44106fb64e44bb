"""`/v1/systemone`: the same questions, keyed by name, with levels known by their position."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, WithJsonSchema

from data.records import LABELS, Judgment
from server.questions import (
    CRITERIA,
    FIELDS,
    KEYED_CRITERIA,
    MESSAGES,
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

Content = Annotated[str | dict[str, Any] | list[Any], WithJsonSchema(TEXT)]  # a level's or question's words


class SystemOneChoice(BaseModel):
    """Which label would a crowd give? The criteria's keys must be Bad, Okay and Good."""

    type: Literal["choice"]
    instructions: Content | None = None
    criteria: Annotated[
        dict[str, Content | None], Field(min_length=1, max_length=26), WithJsonSchema(KEYED_CRITERIA)
    ]


class SystemOneScore(BaseModel):
    """How empathetic is the reply? The criteria begin with Bad, Okay and Good, as in "Bad: dismisses"."""

    type: Literal["score"]
    instructions: Content | None = None
    criteria: Annotated[list[Content], Field(min_length=1, max_length=26), WithJsonSchema(CRITERIA)]


class SystemOneNoul(BaseModel):
    """Does a component of empathy show in the reply? The question's name says which."""

    type: Literal["noul"]
    instructions: Content | None = None
    criteria: dict[str, Content | None] | None = None


SystemOneQuestion = Annotated[SystemOneChoice | SystemOneScore | SystemOneNoul, Field(discriminator="type")]


class SystemOneRequest(BaseModel):
    """An exchange and questions about it.

    `state` carries the exchange: an object with our fields (prompt, response, and if you have them emotion,
    situation, dialogue), the same as text, messages that end with the assistant's reply, or fenced text.
    """

    model: str
    state: Annotated[str | dict[str, Any] | list[Any], WithJsonSchema(one_of(FIELDS, TEXT, MESSAGES))]
    questions: dict[str, SystemOneQuestion] = Field(min_length=1, max_length=64)


class SystemOneAnswer(BaseModel):
    """Answers by the names of the questions."""

    model: str
    answers: dict[str, dict[str, Any]]
    usage: dict[str, Any]


def check_questions(
    questions: dict[str, SystemOneChoice | SystemOneScore | SystemOneNoul], served: Served
) -> None:
    """Refuse what the judge cannot be asked, before it is asked anything."""
    places = []
    for name, question in questions.items():
        place = f"questions.{name}"
        if isinstance(question, SystemOneNoul):
            check_component(place, name, served)
        elif isinstance(question, SystemOneChoice):
            check_choices(place, question.criteria)
        else:
            heads = [item.partition(":")[0] if isinstance(item, str) else "" for item in question.criteria]
            check_levels(place, heads)
        places.append((place, not isinstance(question, SystemOneNoul) or name in served.component_names))
    check_answerable(places, served)


def answer_systemone(request: SystemOneRequest, judgment: Judgment, served: Served) -> dict[str, Any]:
    """The answer to all questions about one judged exchange."""
    used = int((judgment.usage or {}).get("input_tokens", 0))
    answers = {
        name: _answer(name, question, judgment, served) for name, question in request.questions.items()
    }
    return {"model": request.model, "answers": answers, "usage": {"input_tokens": used, "output_tokens": 0}}


def _answer(
    name: str, question: SystemOneChoice | SystemOneScore | SystemOneNoul, judgment: Judgment, served: Served
) -> dict[str, Any]:
    if judgment.probabilities is None:
        return {"type": REFUSAL, "reason": judgment.unscored}
    if isinstance(question, SystemOneNoul):
        found = served.components(judgment).get(name)
        if found is None:
            return {"type": REFUSAL, "reason": f"the judge {served.judge.name!r} gives no such component"}
        return {"type": "noul", "noul": found}
    parts = probabilities_of(judgment)
    if isinstance(question, SystemOneScore):
        places = [str(place) for place in range(len(LABELS))]
        return {
            "type": "score",
            "score": round((judgment.score or 0.0) - 1, 6),  # positions here count from 0
            "legend": dict(zip(places, question.criteria, strict=True)),
            "probabilities": dict(zip(places, parts, strict=True)),
            "confidence": score_confidence(parts),
        }
    chosen, pairs = choose(list(question.criteria), judgment)
    return {
        "type": "choice",
        "choice": chosen,
        "probabilities": dict(pairs),
        "confidence": choice_confidence(parts),
    }
