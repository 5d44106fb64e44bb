"""Targets for what models and servers answer: nothing of it may raise, since it has a place of its own."""

import contextlib
import json
from collections.abc import Callable
from functools import cache
from math import isfinite
from typing import Any

from door import EXCHANGE, KEY, as_body, receive, written

from data.records import LABELS, Judgment
from data.tables import to_json, to_row


@cache
def _form(mode: Any) -> Any:
    from data.rubric import read_rubric
    from judge.llm.program import default_program, make_form

    rubric = read_rubric("crowd")
    return make_form(default_program(rubric, mode), rubric)


@cache
def _judge(kind: str, protocol: Any = "decisions") -> Any:
    from judge.llm.decision import DecisionJudge
    from judge.llm.prompted import PromptedJudge

    about = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "prices": {"input": 1.0, "output": 1.0}}
    return PromptedJudge(**about) if kind == "prompted" else DecisionJudge(**about, protocol=protocol)


def read_wire(data: bytes) -> None:
    """The first byte is the status; our key must not come back."""
    answer = receive(data[1:], status=200 + 2 * (data[0] if data else 0))
    assert KEY not in answer.text + answer.problem + json.dumps(answer.body)
    assert answer.problem or answer.body is not None


def read_retry_after(data: bytes) -> None:
    from judge.llm.endpoint import read_retry_after

    names = ("retry-after-ms", "retry-after", "date")
    lines = data.decode("latin-1").split("\n")
    seconds = read_retry_after(dict(zip(names, lines, strict=False)))
    assert seconds is None or (isfinite(seconds) and seconds >= 0)


def read_url(data: bytes) -> None:
    from judge.llm.endpoint import check_base_url

    assert "@" not in check_base_url(data.decode("utf-8", "replace")).split("/")[2]


def read_text(mode: str) -> Callable[[bytes], None]:
    """The bytes as what a model wrote; a label is one of the scale, or there is none."""

    def target(data: bytes) -> None:
        from data.records import LABELS
        from judge.llm.answers import Answer, read_answer

        form = _form(mode)
        body = {"choices": [{"message": {"content": data.decode("utf-8", "replace")}}]}
        answer = read_answer(body, form)
        if isinstance(answer, Answer):
            assert answer.label in LABELS
        else:
            assert answer.reason

    return target


def read_completion(data: bytes) -> None:
    """The bytes as the whole body of a chat completion, probabilities included."""
    from judge.llm.answer_prompts import read_response
    from judge.llm.endpoint import Reply
    from judge.llm.limits import read_tokens

    body = as_body(data)
    used = read_tokens(body)
    assert used is None or 0 <= used.cached <= used.input < 1e12
    _check(_judge("prompted").read_replies(EXCHANGE, [Reply(body, {})]))
    assert set(read_response(body)) & {"response", "failed"}


def read_decision(protocol: str) -> Callable[[bytes], None]:
    """The bytes as a decision model's answer."""

    def target(data: bytes) -> None:
        from judge.llm.endpoint import Reply

        _check(_judge("decision", protocol).read_replies(EXCHANGE, [Reply(as_body(data), {})]))

    return target


def read_batch_lines(data: bytes) -> None:
    """The bytes as the file a batch ended with."""
    from judge.llm.batch import collect_part
    from judge.llm.batch_files import Part
    from judge.llm.keys import Key

    part = Part(number=1, first=0, last=0, status="completed")
    left = {0: EXCHANGE}
    key = Key("")
    key._value = KEY
    files = [written(data, "output.jsonl")]
    for kind in ("prompted", "decision"):
        for _, judgment in collect_part(_judge(kind), part, left, files, hide=key.hide_in, discount=0.5):
            _check(judgment)


def read_marks(data: bytes) -> None:
    """The first byte chooses among questionnaires, the rest is a model's answer to it."""
    from emotionbench.marks import read_marks
    from emotionbench.questionnaires import questionnaire_names, read_questionnaire, score_marks

    names = questionnaire_names()
    key = read_questionnaire(names[(data[0] if data else 0) % len(names)])
    found = read_marks(data[1:].decode("utf-8", "replace"), key)
    assert all(1 <= item <= key.items and key.low <= mark <= key.high for item, mark in found.marks.items())
    assert found.problem or len(found.marks) == key.items
    for scale, score in score_marks(key, found.marks).items():
        low, high = key.span(scale)
        assert low <= score.low <= score.high <= high


def read_words(data: bytes) -> None:
    """Small texts that people type or datasets hold."""
    from data.errors import UserError
    from data.importers.conversations import exchange_of, parse_chat_log, parse_transcript
    from data.importers.intake import BadCell, read_list, read_score
    from data.judgments import parse_scale, position_on
    from nightly.config import check_name

    text = data.decode("utf-8", "replace")
    for parse in (parse_transcript, parse_chat_log):
        with contextlib.suppress(BadCell):
            exchange_of("1", parse(text), model="m", extra={})
    for read in (lambda: read_list({"x": text}, "x"), lambda: read_score({"x": text}, "x", (1, 5))):
        with contextlib.suppress(BadCell):
            read()
    for use in (lambda: position_on(text, parse_scale(text)), lambda: check_name(text, "name")):
        with contextlib.suppress(UserError):
            use()


def fence(data: bytes) -> None:
    """Whatever a reply holds, it stays between its fences, and every judge can write it down."""
    from dataclasses import replace

    from judge.llm.program import present

    text = data.decode("utf-8", "replace")
    if not text.strip():
        return
    exchange = replace(EXCHANGE, response=text, prompt=text)
    fenced = present(exchange)
    assert "[[ ##" not in fenced.text
    json.dumps(_judge("prompted").write_requests(exchange)).encode()
    json.dumps(_judge("decision").write_requests(exchange)).encode()


def _check(judgment: Judgment) -> None:
    """Either a label with probabilities that sum to one, or a reason; and it can be kept."""
    assert (judgment.label is None) == (judgment.unscored is not None)
    if judgment.label is not None:
        assert judgment.label in LABELS and judgment.score is not None and 1 <= judgment.score <= 3
    if judgment.probabilities is not None:
        assert abs(sum(judgment.probabilities.values()) - 1) < 1e-4
    line = to_json(to_row(judgment))
    assert KEY not in line
    line.encode()
