"""Asks in batches: requests go up as files, cost half, and their answers are fetched hours later.

Kept in the run's folder, so that any command given again goes on, whatever ended the last one:

    batch.json         the parts and how far each has come; written before every step that could be lost
    batch-1.jsonl      a part's requests, until it is collected
    batch-1-*.jsonl    its answers, as the server gave them, until they are judgments

Nothing is submitted twice: a part's digest goes with it, and before a part is submitted the server's own list
of batches is searched for that digest.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from data.errors import BudgetSpent, OperationalError, UserError
from data.files import disk_errors, replacing
from data.readers.file_formats import read_lines
from data.records import Exchange, Judgment
from data.runs import Run
from data.storage import digest_file
from data.text import printable
from judge.base import Judge
from judge.engine import still_to_judge
from judge.llm.batch_files import Part, Transfer, write_parts
from judge.llm.endpoint import RAW, SHORT, CallFailed, Endpoint, LanguageModelJudge, Reply, complaint
from judge.llm.limits import read_tokens

FORMAT: Final = 1
FILE: Final = "batch.json"
DISCOUNT: Final = 0.5
POLL_SECONDS: Final = 30.0
MARK: Final = "empathy-judge"  # the key of our digest in a batch's metadata
ENDED: Final = frozenset({"completed", "expired", "cancelled", "failed"})


class BatchUnderWay(UserError):
    """Nothing is wrong: the answers are not there yet."""

    exit_code = 3


@dataclass(slots=True, kw_only=True)
class State:
    """All batches of a run, at which server they are, and the run's own mark."""

    base_url: str
    mark: str
    parts: list[Part] = field(default_factory=list)

    @property
    def open(self) -> list[Part]:
        """Those not collected yet."""
        return [part for part in self.parts if not part.is_collected]


def read_state(folder: Path) -> State | None:
    """The state an earlier command left, or None."""
    path = folder / FILE
    with disk_errors(path):
        if not path.exists():
            return None
        text = path.read_text(encoding="utf-8", errors="replace")
    try:
        row: dict[str, Any] = json.loads(text)
        if row["format"] != FORMAT:
            raise ValueError(f"format {row['format']!r}")
        parts = [Part(**part) for part in row["parts"]]
        return State(base_url=str(row["base_url"]), mark=str(row["mark"]), parts=parts)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{path}: damaged ({error!r}); without it nobody knows what was submitted: mend it, or name "
            "another folder with --out and submit all of it again"
        ) from error


def collect_part(
    judge: LanguageModelJudge,
    part: Part,
    left: Mapping[int, Exchange],
    files: Sequence[Path],
    *,
    hide: Callable[[Any], Any],
    discount: float,
) -> Iterator[tuple[int, Judgment]]:
    """The judgments of a part, with their positions; `left` loses what the caller has kept meanwhile.

    Files may be large (log-probabilities are), so they are read line by line, and only replies whose fellows
    have not come yet are kept in memory. Lines that are spoilt, that come twice or that nobody asked for are
    passed over; where that leaves a request without a reply, it has none.
    """
    expected = sorted(position for position in left if part.first <= position <= part.last)
    wanted = len(judge.write_requests(left[expected[0]])) if expected else 0  # the same for all
    waiting: dict[int, dict[int, Reply | CallFailed]] = {}
    missing = CallFailed(f"batch {part.status}: this request is in none of its files")
    for path in files:
        for position, number, row in _answered(path, part, left, hide):
            replies = waiting.setdefault(position, {})
            replies.setdefault(number, _reply(row, judge.endpoint, discount))
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
    path: Path, part: Part, left: Mapping[int, Exchange], hide: Callable[[Any], Any]
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Lines that were asked for and whose exchange is still the same, with its position and the sample."""
    with disk_errors(path), path.open("rb") as lines:
        for line in filter(None, read_lines(lines)):
            try:
                row = hide(json.loads(line))
                first, digest, last = str(row["custom_id"]).split("-")
                position, number = int(first), int(last)
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            was_asked = first.isdecimal() and last.isdecimal() and part.first <= position <= part.last
            if was_asked and position in left and left[position].content_digest == digest:
                yield position, number, row


def _reply(row: Mapping[str, Any], endpoint: Endpoint, discount: float) -> Reply | CallFailed:
    response, error = row.get("response"), row.get("error")
    raw = json.dumps(row, ensure_ascii=False)[:RAW]
    if isinstance(error, dict) and error:
        said = printable(f"{error.get('code')}: {error.get('message') or ''}"[:SHORT])
        return CallFailed(f"batch: {said}", raw)
    if not isinstance(response, dict):
        return CallFailed("batch: a line without an answer", raw)
    body, status = response.get("body"), response.get("status_code")
    if status != 200:
        message = printable(complaint(body)[:SHORT])
        return CallFailed(f"HTTP {status}: {message}" if message else f"HTTP {status}", raw)
    if not isinstance(body, dict):
        return CallFailed("not JSON: a line without an object", raw)
    used = read_tokens(body)
    usage: dict[str, float] = {}
    if used is not None:
        usage = {"input_tokens": used.input, "output_tokens": used.output}
        if endpoint.prices:
            usage["cost"] = round(discount * endpoint.prices.cost(used), 9)
    return Reply(body, usage)


def score_batch(
    judge: Judge,
    exchanges: Iterable[Exchange],
    run: Run,
    *,
    limit: int | None = None,
    on_progress: Callable[[], None] = lambda: None,
    wait: bool = False,
    sleep: Callable[[float], object] | None = None,
) -> int:
    """Judge by batch what `run` does not hold yet; returns how many were judged now.

    Raises `BatchUnderWay` while answers are missing, unless `wait`. All that is left to judge is in memory at
    once. The first of it is asked directly and at full price: so a wrong key or model is found at once, and
    it is learnt which parameters the server takes.
    """
    if not isinstance(judge, LanguageModelJudge):
        raise UserError(
            f"--batch: the judge {judge.name!r} cannot ask in batches; prompted and decision judges can"
        )
    batch = Batch(judge, run, on_progress, sleep)
    try:
        batch.take(exchanges, limit)
        while batch.has_work:
            batch.submit_all()
            batch.collect_all()
            if batch.state.open and not wait:
                done = sum(part.done for part in batch.state.open)
                requests = sum(part.requests for part in batch.state.open)
                raise BatchUnderWay(
                    f"submitted: {done:,} of {requests:,} requests done; the same command collects them"
                )
            if batch.state.open:
                batch.transfer.sleep(POLL_SECONDS)
    finally:
        batch.close()
    return batch.judged


class Batch:
    """A run's batches, taken up where they stand."""

    def __init__(
        self,
        judge: LanguageModelJudge,
        run: Run,
        on_progress: Callable[[], None],
        sleep: Callable[[float], object] | None,
    ) -> None:
        self.judge, self.run, self.on_progress = judge, run, on_progress
        self.state = read_state(run.folder) or State(base_url=judge.endpoint.base_url, mark=token_hex(8))
        if self.state.open and self.state.base_url != judge.endpoint.base_url:
            raise UserError(
                f"{run.folder}: its batches are at {self.state.base_url}, not at {judge.endpoint.base_url}; "
                "set that base_url again until they are collected"
            )
        self.state.base_url = judge.endpoint.base_url
        for part in self.state.parts:
            if part.is_collected:  # killed before it could clear up
                self._clear(part)
        self.transfer = Transfer(judge.endpoint, sleep=sleep)
        self.left: dict[int, Exchange] = {}  # by position in the input
        self.limit: int | None = None
        self.judged = 0

    @property
    def has_work(self) -> bool:
        """Tell whether anything is under way or still to be asked; the latter is written down here."""
        wanted = [place for place in self.left if self.limit is None or place < self.limit]
        if wanted and not self.state.open:
            first, *rest = wanted
            self.judge.write_requests(self.left[first])  # refused here, before anything is paid for
            self._keep(first, self.judge.judge(self.left[first]))
            to_ask, start = {place: self.left[place] for place in rest}, len(self.state.parts) + 1
            # The files first, then the state that names them.
            self.state.parts += write_parts(
                self.judge, to_ask, self.run.folder, mark=self.state.mark, start=start, discount=DISCOUNT
            )
            if rest:
                self._save()
        return bool(self.state.open)

    def take(self, exchanges: Iterable[Exchange], limit: int | None) -> None:
        """Read what is left to judge, beyond the limit too where an earlier command submitted more."""
        reach = limit
        if limit is not None:
            reach = max([limit, *(part.last + 1 for part in self.state.open)])
        self.left, self.limit = dict(still_to_judge(exchanges, self.run, reach, self.on_progress)), limit

    def submit_all(self) -> None:
        """Submit what is not submitted yet, each part once."""
        budget, waiting = self.judge.endpoint.budget, [part for part in self.state.open if not part.batch_id]
        cost = sum(part.cost_at_most for part in waiting)
        if budget.most is not None and budget.spent + cost > budget.most:
            raise BudgetSpent(
                f"the batch may cost as much as USD {cost:.4f}, and of --max-cost USD {budget.most:g} "
                f"USD {budget.spent:.4f} is spent; nothing was submitted. The same command with a larger "
                "--max-cost submits it"
            )
        for part in waiting:
            # After a time-out it may have come all the same, and not be in the list yet.
            self.transfer.try_again(partial(self._submit, part), unless_it_came=True)

    def collect_all(self) -> None:
        """Look how far each part is, and fetch the answers of those that have ended."""
        for part in self.state.open:
            batch = self.transfer.retrieve_batch(part.batch_id)
            part.status = str(batch.get("status"))
            counts = batch.get("request_counts") or {}
            part.done = int(counts.get("completed") or 0) + int(counts.get("failed") or 0)
            if part.status == "failed":
                self._start_over(part, batch)
            self._save()
            if part.status in ENDED:
                self._collect(part, batch)

    def close(self) -> None:
        """Let go of all connections."""
        self.transfer.close()
        self.judge.endpoint.close()

    def _keep(self, position: int, judgment: Judgment) -> None:
        self.run.keep(position, judgment)
        del self.left[position]
        self.judged += 1
        self.on_progress()

    def _submit(self, part: Part) -> None:
        batch = self._find(part)
        if batch is None:
            if not part.file_id:
                self._check_requests(part)
                part.file_id = _identity(self.transfer.upload(part.file(self.run.folder)))
                self._save()
            batch = self.transfer.create_batch(
                input_file_id=part.file_id,
                endpoint=f"/v1{self.judge.batch_path}",
                completion_window="24h",
                metadata={MARK: part.digest},
            )
        part.batch_id, part.status = _identity(batch), str(batch.get("status"))
        self._save()

    def _check_requests(self, part: Part) -> None:
        """Refuse requests that are not as they were written: what is missing of them would stay unscored."""
        path = part.file(self.run.folder)
        with disk_errors(path):
            content = path.read_bytes() if path.exists() else b""
        if sha256(self.state.mark.encode() + content).hexdigest() != part.digest:
            part.is_collected = True  # nothing of it was submitted, so nothing is to be collected
            self._save()
            raise OperationalError(
                f"{path}: damaged since it was written, and not submitted; "
                "the same command given again writes it anew"
            )

    def _find(self, part: Part) -> dict[str, Any] | None:
        """The batch with the part's digest, if the server has one that did not fail."""
        after = ""
        while True:
            page = self.transfer.list_batches(after)
            rows = [row for row in page.get("data") or () if isinstance(row, dict)]
            for row in rows:
                is_ours = (row.get("metadata") or {}).get(MARK) == part.digest
                if is_ours and row.get("status") != "failed":
                    return row
            if not rows or not page.get("has_more"):
                return None
            after = _identity(rows[-1])

    def _start_over(self, part: Part, batch: Mapping[str, Any]) -> None:
        """The server would not run any of it: nothing is judged, and the part can be submitted again."""
        batch_id = part.batch_id
        part.batch_id = part.file_id = ""
        part.done = 0
        self._save()
        errors = (batch.get("errors") or {}).get("data") or [{}]
        message = self.transfer.key.hide_quoted(str(errors[0].get("message") or "no reason given"))[:300]
        raise OperationalError(
            f"{self.state.base_url}: the batch {batch_id} failed: {message}; none of it was asked. "
            "The same command submits it again"
        )

    def _collect(self, part: Part, batch: Mapping[str, Any]) -> None:
        files: list[Path] = []
        for kind in ("output", "error"):
            identity = batch.get(f"{kind}_file_id")
            path = part.file(self.run.folder, kind)
            if not identity:
                continue
            files.append(path)
            digest = getattr(part, f"{kind}_digest")
            if digest and path.exists() and digest_file(path) == digest:
                continue  # fetched by an earlier command, and unharmed
            self.transfer.download(str(identity), path)
            setattr(part, f"{kind}_digest", digest_file(path))
            self._save()
        for position, judgment in collect_part(
            self.judge, part, self.left, files, hide=self.transfer.key.hide_in, discount=DISCOUNT
        ):
            self._keep(position, judgment)
        part.is_collected = True
        self._save()
        self._clear(part)

    def _clear(self, part: Part) -> None:
        with disk_errors(self.run.folder):
            for kind in ("", "output", "error"):
                part.file(self.run.folder, kind).unlink(missing_ok=True)

    def _save(self) -> None:
        path = self.run.folder / FILE
        with disk_errors(path), replacing(path) as unfinished:
            text = json.dumps({"format": FORMAT, **asdict(self.state)}, indent=1)
            unfinished.write_text(f"{text}\n", encoding="utf-8")


def _identity(answer: Mapping[str, Any]) -> str:
    if not isinstance(answer.get("id"), str) or not answer["id"]:
        raise OperationalError("the server's answer has no id: it does not speak the Batch API")
    return str(answer["id"])
