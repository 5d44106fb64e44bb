"""Our own server on a free port of this machine, with the judge a test gives it; and judges that wait."""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock, Semaphore, Thread
from time import monotonic
from typing import Any

import httpx
from repository import ROOT

from empathy_judge.data.files import MOST_QUEUED
from empathy_judge.data.records import Exchange, Judgment, judgment_of, unscored
from empathy_judge.data.rubric import read_rubric
from empathy_judge.judge.base import Judge
from empathy_judge.server.app import make_app
from empathy_judge.server.middleware import own_hosts
from empathy_judge.server.process import make_server, open_socket, url_of
from empathy_judge.server.served_judge import PROBE, ServedJudge

NO_CLIENTS = "no clients of other people: make .venv/.clients, or set CLIENTS_PYTHON"
LONGEST = 120.0  # seconds; nothing here waits longer, and on a quiet machine a hundredth of it


def find_clients() -> str | None:
    """Return the Python that has the clients of requirements-clients.lock."""
    made = ROOT / ".venv" / "clients" / "bin" / "python"
    return os.environ.get("CLIENTS_PYTHON") or (str(made) if made.exists() else None)


def serving(
    judge: Judge,
    *,
    key: str = "",
    queue: int = MOST_QUEUED,
    conversations: Judge | None = None,
    **process: Any,
) -> AbstractContextManager[str]:
    """Serve judges as long as the `with` block, which gets the address."""
    beside = ServedJudge(conversations) if conversations else None
    app = partial(make_app, ServedJudge(judge), conversations=beside, queue=queue, key=key)
    return running(app, **process)


@contextmanager
def running(make: Callable[..., Any], **process: Any) -> Iterator[str]:
    """Run a server with the app that is made, and yield its address."""
    ready = Event()
    with open_socket("127.0.0.1", 0) as listening:
        app = make(hosts=own_hosts("127.0.0.1"), on_ready=ready.set)
        server = make_server(app, **process)
        thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        assert ready.wait(LONGEST)
        try:
            yield url_of(listening)
        finally:
            server.should_exit = True
            thread.join(LONGEST)
            assert not thread.is_alive()


@dataclass
class WaitingJudge(Judge):
    """Judges an exchange only when `let` allows one more; unscored, or raising, where the prompt says so."""

    name: str = "waiting"
    version: str = "0"
    concurrency: int = 2
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rubric = read_rubric()
        self._allowed, self._asking, self._lock = Semaphore(0), Semaphore(0), Lock()

    def judge(self, exchange: Exchange) -> Judgment:
        if exchange is PROBE:
            return judgment_of(exchange, EVEN)
        with self._lock:
            self.asked.append(exchange.id)
        self._asking.release()
        assert self._allowed.acquire(timeout=LONGEST)
        if exchange.prompt == "raise":
            raise KeyError(exchange.response)
        return unscored(exchange, "as told") if exchange.prompt == "unscored" else judgment_of(exchange, EVEN)

    def let(self, count: int) -> None:
        """Allow so many judgments."""
        for _ in range(count):
            self._allowed.release()

    def wait_asked(self) -> None:
        """Return once it was asked for one more."""
        assert self._asking.acquire(timeout=LONGEST)


# Served without TLS: to read all certificates for every call would take longer than the call.
ask = partial(httpx.post, timeout=LONGEST, verify=False)
get = partial(httpx.get, timeout=LONGEST, verify=False)
EVEN = {"Bad": 0.25, "Okay": 0.25, "Good": 0.5}


def exchanges(*ids: str, prompt: str = "I won!") -> dict[str, Sequence[dict[str, Any]]]:
    """Return the body of a request to `/v1/score`."""
    return {"exchanges": [{"id": name, "prompt": prompt, "response": f"Lovely, {name}!"} for name in ids]}


def held(url: str) -> float:
    """Judgments promised and not yet made, by the server's own metrics."""
    lines = get(f"{url}/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("empathy_queue_judgments "))


def wait_held(url: str, count: int) -> None:
    """Return once the server holds so many judgments."""
    deadline = monotonic() + LONGEST
    while held(url) != count:
        assert monotonic() < deadline, f"{held(url)} judgments are held, not {count}"


def raw_connection(url: str) -> socket.socket:
    """Open a connection to the server without any client."""
    found = httpx.URL(url)
    return socket.create_connection((found.host, found.port or 0), timeout=LONGEST)


def post(path: str, body: bytes) -> bytes:
    """Return a request as it goes over the wire."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
