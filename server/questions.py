"""The one form that the questions of both wires take: checked, and answered from one judgment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from data.records import LABELS, Judgment
from server.http_errors import Refused
from server.served_judge import ServedJudge

TEXT: Final = {"type": "string"}
PARTS: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["type", "text"],
        "properties": {"type": {"enum": ["input_text", "output_text"]}, "text": TEXT},
    },
}
MESSAGES: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["role", "content"],
        "properties": {
            "role": {"enum": ["user", "assistant", "system", "developer"]},
            "content": {"anyOf": [TEXT, PARTS]},
        },
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question of either wire; `options` are its words for our labels, `name` is that of a component."""

    place: str  # in the request
    kind: Literal["score", "choice", "component"]
    options: Sequence[Any] = ()
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A score, the chosen option or a component's probability as `value`; None where `reason` says why not.

    `probabilities` are those of the question's options, in their order.
    """

    value: Any = None
    probabilities: Sequence[float] = ()
    confidence: float | None = None
    reason: str | None = None


def check_model(model: str, served: ServedJudge) -> None:
    """Refuse every model but the one there is."""
    if model != served.judge.name:
        raise Refused(
            404,
            f"the model {model[:80]!r} does not exist here; this server has {served.judge.name!r}",
            param="model",
            code="model_not_found",
        )


def check_questions(questions: Sequence[Question], served: ServedJudge) -> None:
    """Refuse what the judge cannot be asked, before it is asked anything.

    One question at least must be such as this judge can answer; a component asked for beside it that the
    judge does not know comes back as a refusal.
    """
    components, judge, names = served.judge.rubric.components, served.judge.name, ", ".join(LABELS)
    answers = f"it answers a score or a choice over {names}"
    for question in questions:
        labels = [_label_of(option) for option in question.options]
        if question.kind == "component" and question.name not in components:
            but = "" if served.component_names else f", though the judge {judge!r} gives none"
            problem = f"{question.name!r} is no component of empathy; a predicate may be named "
            raise _unsupported(question, f"{problem}{', '.join(components)}{but}; {answers}")
        if question.kind == "score" and labels != list(LABELS):
            problem = f"the levels of a score must be {names}, in this order"
            raise _unsupported(question, f"{problem}: this judge knows no others")
        if question.kind == "choice" and sorted(labels) != sorted(LABELS):
            problem = f"the values of a choice must be {names}, and nothing else"
            raise _unsupported(question, f"{problem}: this judge knows no others")
    if all(item.kind == "component" and item.name not in served.component_names for item in questions):
        raise _unsupported(questions[0], f"the judge {judge!r} gives no components of empathy; {answers}")


def answer_question(question: Question, judgment: Judgment, served: ServedJudge) -> Answer:
    """Answer a question that `check_questions` let pass."""
    if judgment.probabilities is None:
        return Answer(reason=judgment.unscored)
    if question.kind == "component":
        probability = (judgment.components or {}).get(question.name or "")
        unknown = f"the judge {served.judge.name!r} gives no such component"
        return Answer(value=probability, reason=unknown if probability is None else None)
    labels = [_label_of(option) for option in question.options]
    probabilities = [judgment.probabilities[label] for label in labels]
    if question.kind == "score":
        confidence = score_confidence(probabilities)
        return Answer(value=judgment.score, probabilities=probabilities, confidence=confidence)
    chosen = question.options[labels.index(judgment.label or "")]
    return Answer(value=chosen, probabilities=probabilities, confidence=choice_confidence(probabilities))


def score_confidence(probabilities: Sequence[float]) -> float:
    """1 where all lies on one level, 0 where it lies as far from the likeliest as evenly spread, or farther.

    >>> score_confidence([0.0, 0.0, 1.0]), score_confidence([0.5, 0.0, 0.5])
    (1.0, 0.0)
    """
    count = len(probabilities)
    best = max(range(count), key=probabilities.__getitem__)
    distance = sum(part * abs(place - best) for place, part in enumerate(probabilities))
    even = sum(abs(place - (count - 1) / 2) for place in range(count)) / count
    return round(max(0.0, 1 - distance / even), 6)


def choice_confidence(probabilities: Sequence[float]) -> float:
    """How far the likeliest choice lies above chance, from 0 to 1.

    >>> choice_confidence([0.0, 0.0, 1.0])
    1.0
    """
    even = 1 / len(probabilities)
    return round(max(0.0, (max(probabilities) - even) / (1 - even)), 6)


def _label_of(option: Any) -> str:
    """Our label, in whatever case it is written; empty where it is none.

    >>> _label_of(" bad"), _label_of("fair"), _label_of(True)
    ('Bad', '', '')
    """
    folded = option.strip().casefold() if isinstance(option, str) else ""
    return next((label for label in LABELS if label.casefold() == folded), "")


def _unsupported(question: Question, message: str) -> Refused:
    return Refused(400, f"{question.place}: {message}", param=question.place, code="unsupported_question")
