"""The files of a batch: requests written in parts, and what OpenAI's Files and Batch API makes of them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any, Final

from data.errors import OperationalError
from data.files import disk_errors, replacing
from data.records import Exchange
from judge.llm.endpoint import LONGEST_RETRY_AFTER, LONGEST_WAIT, Attempt, Connections, Endpoint
from judge.llm.keys import Key
from judge.llm.limits import guess_tokens

MOST_REQUESTS: Final = 50_000  # a server takes no more in one file
MOST_BYTES: Final = 200 * 10**6
SLOWEST: Final = 3600.0  # seconds for one file, however steadily it comes


@dataclass(slots=True, kw_only=True)
class Part:
    """One batch: the requests about exchanges from position `first` to `last` that were not judged yet."""

    number: int
    first: int
    last: int
    requests: int = 0
    cost_at_most: float = 0.0
    digest: str = ""
    file_id: str = ""
    batch_id: str = ""
    status: str = ""
    done: int = 0
    output_digest: str = ""  # of the files that were fetched
    error_digest: str = ""
    is_collected: bool = False

    def file(self, folder: Path, kind: str = "") -> Path:
        """Where its requests lie, or what the server gave of `kind`."""
        return folder / f"batch-{self.number}{'-' if kind else ''}{kind}.jsonl"


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
            _line(f"{position}-{exchange.content_digest}-{number}", judge.batch_path, body)
            for number, body in enumerate(bodies)
        ]
        if not open_part.has_room(lines):
            parts.append(open_part.close(start + len(parts)))
            open_part = _Open(folder, mark)
        cost = 0.0
        for body, line in zip(bodies, lines, strict=True):
            cost += discount * prices.cost(guess_tokens(body, len(line))) if prices else 0.0
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


class Refused(OperationalError):
    """A call that has no answer; `may_have_come` where the server may have acted on it all the same."""

    def __init__(self, message: str, attempt: Attempt) -> None:
        super().__init__(message)
        self.is_passing = attempt.is_passing
        self.may_have_come = attempt.may_have_cost
        self.retry_after = attempt.retry_after


class Transfer:
    """Files and batches at the server of `endpoint`: few calls, one at a time, of any size."""

    def __init__(self, endpoint: Endpoint, *, sleep: Callable[[float], object] | None = None) -> None:
        self.endpoint, self.key = endpoint, Key(endpoint.key_env)
        self.sleep = sleep or Event().wait
        self._connections = Connections(
            base_url=endpoint.base_url, key=self.key, timeout=endpoint.timeout, most_bytes=None
        )

    def close(self) -> None:
        """Let go of the connections."""
        self._connections.close()

    def list_batches(self, after: str) -> dict[str, Any]:
        """Fetch one page of the server's batches, behind the batch `after`."""
        page = {"limit": 100} | ({"after": after} if after else {})
        return self._again("/batches", lambda client: client.batches.with_raw_response.list(**page))

    def retrieve_batch(self, batch_id: str) -> dict[str, Any]:
        """Fetch how far a batch has come."""
        path = f"/batches/{batch_id}"
        return self._again(path, lambda client: client.batches.with_raw_response.retrieve(batch_id))

    def create_batch(self, **about: Any) -> dict[str, Any]:
        """Submit once: whether to submit again is for the caller, who knows how to look whether it came."""
        return self._send("/batches", lambda client: client.batches.with_raw_response.create(**about))

    def upload(self, path: Path) -> dict[str, Any]:
        """Upload requests; a file that came twice costs nothing, so this is tried again."""

        def ask(client: Any) -> Any:
            with disk_errors(path), path.open("rb") as stream:
                file = (path.name, stream, "application/jsonl")
                return client.files.with_raw_response.create(file=file, purpose="batch")

        return self._again("/files", ask)

    def download(self, file_id: str, to: Path) -> None:
        """Fetch a file of the server's, whole or not at all."""

        def ask(client: Any) -> None:
            with (
                disk_errors(to),
                replacing(to) as partial,
                partial.open("wb") as out,
                client.files.with_streaming_response.content(file_id) as response,
            ):
                for part in response.iter_bytes():
                    out.write(part)

        self._again(f"/files/{file_id}/content", ask)

    def rest(self, refused: Refused, tries: int) -> None:
        """Wait before the next try: as long as the server asks, else ever longer."""
        if refused.retry_after is not None:
            self.sleep(min(refused.retry_after, LONGEST_RETRY_AFTER))
        else:
            self.sleep(min(LONGEST_WAIT, 2.0**tries))

    def _again(self, path: str, ask: Callable[[Any], Any]) -> dict[str, Any]:
        """Ask until it is answered, where asking again changes nothing and may help."""
        for tries in range(self.endpoint.retries + 1):
            try:
                return self._send(path, ask)
            except Refused as refused:
                if not refused.is_passing or tries == self.endpoint.retries:
                    raise
                self.rest(refused, tries)
        raise AssertionError("the last try returns or raises")

    def _send(self, path: str, ask: Callable[[Any], Any]) -> dict[str, Any]:
        attempt = self._connections.send(ask, seconds=SLOWEST)
        if attempt.body is None:
            raise Refused(
                f"{self.endpoint.base_url}{path}: {attempt.problem}; what was done is kept: "
                "the same command goes on from there",
                attempt,
            )
        return attempt.body
