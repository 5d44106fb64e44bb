"""OpenAI's client to one server, restricted to our key and to bounded answers; it retries by itself."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from ssl import SSLContext
from threading import Event, local
from time import monotonic
from typing import Any, Final

import httpx
import openai

from empathy_judge.data.text import printable
from empathy_judge.judge.llm.keys import Key

MOST_BYTES: Final = 8 << 20
SHORT: Final = 160  # characters of a server's message in a problem
CONNECT_SECONDS: Final = 10.0
LONGEST_WAIT: Final = 60.0  # seconds before a retry, whatever Retry-After says
NO_PROXY: Final = ("all://localhost", "all://127.0.0.1", "all://[::1]")  # for this machine
SPENT_QUOTAS: Final = (b"insufficient_quota", b"billing_hard_limit_reached")
NO_RETRY: Final = {"x-should-retry": "false"}  # the client's own convention


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAnswer:
    """The outcome of a call: the JSON object of the answer as `body`, or else the `problem`.

    `may_have_cost`: no complete answer came, but the server may have done the work and charge for it.
    """

    status: int = 0
    text: str = ""
    body: dict[str, Any] | None = None
    problem: str = ""
    is_unreachable: bool = False
    may_have_cost: bool = False


class _Failed(openai.OpenAIError):
    """A failure that the client does not retry: it passes on its own exceptions."""

    def __init__(self, answer: ServerAnswer) -> None:
        super().__init__(answer.problem)
        self.answer = answer


class _Interrupted(openai.OpenAIError):
    """An exception of `on_try`, which is the cause of this one."""


@cache
def _trusted() -> SSLContext:
    """Read the certificates once a process: that takes longer than a call."""
    return httpx.create_ssl_context()


class _BoundedClient(httpx.Client):
    """An HTTP client that sends our key, follows no redirect and reads at most `MOST_BYTES`."""

    def __init__(self, key: Key, timeout: float, stopped: Event) -> None:
        super().__init__(
            headers={"Accept-Encoding": "identity"},
            verify=_trusted(),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            follow_redirects=False,  # the key is for this server only
            mounts=dict.fromkeys(NO_PROXY),
        )
        self.key, self.seconds, self.stopped = key, timeout, stopped
        self.has_answered = False
        self.call = local()  # with `on_try` and `was_unanswered`

    def send(self, request: httpx.Request, *, stream: bool = False, **options: Any) -> httpx.Response:
        try:
            self.call.on_try(self.call.was_unanswered)
        except Exception as error:
            raise _Interrupted from error
        self.call.was_unanswered = False
        request.headers.pop("Authorization", None)
        request.headers.update(self.key.headers)
        try:
            response = super().send(request, stream=True, **options)
            # Never decompressed: a small answer could expand to gigabytes.
            response.headers.pop("content-encoding", None)
            return response if stream else self._read(response)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if self.has_answered:
                raise
            raise _Failed(self.explain(error)) from None
        except httpx.TransportError:
            self.call.was_unanswered = True
            raise

    def _read(self, response: httpx.Response) -> httpx.Response:
        """Read a whole answer within the time-out and the size limit."""
        content, deadline = bytearray(), monotonic() + self.seconds
        try:
            for part in response.iter_raw():
                content += part
                if len(content) > MOST_BYTES:
                    problem = f"answer larger than {MOST_BYTES >> 20} MB"
                    raise _Failed(ServerAnswer(problem=problem, may_have_cost=True))
                if monotonic() > deadline:
                    raise httpx.ReadTimeout("the answer takes too long")
        finally:
            response.close()
        self.has_answered = True
        headers = response.headers
        if response.status_code == 501 or any(word in content for word in SPENT_QUOTAS):
            headers.update(NO_RETRY)
        return httpx.Response(
            response.status_code, headers=headers, content=bytes(content), request=response.request
        )

    def explain(self, error: BaseException) -> ServerAnswer:
        """Return what an error of the HTTP library means for the call."""
        if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
            problem = f"no connection: {self.key.redact(str(error)) or type(error).__name__}"
            return ServerAnswer(problem=problem, is_unreachable=True)
        if isinstance(error, httpx.TimeoutException):
            return ServerAnswer(problem="timed out", may_have_cost=True)
        if isinstance(error, httpx.TransportError):
            return ServerAnswer(problem="incomplete answer", may_have_cost=True)
        raise error


class _StoppableClient(openai.OpenAI):
    """OpenAI's client, with waits between tries that end when the endpoint is stopped."""

    def _sleep_for_retry(
        self, *, retries_taken: int, max_retries: int, options: Any, response: httpx.Response | None
    ) -> None:
        headers = response.headers if response is not None else None
        seconds = self._calculate_retry_timeout(max_retries - retries_taken, options, headers)
        assert isinstance(self._client, _BoundedClient)
        self._client.stopped.wait(min(seconds, LONGEST_WAIT))


class ServerClient:
    """OpenAI's client to one server, for any number of threads; no retry is waited for once `stopped`."""

    def __init__(self, *, base_url: str, key: Key, timeout: float, retries: int, stopped: Event) -> None:
        self._http = _BoundedClient(key, timeout, stopped)
        omitted: dict[str, Any] = dict.fromkeys(("OpenAI-Organization", "OpenAI-Project"), openai.Omit())
        self._client = _StoppableClient(
            base_url=base_url,
            api_key="none",  # otherwise it takes OPENAI_API_KEY, whatever the server
            default_headers=omitted,
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
            max_retries=retries,
            http_client=self._http,
        )

    def post(self, path: str, body: Any, on_try: Callable[[bool], None]) -> ServerAnswer:
        """Post JSON; `on_try` is called before each try, with whether the last one may have cost."""
        return self.ask(lambda client: client.post(path, cast_to=httpx.Response, body=body), on_try)

    def ask(
        self, send: Callable[[openai.OpenAI], Any], on_try: Callable[[bool], None] = lambda _: None
    ) -> ServerAnswer:
        """Call the client; `send` returns the response, or None where it has handled it."""
        call = self._http.call
        call.on_try, call.was_unanswered = on_try, False
        try:
            response = send(self._client)
        except _Interrupted as interrupted:
            assert interrupted.__cause__ is not None
            raise interrupted.__cause__ from None
        except _Failed as failed:
            return failed.answer
        except openai.APIStatusError as error:
            response = error.response
        except openai.APIConnectionError as error:
            return self._http.explain(error.__cause__ or error)
        except httpx.TransportError as error:  # while a stream was read
            return self._http.explain(error)
        if response is None:
            return ServerAnswer(status=200, body={})
        response = getattr(response, "http_response", response)
        return read_answer_body(response.status_code, response.text, self._http.key)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


def read_answer_body(status: int, text: str, key: Key) -> ServerAnswer:
    """Return the JSON object of an answer, or its problem, with the key redacted."""
    is_good = 200 <= status < 300
    try:
        body = json.loads(text)
        if isinstance(body, dict):
            body = key.redact_in(body)
            text = json.dumps(body, ensure_ascii=False)
    except (ValueError, RecursionError):
        body = None
    answer = ServerAnswer(status=status, text=key.redact(text))
    if is_good and not isinstance(body, dict):
        problem = f"not JSON: {_shorten(answer.text) or 'an empty answer'}"
        return replace(answer, problem=problem, may_have_cost=True)
    if is_good and not isinstance(body.get("error"), dict):
        return replace(answer, body=body)
    if is_good:  # some gateways answer 200 with the failure, and its status, inside
        code = body["error"].get("code")
        status = code if isinstance(code, int) and 400 <= code < 600 else 400
    message = _shorten(error_message(body) or answer.text)
    problem = f"HTTP {status}: {message}" if message else f"HTTP {status}"
    return replace(answer, status=status, problem=problem)


def error_message(body: Any) -> str:
    """Return a server's error message from the places where servers put it."""
    if not isinstance(body, dict):
        return ""
    for message in (body.get("error"), body.get("detail"), body.get("message")):
        if isinstance(message, dict):
            message = message.get("message")
        if message:
            return message if isinstance(message, str) else json.dumps(message)
    return ""


def _shorten(text: str) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= SHORT else f"{text[: SHORT - 4]} ..."
