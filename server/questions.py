"""The one form that the questions of both wires take: checked, and answered from one judgment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from data.records import LABELS, Judgment
from server.http_errors import Refused
from server.served_judge import ServedJudge

IS_GOOD: Final = "good"  # the predicate that the crowd's label is the best one
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
    """A question of either wire; `options` are its words for our labels, `name` says which a predicate is."""

    place: str  # in the request
    kind: Literal["score", "choice", "predicate"]
    options: Sequence[Any] = ()
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A score, the chosen option or a component's probability as `value`; None where `reason` says why not.

    A score counts the levels from 0, as both protocols do. `probabilities` are those of the question's
    options, in their order.
    """

    value: Any = None
    probabilities: Sequence[float] = ()
    confidence: float | None = None
    reason: str | None = None


def find_model(model: str, served: ServedJudge) -> ServedJudge:
    """The judge by its name; there is one of replies, and one of whole conversations."""
    if model not in served.models:
        known = " and ".join(map(repr, served.models))
        message = f"the model {model[:80]!r} does not exist here; this server has {known}"
        raise Refused(404, message, param="model", code="model_not_found")
    return served.models[model]


def check_questions(questions: Sequence[Question], served: ServedJudge) -> None:
    """Refuse a request of which the judge can answer nothing, before it is asked.

    A question it cannot answer beside one that it can comes back as a refusal.
    """
    problems = [find_problem(question, served) for question in questions]
    if all(problems):
        place = questions[0].place
        raise Refused(400, f"{place}: {problems[0]}", param=place, code="unsupported_question")


def find_problem(question: Question, served: ServedJudge) -> str | None:
    """Why the judge cannot answer a question, whatever the exchange; None where it can."""
    components, judge, names = served.judge.rubric.components, served.judge.name, ", ".join(LABELS)
    labels = [label_of(option) for option in question.options]
    if question.kind == "score" and labels != list(LABELS):
        return f"the levels of a score must be {names}, in this order: this judge knows no others"
    if question.kind == "choice" and sorted(labels) != sorted(LABELS):
        return f"the values of a choice must be {names}, and nothing else: this judge knows no others"
    if question.kind != "predicate" or question.name == IS_GOOD or question.name in served.component_names:
        return None
    answers = f"it answers a score or a choice over {names}, and the predicate {IS_GOOD!r}"
    if question.name in components:
        return f"the judge {judge!r} gives no components of empathy; {answers}"
    known = [IS_GOOD, *components]
    return (
        f"{question.name!r} is no predicate this judge knows, and it reads no instructions; "
        f"a predicate may be named {', '.join(known)}; {answers}"
    )


def answer_question(question: Question, judgment: Judgment, served: ServedJudge) -> Answer:
    """Answer a question, or say why there is no answer."""
    if problem := find_problem(question, served):
        return Answer(reason=problem)
    if judgment.probabilities is None:
        return Answer(reason=f"unscored: {judgment.unscored}")
    if question.kind == "predicate":
        if question.name == IS_GOOD:
            return Answer(value=judgment.probabilities[LABELS[-1]])
        probability = (judgment.components or {}).get(question.name or "")
        missing = f"the judge {served.judge.name!r} said nothing of this component"
        return Answer(value=probability, reason=missing if probability is None else None)
    labels = [label_of(option) for option in question.options]
    probabilities = [judgment.probabilities[label] for label in labels]
    if question.kind == "score":
        assert judgment.score is not None
        value, confidence = round(judgment.score - 1, 6), score_confidence(probabilities)
        return Answer(value=value, probabilities=probabilities, confidence=confidence)
    chosen = labels.index(judgment.label or "")
    confidence = choice_confidence(probabilities, chosen)
    return Answer(value=question.options[chosen], probabilities=probabilities, confidence=confidence)


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


def choice_confidence(probabilities: Sequence[float], chosen: int) -> float:
    """How far the choice lies above chance, from 0 to 1.

    >>> choice_confidence([0.0, 0.0, 1.0], 2)
    1.0
    """
    even = 1 / len(probabilities)
    return round(max(0.0, (probabilities[chosen] - even) / (1 - even)), 6)


def label_of(option: Any) -> str:
    """Our label, in whatever case it is written, with or without what it means; empty where it is none.

    >>> label_of(" bad"), label_of("Good: warm"), label_of("fair"), label_of(True)
    ('Bad', 'Good', '', '')
    """
    folded = option.partition(":")[0].strip().casefold() if isinstance(option, str) else ""
    return next((label for label in LABELS if label.casefold() == folded), "")
