"""The files a batch is submitted as, none larger than a server takes."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from data.files import disk_errors, replacing
from data.records import Exchange
from judge.parts import Part
from judge.prices import guess_usage

MOST_REQUESTS: Final = 50_000
MOST_BYTES: Final = 200 * 10**6


def write_parts(
    judge: Any, to_ask: Mapping[int, Exchange], folder: Path, *, mark: str, start: int, discount: float
) -> list[Part]:
    """Write the requests about exchanges, by position, in parts numbered from `start`.

    The requests about one exchange stay in one part. The same exchanges give the same files, but for `mark`,
    which keeps apart two runs that ask the same: the second was started so as to be asked anew.
    """
    parts: list[Part] = []
    open_part = _Open(folder, mark)
    prices = judge.endpoint.prices
    for position, exchange in to_ask.items():
        bodies = judge.write_requests(exchange)
        lines = [
            _line(f"{position}-{exchange.content}-{number}", judge.batch_path, body)
            for number, body in enumerate(bodies)
        ]
        if not open_part.has_room(lines):
            parts.append(open_part.close(start + len(parts)))
            open_part = _Open(folder, mark)
        cost = 0.0
        for body, line in zip(bodies, lines, strict=True):
            cost += discount * prices.cost(guess_usage(body, len(line))) if prices else 0.0
        open_part.add(position, lines, cost)
    if open_part.lines:
        parts.append(open_part.close(start + len(parts)))
    return parts


class _Open:
    """A part that is being filled."""

    def __init__(self, folder: Path, mark: str) -> None:
        self.folder, self.mark = folder, mark
        self.lines: list[bytes] = []
        self.positions: list[int] = []
        self.size, self.cost = 0, 0.0

    def has_room(self, lines: list[bytes]) -> bool:
        size = self.size + sum(map(len, lines))
        return not self.lines or (len(self.lines) + len(lines) <= MOST_REQUESTS and size <= MOST_BYTES)

    def add(self, position: int, lines: list[bytes], cost: float) -> None:
        self.positions.append(position)
        self.lines += lines
        self.size += sum(map(len, lines))
        self.cost += cost

    def close(self, number: int) -> Part:
        content = b"".join(self.lines)
        part = Part(
            number=number,
            first=self.positions[0],
            last=self.positions[-1],
            requests=len(self.lines),
            cost_at_most=self.cost,
            digest=sha256(self.mark.encode() + content).hexdigest(),
        )
        path = part.file(self.folder)
        with disk_errors(path), replacing(path) as partial:
            partial.write_bytes(content)
        return part


def _line(identity: str, path: str, body: Mapping[str, Any]) -> bytes:
    row = {"custom_id": identity, "method": "POST", "url": f"/v1{path}", "body": body}
    return f"{json.dumps(row)}\n".encode()  # in ASCII: a lone surrogate goes as its escape
