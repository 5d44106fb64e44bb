"""The HTTP connection to a judge that `empathy-judge serve` serves; it needs nothing but Python."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import IO, Any

from empathy_judge.data.errors import OperationalError, UserError

RETRIES = 5  # while a server is full
LONGEST_WAIT = 60  # seconds before a retry, whatever Retry-After says
LARGEST_ANSWER = 64 << 20  # bytes
LONGEST_MESSAGE = 500  # characters of a server's message
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ServerConnection:
    """Requests to one server, with its key."""

    def __init__(self, url: str, *, key: str | None, timeout: float | None) -> None:
        if "@" in url or "?" in url:  # not shown: it may hold a password
            raise UserError("url: must not contain a password or a query; pass the key as `key`")
        try:
            parts = urllib.parse.urlsplit(url)
            host = parts.hostname
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise UserError(f"url: expected an address such as http://127.0.0.1:8321, not {url!r}")
        if key and parts.scheme == "http" and host not in LOOPBACK:
            raise UserError("url: the key would be sent unencrypted; use https, or a tunnel to 127.0.0.1")
        if key and not (key.isascii() and key.isprintable()):  # an error about the header would quote it
            raise UserError("key: not a valid key: it has line breaks or non-ASCII characters")
        self._url, self._timeout = url.rstrip("/").removesuffix("/v1"), timeout
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if host in LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def ask(self, route: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post a request, and repeat it after the time that a busy server names."""
        data = json.dumps(body).encode()
        for tries_left in reversed(range(RETRIES)):
            request = urllib.request.Request(self._url + route, data=data, headers=self._headers)
            try:
                with self._opener.open(request, timeout=self._timeout) as answer:
                    return _read_object(answer)
            except urllib.error.HTTPError as error:
                with error:
                    after, complaint = error.headers.get("Retry-After", ""), _complaint(error)
                if error.code == 503 and after.isdecimal() and tries_left:
                    time.sleep(min(int(after[:9]), LONGEST_WAIT))
                    continue
                kind = UserError if 400 <= error.code < 500 else OperationalError
                raise kind(f"{self._url}{route}: {error.code}: {complaint}") from None
            except (OSError, ValueError, RecursionError, HTTPException) as error:
                reason = str(getattr(error, "reason", error))[:LONGEST_MESSAGE]
                raise OperationalError(
                    f"{self._url}{route}: {reason}; check that the server is running (empathy-judge serve)"
                ) from error
        raise AssertionError("the last try returns or raises")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirects: the key is for the named server only."""

    def redirect_request(self, *args: Any, **named: Any) -> None:
        return None


def _read_object(answer: IO[bytes]) -> dict[str, Any]:
    content = answer.read(LARGEST_ANSWER + 1)
    if len(content) > LARGEST_ANSWER:
        raise ValueError(f"an answer larger than {LARGEST_ANSWER:,} bytes")
    found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError("an answer that is not a JSON object")
    return found


def _complaint(error: urllib.error.HTTPError) -> str:
    try:
        return str(_read_object(error)["error"]["message"])[:LONGEST_MESSAGE]
    except (OSError, ValueError, KeyError, TypeError, RecursionError, HTTPException):
        return str(error.reason)[:LONGEST_MESSAGE]
