"""OpenAI's client to one server: its key, bounded answers, and retries."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from math import inf
from random import random
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from empathy_judge.data.errors import UserError, install_hint
from empathy_judge.data.text import printable

if TYPE_CHECKING:
    from openai import OpenAI

MOST_BYTES: Final = 8 << 20
SHORT: Final = 160  # characters of a server's message in a problem
RAW_CHARACTERS: Final = 600  # saved of an answer that could not be read
CONNECT_SECONDS: Final = 10.0
LONGEST_WAIT: Final = 60.0  # seconds; a server that asks for more is not asked again
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
SPENT_QUOTAS: Final = ("insufficient_quota", "billing_hard_limit_reached")
REDACTED = "[key]"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SHORTEST = 8  # a shorter value ("none", "EMPTY") is a placeholder; redacting it would spoil ordinary words


class Key:
    """A key that no `repr`, message or answer shows; without a variable's name there is none."""

    __slots__ = ("_value", "name")

    def __init__(self, name: str) -> None:
        check_key_name(name)
        self.name, self._value = name, os.environ.get(name, "").strip() if name else ""
        if name and not self._value:
            raise UserError(
                f"{name}: this environment variable is not set; set it to the API key, or change key_env"
            )
        # Refused here: the HTTP library's own error would quote the header with the key.
        if not self._value.isascii() or not self._value.isprintable() or " " in self._value:
            raise UserError(f"{name}: not a valid key: it has spaces, line breaks or non-ASCII characters")

    @property
    def headers(self) -> dict[str, str]:
        """The header that authenticates a request."""
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    def redact(self, text: str) -> str:
        """Replace the key, and its URL-encoded form, in a server's text."""
        if len(self._value) < SHORTEST:
            return text
        return text.replace(self._value, REDACTED).replace(quote(self._value, safe=""), REDACTED)


def check_key_name(name: str) -> None:
    """Refuse an invalid variable name without repeating it: it may be the key itself."""
    if name and not NAME.fullmatch(name):
        expected = "the name of an environment variable, such as OPENAI_API_KEY, not the key itself"
        raise UserError(f"key_env: expected {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAnswer:
    """The outcome of a call: what was answered as `body`, or else the `problem`."""

    status: int = 0
    text: str = ""
    body: Any = None
    problem: str = ""
    is_unreachable: bool = False
    is_late: bool = False
    may_have_cost: bool = False  # no complete answer came, but the server may charge for it
    wait: float | None = None  # seconds that the server asks for, 0 if none; None if a retry would fail too


OnTry = Callable[[ServerAnswer | None], None]


class TooLarge(Exception):
    """An answer larger than `MOST_BYTES`."""


FAILURES: Final = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
)
_trusted = cache(httpx.create_ssl_context)  # once a process: reading certificates takes longer than a call


class _TimedStream(httpcore.NetworkStream):
    """A connection whose read time-out covers the whole answer to a request, not one read."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream, self._deadline = stream, inf
        self.close, self.get_extra_info = stream.close, stream.get_extra_info  # type: ignore[method-assign]

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if timeout is None:
            return self._stream.read(max_bytes)
        self._deadline = min(self._deadline, monotonic() + timeout)
        if (left := self._deadline - monotonic()) <= 0:
            raise httpcore.ReadTimeout
        return self._stream.read(max_bytes, left)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._deadline = inf  # the answer is due from the end of the request on
        self._stream.write(buffer, timeout)

    def start_tls(self, *arguments: Any, **named: Any) -> httpcore.NetworkStream:
        return _TimedStream(self._stream.start_tls(*arguments, **named))


class _TimedBackend(httpcore.SyncBackend):
    def connect_tcp(self, *arguments: Any, **named: Any) -> httpcore.NetworkStream:
        return _TimedStream(super().connect_tcp(*arguments, **named))


def _find_proxy(base_url: str) -> httpcore.Proxy | None:
    """Return the environment's proxy for an address; none leads to this machine."""
    parts, proxies = urlsplit(base_url), getproxies()
    url, host = proxies.get(parts.scheme) or proxies.get("all"), parts.hostname or ""
    if not url or host in LOOPBACK or proxy_bypass(parts.netloc):
        return None
    kind, _, rest = url.rpartition("://")
    if kind not in ("", "http", "https", *(("socks5", "socks5h") if find_spec("socksio") else ())):
        raise UserError(f"{base_url}: a proxy by {kind} is not supported; NO_PROXY={host} goes without it")
    proxy = httpx.Proxy(f"{kind or 'http'}://{rest}")
    return httpcore.Proxy(str(proxy.url), auth=proxy.raw_auth)


class _BoundedClient(httpx.Client):
    """An HTTP client that sends our key, follows no redirect and reads at most `MOST_BYTES`."""

    def __init__(self, base_url: str, key: Key) -> None:
        super().__init__(headers={"Accept-Encoding": "identity"}, verify=_trusted(), trust_env=False)
        self.key, self.has_answered = key, False
        self._connections = httpcore.ConnectionPool(
            ssl_context=_trusted(),
            proxy=_find_proxy(base_url),
            max_connections=None,
            keepalive_expiry=5.0,
            network_backend=_TimedBackend(),
        )

    def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        request.headers.pop("Authorization", None)
        request.headers.update(self.key.headers)
        url, sent = request.url, request.headers.raw
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        about: Any = {"content": request.stream, "extensions": request.extensions}
        answer = self._connections.handle_request(
            httpcore.Request(request.method, target, headers=sent, **about)
        )
        # Never decompressed: a small answer could expand to gigabytes.
        headers = [(name, value) for name, value in answer.headers if name.lower() != b"content-encoding"]
        content = _receive(answer, most=inf if stream else MOST_BYTES)
        response = httpx.Response(answer.status, headers=headers, content=content, request=request)
        if not stream:
            response.read()
            self.has_answered = True
        return response

    def close(self) -> None:
        self._connections.close()
        super().close()


def _receive(answer: httpcore.Response, most: float) -> Iterator[bytes]:
    received = 0
    with closing(answer):
        for part in answer.iter_stream():
            received += len(part)
            if received > most:
                raise TooLarge(f"answer larger than {MOST_BYTES >> 20} MB")
            yield part


class ServerClient:
    """OpenAI's client to one server, for any number of threads; no retry is waited for once `stopped`."""

    def __init__(self, *, base_url: str, key: Key, timeout: float, retries: int, stopped: Event) -> None:
        try:
            import openai
        except ImportError:
            hint = install_hint("prompted")
            raise UserError(f"calling a server needs the package openai: {hint}") from None
        self.key, self._timeout, self._retries, self._stopped = key, timeout, retries, stopped
        self._http = _BoundedClient(base_url, key)
        omitted: dict[str, Any] = dict.fromkeys(("OpenAI-Organization", "OpenAI-Project"), openai.Omit())
        self._client = openai.OpenAI(
            base_url=base_url,
            api_key="none",  # otherwise it takes OPENAI_API_KEY, whatever the server
            default_headers=omitted,
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
            max_retries=0,  # `ask` retries
            http_client=self._http,
        )

    def post(self, path: str, body: Any, on_try: OnTry) -> ServerAnswer:
        """Post JSON; the answer's `body` is a JSON object, whatever else it has."""
        return self.ask(lambda client: client.post(path, cast_to=httpx.Response, body=body), on_try)

    def ask(
        self,
        send: Callable[["OpenAI"], Any],
        on_try: OnTry = lambda last: None,
        *,
        retries: int | None = None,
    ) -> ServerAnswer:
        """Call the client, and again where a failure may pass; `on_try` gets the failure before each try.

        A call that timed out is not sent again: the server may still work on it.
        """
        left, pause = self._retries if retries is None else retries, 0.5
        on_try(None)
        while (answer := self._try(send)).wait is not None and left:
            self._stopped.wait(answer.wait or pause * (1 - random() / 4))
            left, pause = left - 1, min(8.0, 2 * pause)
            on_try(answer)
        return answer

    def _try(self, send: Callable[["OpenAI"], Any]) -> ServerAnswer:
        import openai

        try:
            response = send(self._client)
        except openai.APIStatusError as error:
            response = error.response
        except (openai.APIConnectionError, *FAILURES) as error:  # the latter from a stream
            return self._explain(error.__cause__ or error)
        except (openai.OpenAIError, ValueError) as error:
            return ServerAnswer(status=200, problem=f"not an answer of this API: {type(error).__name__}")
        if not isinstance(response, httpx.Response):
            return ServerAnswer(status=200, body=response)
        answer = read_answer_body(response.status_code, response.text, self.key)
        return replace(answer, wait=_read_wait(answer, response.headers))

    def _explain(self, error: BaseException) -> ServerAnswer:
        """Return what an error of the HTTP library means for the call."""
        if isinstance(error, httpcore.ConnectTimeout | httpcore.ConnectError):
            problem = f"no connection: {self.key.redact(str(error)) or type(error).__name__}"
            wait = 0.0 if self._http.has_answered else None
            return ServerAnswer(problem=problem, is_unreachable=True, wait=wait)
        if isinstance(error, TooLarge):
            return ServerAnswer(problem=str(error), may_have_cost=True)
        if isinstance(error, httpcore.TimeoutException):
            problem = f"timed out: no complete answer in {self._timeout:g} s"
            return ServerAnswer(problem=problem, is_late=True, may_have_cost=True)
        if isinstance(error, FAILURES):
            return ServerAnswer(problem="incomplete answer", may_have_cost=True, wait=0.0)
        raise error

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


def _read_wait(answer: ServerAnswer, headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait before another try, None if it would fail too."""
    may_pass = answer.status in (408, 409, 429) or (answer.status >= 500 and answer.status != 501)
    if not may_pass or any(word in answer.text for word in SPENT_QUOTAS):
        return None
    with suppress(ValueError):  # a date
        seconds = float(headers.get("Retry-After", 0))
        return seconds if 0 <= seconds <= LONGEST_WAIT else None
    return 0.0


def read_answer_body(status: int, text: str, key: Key) -> ServerAnswer:
    """Return the JSON object of an answer, or its problem, with the key redacted."""
    is_good = 200 <= status < 300
    try:
        text = key.redact(json.dumps(json.loads(text), ensure_ascii=False))  # escapes could hide the key
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    answer = ServerAnswer(status=status, text=key.redact(text))
    if is_good and not isinstance(body, dict):
        problem = f"not JSON: {_short_message(answer.text) or 'an empty answer'}"
        return replace(answer, problem=problem, may_have_cost=True)
    if is_good and not isinstance(body.get("error"), dict):
        return replace(answer, body=body)
    if is_good:  # some gateways answer 200 with the failure, and its status, inside
        code = body["error"].get("code")
        status = code if isinstance(code, int) and 400 <= code < 600 else 400
    message = _short_message(_error_message(body) or answer.text)
    problem = f"HTTP {status}: {message}" if message else f"HTTP {status}"
    return replace(answer, status=status, problem=problem)


def _error_message(body: Any) -> str:
    """Return a server's error message from the places where servers put it."""
    if not isinstance(body, dict):
        return ""
    for message in (body.get("error"), body.get("detail"), body.get("message")):
        if isinstance(message, dict):
            message = message.get("message")
        if message:
            return message if isinstance(message, str) else json.dumps(message)
    return ""


def shorten(text: str, length: int = RAW_CHARACTERS) -> str:
    """Return a text on one line, cut to a length.

    >>> shorten("one\\n two three", 8)
    'one two…'
    """
    line = " ".join(text[: 20 * length].split())
    return line if len(line) <= length else f"{line[: length - 1].rstrip()}…"


def _short_message(text: str) -> str:
    return printable(shorten(text, SHORT))
