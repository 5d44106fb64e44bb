"""A decision model as judge: typed questions, a probability for every answer, no text to parse."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack

from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.files import digest_json
from empathy_judge.data.records import LABELS, Exchange, Judgment, judgment_of, unscored
from empathy_judge.data.rubric import Rubric, read_rubric
from empathy_judge.judge.llm.batch import LanguageModelJudge
from empathy_judge.judge.llm.endpoint import CallFailed, Endpoint, EndpointOptions, Reply
from empathy_judge.judge.llm.judge_prompt import RATED

READING = 2  # raised whenever the same answer would be read in another way
TOLERANCE = 0.02  # of the sum of probabilities
RAW = 1000  # characters saved of an answer that could not be used
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
        if not endpoint.get("model"):
            raise UserError("the decision judge needs model: set it in a TOML file and pass that file")
        self.rubric = read_rubric(rubric)
        self.name, self.unit = self.rubric.name_judge("decision"), self.rubric.unit
        self.protocol, self.batch_path = protocol, f"/{protocol}"
        self.endpoint = Endpoint(**endpoint, price_kind="decision")
        self.concurrency = self.endpoint.concurrency
        self.version = digest_json([self.name, protocol, READING, *self.write_requests(PROBE)])[:12]

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

    def write_requests(self, *group: Exchange) -> list[dict[str, Any]]:
        (exchange,) = group
        delimited = self.delimit(exchange)
        field = "state" if self.protocol == "systemone" else "input"
        text = f"{delimited.notice}\n\n{delimited.text}"
        questions = write_questions(self.rubric, self.protocol)
        return [{"model": self.endpoint.model, field: text, "questions": questions}]

    def read_replies(self, exchange: Exchange, replies: Sequence[Reply | CallFailed]) -> Judgment:
        (reply,), raw, components = replies, "", dict[str, float]()
        try:
            if isinstance(reply, CallFailed):
                raise UnusableDecision(reply.reason)
            levels, given = read_answers(reply.body, self.rubric, self.protocol)
            judgment, components = judgment_of(exchange, normalize(levels)), _probabilities(given)
        except UnusableDecision as problem:
            judgment = unscored(exchange, str(problem))
            raw = json.dumps(reply.body, ensure_ascii=False) if isinstance(reply, Reply) else reply.raw
        # A line for each suspected injection, then the answer if it could not be used.
        lines = [*(f"suspected injection: {item}" for item in self.delimit(exchange).injections), raw[:RAW]]
        rationale = "\n".join(lines).strip() or None
        usage = reply.usage or None
        return replace(judgment, components=components or None, rationale=rationale, usage=usage)


def write_questions(rubric: Rubric, protocol: ProtocolName) -> list[Any] | dict[str, Any]:
    """Write the questions: in order, or by name in `systemone`, which has no names for levels."""
    overall, what = f"{rubric.definition.strip()}\n\n{rubric.question.strip()}", RATED[rubric.unit]["what"]
    components = {name: f"Does this hold of {what}? {meaning}" for name, meaning in rubric.components.items()}
    if protocol == "systemone":
        criteria = [f"{label}: {meaning}" for label, meaning in rubric.labels.items()]
        score = {"type": "score", "instructions": overall, "criteria": criteria}
        nouls = {name: {"type": "noul", "instructions": text} for name, text in components.items()}
        return {rubric.dimension: score, **nouls}
    levels = [{"label": label, "description": meaning} for label, meaning in rubric.labels.items()]
    return [
        {"type": "score", "name": rubric.dimension, "instructions": overall, "levels": levels},
        *({"type": "predicate", "name": name, "instructions": text} for name, text in components.items()),
    ]


def read_answers(
    body: Mapping[str, Any], rubric: Rubric, protocol: ProtocolName
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is given as the probability of each label and of each component."""
    names, answers = [rubric.dimension, *rubric.components], body.get("answers", {})
    if protocol == "decisions":  # answers in the order of the questions, levels with their labels
        if not isinstance(answers, list) or len(answers) != len(names):
            count = f"{len(answers)} answers" if isinstance(answers, list) else "no answers"
            raise UnusableDecision(f"{count} to {len(names)} questions")
        answers = dict(zip(names, answers, strict=True))
        for name, item in answers.items():
            if not isinstance(item, dict) or item.get("name") not in (None, name):
                raise UnusableDecision("answers are not in the order of the questions")
    if not isinstance(answers, dict) or not isinstance(overall := answers.get(rubric.dimension), dict):
        raise UnusableDecision("no answer to the question about the whole")
    if overall.get("type") == "refusal" or overall.get("refusal"):
        raise UnusableDecision("refused")
    if overall.get("type") != "score":
        raise UnusableDecision(f"answered with {str(overall.get('type'))[:30]!r} instead of a score")
    levels, key = overall.get("probabilities"), "probability"
    expected: Sequence[str] = LABELS
    if protocol == "systemone":  # answers by name, levels by their positions, as texts
        expected, key = tuple(str(position) for position in range(len(LABELS))), "noul"
    elif isinstance(levels, list) and all(isinstance(level, dict) for level in levels):
        levels = {str(level.get("label")): level.get("probability") for level in levels}
    if not isinstance(levels, dict):
        raise UnusableDecision("no probabilities for the labels")
    if sorted(levels) != sorted(expected):
        raise UnusableDecision(f"probabilities for {', '.join(levels)[:60] or 'nothing'}, not our labels")
    components = ((name, answers.get(name)) for name in rubric.components)
    given = {name: answer.get(key) for name, answer in components if isinstance(answer, dict)}
    return {label: levels[name] for label, name in zip(LABELS, expected, strict=True)}, given


def normalize(by_label: Mapping[str, Any]) -> dict[str, float]:
    """Return probabilities that sum to one, from such as nearly do."""
    given = _probabilities(by_label)
    if missing := sorted(set(by_label) - set(given)):
        raise UnusableDecision(f"no probability for {missing[0]}")
    total = sum(given.values())
    if abs(total - 1) > TOLERANCE:
        raise UnusableDecision(f"probabilities sum to {total:.3g}")
    return {label: value / total for label, value in given.items()}


def _probabilities(values: Mapping[str, Any]) -> dict[str, float]:
    """Return what can be a probability; True is no number here, and nan is in no bounds."""
    return {
        name: round(float(value), 9)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    }
