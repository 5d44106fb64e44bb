"""One try of one call over HTTP: bounded in time and size, and told apart by what went wrong."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from threading import local
from time import monotonic, time
from typing import Any
from urllib.parse import urlsplit

from data.errors import UserError
from judge.keys import Key

PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})  # the same call may succeed a little later
MOST_BYTES = 8 << 20
SHORT = 160  # characters of what a server said, in a problem
CONNECT_SECONDS = 10.0
LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one try: the JSON object that was `found`, or else the `problem`."""

    status: int = 0
    text: str = ""
    found: dict[str, Any] | None = None
    problem: str = ""
    retry_after: float | None = None
    is_unreachable: bool = False  # not even a connection came about
    is_passing: bool = False  # the same call may succeed a little later
    may_have_cost: bool = False  # no whole answer, yet the server may have done the work and charge for it


class Wire:
    """Connections to one server, kept open between calls and shared by all threads."""

    def __init__(self, *, base_url: str, key: Key, timeout: float, connections: int) -> None:
        import httpx

        self._base_url, self._key, self._timeout = base_url, key, timeout
        self._deadline = _Deadline()
        self._client = httpx.Client(
            # Answers come uncompressed: a few packed bytes could otherwise unfold to gigabytes.
            headers={"Accept-Encoding": "identity", "Content-Type": "application/json"} | key.headers,
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS), pool=None),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            follow_redirects=False,  # the key is for this server and no other
            mounts=dict.fromkeys(LOOPBACK),  # no proxy stands before our own machine
        )
        _bound_waiting(self._client, self._deadline)

    def send(self, path: str, content: bytes, *, method: str = "POST") -> Answer:
        """Send one body; whatever happens on the way is an answer too."""
        import httpx

        self._deadline.end = monotonic() + self._timeout
        try:
            with self._client.stream(method, self._base_url + path, content=content) as response:
                return self._receive(response)
        except (httpx.ConnectTimeout, httpx.ConnectError) as error:
            said = self._key.hide(str(error)) or type(error).__name__
            return Answer(problem=f"no connection: {said}", is_unreachable=True, is_passing=True)
        except (httpx.TimeoutException, TimeoutError):
            return Answer(problem="timed out", is_passing=True, may_have_cost=True)
        except httpx.RemoteProtocolError as error:
            is_cut = "incomplete" in str(error) or "without sending" in str(error)
            problem = "answer cut short" if is_cut else "not HTTP"
            return Answer(problem=problem, is_passing=is_cut, may_have_cost=True)
        except httpx.TransportError:
            return Answer(problem="answer cut short", is_passing=True, may_have_cost=True)

    def close(self) -> None:
        """Let go of all connections."""
        self._client.close()

    def _receive(self, response: Any) -> Answer:
        content = bytearray()
        for part in response.iter_raw():
            content += part
            if len(content) > MOST_BYTES:
                return Answer(problem=f"answer larger than {MOST_BYTES >> 20} MB", may_have_cost=True)
        answer = Answer(
            status=response.status_code,
            text=content.decode("utf-8", "replace"),
            retry_after=read_retry_after(response.headers),
        )
        return read_answer(answer, self._key)


def read_answer(answer: Answer, key: Key) -> Answer:
    """The same answer with its JSON object, or with its problem; the key is hidden in either."""
    is_good = 200 <= answer.status < 300
    try:
        found = json.loads(answer.text)
        if isinstance(found, dict):
            # Its text is written anew, since an escape could keep the key from being seen in it.
            found = key.hide_in(found)
            answer = replace(answer, text=json.dumps(found, ensure_ascii=False))
    except (ValueError, RecursionError):  # brackets in brackets can be too many for what comes after, too
        found = None
    hide = key.hide if is_good else key.hide_quoted
    answer = replace(answer, text=hide(answer.text))
    if is_good and not isinstance(found, dict):
        problem = f"not JSON: {_shorten(answer.text) or 'an empty answer'}"
        return replace(answer, problem=problem, may_have_cost=True)
    if is_good and not isinstance(found.get("error"), dict):
        return replace(answer, found=found)
    if is_good:  # some gateways answer 200 and put the failure, with its status, inside
        code = found["error"].get("code")
        answer = replace(answer, status=code if isinstance(code, int) and 400 <= code < 600 else 400)
    said = key.hide_quoted(_shorten(complaint(found) or answer.text))
    problem = f"HTTP {answer.status}: {said}" if said else f"HTTP {answer.status}"
    return replace(answer, problem=problem, is_passing=answer.status in PASSING)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds a server asks us to wait, given in milliseconds, in seconds or as a date; None if it does not.

    >>> read_retry_after({"retry-after": "7"})
    7.0
    >>> day = "Sun, 15 Nov 2026 10:00:{:02} GMT"
    >>> read_retry_after({"retry-after": day.format(30), "date": day.format(10)})
    20.0
    >>> read_retry_after({"retry-after": "soon"}) is None
    True
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        until = parsedate_to_datetime(headers.get("retry-after", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    try:  # by the server's own clock, where it tells the time: ours may be wrong
        now = parsedate_to_datetime(headers.get("date", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        now = time()
    return max(0.0, until - now)


def check_base_url(base_url: str) -> str:
    """A base URL we can call and may show: http(s), a host, and nothing secret in it."""
    try:
        parts = urlsplit(base_url)
        has_login, has_host = "@" in parts.netloc, bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise UserError(f"base_url: not a URL: {error}") from None
    if has_login:
        raise UserError(
            "base_url: holds a user or password; put the key into an environment variable (key_env)"
        )
    if parts.query or parts.fragment:
        raise UserError("base_url: ends in a query; give the address only, such as http://127.0.0.1:8000/v1")
    if parts.scheme not in ("http", "https") or not has_host or not base_url.isprintable() or " " in base_url:
        raise UserError(f"base_url: {base_url!r} is not an http(s) address such as http://127.0.0.1:8000/v1")
    return base_url.rstrip("/")


class _Deadline(local):
    """When the try of this thread must be over."""

    end = float("inf")

    def shorten(self, timeout: float | None) -> float:
        left = self.end - monotonic()
        if left <= 0:
            raise TimeoutError
        return left if timeout is None else min(left, timeout)


class _Connection:
    """A connection of the HTTP library whose every wait ends at the deadline."""

    def __init__(self, inner: Any, deadline: _Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        received: bytes = self._inner.read(max_bytes, timeout=self._deadline.shorten(timeout))
        return received

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout=self._deadline.shorten(timeout))

    def start_tls(self, ssl_context: Any, server_hostname: Any = None, timeout: float | None = None) -> Any:
        inner = self._inner.start_tls(ssl_context, server_hostname, self._deadline.shorten(timeout))
        return _Connection(inner, self._deadline)

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Connector:
    """Opens such connections."""

    def __init__(self, inner: Any, deadline: _Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def connect_tcp(self, *arguments: Any, **options: Any) -> _Connection:
        return _Connection(self._inner.connect_tcp(*arguments, **options), self._deadline)

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


def _bound_waiting(client: Any, deadline: _Deadline) -> None:
    """httpx bounds each read and not the sum of them: a server that sends a byte a second never times out.

    Its pools take a network backend and httpx has no argument to hand one on, so it is set in their place.
    """
    for transport in (client._transport, *client._mounts.values()):
        if transport is not None:
            pool = transport._pool
            pool._network_backend = _Connector(pool._network_backend, deadline)


def complaint(found: Any) -> str:
    """What a server says is wrong, in the places where servers say it."""
    if not isinstance(found, dict):
        return ""
    for said in (found.get("error"), found.get("detail"), found.get("message")):
        if isinstance(said, dict):
            said = said.get("message")
        if said:
            return said if isinstance(said, str) else json.dumps(said)
    return ""


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHORT else f"{text[: SHORT - 4]} ..."
