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
    from server.decisions import DecisionRequest, check_questions, write_decision
    from server.requests import read_input

    asked, served = _read(data, DecisionRequest), _service().served
    check_questions(asked.questions, served)
    judgment = _judge(partial(read_input, asked.input, place="input"))
    return write_decision(asked, judgment, served, 0)


def _chat(data: bytes) -> Any:
    from server.chat_completions import ChatRequest, read_chat, read_format, write_completion

    asked = _read(data, ChatRequest)
    return write_completion(asked, read_format(asked), _judge(partial(read_chat, asked)), "length")


def _judge(read: Any) -> Any:
    from data.records import unscored
    from server.requests import NoExchange
    from server.served_judge import PROBE

    try:
        return _service().served.ask(read())
    except NoExchange as nothing:
        return unscored(PROBE, str(nothing))


def body(route: str) -> Target:
    """A request is answered, or refused with a status and words that can be sent."""
    answer = {"score": _score, "decisions": _decisions, "chat": _chat}[route]

    def target(data: bytes) -> None:
        from data.errors import UserError
        from data.tables import to_json
        from server.http_errors import RequestRefused

        try:
            found = answer(data)
        except RequestRefused as refused:
            assert 400 <= refused.status < 500
            refused.response()
            raise UserError(refused.message) from None
        to_json({"found": found}).encode()

    return target
