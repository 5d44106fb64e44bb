"""Targets for the bodies of HTTP requests, read and answered as the server's routes do."""

from functools import cache
from typing import Any

from door import Target


@cache
def _desk() -> Any:
    from judge.base import load_judge
    from server.app import Desk, Limits
    from server.served_judge import Served

    unused: Any = None  # neither queue nor metrics: what is read here is judged at once
    return Desk(Served(load_judge("length"), "none"), unused, Limits(), unused)


def _read(data: bytes, kind: Any) -> Any:
    from pydantic import ValidationError

    from server.http_errors import refuse_invalid
    from server.requests import parse_object

    try:
        return kind.model_validate(parse_object(data), strict=True)
    except ValidationError as error:
        raise refuse_invalid(error) from None


def _score(data: bytes) -> Any:
    from server.app import ScoreRequest

    desk = _desk()
    return [desk.served.row(item) for item in desk.read_exchanges(_read(data, ScoreRequest).exchanges)]


def _decisions(data: bytes) -> Any:
    from server.decisions import DecisionRequest, answer_decisions, check_questions
    from server.requests import read_input

    asked, served = _read(data, DecisionRequest), _desk().served
    check_questions(asked.questions, served)
    return answer_decisions(asked, served.ask(read_input(asked.input, place="input")), served)


def _systemone(data: bytes) -> Any:
    from server.requests import read_input
    from server.systemone import SystemOneRequest, answer_systemone, check_questions

    asked, served = _read(data, SystemOneRequest), _desk().served
    check_questions(asked.questions, served)
    return answer_systemone(asked, served.ask(read_input(asked.state, place="state")), served)


def body(route: str) -> Target:
    """A request is answered, or refused with a status and words that can be sent."""
    answer = {"score": _score, "decisions": _decisions, "systemone": _systemone}[route]

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
