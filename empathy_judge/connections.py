"""Connections to the judge: a child process that stays warm, or a server by its URL."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitedTooLong
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

START = Path(__file__).with_name("start.py")
PYTHON = "EMPATHY_JUDGE_PYTHON"
LAST_OUTPUT = 2000  # characters of a failed child's stderr
GRACE = 5.0  # seconds for a child to end
RETRIES = 5  # while a server is full
LONGEST_WAIT = 60  # seconds before a retry, whatever Retry-After says
LARGEST_ANSWER = 64 << 20  # bytes
LONGEST_MESSAGE = 500  # characters of a server's message
LOOPBACK = ("127.0.0.1", "localhost", "::1")


Waiting = dict[int, "Future[dict[str, Any]]"]  # requests without an answer yet, by id


class JudgeError(Exception):
    """The judge could not be asked."""


class _EndedBefore(Exception):
    """The child ended before the request was sent."""


def start_command(python: str | None = None) -> list[str]:
    """Return the words that start a command, in this environment or in that of another Python."""
    python = python or os.environ.get(PYTHON)
    # In this environment the file is known; another has its own copy of it.
    return [python, "-I", "-m", "empathy_judge.start"] if python else [sys.executable, "-I", str(START)]


class ChildConnection:
    """The installed judge in a process of its own, in Python's isolated mode; started when first asked.

    `python` is the interpreter it runs in, where that is not this one: an environment with `empathy-judge` in
    it, which may have other versions of everything.
    """

    def __init__(
        self, judge: str, calibration: str | None, *, python: str | None, timeout: float | None
    ) -> None:
        options = ["--judge", judge, *(["--calibration", calibration] if calibration else [])]
        self._command = [*start_command(python), "serve", "--stdio", *options]
        self._timeout = timeout
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def ask(self, route: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer; other threads may ask meanwhile."""
        while True:
            with self._lock:
                if self._child is None or not self._child.is_ours:
                    self._child = _Child(self._command, self._timeout)
                child = self._child
            with suppress(_EndedBefore):
                return child.ask(route, body)

    def close(self) -> None:
        """End the child."""
        with self._lock:
            if self._child is not None and self._child.is_ours:
                self._child.end()
            self._child = None


class _Child:
    """One life of the child process."""

    def __init__(self, command: list[str], timeout: float | None) -> None:
        if not command[0]:
            raise JudgeError(
                f"the Python executable is unknown; set the environment variable {PYTHON} to one"
            )
        self._timeout, self._pid, self._count = timeout, os.getpid(), 0
        self._waiting: Waiting = {}
        self._lock, self._is_ended = threading.Lock(), False
        said = tempfile.TemporaryFile()  # noqa: SIM115  # closed by who reads it, when the child has ended
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said
            )
        except OSError as error:
            said.close()
            raise JudgeError(f"the judge cannot be started with {command[0]}: {error.strerror}") from error
        ready = self._waiting[0] = Future()
        # The thread holds no reference to this object, or it would never be let go.
        held = (self._process, self._waiting, self._lock, said)
        reader = threading.Thread(target=_read, args=held, daemon=True)
        self._finalizer = weakref.finalize(self, _end, self._process, reader, self._pid)
        reader.start()
        self._wait_for(ready)

    @property
    def is_ours(self) -> bool:
        """Whether it can be asked: a fork of this process must not read the original's answers."""
        return self._pid == os.getpid() and not self._is_ended and self._process.poll() is None

    def ask(self, route: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        answer: Future[dict[str, Any]] = Future()
        assert self._process.stdin is not None
        with self._lock:
            self._count += 1
            line = json.dumps({"id": self._count, "route": route, "body": body})
            try:
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()
            except (OSError, ValueError):  # ValueError: it was closed
                self._is_ended = True
                raise _EndedBefore from None
            self._waiting[self._count] = answer
        return self._wait_for(answer)

    def _wait_for(self, answer: "Future[dict[str, Any]]") -> dict[str, Any]:
        try:
            return answer.result(self._timeout)
        except WaitedTooLong:
            self.end()
            raise JudgeError(f"the judge did not answer within {self._timeout:g} s") from None

    def end(self) -> None:
        """End the child process."""
        self._finalizer()


def _read(
    process: "subprocess.Popen[bytes]", waiting: Waiting, lock: threading.Lock, said: IO[bytes]
) -> None:
    """Set the answers as they come; at the end, fail all waiting requests with the child's stderr."""
    assert process.stdout is not None
    with process.stdout, said:
        for line in process.stdout:
            answer = json.loads(line)
            with lock:
                future = waiting.pop(0 if answer.get("ready") else answer["id"], None)
            if future is None:
                continue
            if "error" in answer:
                future.set_exception(JudgeError(answer["error"]))
            else:
                future.set_result(answer.get("body", answer))
        process.wait()
        said.seek(0)
        words = said.read().decode(errors="replace").strip()[-LAST_OUTPUT:]
    ended = f"the judge ended with exit code {process.returncode}" + (f": {words}" if words else "")
    with lock:
        left = [*waiting.values()]
        waiting.clear()
    for future in left:
        future.set_exception(JudgeError(ended))


def _end(process: "subprocess.Popen[bytes]", reader: threading.Thread, pid: int) -> None:
    """Close stdin, which ends the child once it has answered; kill it if that takes long."""
    if pid != os.getpid():
        return  # a fork: the child is the original's
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
    reader.join(GRACE)


class ServerConnection:
    """A judge that `empathy-judge serve` serves under a URL."""

    def __init__(self, url: str, *, key: str | None, timeout: float | None) -> None:
        if "@" in url or "?" in url:  # not shown: it may hold a password
            raise JudgeError("url: must not contain a password or a query; pass the key as `key`")
        try:
            parts = urllib.parse.urlsplit(url)
            host = parts.hostname
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise JudgeError(f"url: expected an address such as http://127.0.0.1:8321, not {url!r}")
        if key and parts.scheme == "http" and host not in LOOPBACK:
            raise JudgeError("url: the key would be sent unencrypted; use https, or a tunnel to 127.0.0.1")
        if key and not (key.isascii() and key.isprintable()):  # an error about the header would quote it
            raise JudgeError("key: not a valid key: it has line breaks or non-ASCII characters")
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
                raise JudgeError(f"{self._url}{route}: {error.code}: {complaint}") from None
            except (OSError, ValueError, RecursionError, HTTPException) as error:
                reason = str(getattr(error, "reason", error))[:LONGEST_MESSAGE]
                raise JudgeError(
                    f"{self._url}{route}: {reason}; check that the server is running (empathy-judge serve)"
                ) from error
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        """Nothing is held open."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """No redirects: the key is for the named server only."""

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
