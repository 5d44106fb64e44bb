"""Refused requests: status and message, in the error format of OpenAI's API."""

import json
from collections.abc import Mapping

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

KINDS = {401: "authentication_error", 404: "not_found_error"}


class RequestRefused(Exception):
    """A refused request; `param` names the field that caused it."""

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

    @classmethod
    def of_field(cls, field: str, problem: str, *, code: str | None = None) -> "RequestRefused":
        """Return the refusal of a body for one of its fields."""
        return cls(400, f"{field}: {problem}", param=field, code=code)

    def response(self) -> Response:
        """Make the HTTP response."""
        kind = KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        # Escaped to ASCII: the message may quote a lone surrogate, which UTF-8 cannot hold.
        return Response(
            json.dumps({"error": error}),
            status_code=self.status,
            headers=self.headers,
            media_type="application/json",
        )


async def send_refused(_: Request, error: Exception) -> Response:
    """Respond to an exception that a route raised; of several invalid fields, the first is named."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])  # the first is always the body
        return RequestRefused.of_field(field or "body", first["msg"][0].lower() + first["msg"][1:]).response()
    if isinstance(error, HTTPException):
        return RequestRefused(error.status_code, str(error.detail), headers=error.headers).response()
    assert isinstance(error, RequestRefused)
    return error.response()
