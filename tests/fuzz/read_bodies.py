"""Targets for the bodies of HTTP requests, read and answered as the server's routes do."""

from functools import cache, partial
from typing import Any

from door import Target


@cache
def _service() -> Any:
    from judge.base import load_judge
    from server.app import JudgmentService, Limits
    from server.served_judge import ServedJudge

    unused: Any = None  # neither queue nor metrics: what is read here is judged at once
    return JudgmentService(ServedJudge(load_judge("length"), "none"), unused, Limits(), unused)


def _read(data: bytes, kind: Any) -> Any:
    from fastapi.exceptions import RequestValidationError
    from pydantic import ValidationError

    from server.http_errors import refuse_invalid
    from server.requests import parse_object

    try:
        return kind.model_validate(parse_object(data), from_attributes=True)
    except ValidationError as error:  # as FastAPI tells it
        errors = [{**item, "loc": ("body", *item["loc"])} for item in error.errors()]
        raise refuse_invalid(RequestValidationError(errors)) from None


def _score(data: bytes) -> Any:
    from data.tables import to_row
    from server.requests import ScoreRequest

    service = _service()
    exchanges = service.read_exchanges(_read(data, ScoreRequest).exchanges)
    return [to_row(service.served.ask(exchange)) for exchange in exchanges]


def _decisions(data: bytes) -> Any:
    from server.decisions import DecisionRequest, read_questions, write_decision

    asked = _read(data, DecisionRequest)
    return write_decision(asked, _answer(read_questions(asked), asked.input, "input"), 0)


def _systemone(data: bytes) -> Any:
    from server.systemone import SystemOneRequest, read_questions, write_systemone

    asked = _read(data, SystemOneRequest)
    return write_systemone(asked, _answer(read_questions(asked), asked.state, "state"), 0)


def _chat(data: bytes) -> Any:
    from server.app import find_exchange
    from server.chat_completions import ChatRequest, read_chat, read_form, write_completion

    asked = _read(data, ChatRequest)
    exchange = find_exchange(partial(read_chat, asked))
    form = read_form(asked, None if isinstance(exchange, Exception) else exchange)
    return write_completion(asked, form, _judge(exchange), "length")


def _judge(exchange: Any) -> Any:
    from data.records import unscored
    from server.served_judge import PROBE

    if isinstance(exchange, Exception):
        return unscored(PROBE, str(exchange))
    return _service().served.ask(exchange)


def _answer(questions: Any, given: Any, place: str) -> Any:
    from server.app import find_exchange
    from server.questions import answer_question, check_questions
    from server.requests import read_input

    served = _service().served
    check_questions(questions, served)
    judgment = _judge(find_exchange(partial(read_input, given, place=place)))
    return [answer_question(question, judgment, served) for question in questions]


def body(route: str) -> Target:
    """A request is answered, or refused with a status and words that can be sent."""
    answer = {"score": _score, "decisions": _decisions, "systemone": _systemone, "chat": _chat}[route]

    def target(data: bytes) -> None:
        from data.errors import UserError
        from data.tables import to_json
        from server.http_errors import Refused

        try:
            found = answer(data)
        except Refused as refused:
            assert 400 <= refused.status < 500
            refused.response()
            raise UserError(refused.message) from None
        to_json({"found": found}).encode()

    return target
