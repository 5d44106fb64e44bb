"""The server as a process: its socket, its signals and its end."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

import uvicorn

from data.errors import OperationalError


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
        listening = socket.create_server((host, port), family=family, backlog=2048)
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


def make_server(app: Any) -> Server:
    """Make a server without an access log: what people wrote is nobody's business."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
    )
    return Server(config)
