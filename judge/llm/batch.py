"""The Batch API: requests are uploaded as files, cost half, and their answers are downloaded hours later.

The run's folder holds the state of each part (batch.json, written before every step that could be lost), and
until all are collected its requests (batch-1.jsonl) and answers (batch-1-*.jsonl).

Nothing is submitted twice: a part's digest is in its metadata, and before a part is submitted the server's
list of batches is searched for that digest.
"""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from empathy_judge.data.errors import BatchUnderWay, BudgetSpent, OperationalError, UserError
from empathy_judge.data.files import disk_errors, read_sealed, replacing, write_sealed
from empathy_judge.data.readers.file_formats import read_lines
from empathy_judge.data.records import CONVERSATION, Exchange, Judgment
from empathy_judge.data.runs import Run
from empathy_judge.data.tables import validate
from empathy_judge.data.text import printable
from empathy_judge.judge.base import Judge
from empathy_judge.judge.budget import GuessedCall, guess_tokens, most_cost, read_tokens, usage_of
from empathy_judge.judge.engine import still_to_judge
from empathy_judge.judge.llm.endpoint import RAW, CallFailed, Endpoint, Reply
from empathy_judge.judge.llm.http_client import SHORT, read_answer_body
from empathy_judge.judge.llm.prompt_injection import DelimitedExchange, delimit_exchange

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types import Batch, FileObject

FILE: Final = "batch.json"
FORMAT: Final = 3
REMEDY: Final = "it records what was submitted: restore it, or set another --out to submit all again"
DISCOUNT: Final = 0.5
POLL_SECONDS: Final = 30.0
DOWNLOAD_SECONDS: Final = 3600.0  # for a whole file
MOST_REQUESTS: Final = 50_000  # in one file, by the limits of the API
MOST_FILE_BYTES: Final = 200 * 10**6
LARGEST_LINE: Final = 1 << 20  # bytes of an answer, on average over a file
MARK: Final = "empathy-judge"  # the key of our digest in a batch's metadata


@dataclass(slots=True, kw_only=True)
class BatchPart:
    """One batch: the requests about exchanges at positions `first` to `last` that were not judged yet."""

    number: int
    first: int
    last: int
    requests: int = 0
    cost_at_most: float = 0.0
    digest: str = ""
    file_id: str = ""
    batch_id: str = ""
    is_collected: bool = False


@dataclass(slots=True, kw_only=True)
class BatchState:
    """All batches of a run, their server, and a mark that distinguishes two runs over the same exchanges."""

    base_url: str
    mark: str
    parts: list[BatchPart] = field(default_factory=list)


class LanguageModelJudge(Judge):
    """A judge whose requests can be written now and whose replies can be read later, as batches need it."""

    endpoint: Endpoint
    reask: int = 0  # further calls after an answer that cannot be read
    batch_path: str  # of the API, to which a batch sends its requests

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return (self.endpoint,)

    def identity(self, exchange: Exchange) -> str:
        return exchange.read_digest

    def stop(self) -> None:
        self.endpoint.stop()

    def close(self) -> None:
        self.endpoint.close()

    def guess_calls(self, *group: Exchange) -> list[GuessedCall]:
        calls = map(guess_tokens, self.write_requests(*group) * (1 + self.reask))
        return [(tokens, self.endpoint.prices) for tokens in calls]

    @abstractmethod
    def write_requests(self, *group: Exchange) -> list[dict[str, Any]]:
        """Write the requests that the judgments of a group take."""

    @abstractmethod
    def read_replies(self, exchange: Exchange, replies: Sequence[Reply | CallFailed]) -> Judgment:
        """Read the judgment from the replies to these requests."""

    def delimit(self, exchange: Exchange) -> DelimitedExchange:
        """Delimit an exchange, or a whole conversation where that is what is judged."""
        return delimit_exchange(exchange, whole=self.unit == CONVERSATION)

    def batch_engine(self, *, wait: bool) -> Callable[..., None]:
        return partial(score_batch, wait=wait)


def score_batch(
    judge: LanguageModelJudge,
    exchanges: Iterable[Exchange],
    run: Run,
    *,
    limit: int | None = None,
    wait: bool = False,
) -> None:
    """Judge by batch what `run` does not hold yet.

    Raise `BatchUnderWay` while answers are missing, unless `wait`. The first exchange is judged directly and
    at full price: this finds a wrong key or model at once, and which parameters the server accepts.
    """
    try:
        batch = BatchRun(judge, exchanges, run)
        while batch.prepare(limit):
            batch.submit()
            done = sum(map(batch.collect, batch.open_parts))
            if (parts := batch.open_parts) and not wait:
                requests = sum(part.requests for part in parts)
                raise BatchUnderWay(
                    f"submitted: {done:,} of {requests:,} requests done; run the command again later"
                )
            if parts:
                sleep(POLL_SECONDS)
    finally:
        judge.endpoint.close()


class BatchRun:
    """A run's batches, resumed where they stand."""

    def __init__(self, judge: LanguageModelJudge, exchanges: Iterable[Exchange], run: Run) -> None:
        self.judge, self.endpoint, self.run, self.folder = judge, judge.endpoint, run, run.folder
        self.key = self.endpoint.client.key
        self.state = self._read_state()
        if self.open_parts and self.state.base_url != self.endpoint.base_url:
            raise UserError(
                f"{run.folder}: its batches are at {self.state.base_url}, not at {self.endpoint.base_url}; "
                "set that base_url again until they are collected"
            )
        self.left = dict(still_to_judge(exchanges, run, None))  # by position in the input

    @property
    def open_parts(self) -> list[BatchPart]:
        """The parts not collected yet."""
        return [part for part in self.state.parts if not part.is_collected]

    def prepare(self, limit: int | None) -> bool:
        """Judge the first exchange directly and write the others as parts; return whether one is open."""
        wanted = [position for position in self.left if limit is None or position < limit]
        if wanted and not self.open_parts:
            if self.judge.reask:  # before anything is paid for
                raise UserError("--batch: not with reask = 1, which needs sequential calls")
            self.state.base_url = self.endpoint.base_url
            self._keep(wanted[0], self.judge.judge(self.left[wanted[0]]))
            if wanted[1:]:  # the files first, then the state that names them
                self.state.parts += self._write_parts(wanted[1:])
                self._save()
        if not self.open_parts:
            with disk_errors(self.folder):
                for path in self.folder.glob("batch-*.jsonl"):
                    path.unlink()
        return bool(self.open_parts)

    def submit(self) -> None:
        """Submit the parts that are not submitted yet."""
        budget, waiting = self.endpoint.budget, [part for part in self.open_parts if not part.batch_id]
        cost = sum(part.cost_at_most for part in waiting)
        if budget.most is not None and budget.spent + cost > budget.most:
            raise BudgetSpent(
                f"the batch may cost up to USD {cost:.4f}; USD {budget.spent:.4f} of --max-cost USD "
                f"{budget.most:g} is spent. Nothing was submitted. Raise --max-cost"
            )
        for part in waiting:
            self._submit(part)

    def _submit(self, part: BatchPart) -> None:
        """Find a part's batch at the server, or else upload its requests and create the batch."""

        def find(client: "OpenAI") -> "Batch | None":
            ours = (item for item in client.batches.list(limit=100) if item.status != "failed")
            return next((item for item in ours if (item.metadata or {}).get(MARK) == part.digest), None)

        def upload(client: "OpenAI") -> "FileObject":
            path = self._file(part)
            with disk_errors(path), path.open("rb") as stream:
                return client.files.create(file=(path.name, stream, "application/jsonl"), purpose="batch")

        def create(client: "OpenAI") -> "Batch":
            url = f"/v1{self.judge.batch_path}"
            given: Any = {"input_file_id": part.file_id, "endpoint": url, "metadata": {MARK: part.digest}}
            return client.batches.create(completion_window="24h", **given)

        batch = self._ask(find)
        if batch is None and not part.file_id:
            part.file_id = self._ask(upload).id
            self._save()
        if batch is None:  # not retried: after a time-out the server may have accepted it
            batch = self._ask(create, retries=0)
        part.batch_id = batch.id
        self._save()

    def collect(self, part: BatchPart) -> int:
        """Save the judgments of a part that has ended; return how many requests of any other are done."""
        batch: Batch = self._ask(lambda client: client.batches.retrieve(part.batch_id))
        if batch.status == "failed":  # as a whole: it can be submitted again
            part.batch_id = part.file_id = ""
            self._save()
            errors = batch.errors and batch.errors.data
            message = self.key.redact(str(errors[0].message if errors else "no reason given"))[:300]
            raise OperationalError(
                f"{self.state.base_url}: the batch {batch.id} failed: {message}; run the command again"
            )
        if batch.status not in ("completed", "expired", "cancelled"):
            counts = batch.request_counts
            return counts.completed + counts.failed if counts else 0
        files = {"output": batch.output_file_id, "error": batch.error_file_id}
        paths = {self._file(part, kind): file_id for kind, file_id in files.items() if file_id}
        for path, file_id in paths.items():
            if not path.exists():  # else an earlier command has downloaded it
                most = (1 + part.requests) * LARGEST_LINE
                self._ask(partial(_download, file_id=file_id, to=path, most=most))
        missing = CallFailed(f"batch {batch.status}: this request is in none of its files")
        for position, replies in self._read_replies(part, paths, missing):
            self._keep(position, self.judge.read_replies(self.left[position], replies))
        part.is_collected = True
        self._save()
        return 0

    def _read_replies(
        self, part: BatchPart, paths: Iterable[Path], missing: CallFailed
    ) -> Iterator[tuple[int, list[Reply | CallFailed]]]:
        """Yield the replies to a part's requests, by position; the caller removes this from `left`.

        Files may be large, so only the replies of incomplete exchanges are in memory. Damaged, duplicate and
        unknown lines are skipped.
        """
        waiting: dict[int, list[Reply | CallFailed]] = {
            position: [missing] * len(self.judge.write_requests(exchange))
            for position, exchange in self.left.items()
            if part.first <= position <= part.last
        }
        for path in paths:
            for position, number, row in _read_rows(path):
                replies = waiting.get(position, [])
                if number < len(replies) and replies[number] is missing:
                    replies[number] = self._read_reply(row)
                    if missing not in replies:
                        yield position, waiting.pop(position)
        yield from waiting.items()

    def _read_reply(self, row: Mapping[str, Any]) -> Reply | CallFailed:
        """Return the reply in a line of the server's answers."""
        response, error = row.get("response"), row.get("error")
        raw = self.key.redact(json.dumps(row, ensure_ascii=False))[:RAW]
        if isinstance(error, dict) and error:
            problem = self.key.redact(f"batch: {error.get('code')}: {error.get('message') or ''}")
            return CallFailed(printable(problem[:SHORT]), raw)
        if not isinstance(response, dict):
            return CallFailed("batch: a line without an answer", raw)
        status, body = response.get("status_code"), json.dumps(response.get("body"))
        answer = read_answer_body(status if isinstance(status, int) else 0, body, self.key)
        if answer.body is None:
            return CallFailed(answer.problem, answer.text[:RAW])
        used, prices = read_tokens(answer.body), self.endpoint.prices
        return Reply(answer.body, usage_of(used, DISCOUNT * prices.cost(used) if used and prices else None))

    def _write_parts(self, positions: Iterable[int]) -> list[BatchPart]:
        """Write the requests about exchanges in parts; those about one exchange stay in one part."""
        parts, lines, size = list[BatchPart](), list[bytes](), 0

        def write_last() -> None:
            for part in parts[-1:]:
                path, data = self._file(part), b"".join(lines)
                part.requests, part.digest = len(lines), sha256(self.state.mark.encode() + data).hexdigest()
                with disk_errors(path), replacing(path) as partial:
                    partial.write_bytes(data)

        for position in positions:
            exchange, about = self.left[position], {"method": "POST", "url": f"/v1{self.judge.batch_path}"}
            bodies = enumerate(self.judge.write_requests(exchange))
            rows = ({"custom_id": f"{position}-{number}", **about, "body": body} for number, body in bodies)
            added = [f"{json.dumps(row)}\n".encode() for row in rows]  # in ASCII, even a lone surrogate
            size += sum(map(len, added))
            if not parts or len(lines) + len(added) > MOST_REQUESTS or size > MOST_FILE_BYTES:
                write_last()
                number = 1 + len(self.state.parts) + len(parts)
                parts.append(BatchPart(number=number, first=position, last=position))
                lines, size = [], sum(map(len, added))
            lines += added
            parts[-1].last = position
            parts[-1].cost_at_most += DISCOUNT * (most_cost(self.judge.guess_calls(exchange)) or 0.0)
        write_last()
        return parts

    def _ask(self, send: Callable[["OpenAI"], Any], retries: int | None = None) -> Any:
        """Return what `send` does with the client."""
        answer = self.endpoint.client.ask(send, retries=retries)
        problem = answer.problem
        if not problem and answer.body is not None and not getattr(answer.body, "id", None):
            problem = "the answer has no id: the server does not support the Batch API"
        if problem:
            raise OperationalError(
                f"{self.endpoint.base_url}: {problem}; progress is saved: run the command again to resume"
            )
        return answer.body

    def _keep(self, position: int, judgment: Judgment) -> None:
        self.run.keep(position, judgment)
        del self.left[position]

    def _file(self, part: BatchPart, kind: str = "") -> Path:
        """Return the file of a part's requests, or of the server's answers of `kind`."""
        return self.folder / f"batch-{part.number}{kind and f'-{kind}'}.jsonl"

    def _read_state(self) -> BatchState:
        """Return the state that an earlier command left, or a new one."""
        path = self.folder / FILE
        with disk_errors(path):
            if not path.exists():
                return BatchState(base_url=self.endpoint.base_url, mark=token_hex(8))
        content = read_sealed(path, what="state of batches", version=FORMAT, remedy=REMEDY)
        del content["format"]
        return validate(BatchState, content, str(path))

    def _save(self) -> None:
        write_sealed(self.folder / FILE, {"format": FORMAT, **asdict(self.state)})


def _download(client: "OpenAI", *, file_id: str, to: Path, most: int) -> None:
    """Download a file of at most so many bytes, completely or not at all."""
    with (
        disk_errors(to),
        replacing(to) as unfinished,
        unfinished.open("wb") as out,
        client.files.with_streaming_response.content(file_id, timeout=DOWNLOAD_SECONDS) as response,
    ):
        for received in response.iter_bytes():
            if out.tell() + len(received) > most:
                raise OperationalError(f"the file {file_id} is larger than {most:,} bytes; lower max_tokens")
            out.write(received)


def _read_rows(path: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield the position and the number of the request, and the row, of each line that can be read."""
    with disk_errors(path), path.open("rb") as lines:
        for line in filter(None, read_lines(lines)):
            with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                row = json.loads(line)
                position, number = row["custom_id"].split("-")
                yield int(position), int(number), row
