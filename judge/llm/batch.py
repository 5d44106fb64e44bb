"""The Batch API: requests are uploaded as files, cost half, and their answers are downloaded hours later.

The run's folder holds what a command needs to resume:

    batch.json         the parts and the state of each; written before every step that could be lost
    batch-1.jsonl      a part's requests, until it is collected
    batch-1-*.jsonl    its answers, as the server sent them, until they are judgments

Nothing is submitted twice: a part's digest is in its metadata, and before a part is submitted the server's
list of batches is searched for that digest.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from time import sleep
from typing import Any, Final, Literal

from empathy_judge.data.errors import BudgetSpent, OperationalError, UserError
from empathy_judge.data.files import disk_errors, replacing
from empathy_judge.data.readers.file_formats import read_lines
from empathy_judge.data.records import Exchange, Judgment
from empathy_judge.data.runs import Run
from empathy_judge.data.tables import first_problem
from empathy_judge.data.text import printable
from empathy_judge.judge.base import Judge
from empathy_judge.judge.engine import still_to_judge
from empathy_judge.judge.llm.endpoint import RAW, CallFailed, Endpoint, LanguageModelJudge, Reply
from empathy_judge.judge.llm.keys import Key
from empathy_judge.judge.llm.limits import guess_tokens, read_tokens

FILE: Final = "batch.json"
DISCOUNT: Final = 0.5
POLL_SECONDS: Final = 30.0
MOST_REQUESTS: Final = 50_000  # in one file, by the limits of the API
MOST_FILE_BYTES: Final = 200 * 10**6
LARGEST_LINE: Final = 1 << 20  # bytes of an answer, on average over a file
MARK: Final = "empathy-judge"  # the key of our digest in a batch's metadata
ENDED: Final = frozenset({"completed", "expired", "cancelled", "failed"})


class BatchUnderWay(UserError):
    """The answers are not there yet."""

    exit_code = 3


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
    status: str = ""
    done: int = 0
    is_collected: bool = False

    def file(self, folder: Path, kind: str = "") -> Path:
        """Return the file of its requests, or of the server's answers of `kind`."""
        return folder / f"batch-{self.number}{'-' if kind else ''}{kind}.jsonl"


@dataclass(slots=True, kw_only=True)
class BatchState:
    """All batches of a run, their server, and the run's own mark."""

    format: Literal[1] = 1
    base_url: str
    mark: str
    parts: list[BatchPart] = field(default_factory=list)

    @property
    def open(self) -> list[BatchPart]:
        """The parts not collected yet."""
        return [part for part in self.parts if not part.is_collected]


def read_state(folder: Path) -> BatchState | None:
    """Read the state that an earlier command left, or None."""
    from pydantic import TypeAdapter, ValidationError

    path = folder / FILE
    with disk_errors(path):
        if not path.exists():
            return None
        content = path.read_bytes()
    try:
        return TypeAdapter(BatchState).validate_json(content)
    except ValidationError as error:
        place, problem = first_problem(error)
        raise UserError(
            f"{path}: damaged ({place}: {problem}); it records the submitted requests: restore it, or set "
            "another --out to submit everything again"
        ) from error


def write_parts(
    judge: LanguageModelJudge, to_ask: Mapping[int, Exchange], folder: Path, *, mark: str, start: int
) -> list[BatchPart]:
    """Write the requests about exchanges, by position, in parts numbered from `start`.

    The requests about one exchange stay in one part. `mark` distinguishes two runs over the same exchanges.
    """
    parts: list[BatchPart] = []
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
            cost += DISCOUNT * prices.cost(guess_tokens(body, len(line))) if prices else 0.0
        size += sum(map(len, lines))
        if not parts or len(content) + len(lines) > MOST_REQUESTS or size > MOST_FILE_BYTES:
            if parts:
                write_last()
            parts.append(BatchPart(number=start + len(parts), first=position, last=position))
            content, size = [], sum(map(len, lines))
        content += lines
        parts[-1].last = position
        parts[-1].requests += len(lines)
        parts[-1].cost_at_most += cost
    if parts:
        write_last()
    return parts


def collect_part(
    judge: LanguageModelJudge,
    part: BatchPart,
    left: Mapping[int, Exchange],
    files: Sequence[Path],
    *,
    key: Key,
) -> Iterator[tuple[int, Judgment]]:
    """Yield the judgments of a part with their positions; the caller removes them from `left`.

    Files may be large, so they are read line by line, and only the replies of incomplete exchanges are in
    memory. Damaged, duplicate and unknown lines are skipped; a request without a line has no reply.
    """
    expected = sorted(position for position in left if part.first <= position <= part.last)
    wanted = len(judge.write_requests(left[expected[0]])) if expected else 0  # the same for all
    waiting: dict[int, dict[int, Reply | CallFailed]] = {}
    missing = CallFailed(f"batch {part.status}: this request is in none of its files")
    for path in files:
        for position, number, row in _answered(path, part, left, key):
            replies = waiting.setdefault(position, {})
            replies.setdefault(number, _reply(row, judge.endpoint))
            if len(replies) >= wanted:
                del waiting[position]
                in_order = [replies[number] for number in sorted(replies)]
                yield position, judge.read_replies(left[position], in_order[:wanted])
    for position in expected:
        if position in left:
            replies = waiting.get(position, {})
            in_order = [replies.get(number, missing) for number in range(wanted)]
            yield position, judge.read_replies(left[position], in_order)


def _answered(
    path: Path, part: BatchPart, left: Mapping[int, Exchange], key: Key
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield the requested lines whose exchange is unchanged, with its position and the sample's number."""
    with disk_errors(path), path.open("rb") as lines:
        for line in filter(None, read_lines(lines)):
            try:
                row = key.redact_in(json.loads(line))
                first, digest, last = str(row["custom_id"]).split("-")
                position, number = int(first), int(last)
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            was_asked = first.isdecimal() and last.isdecimal() and part.first <= position <= part.last
            if was_asked and position in left and left[position].content_digest == digest:
                yield position, number, row


def _reply(row: Mapping[str, Any], endpoint: Endpoint) -> Reply | CallFailed:
    from empathy_judge.judge.llm.http_client import SHORT, error_message

    response, error = row.get("response"), row.get("error")
    raw = json.dumps(row, ensure_ascii=False)[:RAW]
    if isinstance(error, dict) and error:
        problem = printable(f"{error.get('code')}: {error.get('message') or ''}"[:SHORT])
        return CallFailed(f"batch: {problem}", raw)
    if not isinstance(response, dict):
        return CallFailed("batch: a line without an answer", raw)
    body, status = response.get("body"), response.get("status_code")
    if status != 200:
        message = printable(error_message(body)[:SHORT])
        return CallFailed(f"HTTP {status}: {message}" if message else f"HTTP {status}", raw)
    if not isinstance(body, dict):
        return CallFailed("not JSON: a line without an object", raw)
    used = read_tokens(body)
    usage: dict[str, float] = {}
    if used is not None:
        usage = {"input_tokens": used.input, "output_tokens": used.output}
        if endpoint.prices:
            usage["cost"] = round(DISCOUNT * endpoint.prices.cost(used), 9)
    return Reply(body, usage)


def score_batch(
    judge: Judge, exchanges: Iterable[Exchange], run: Run, *, limit: int | None = None, wait: bool = False
) -> None:
    """Judge by batch what `run` does not hold yet.

    Raise `BatchUnderWay` while answers are missing, unless `wait`. The first exchange is judged directly and
    at full price: this finds a wrong key or model at once, and which parameters the server accepts.
    """
    if not isinstance(judge, LanguageModelJudge):
        raise UserError(
            f"--batch: the judge {judge.name!r} does not support batches; prompted and decision judges do"
        )
    batch = BatchRun(judge, exchanges, run, limit)
    try:
        while batch.prepare():
            batch.submit_all()
            batch.collect_all()
            if batch.state.open and not wait:
                done = sum(part.done for part in batch.state.open)
                requests = sum(part.requests for part in batch.state.open)
                raise BatchUnderWay(
                    f"submitted: {done:,} of {requests:,} requests done; run the command again later"
                )
            if batch.state.open:
                sleep(POLL_SECONDS)
    finally:
        batch.close()


class BatchRun:
    """A run's batches, resumed where they stand."""

    def __init__(
        self, judge: LanguageModelJudge, exchanges: Iterable[Exchange], run: Run, limit: int | None
    ) -> None:
        self.judge, self.run, self.limit = judge, run, limit
        self.state = read_state(run.folder) or BatchState(base_url=judge.endpoint.base_url, mark=token_hex(8))
        if self.state.open and self.state.base_url != judge.endpoint.base_url:
            raise UserError(
                f"{run.folder}: its batches are at {self.state.base_url}, not at {judge.endpoint.base_url}; "
                "set that base_url again until they are collected"
            )
        self.state.base_url = judge.endpoint.base_url
        for part in self.state.parts:
            if part.is_collected:  # a command was killed before it could delete the files
                self._clear(part)
        reach = limit  # or further, where an earlier command submitted more
        if limit is not None:
            reach = max([limit, *(part.last + 1 for part in self.state.open)])
        self.left = dict(still_to_judge(exchanges, run, reach))  # by position in the input
        self.client, self.key = judge.endpoint.open_client(), Key(judge.endpoint.key_env)

    def prepare(self) -> bool:
        """Judge the first exchange directly, write the others as parts, and return whether one is open."""
        wanted = [place for place in self.left if self.limit is None or place < self.limit]
        if wanted and not self.state.open:
            first, *rest = wanted
            if self.judge.reask:  # before anything is paid for
                raise UserError("--batch: not with reask = 1, which needs sequential calls")
            self._keep(first, self.judge.judge(self.left[first]))
            to_ask, start = {place: self.left[place] for place in rest}, len(self.state.parts) + 1
            # The files first, then the state that names them.
            self.state.parts += write_parts(
                self.judge, to_ask, self.run.folder, mark=self.state.mark, start=start
            )
            if rest:
                self._save()
        return bool(self.state.open)

    def submit_all(self) -> None:
        """Submit the parts that are not submitted yet."""
        budget, waiting = self.judge.endpoint.budget, [part for part in self.state.open if not part.batch_id]
        cost = sum(part.cost_at_most for part in waiting)
        if budget.most is not None and budget.spent + cost > budget.most:
            raise BudgetSpent(
                f"the batch may cost up to USD {cost:.4f}; USD {budget.spent:.4f} of --max-cost USD "
                f"{budget.most:g} is spent. Nothing was submitted. Raise --max-cost"
            )
        for part in waiting:
            self._submit(part)

    def collect_all(self) -> None:
        """Update the state of each part, and download the answers of those that have ended."""
        for part in self.state.open:
            self._update(part)

    def close(self) -> None:
        """Close all connections."""
        self.client.close()
        self.judge.endpoint.close()

    def _keep(self, position: int, judgment: Judgment) -> None:
        self.run.keep(position, judgment)
        del self.left[position]

    def _submit(self, part: BatchPart) -> None:
        batch = self._find(part)
        if batch is None:
            if not part.file_id:
                part.file_id = _identity(self._upload(part.file(self.run.folder)))
                self._save()
            batch = self._create(part)
        part.batch_id, part.status = _identity(batch), str(batch.get("status"))
        self._save()

    def _find(self, part: BatchPart) -> dict[str, Any] | None:
        """Return the server's batch with the part's digest, if there is one that did not fail."""
        query: dict[str, Any] = {"limit": 100}
        while True:
            page = self._ask("/batches", lambda client: client.batches.with_raw_response.list(**query))
            rows = [row for row in page.get("data") or () if isinstance(row, dict)]
            for row in rows:
                is_ours = (row.get("metadata") or {}).get(MARK) == part.digest
                if is_ours and row.get("status") != "failed":
                    return row
            if not rows or not page.get("has_more"):
                return None
            query["after"] = _identity(rows[-1])

    def _update(self, part: BatchPart) -> None:
        batch = self._ask(
            f"/batches/{part.batch_id}",
            lambda client: client.batches.with_raw_response.retrieve(part.batch_id),
        )
        part.status = str(batch.get("status"))
        counts = batch.get("request_counts") or {}
        part.done = int(counts.get("completed") or 0) + int(counts.get("failed") or 0)
        if part.status == "failed":
            self._start_over(part, batch)
        self._save()
        if part.status in ENDED:
            self._collect(part, batch)

    def _start_over(self, part: BatchPart, batch: Mapping[str, Any]) -> None:
        """Reset a part that the server failed as a whole, and raise."""
        batch_id = part.batch_id
        part.batch_id = part.file_id = ""
        part.done = 0
        self._save()
        errors = (batch.get("errors") or {}).get("data") or [{}]
        message = self.key.redact(str(errors[0].get("message") or "no reason given"))[:300]
        raise OperationalError(
            f"{self.state.base_url}: the batch {batch_id} failed: {message}; run the command again"
        )

    def _collect(self, part: BatchPart, batch: Mapping[str, Any]) -> None:
        files: list[Path] = []
        for kind in ("output", "error"):
            identity = batch.get(f"{kind}_file_id")
            path = part.file(self.run.folder, kind)
            if not identity:
                continue
            files.append(path)
            if not path.exists():  # else an earlier command has downloaded it
                self._download(str(identity), path, part)
        for position, judgment in collect_part(self.judge, part, self.left, files, key=self.key):
            self._keep(position, judgment)
        part.is_collected = True
        self._save()
        self._clear(part)

    def _clear(self, part: BatchPart) -> None:
        with disk_errors(self.run.folder):
            for kind in ("", "output", "error"):
                part.file(self.run.folder, kind).unlink(missing_ok=True)

    def _save(self) -> None:
        path = self.run.folder / FILE
        with disk_errors(path), replacing(path) as unfinished:
            unfinished.write_text(f"{json.dumps(asdict(self.state), indent=1)}\n", encoding="utf-8")

    def _create(self, part: BatchPart) -> dict[str, Any]:
        """Submit a batch without retries: after a time-out the server may have accepted it."""
        return self._ask(
            "/batches",
            lambda client: client.with_options(max_retries=0).batches.with_raw_response.create(
                input_file_id=part.file_id,
                endpoint=f"/v1{self.judge.batch_path}",
                completion_window="24h",
                metadata={MARK: part.digest},
            ),
        )

    def _upload(self, path: Path) -> dict[str, Any]:
        def send(client: Any) -> Any:
            with disk_errors(path), path.open("rb") as stream:
                file = (path.name, stream, "application/jsonl")
                return client.files.with_raw_response.create(file=file, purpose="batch")

        return self._ask("/files", send)

    def _download(self, file_id: str, to: Path, part: BatchPart) -> None:
        """Download a part's file completely or not at all."""
        most = (1 + part.requests) * LARGEST_LINE

        def send(client: Any) -> None:
            with (
                disk_errors(to),
                replacing(to) as unfinished,
                unfinished.open("wb") as out,
                client.files.with_streaming_response.content(file_id) as response,
            ):
                for received in response.iter_bytes():
                    if out.tell() + len(received) > most:
                        raise OperationalError(
                            f"{self.state.base_url}: the file {file_id} is larger than {most:,} bytes, "
                            f"for {part.requests:,} requests; lower max_tokens"
                        )
                    out.write(received)

        self._ask(f"/files/{file_id}/content", send)

    def _ask(self, path: str, send: Callable[[Any], Any]) -> dict[str, Any]:
        answer = self.client.ask(send)
        if answer.body is None:
            raise OperationalError(
                f"{self.state.base_url}{path}: {answer.problem}; progress is saved: run the command again "
                "to resume"
            )
        return answer.body


def _identity(answer: Mapping[str, Any]) -> str:
    if not isinstance(answer.get("id"), str) or not answer["id"]:
        raise OperationalError("the server's answer has no id: it does not support the Batch API")
    return str(answer["id"])
