"""The server process: its socket, its signals and its connections."""

import asyncio
import os
import resource
import socket
import struct
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from empathy_judge.data.errors import OperationalError
from empathy_judge.data.files import IDLE_SECONDS, MOST_CONNECTIONS, MOST_OPEN_FILES


class JudgeServer(uvicorn.Server):
    """A uvicorn server that finishes its requests after the first signal, and exits after the second."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop, and do not let uvicorn raise the signal again at the end: a clean exit is no failure."""
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True


def open_socket(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 is any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
    except OSError as error:
        why = str(error.strerror or error).partition(" (")[0].lower()  # without the address again
        message = f"{host}, port {port}: {why}; choose another with --host or --port"
        raise OperationalError(message) from error
    # asyncio sets this only on sockets that it opens; without it an answer takes 40 ms longer.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def url_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class LimitedConnection(H11Protocol):
    """A connection that is closed if no whole request arrives, or no answer is read, for `idle_seconds`.

    It is closed at once where there are more than `most_connections`.
    """

    idle_seconds: float
    most_connections: int

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection and check it from now on, or abort it."""
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            self.connections.discard(self)
            transport.abort()
        else:
            self._check_later()

    def _check_later(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        self.loop.call_later(self.idle_seconds, self._check, self.cycle, unsent)

    def _check(self, cycle: Any, unsent: int) -> None:
        """Close the connection if nothing happened since the last check."""
        if self not in self.connections:
            return
        if 0 < unsent <= self.transport.get_write_buffer_size():
            # Reset: otherwise the kernel would keep the unread answer in memory.
            accepted = self.transport.get_extra_info("socket")
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        elif self.cycle is cycle and (cycle is None or cycle.response_complete):
            self.transport.close()
        self._check_later()


def make_server(
    app: Any,
    *,
    most_connections: int = MOST_CONNECTIONS,
    idle_seconds: float = IDLE_SECONDS,
    deadline: float = 25.0,
) -> JudgeServer:
    """Make a server without an access log: requests are private.

    Requests beyond `most_connections` get 503; connections beyond half of the files that may be open are
    closed. After the first signal the server has `deadline` seconds.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MOST_OPEN_FILES if most == resource.RLIM_INFINITY else min(most, MOST_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    limits = {"idle_seconds": idle_seconds, "most_connections": files // 2}
    config = uvicorn.Config(
        app,
        http=type("Connection", (LimitedConnection,), limits),
        # The event loop accepts so many connections, several times, before the first is closed.
        backlog=max(1, min(MOST_CONNECTIONS, files // 16)),
        limit_concurrency=most_connections,
        timeout_graceful_shutdown=deadline,  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
    )
    return JudgeServer(config)
