"""The server as a process: its socket, its signals and its end."""

import asyncio
import os
import resource
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from data.errors import OperationalError

LONGEST_LINE = 2048  # connections that wait until they are accepted
ENOUGH_FILES = 8192


class Server(uvicorn.Server):
    """Finishes what it took after the first signal, and ends at once after the second."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not raise the signals again at the end, as uvicorn does: an end in order is no failure."""
        is_main = current_thread() is main_thread()  # no other can listen to signals
        signals = (signal.SIGINT, signal.SIGTERM) if is_main else ()
        before = {sig: signal.signal(sig, self.handle_exit) for sig in signals}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)


def open_socket(host: str, port: int) -> socket.socket:
    """Open a socket that listens; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=LONGEST_LINE)
    except OSError as error:
        # Python adds the address to the system's own words; a name that is not found has a number below 0.
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else error.strerror or str(error)
        raise OperationalError(
            f"{host}, port {port}: {why.lower()}; choose another with --host or --port"
        ) from error
    # asyncio does this only for sockets made by name of the protocol; without it an answer waits for 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def url_of(listening: socket.socket) -> str:
    """Say where a socket can be reached."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Connection(H11Protocol):
    """A connection that ends where no request comes in time, where nobody fetches the answers, and at once
    where there are too many.
    """

    idle_seconds = 30.0
    most = 512
    has_sent = False  # since the last look, where an answer had to wait for its reader

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self.connections.discard(self)
            transport.abort()
        else:
            self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.has_sent = True

    def _watch(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        self.loop.call_later(self.idle_seconds, self._look, self.cycle, unsent)

    def _look(self, cycle: Any, unsent: int) -> None:
        """Close it where no request was taken since the last look, and none is under way.

        Closing waits for the reader; one who has fetched nothing since the last look is not waited for.
        """
        if self not in self.connections:
            return
        if not self.has_sent and 0 < unsent <= self.transport.get_write_buffer_size():
            # Reset: else the system would go on holding what is left for a reader who does not read.
            taken = self.transport.get_extra_info("socket")
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
            return
        self.has_sent = False
        if self.cycle is cycle and (cycle is None or cycle.response_complete):
            self.transport.close()
        self._watch()


def _count_files() -> int:
    """How many files may be open at once, after the system was asked for enough."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_FILES if most == resource.RLIM_INFINITY else min(most, ENOUGH_FILES)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    return wanted if now == resource.RLIM_INFINITY else max(now, wanted)


def make_server(
    app: Any, *, most_connections: int = 512, idle_seconds: float = 30.0, deadline: float = 25.0
) -> Server:
    """Make a server without an access log: what people wrote is nobody's business.

    After the first signal it has until `deadline`, in seconds, to finish: whoever runs it waits for 30.
    """
    # Below what the system lets us open: else it could not even accept those who are to be turned away. Of
    # these the event loop accepts all that wait, and several times so, before the first is sent away.
    files = _count_files()
    most, waiting = min(most_connections, files // 2), max(1, min(LONGEST_LINE, files // 16))
    limited = type("LimitedConnection", (Connection,), {"most": most, "idle_seconds": idle_seconds})
    config = uvicorn.Config(
        app,
        http=limited,
        backlog=waiting,
        timeout_graceful_shutdown=deadline,  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
    )
    return Server(config)
