"""The judge that asks a decision model: typed questions, a probability for every answer, no text to parse."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack

from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.records import (
    CONVERSATION,
    LABELS,
    Exchange,
    Judgment,
    digest_json,
    judgment_of,
    unscored,
)
from empathy_judge.data.rubric import Rubric, read_rubric
from empathy_judge.judge.llm.endpoint import CallFailed, Endpoint, EndpointOptions, LanguageModelJudge, Reply
from empathy_judge.judge.llm.judge_prompt import RATED
from empathy_judge.judge.llm.prompt_injection import DelimitedExchange, delimit_exchange

READING = 1  # raised whenever the same answer would be read in another way
FAR_FROM_ONE = 0.02
RAW = 1000  # characters kept of an answer that could not be used
# The version of a judge follows from what it would send of this exchange.
PROBE = Exchange(id="", prompt="I lost my keys.", response="Oh no!", situation="At night.", emotion="afraid")

ProtocolName = Literal["decisions", "systemone"]


class UnusableDecision(Exception):
    """An answer that came and cannot be used, with the reason."""


class DecisionJudge(LanguageModelJudge):
    """One call an exchange: a score over the three labels, and whether each component of empathy is there."""

    def __init__(
        self,
        *,
        protocol: ProtocolName = "decisions",
        rubric: str = "crowd",
        **endpoint: Unpack[EndpointOptions],
    ) -> None:
        for option in ("base_url", "model"):
            if not endpoint.get(option):
                raise UserError(
                    f"the decision judge needs {option}: set it in a TOML file and pass that file"
                )
        self.rubric = read_rubric(rubric)
        self.name, self.unit = self.rubric.name_judge("decision"), self.rubric.unit
        self.component_names = tuple(self.rubric.components)
        self.protocol, self.batch_path = protocol, f"/{protocol}"
        self.endpoint = Endpoint(**endpoint, price_kind="decision")
        self.concurrency = self.endpoint.concurrency
        # False: the option to ask twice, of earlier versions; without it all versions would change.
        decisive = [self.name, protocol, False, READING, *self.write_requests(PROBE)]
        self.version = digest_json(decisive)[:12]

    def judge(self, exchange: Exchange) -> Judgment:
        reply: Reply | CallFailed
        try:
            reply = self.endpoint.post(self.batch_path, self.write_requests(exchange)[0])
        except CallFailed as failure:
            if failure.reason.startswith("HTTP 501"):
                raise OperationalError(
                    f"{self.endpoint.base_url}, model {self.endpoint.model!r}: {failure.reason}; it does not "
                    f"support typed questions at /{self.protocol}: set another model or protocol"
                ) from None
            reply = failure
        return self.read_replies(exchange, [reply])

    def _delimit(self, exchange: Exchange) -> DelimitedExchange:
        return delimit_exchange(exchange, whole=self.unit == CONVERSATION)

    def write_requests(self, exchange: Exchange) -> list[dict[str, Any]]:
        """Write the one request that is sent for an exchange."""
        delimited = self._delimit(exchange)
        field = "state" if self.protocol == "systemone" else "input"
        text = f"{delimited.notice}\n\n{delimited.text}"
        questions = write_questions(self.rubric, self.protocol)
        return [{"model": self.endpoint.model, field: text, "questions": questions}]

    def read_replies(self, exchange: Exchange, replies: Sequence[Reply | CallFailed]) -> Judgment:
        """The judgment that follows from the reply to `write_requests`."""
        reply, raw, components = replies[0], "", dict[str, float]()
        usage = reply.usage or None
        try:
            if isinstance(reply, CallFailed):
                raise UnusableDecision(reply.reason)
            read = read_systemone if self.protocol == "systemone" else read_decisions
            levels, given = read(reply.body, self.rubric)
            judgment, components = judgment_of(exchange, normalize(levels)), _probabilities(given)
        except UnusableDecision as problem:
            judgment = unscored(exchange, str(problem))
            raw = json.dumps(reply.body, ensure_ascii=False) if isinstance(reply, Reply) else reply.raw
        # A line for each suspected injection, then the answer where it could not be used.
        injections = self._delimit(exchange).injections
        told = [*(f"suspected injection: {item}" for item in injections), raw[:RAW]]
        rationale = "\n".join(told).strip() or None
        return replace(judgment, components=components or None, rationale=rationale, usage=usage)


def write_questions(rubric: Rubric, protocol: ProtocolName) -> list[Any] | dict[str, Any]:
    """The questions as a protocol takes them: in order, or by name; `systemone` has no names for levels."""
    name_of_all = rubric.dimension  # a component must not bear it
    overall = f"{rubric.definition.strip()}\n\n{rubric.question.strip()}"
    components = {
        name: f"Does this hold of {RATED[rubric.unit]['what']}? {meaning}"
        for name, meaning in rubric.components.items()
    }
    if protocol == "systemone":
        criteria = [f"{label}: {meaning}" for label, meaning in rubric.labels.items()]
        score = {"type": "score", "instructions": overall, "criteria": criteria}
        nouls = {name: {"type": "noul", "instructions": text} for name, text in components.items()}
        return {name_of_all: score, **nouls}
    levels = [{"label": label, "description": meaning} for label, meaning in rubric.labels.items()]
    return [
        {"type": "score", "name": name_of_all, "instructions": overall, "levels": levels},
        *({"type": "predicate", "name": name, "instructions": text} for name, text in components.items()),
    ]


def read_decisions(body: Mapping[str, Any], rubric: Rubric) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is said of each label and each component: answers in the order of the questions."""
    names = [rubric.dimension, *rubric.components]
    answers = body.get("answers")
    if not isinstance(answers, list) or len(answers) != len(names):
        count = f"{len(answers)} answers" if isinstance(answers, list) else "no answers"
        raise UnusableDecision(f"{count} to {len(names)} questions")
    for name, answer in zip(names, answers, strict=True):
        if not isinstance(answer, dict) or answer.get("name") not in (None, name):
            raise UnusableDecision("answers are not in the order of the questions")
    levels = _expect_score(answers[0]).get("probabilities")
    if not isinstance(levels, list) or not all(isinstance(level, dict) for level in levels):
        raise UnusableDecision("no probabilities for the labels")
    labels = [str(level.get("label")) for level in levels]
    if sorted(labels) != sorted(LABELS):
        raise UnusableDecision(f"probabilities for {', '.join(labels)[:60] or 'nothing'}, not our labels")
    given = {
        name: answer.get("probability")
        for name, answer in zip(rubric.components, answers[1:], strict=True)
        if answer.get("type") == "predicate"
    }
    return {str(level["label"]): level.get("probability") for level in levels}, given


def read_systemone(body: Mapping[str, Any], rubric: Rubric) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same from answers by the names of the questions; levels by their position, written as text."""
    answers = body.get("answers")
    if not isinstance(answers, dict) or not isinstance(answers.get(rubric.dimension), dict):
        raise UnusableDecision("no answer to the question about the whole")
    levels = _expect_score(answers[rubric.dimension]).get("probabilities")
    if not isinstance(levels, dict):
        raise UnusableDecision("no probabilities for the labels")
    if sorted(levels) != [str(position) for position in range(len(LABELS))]:
        raise UnusableDecision(
            f"probabilities for {', '.join(sorted(levels))[:60] or 'nothing'}, not our labels"
        )
    given = {
        name: answers[name].get("noul") for name in rubric.components if isinstance(answers.get(name), dict)
    }
    return {label: levels[str(position)] for position, label in enumerate(LABELS)}, given


def normalize(by_label: Mapping[str, Any]) -> dict[str, float]:
    """Probabilities that sum to one, from such as nearly do.

    >>> normalize({"Bad": 0.1, "Okay": 0.2, "Good": 0.69})["Bad"]
    0.10101010101010102
    """
    given = _probabilities(by_label)
    if missing := sorted(set(by_label) - set(given)):
        raise UnusableDecision(f"no probability for {missing[0]}")
    total = sum(given.values())
    if abs(total - 1) > FAR_FROM_ONE:
        raise UnusableDecision(f"probabilities sum to {total:.3g}")
    return {label: value / total for label, value in given.items()}


def _expect_score(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    if answer.get("type") == "refusal" or answer.get("refusal"):
        raise UnusableDecision("refused")
    if answer.get("type") != "score":
        raise UnusableDecision(f"answered with {str(answer.get('type'))[:30]!r} instead of a score")
    return answer


def _probabilities(values: Mapping[str, Any]) -> dict[str, float]:
    """Keep what can be a probability; True is no number here, and nan is in no bounds."""
    return {
        name: round(float(value), 9)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    }
