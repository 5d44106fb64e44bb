"""`/v1/decisions`: typed questions about one exchange, in the format of OpenAI's Decisions API."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from empathy_judge.data.input_limits import LONGEST_OPTION
from empathy_judge.data.records import LABELS, Judgment
from empathy_judge.server.http_errors import RequestRefused
from empathy_judge.server.requests import Objects, StrictModel
from empathy_judge.server.served_judge import ServedJudge

IS_GOOD: Final = "good"  # the predicate "the label is Good"

# Not read: the judge has its own rubric.
Instructions = str | Objects


class PredicateQuestion(StrictModel):
    """The probability of the label Good (named `good`), or of the empathy component of that name."""

    type: Literal["predicate"]
    instructions: Instructions
    name: str | None = None


class ChoiceOption(StrictModel):
    """One option of a choice."""

    value: str | bool
    description: str | None = None


class ChoiceQuestion(StrictModel):
    """The label that people would give. The values must be Bad, Okay and Good."""

    type: Literal["choice"]
    instructions: Instructions
    choices: list[ChoiceOption] = Field(min_length=2, max_length=255)
    name: str | None = None


class ScoreLevel(StrictModel):
    """One level of a score."""

    label: str
    description: str | None = None


class ScoreQuestion(StrictModel):
    """The expected label as a number. The levels must be Bad, Okay and Good, in this order, from 0."""

    type: Literal["score"]
    instructions: Instructions
    levels: Annotated[list[ScoreLevel], Field(fail_fast=True)] = Field(min_length=1)
    name: str | None = None


DecisionQuestion = PredicateQuestion | ChoiceQuestion | ScoreQuestion


class DecisionRequest(StrictModel):
    """An exchange and questions about it.

    `input` carries the exchange. Messages: the last one, the assistant's, is the reply to judge, the user's
    before it is the prompt, earlier ones are the dialogue; system and developer messages are ignored. Or
    text, alone or as the only message: a JSON object with prompt and response (or input and output, user and
    assistant, question and answer, messages; optionally emotion, situation, dialogue), or what our decision
    judge sends. Other text, and an object with several prompts or replies, gets refusals with the reason.
    """

    model: str
    input: str | Objects
    questions: list[Annotated[DecisionQuestion, Field(discriminator="type")]] = Field(
        min_length=1, max_length=400
    )


class Decision(BaseModel):
    """Answers in the order of the questions."""

    answers: list[dict[str, Any]]
    model: str
    usage: dict[str, Any]


def _read_options(question: ChoiceQuestion | ScoreQuestion) -> list[tuple[dict[str, Any], str]]:
    """Return a question's options, as the answer repeats them, with the labels that they stand for."""
    if isinstance(question, ChoiceQuestion):
        return [({"value": option.value}, label_of(option.value)) for option in question.choices]
    names = [level.label for level in question.levels]
    return [({"value": value, "label": name}, label_of(name)) for value, name in enumerate(names)]


def check_questions(questions: Sequence[DecisionQuestion], served: ServedJudge) -> None:
    """Refuse a request none of whose questions the judge can answer."""
    problems = [_find_problem(question, served) for question in questions]
    if all(problems):
        message = f"questions.0: {problems[0]}"
        raise RequestRefused(400, message, param="questions.0", code="unsupported_question")


def _find_problem(question: DecisionQuestion, served: ServedJudge) -> str | None:
    """Return why the judge cannot answer a question about any exchange, or None if it can."""
    names = ", ".join(LABELS)
    if not isinstance(question, PredicateQuestion):
        labels = [label for _, label in _read_options(question)]
        if isinstance(question, ScoreQuestion) and labels != list(LABELS):
            return f"the levels of a score must be {names}, in this order"
        if sorted(labels) != sorted(LABELS):
            return f"the values of a choice must be {names}, and nothing else"
        return None
    if question.name == IS_GOOD or question.name in served.judge.component_names:
        return None
    answers = f"it supports a score or a choice over {names}, and the predicate {IS_GOOD!r}"
    if question.name in served.judge.rubric.components:
        return f"the judge {served.judge.name!r} does not score components of empathy; {answers}"
    known = ", ".join([IS_GOOD, *served.judge.rubric.components])
    return (
        f"the predicate {question.name!r} is unknown, and instructions are ignored; known predicates: "
        f"{known}; {answers}"
    )


def write_decision(request: DecisionRequest, judgment: Judgment, served: ServedJudge) -> dict[str, Any]:
    """Write the answers to all questions about one judged exchange."""
    tokens = int((judgment.usage or {}).get("input_tokens", 0))
    return {
        "model": request.model,
        "answers": [_answer(question, judgment, served) for question in request.questions],
        "usage": {
            "input_tokens": tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens,
        },
    }


def _answer(question: DecisionQuestion, judgment: Judgment, served: ServedJudge) -> dict[str, Any]:
    """Answer one question, or refuse it with the reason."""
    refusal = {"type": "refusal", "name": question.name}
    if problem := _find_problem(question, served):
        return {**refusal, "reason": problem}
    if judgment.probabilities is None:
        return {**refusal, "reason": f"unscored: {judgment.unscored}"}
    row: dict[str, Any] = {"type": question.type, "name": question.name}
    if isinstance(question, PredicateQuestion):
        components = {**(judgment.components or {}), IS_GOOD: judgment.probabilities[LABELS[-1]]}
        if question.name not in components:
            reason = f"the judge {served.judge.name!r} returned no value of this component"
            return {**refusal, "reason": reason}
        return {**row, "probability": components[question.name]}
    options, labels = zip(*_read_options(question), strict=True)
    probabilities = [judgment.probabilities[label] for label in labels]
    if isinstance(question, ScoreQuestion):
        assert judgment.score is not None
        row |= {"score": round(judgment.score - 1, 6), "confidence": score_confidence(probabilities)}
    else:
        chosen = labels.index(judgment.label or "")
        confidence = choice_confidence(probabilities, chosen)
        row |= {"choice": options[chosen]["value"], "confidence": confidence}
    pairs = zip(options, probabilities, strict=True)
    return {**row, "probabilities": [{**option, "probability": part} for option, part in pairs]}


def score_confidence(probabilities: Sequence[float]) -> float:
    """Return 1 minus the mean distance from the likeliest level, relative to a uniform distribution.

    >>> score_confidence([0.0, 0.0, 1.0]), score_confidence([0.5, 0.0, 0.5])
    (1.0, 0.0)
    """
    count = len(probabilities)
    best = max(range(count), key=probabilities.__getitem__)
    distance = sum(part * abs(place - best) for place, part in enumerate(probabilities))
    even = sum(abs(place - (count - 1) / 2) for place in range(count)) / count
    return round(max(0.0, 1 - distance / even), 6)


def choice_confidence(probabilities: Sequence[float], chosen: int) -> float:
    """Return how far the chosen option's probability lies above chance, from 0 to 1.

    >>> choice_confidence([0.0, 0.0, 1.0], 2)
    1.0
    """
    even = 1 / len(probabilities)
    return round(max(0.0, (probabilities[chosen] - even) / (1 - even)), 6)


def label_of(option: Any) -> str:
    """Return our label for an option in any case, with or without a description; empty if there is none.

    >>> label_of(" bad"), label_of("Good: warm"), label_of("fair"), label_of(True)
    ('Bad', 'Good', '', '')
    """
    folded = option[:LONGEST_OPTION].partition(":")[0].strip().casefold() if isinstance(option, str) else ""
    return next((label for label in LABELS if label.casefold() == folded), "")
