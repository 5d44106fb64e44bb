"""The client: judgments of single replies and shares of each model, in this process or by a server."""

import json
import logging
import os
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from math import nan
from threading import TIMEOUT_MAX, Lock, Timer
from typing import IO, Any, Self, cast

from empathy_judge.data.errors import OperationalError, UserError

log = logging.getLogger("empathy_judge")

URL = "EMPATHY_JUDGE_URL"
KEY = "EMPATHY_JUDGE_KEY"
MOST_EXCHANGES = 64  # in a request; a server has its own limit
MOST_CHARACTERS = 200_000
RETRIES = 5  # while a server is full
LONGEST_WAIT = 60  # seconds before a retry, whatever Retry-After says
LARGEST_ANSWER = 64 << 20  # bytes
LONGEST_MESSAGE = 500  # characters of a server's message
LOOPBACK = ("127.0.0.1", "localhost", "::1")
EMPTY = "..."  # replaces an empty reply, since every exchange needs one
UNSCORED = {"label": None, "probabilities": None, "score": None, "unscored": "empty reply"}
JUDGED = ("id", "model", "label", "probabilities", "score", "unscored", "flag")
DIGESTS = ("content_digest", "prompt_digest", "reply_digest")
COUNTED = ("id", "model", *DIGESTS, "probabilities", "unscored", "flag", "features")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyJudgment:
    """A judgment of one reply: a label with probabilities, or `unscored` with the reason.

    `score` is the expected rating, from 1 for Bad to 3 for Good; `flag` names the danger the speaker may be
    in. `judge` is the judge's name and version. `row` is the whole judgment, as `score` writes it.
    """

    id: str
    model: str
    label: str | None
    probabilities: Mapping[str, float] | None
    score: float | None
    unscored: str | None
    flag: str | None
    judge: str
    row: Mapping[str, Any]

    @property
    def good(self) -> float | None:
        """Return the probability of Good."""
        return self.probabilities["Good"] if self.probabilities else None

    def __str__(self) -> str:
        if self.probabilities is None:
            return f"unscored: {self.unscored}"
        shown = ", ".join(f"{label} {value:.2f}" for label, value in self.probabilities.items())
        return f"{self.label} ({shown})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEstimate:
    """A share of a model's replies, with its 95% confidence interval where there is one.

    Outside the rated range there is only a `bound`, "at least" the low end or "at most" the high one.
    """

    value: float | None
    low: float | None
    high: float | None
    bound: str | None = None

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.bound} {(self.low if self.bound == 'at least' else self.high) or 0.0:.1%}"
        if self.low is None or self.high is None:
            return f"{self.value:.1%}"
        return f"{self.value:.1%} [{self.low:.1%}, {self.high:.1%}]"


def _read_shares(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, ShareEstimate]:
    return {label: ShareEstimate(**row) for label, row in rows.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShares:
    """The shares of one model; `reasons` counts why replies are unscored.

    `corrected` are the calibrated shares; where the calibration does not apply, `refused` is the reason.
    """

    model: str
    judged: int
    unscored: int
    reasons: Mapping[str, int]
    shares: Mapping[str, ShareEstimate]
    corrected: Mapping[str, ShareEstimate] | None
    refused: str | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """Read a model of `summary.json`."""
        return cls(
            **{key: row[key] for key in ("model", "judged", "unscored", "reasons")},
            shares=_read_shares(row["shares"]),
            corrected=_read_shares(row["corrected"]) if row.get("corrected") else None,
            refused=row.get("refused"),
        )

    @property
    def good(self) -> ShareEstimate | None:
        """Return the Good share, corrected where the judge has a calibration; None where that is refused."""
        if self.refused:
            return None
        return (self.corrected or self.shares).get("Good")

    @property
    def good_at_worst(self) -> ShareEstimate | None:
        """Return the Good share with an interval that covers every possible label of the unscored replies."""
        share, total = self.good, self.judged + self.unscored
        if share is None or share.low is None or share.high is None:
            return None
        part = self.judged / total
        return replace(share, low=share.low * part, high=share.high * part + self.unscored / total)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelComparison:
    """The verdict on the model `one` against `other`, as `compare` gives it, in a `sentence`.

    `probability` is that its Good share is higher, `at_least` that either model is at least as good, within
    the allowed drop. `exit_code` is that of `compare --check`.
    """

    one: str
    other: str
    verdict: str
    probability: float | None
    at_least: tuple[float | None, float | None]
    exit_code: int
    sentence: str


class JudgeClient:
    """A judge of single replies, in this process or on a server.

    `name` is a judge as in `empathy-judge score --judge`, loaded once. With `url`, or the variable
    EMPATHY_JUDGE_URL, a server is asked, which has its own judge. `key`, or the variable EMPATHY_JUDGE_KEY,
    is the server's, and `timeout` the seconds for a whole answer. Threads may share a client.

        judge = JudgeClient()
        print(judge.judge("My dog died.", "I am so sorry. How old was he?"))
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        url: str | None = None,
        key: str | None = None,
        calibration: str | None = None,
        timeout: float | None = 600.0,
    ) -> None:
        url = url or os.environ.get(URL)
        if url and (name or calibration):
            raise UserError("a server has its own judge and calibration; omit them, or the URL of the server")
        key = key or os.environ.get(KEY)
        self._ask = _Server(url, key, timeout).ask if url else _ask_here(name, calibration)

    def judge(self, prompt: str, response: str, **context: Any) -> ReplyJudgment:
        """Judge one reply; `context` may be id, model, situation, emotion and dialogue."""
        (judgment,) = self.judge_all([{"prompt": prompt, "response": response, **context}])
        return judgment

    def judge_all(self, exchanges: Iterable[Mapping[str, Any]]) -> list[ReplyJudgment]:
        """Judge replies, each with the fields of a row of `responses.jsonl`; in the order given.

        An empty response is unscored, and no error.
        """
        numbered = ({"id": str(number), **row} for number, row in enumerate(exchanges, start=1))
        return [judgment for part in _parts(numbered) for judgment in self._judge_part(part)]

    def shares(
        self, judgments: Iterable[ReplyJudgment | Mapping[str, Any]], *, seed: int = 0
    ) -> list[ModelShares]:
        """Return the shares of each model, as `score` counts them, the highest share of Good first."""
        found = self._ask("/v1/shares", {"judgments": _count(judgments), "seed": seed})
        return list(map(ModelShares.from_row, found["models"]))

    def compare(
        self, judgments: Iterable[ReplyJudgment | Mapping[str, Any]], baseline: str, *, max_drop: float = 10.0
    ) -> list[ModelComparison]:
        """Compare each model of the judgments with the model `baseline`; `max_drop` is in points."""
        asked = {"judgments": _count(judgments), "baseline": baseline, "max_drop": max_drop}
        return [ModelComparison(**pair) for pair in self._ask("/v1/shares", asked)["pairs"]]

    def pooled_shares(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
        """Return the shares of all judgments together, as tools log them; NaN where there is no share."""
        (model,) = self.shares({**row, "model": "all"} for row in rows)
        if model.refused:
            log.warning("no corrected share: %s", model.refused)
        nothing = ShareEstimate(value=nan, low=None, high=None)
        own, good = model.shares.get("Good", nothing), model.good or nothing
        found = {"good": good.value, "good_low": good.low, "good_high": good.high, "good_by_judge": own.value}
        counts = {"judged": float(model.judged), "unscored": float(model.unscored)}
        return {name: nan if value is None else value for name, value in found.items()} | counts

    def _judge_part(self, rows: list[Mapping[str, Any]]) -> Iterator[ReplyJudgment]:
        # Ids must be unique in a request; the caller's need not be.
        sent = [
            {**row, "id": str(index), "response": row.get("response") if _has_text(row) else EMPTY}
            for index, row in enumerate(rows)
        ]
        answer = self._ask("/v1/score", {"exchanges": sent})
        judge = f"{answer['judge']['name']} {answer['judge']['version']}"
        for row, found in zip(rows, answer["judgments"], strict=True):
            own = {**found, "id": str(row["id"]), **({} if _has_text(row) else UNSCORED)}
            fields: dict[str, Any] = {key: own.get(key) for key in JUDGED}
            yield ReplyJudgment(**fields, judge=judge, row=own)


def _count(judgments: Iterable[ReplyJudgment | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of judgments with what a server counts."""
    rows = (item.row if isinstance(item, ReplyJudgment) else item for item in judgments)
    return [{key: row[key] for key in COUNTED if row.get(key) is not None} for row in rows]


class _Server:
    """Requests to one server, with its key."""

    def __init__(self, url: str, key: str | None, timeout: float | None) -> None:
        if "@" in url or "?" in url:  # not shown: it may hold a password
            raise UserError("url: must not contain a password or a query; pass the key as `key`")
        try:
            parts = urllib.parse.urlsplit(url)
            host = parts.hostname if parts.port != 0 else None
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise UserError(f"url: expected an address such as http://127.0.0.1:8321, not {url!r}")
        if key and parts.scheme == "http" and host not in LOOPBACK:
            raise UserError("url: the key would be sent unencrypted; use https, or a tunnel to 127.0.0.1")
        if key and not (key.isascii() and key.isprintable()):  # an error about the header would quote it
            raise UserError("key: not a valid key: it has line breaks or non-ASCII characters")
        self._url, self._timeout = url.rstrip("/").removesuffix("/v1"), timeout
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._proxies = urllib.request.ProxyHandler({} if host in LOOPBACK else None)

    def ask(self, route: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post a request, and repeat it after the time that a busy server names."""
        data = json.dumps(body).encode()
        for tries_left in reversed(range(RETRIES)):
            request = urllib.request.Request(self._url + route, data=data, headers=self._headers)
            watchdog = _Watchdog()
            opener = urllib.request.build_opener(_NoRedirects(), self._proxies, watchdog)
            timer = Timer(self._timeout or TIMEOUT_MAX, watchdog.end)
            timer.daemon = True
            timer.start()
            try:
                with opener.open(request, timeout=self._timeout) as answer:
                    found = _read_object(answer)
                if watchdog.is_late:  # what it ended looks complete
                    raise TimeoutError
                return found
            except urllib.error.HTTPError as error:
                with error:
                    code, after = error.code, error.headers.get("Retry-After", "")
                    complaint = _complaint(error)
            except (OSError, ValueError, RecursionError, HTTPException) as error:
                cause = getattr(error, "reason", error)
                # A number is the system's: it may give up earlier.
                is_late = watchdog.is_late or (isinstance(cause, TimeoutError) and cause.errno is None)
                reason = f"timed out: no complete answer in {self._timeout:g} s" if is_late else str(cause)
                raise OperationalError(
                    f"{self._url}{route}: {reason[:LONGEST_MESSAGE]}; check that the server is running "
                    "(empathy-judge serve)"
                ) from error
            finally:
                timer.cancel()
            if code == 503 and after.isdecimal() and tries_left:
                time.sleep(min(int(after[:9]), LONGEST_WAIT))
                continue
            kind = UserError if 400 <= code < 500 else OperationalError
            raise kind(f"{self._url}{route}: {code}: {complaint}")
        raise AssertionError("the last try returns or raises")


class _Watchdog(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """A handler that ends a request at its deadline: the time-out of a socket covers one read only."""

    is_late, _socket = False, cast(Any, None)

    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(self._open, HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(self._open, HTTPSConnection), request)

    def _open(self, kind: type[HTTPConnection], host: str, **options: Any) -> HTTPConnection:
        connection = kind(host, **options)
        connect = connection.connect

        def connect_watched() -> None:
            connect()
            self._socket = connection.sock  # the connection forgets it once the headers are read
            if self.is_late:
                self.end()

        connection.connect = connect_watched  # type: ignore[method-assign]
        return connection

    def end(self) -> None:
        self.is_late = True
        with suppress(OSError, AttributeError):  # not connected yet, or not any more
            self._socket.shutdown(socket.SHUT_RDWR)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirects: the key is for the named server only."""

    def redirect_request(self, *args: Any, **named: Any) -> None:
        return None


def _read_object(answer: IO[bytes]) -> dict[str, Any]:
    content = answer.read(LARGEST_ANSWER + 1)
    if len(content) > LARGEST_ANSWER:
        raise ValueError(f"an answer larger than {LARGEST_ANSWER:,} bytes")
    found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError("an answer that is not a JSON object")
    return found


def _complaint(error: urllib.error.HTTPError) -> str:
    try:
        return str(_read_object(error)["error"]["message"])[:LONGEST_MESSAGE]
    except (OSError, ValueError, KeyError, TypeError, RecursionError, HTTPException):
        return str(error.reason)[:LONGEST_MESSAGE]


def _ask_here(name: str | None, calibration: str | None) -> Callable[[str, Mapping[str, Any]], Any]:
    """Load a judge; return a function that answers requests as a server does."""
    from empathy_judge.data.tables import read_exchange
    from empathy_judge.judge.base import DEFAULT, load_judge
    from empathy_judge.server.served_judge import ServedJudge

    served = ServedJudge(load_judge(name or DEFAULT), calibration)

    def ask(route: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if route == "/v1/shares":
            return served.shares(**body)
        exchanges = [read_exchange(row, line=line) for line, row in enumerate(body["exchanges"], start=1)]
        with ThreadPoolExecutor(served.judge.concurrency) as pool:
            rows = list(pool.map(partial(served.row, is_explained=False), exchanges))
        return {**served.about(), "judgments": rows}

    return ask


def shared_judge(name: str | None = None, *, url: str | None = None) -> JudgeClient:
    """Return this process's client for these options; plug-ins share it."""
    with _SHARING:
        return _make_client(name, url=url)


_SHARING, _make_client = Lock(), cache(JudgeClient)


def _parts(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Split rows into parts that fit into a request."""
    part: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        length = sum(len(value) for value in row.values() if isinstance(value, str))
        if part and (len(part) == MOST_EXCHANGES or size + length > MOST_CHARACTERS):
            yield part
            part, size = [], 0
        part.append(row)
        size += length
    if part:
        yield part


def _has_text(row: Mapping[str, Any]) -> bool:
    """Return whether a reply has text; the judge refuses a wrong type."""
    response = row.get("response", "")
    return response is not None and not (isinstance(response, str) and not response.strip())


def context_of(fields: Any) -> dict[str, str]:
    """Return `situation` and `emotion` of the speaker from a tool's own fields."""
    if not isinstance(fields, dict):
        return {}
    return {key: fields[key] for key in ("situation", "emotion") if isinstance(fields.get(key), str)}
