"""A request that gets no answer: status and words, in the shape that OpenAI's clients read."""

import json
from collections.abc import Mapping

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

KINDS = {401: "authentication_error", 404: "not_found_error"}


class Refused(Exception):
    """Why a request is not answered; `param` names the field that is to blame."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Make what is sent."""
        kind = KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        # Escaped to ASCII: the message may quote a lone surrogate, which UTF-8 cannot hold.
        return Response(
            json.dumps({"error": error}),
            status_code=self.status,
            headers=self.headers,
            media_type="application/json",
        )


def refuse_invalid(error: RequestValidationError) -> Refused:
    """Say the first thing that is wrong with a body, with its place."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:])  # the first is always the body
    return Refused(
        400, f"{place or 'body'}: {first['msg'][0].lower()}{first['msg'][1:]}", param=place or None
    )


async def send_refused(_: Request, error: Exception) -> Response:
    """Answer to what a route raised."""
    if isinstance(error, RequestValidationError):
        return refuse_invalid(error).response()
    if isinstance(error, HTTPException):
        return Refused(error.status_code, str(error.detail), headers=error.headers).response()
    assert isinstance(error, Refused)
    return error.response()
