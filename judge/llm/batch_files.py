"""Files and batches of an endpoint's server: few calls, one at a time, of any size."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, Final

from data.errors import OperationalError
from data.files import disk_errors, replacing
from data.records import Exchange
from judge.llm.endpoint import (
    LONGEST_RETRY_AFTER,
    LONGEST_WAIT,
    LOOPBACK,
    Answer,
    Endpoint,
    read_answer,
    read_retry_after,
)
from judge.llm.keys import Key
from judge.llm.limits import guess_usage


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


# The files a batch is submitted as, none larger than a server takes.

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
            _line(f"{position}-{exchange.content_digest}-{number}", judge.batch_path, body)
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


SLOWEST: Final = 3600.0  # seconds for one file, however steadily it comes


class Refused(OperationalError):
    """A call that has no answer; `may_have_come` where the server may have acted on it all the same."""

    def __init__(self, message: str, answer: Answer) -> None:
        super().__init__(message)
        self.is_passing = answer.is_passing
        self.may_have_come = answer.may_have_cost
        self.retry_after = answer.retry_after


class Transfer:
    """Speaks to the server of `endpoint` with its key, and keeps that as secret."""

    def __init__(self, endpoint: Endpoint, *, sleep: Callable[[float], object] | None = None) -> None:
        import httpx

        self.endpoint, self.key = endpoint, Key(endpoint.key_env)
        self.sleep = sleep or Event().wait
        self._client = httpx.Client(
            headers={"Accept-Encoding": "identity"} | self.key.headers,
            timeout=endpoint.timeout,
            follow_redirects=False,  # the key is for this server and no other
            mounts=dict.fromkeys(LOOPBACK),
        )

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def get(self, path: str) -> dict[str, Any]:
        """A JSON object; asked for again where that may help, since asking changes nothing."""
        return self._again(lambda: self._send("GET", path))

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Sent once: whether to send it again is for the caller, who knows how to look whether it came."""
        content = json.dumps(body).encode()
        return self._send("POST", path, content=content, headers={"Content-Type": "application/json"})

    def upload(self, path: str, file: Path, fields: Mapping[str, str]) -> dict[str, Any]:
        """A file with some fields; a file that came twice costs nothing, so this is tried again."""

        def send() -> dict[str, Any]:
            with disk_errors(file), file.open("rb") as stream:
                given = {"file": (file.name, stream, "application/jsonl")}
                return self._send("POST", path, data=dict(fields), files=given)

        return self._again(send)

    def download(self, path: str, to: Path) -> None:
        """A file of the server's, whole or not at all."""

        def receive() -> dict[str, Any]:
            with disk_errors(to), replacing(to) as partial, partial.open("wb") as out:
                return self._send("GET", path, out=out.write)

        self._again(receive)

    def _again(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        for tries in range(self.endpoint.retries + 1):
            try:
                return call()
            except Refused as refused:
                if not refused.is_passing or tries == self.endpoint.retries:
                    raise
                self.rest(refused, tries)
        raise AssertionError("the last try returns or raises")

    def rest(self, refused: Refused, tries: int) -> None:
        """Wait before the next try: as long as the server asks, else ever longer."""
        if refused.retry_after is not None:
            self.sleep(min(refused.retry_after, LONGEST_RETRY_AFTER))
        else:
            self.sleep(min(LONGEST_WAIT, 2.0**tries))

    def _send(
        self, method: str, path: str, *, out: Callable[[bytes], object] | None = None, **content: Any
    ) -> dict[str, Any]:
        import httpx

        try:
            with self._client.stream(method, self.endpoint.base_url + path, **content) as response:
                is_file = out is not None and response.status_code == 200
                text = bytearray()
                deadline = monotonic() + SLOWEST
                for part in response.iter_raw():
                    (out if is_file and out else text.extend)(part)
                    if monotonic() > deadline:
                        raise httpx.ReadTimeout("too slow")
                if is_file:
                    return {}
                status, after = response.status_code, read_retry_after(response.headers)
                said = Answer(status=status, text=text.decode("utf-8", "replace"), retry_after=after)
                answer = read_answer(said, self.key)
        except (httpx.ConnectTimeout, httpx.ConnectError) as error:
            told = self.key.hide(str(error)) or type(error).__name__
            answer = Answer(problem=f"no connection: {told}", is_passing=True)
        except (httpx.TimeoutException, httpx.TransportError) as error:
            is_late = isinstance(error, httpx.TimeoutException)
            problem = "timed out" if is_late else "answer cut short"
            answer = Answer(problem=problem, is_passing=True, may_have_cost=True)
        if answer.found is None:
            raise Refused(
                f"{self.endpoint.base_url}{path.partition('?')[0]}: {answer.problem}; what was done is kept: "
                "the same command goes on from there",
                answer,
            )
        return answer.found
