"""The files of a batch: requests written in parts, and what OpenAI's Files and Batch API makes of them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any, Final, TypeVar

from data.errors import OperationalError
from data.files import disk_errors, replacing
from data.records import Exchange
from judge.llm.endpoint import LONGEST_RETRY_AFTER, LONGEST_WAIT, Attempt, Connections, Endpoint
from judge.llm.keys import Key
from judge.llm.limits import guess_tokens

MOST_REQUESTS: Final = 50_000  # a server takes no more in one file
MOST_BYTES: Final = 200 * 10**6
Result = TypeVar("Result")
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

    def __post_init__(self) -> None:
        """Refuse what no part can hold: it may be read from a damaged file."""
        for item in fields(self):
            value = getattr(self, item.name)
            if type(value) is not item.type and not (item.type is float and type(value) is int):
                raise TypeError(f"{item.name}: {value!r}")
            if isinstance(value, int | float) and not value >= 0:
                raise ValueError(f"{item.name}: {value!r}")


def write_parts(
    judge: Any, to_ask: Mapping[int, Exchange], folder: Path, *, mark: str, start: int, discount: float
) -> list[Part]:
    """Write the requests about exchanges, by position, in parts numbered from `start`.

    The requests about one exchange stay in one part. The same exchanges give the same files, but for `mark`,
    which keeps apart two runs that ask the same: the second was started so as to be asked anew.
    """
    parts: list[Part] = []
    prices, content, size = judge.endpoint.prices, list[bytes](), 0

    def write_last() -> None:
        part, data = parts[-1], b"".join(content)
        part.digest = sha256(mark.encode() + data).hexdigest()
        path = part.file(folder)
        with disk_errors(path), replacing(path) as partial:
            partial.write_bytes(data)

    for position, exchange in to_ask.items():
        lines, cost = list[bytes](), 0.0
        for number, body in enumerate(judge.write_requests(exchange)):
            identity = f"{position}-{exchange.content_digest}-{number}"
            row = {"custom_id": identity, "method": "POST", "url": f"/v1{judge.batch_path}", "body": body}
            line = f"{json.dumps(row)}\n".encode()  # in ASCII: a lone surrogate goes as its escape
            lines.append(line)
            cost += discount * prices.cost(guess_tokens(body, len(line))) if prices else 0.0
        size += sum(map(len, lines))
        if not parts or len(content) + len(lines) > MOST_REQUESTS or size > MOST_BYTES:
            if parts:
                write_last()
            parts.append(Part(number=start + len(parts), first=position, last=position))
            content, size = [], sum(map(len, lines))
        content += lines
        parts[-1].last = position
        parts[-1].requests += len(lines)
        parts[-1].cost_at_most += cost
    if parts:
        write_last()
    return parts


class Refused(OperationalError):
    """A call that has no answer, and what came of it instead."""

    def __init__(self, message: str, attempt: Attempt) -> None:
        super().__init__(message)
        self.attempt = attempt


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
        return self._ask("/batches", lambda client: client.batches.with_raw_response.list(**page))

    def retrieve_batch(self, batch_id: str) -> dict[str, Any]:
        """Fetch how far a batch has come."""
        path = f"/batches/{batch_id}"
        return self._ask(path, lambda client: client.batches.with_raw_response.retrieve(batch_id))

    def create_batch(self, **about: Any) -> dict[str, Any]:
        """Submit once: whether to submit again is for the caller, who knows how to look whether it came."""
        return self._send("/batches", lambda client: client.batches.with_raw_response.create(**about))

    def upload(self, path: Path) -> dict[str, Any]:
        """Upload requests; a file that came twice costs nothing, so this is tried again."""

        def ask(client: Any) -> Any:
            with disk_errors(path), path.open("rb") as stream:
                file = (path.name, stream, "application/jsonl")
                return client.files.with_raw_response.create(file=file, purpose="batch")

        return self._ask("/files", ask)

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

        self._ask(f"/files/{file_id}/content", ask)

    def try_again(self, act: Callable[[], Result], *, unless_it_came: bool = False) -> Result:
        """Act until it succeeds, where it may; not where the server may have acted on it, if so asked."""
        for tries in range(self.endpoint.retries + 1):
            try:
                return act()
            except Refused as refused:
                attempt = refused.attempt
                is_over = not attempt.is_passing or tries == self.endpoint.retries
                if is_over or (unless_it_came and attempt.may_have_cost):
                    raise
                asked = attempt.retry_after  # by the server; else we wait ever longer
                self.sleep(
                    min(LONGEST_WAIT, 2.0**tries) if asked is None else min(asked, LONGEST_RETRY_AFTER)
                )
        raise AssertionError("the last try returns or raises")

    def _ask(self, path: str, ask: Callable[[Any], Any]) -> dict[str, Any]:
        """Ask until it is answered, where asking again changes nothing."""
        return self.try_again(lambda: self._send(path, ask))

    def _send(self, path: str, ask: Callable[[Any], Any]) -> dict[str, Any]:
        attempt = self._connections.send(ask, seconds=SLOWEST)
        if attempt.body is None:
            raise Refused(
                f"{self.endpoint.base_url}{path}: {attempt.problem}; what was done is kept: "
                "the same command goes on from there",
                attempt,
            )
        return attempt.body
