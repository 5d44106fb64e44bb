"""What the targets share: bytes become a file or an answer, and only a `UserError` may come of them."""

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

from data.errors import UserError
from data.records import Exchange

Target = Callable[[bytes], None]
KEY: Final = "sk-canary-0123456789"  # stands in server answers, and must not come back out of one
EXCHANGE: Final = Exchange(id="1", prompt="I lost my keys.", response="Oh no!")


@cache
def scratch() -> Path:
    """A folder for the readers that take a path, in memory where there is such a place."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def written(data: bytes, name: str) -> Path:
    """The bytes as a file of this name."""
    path = scratch() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def reads(name: str, read: Callable[[Path], Any]) -> Target:
    """A target for a reader of files; what it gives lazily is asked for."""

    def target(data: bytes) -> None:
        found = read(written(data, name))
        if isinstance(found, Iterable):
            list(found)

    return target


def receive(data: bytes, *, status: int = 200) -> Any:
    """The bytes as a server's answer, read by our one network seam."""
    from judge.llm.endpoint import read_attempt
    from judge.llm.keys import Key

    key = Key("")
    key._value = KEY
    return read_attempt(status, data.decode("utf-8", "replace"), key)


def as_body(data: bytes) -> dict[str, Any]:
    """The JSON object the seam hands on."""
    found: dict[str, Any] | None = receive(data).body
    if found is None:
        raise UserError("the seam lets no such answer through")
    return found


def as_row(data: bytes) -> dict[str, Any]:
    """The JSON object the bytes are, or else nothing to hand on."""
    try:
        row = json.loads(data)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise UserError("no JSON object")
    return row
