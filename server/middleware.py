"""What the HTTP servers share: refused requests, host and key checks, metrics, and errors without details."""

import asyncio
import hmac
import json
import logging
import secrets
import traceback
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import Any, Final

from fastapi.exceptions import HTTPException, RequestValidationError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.exceptions import HTTPException as StarletteError
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KINDS: Final = {401: "authentication_error", 404: "not_found_error"}


class RequestRefused(HTTPException):
    """A refused request; `param` names the field that caused it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.error = {"message": message, "type": kind, "param": param, "code": code}

    @classmethod
    def of_field(cls, field: str, problem: str, *, code: str | None = None) -> "RequestRefused":
        """Return the refusal of a body for one of its fields."""
        return cls(400, f"{field}: {problem}", param=field, code=code)

    def response(self) -> Response:
        """Make the HTTP response."""
        # Escaped to ASCII: the message may quote a lone surrogate, which UTF-8 cannot hold.
        body = json.dumps({"error": self.error})
        return Response(body, self.status_code, self.headers, media_type="application/json")


async def send_refused(_: Request, error: Exception) -> Response:
    """Respond to an exception that a route raised; of several invalid fields, the first is named."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])  # the first is always the body
        return RequestRefused.of_field(field or "body", first["msg"][0].lower() + first["msg"][1:]).response()
    assert isinstance(error, StarletteError)
    if not isinstance(error, RequestRefused):
        error = RequestRefused(error.status_code, str(error.detail), headers=dict(error.headers or {}))
    return error.response()


SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120)


class Metrics:
    """Counts and times for Prometheus, without any text; each server has its own registry."""

    def __init__(self, *, queue_length: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self._registry}
        ProcessCollector(**own)
        self._requests = Counter("empathy_requests", "Requests answered.", ["path", "status"], **own)
        seconds = "Time to answer a request."
        self._seconds = Histogram("empathy_request_seconds", seconds, ["path"], buckets=SECONDS, **own)
        self._judgments = Counter("empathy_judgments", "Judgments made.", ["label"], **own)
        held = Gauge("empathy_queue_judgments", "Judgments accepted and not yet made.", **own)
        held.set_function(queue_length)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request; `path` is that of a route, never the client's own."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_judgment(self, label: str | None) -> None:
        """Count a judgment by its label."""
        self._judgments.labels(label or "unscored").inc()

    def write(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self._registry)


OPEN: Final = ("/", "/health")  # need no key: the page asks for it
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
HEADERS: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
]
PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action '{1}'; frame-ancestors 'none'"
)

log = logging.getLogger("empathy.serve")


class RequestChecks:
    """ASGI middleware; without `hosts` every Host header is accepted, without `key` every caller."""

    def __init__(
        self, app: ASGIApp, *, hosts: frozenset[str] | None, key: str, metrics: Metrics | None
    ) -> None:
        self._app, self._hosts, self._metrics = app, hosts, metrics
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began, status = monotonic(), 0

        async def send_recorded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, send_recorded)
        except RequestRefused as refused:
            await refused.response()(scope, receive, send_recorded)
        except asyncio.CancelledError:  # the server stops, and its deadline has passed
            if not status:
                await RequestRefused(503, "the server is stopping").response()(scope, receive, send_recorded)
        except Exception as error:
            # Without the message: it may quote a request.
            log.error("internal error: %s", place_of(error))
            if not status:
                await RequestRefused(500, "internal server error").response()(scope, receive, send_recorded)
        finally:
            path = getattr(scope.get("route"), "path", "other")
            if self._metrics is not None:
                self._metrics.count_request(path, status, monotonic() - began)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if self._hosts is not None and host_of(headers.get(b"host", b"")) not in self._hosts:
            # DNS rebinding: a page on another host sends that host's name.
            raise RequestRefused(421, "this server accepts requests for its own address only; see --host")
        if self._key and scope["path"] not in OPEN:
            scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._key):
                raise RequestRefused(
                    401,
                    "a key is needed: send it as Authorization: Bearer <key>",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )


def host_of(header: bytes) -> str:
    """Return a Host header without its port."""
    text = header.decode("latin-1").strip().lower()
    return text.partition("]")[0] + "]" if text.startswith("[") else text.partition(":")[0]


def own_hosts(host: str) -> frozenset[str] | None:
    """Return the Host headers that a server on this address accepts; None for all, if others can reach it.

    >>> [own_hosts(host) is None for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [False, False, False, True, True]
    """
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host.lower() == "localhost"
    return LOOPBACK | {f"[{host}]" if ":" in host else host.lower()} if is_loopback else None


def send_page(render: Callable[[str], str], status: int = 200, *, form: str = "none") -> Response:
    """Respond with a page of which only script and style with a nonce, new for each response, run."""
    nonce = secrets.token_urlsafe(16)
    headers = {"Content-Security-Policy": PAGE_POLICY.format(nonce, form)}
    return HTMLResponse(render(nonce), status, headers)


def place_of(error: BaseException) -> str:
    """Return the type of an error and its place in the code."""
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" in {Path(frame[0].filename).name}:{frame[0].lineno}" if frame else ""
    return f"{type(error).__name__}{where}"
