"""On the path of a Python, it keeps it off the network, and notes in $NETWORK_LOG whom it wanted to reach."""

import os
import site
import socket
from typing import Any

LOCAL = ("127.0.0.1", "::1", "localhost", "0.0.0.0", "", None)


def _refuse(host: object) -> None:
    if host not in LOCAL:
        with open(os.environ["NETWORK_LOG"], "a", encoding="utf-8") as log:
            log.write(f"{host}\n")
        raise OSError(f"no network in this test: {host}")


_connect, _resolve = socket.socket.connect, socket.getaddrinfo


def connect(self: socket.socket, address: Any) -> None:
    if self.family in (socket.AF_INET, socket.AF_INET6):
        _refuse(address[0])
    _connect(self, address)


def getaddrinfo(host: Any, *args: Any, **named: Any) -> Any:
    _refuse(host)
    return _resolve(host, *args, **named)


socket.socket.connect = connect  # type: ignore[method-assign]
socket.getaddrinfo = getaddrinfo
for folder in filter(None, os.environ.get("LAST_PACKAGES", "").split(os.pathsep)):
    site.addsitedir(folder)  # behind all others
