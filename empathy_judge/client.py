"""Judges of single replies, in this process or on a server: judgments, and the shares of each model."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from threading import BoundedSemaphore, Lock
from typing import Any, Self

from empathy_judge.data.errors import UserError
from empathy_judge.http_connection import ServerConnection

URL = "EMPATHY_JUDGE_URL"
KEY = "EMPATHY_JUDGE_KEY"
MOST_EXCHANGES = 64  # in a request; a server has its own limit
MOST_CHARACTERS = 200_000
EMPTY = "..."  # replaces an empty reply, since every exchange needs one
SPEAKERS = {"user": "speaker", "human": "speaker", "assistant": "listener", "ai": "listener"}
UNSCORED = {"label": None, "probabilities": None, "score": None, "unscored": "empty reply"}
JUDGED = ("id", "model", "label", "probabilities", "score", "unscored", "flag")
COUNTED = ("id", "model", "content_digest", "prompt_digest", "probabilities", "unscored", "flag", "features")


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
    """A share of a model's replies, with its 95% confidence interval where there is one."""

    value: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.1%}"
        return f"{self.value:.1%} [{self.low:.1%}, {self.high:.1%}]"


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
            shares=_shares(row["shares"]),
            corrected=_shares(row["corrected"]) if row.get("corrected") else None,
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


class ReplyScorer(ABC):
    """A judge of single replies: what `LocalJudge` and `JudgeClient` have in common."""

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
        rows = [item.row if isinstance(item, ReplyJudgment) else item for item in judgments]
        counted = [{key: row[key] for key in COUNTED if row.get(key) is not None} for row in rows]
        return list(map(ModelShares.from_row, self._count(counted, seed)["models"]))

    @abstractmethod
    def _score(self, exchanges: list[dict[str, Any]]) -> Mapping[str, Any]:
        """Return `judge` and `judgments`, as the server's /v1/score does."""

    @abstractmethod
    def _count(self, judgments: list[dict[str, Any]], seed: int) -> Mapping[str, Any]:
        """Return `models`, as the server's /v1/shares does."""

    def _judge_part(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[ReplyJudgment]:
        # Ids must be unique in a request; the caller's need not be.
        sent = [
            {**row, "id": str(index), "response": row.get("response") if _has_text(row) else EMPTY}
            for index, row in enumerate(rows)
        ]
        answer = self._score(sent)
        judge = f"{answer['judge']['name']} {answer['judge']['version']}"
        for row, found in zip(rows, answer["judgments"], strict=True):
            own = {**found, "id": str(row["id"]), **({} if _has_text(row) else UNSCORED)}
            fields: dict[str, Any] = {key: own.get(key) for key in JUDGED}
            yield ReplyJudgment(**fields, judge=judge, row=own)


class LocalJudge(ReplyScorer):
    """A judge in this process, loaded once; threads may share it.

    `name` is a judge as in `empathy-judge score --judge`.

        judge = LocalJudge()
        print(judge.judge("My dog died.", "I am so sorry. How old was he?"))
    """

    def __init__(self, name: str | None = None, *, calibration: str | None = None) -> None:
        from empathy_judge.judge.base import DEFAULT, load_judge
        from empathy_judge.server.served_judge import ServedJudge

        self._served = ServedJudge(load_judge(name or DEFAULT), calibration)
        self._threads = self._served.judge.concurrency
        self._turns = BoundedSemaphore(self._threads)

    def _score(self, exchanges: list[dict[str, Any]]) -> Mapping[str, Any]:
        from empathy_judge.data.tables import read_exchange

        def judge(exchange: Any) -> dict[str, Any]:
            with self._turns:
                return self._served.row(exchange, is_explained=False)

        read = [read_exchange(row, line=number) for number, row in enumerate(exchanges, start=1)]
        with ThreadPoolExecutor(self._threads) as pool:
            rows = list(pool.map(judge, read))
        return {**self._served.about(), "judgments": rows}

    def _count(self, judgments: list[dict[str, Any]], seed: int) -> Mapping[str, Any]:
        return self._served.shares(judgments, seed=seed)


class JudgeClient(ReplyScorer):
    """A judge on a server that `empathy-judge serve` started; it needs nothing but Python.

    `url` and `key` default to the variables EMPATHY_JUDGE_URL and EMPATHY_JUDGE_KEY. `name`, if given, must
    be the server's judge. Threads may share a client.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        name: str | None = None,
        timeout: float | None = 600.0,
    ) -> None:
        url = url or os.environ.get(URL)
        if not url:
            raise UserError(f"url: missing; pass the address of `empathy-judge serve`, or set {URL}")
        self._name = name
        self._connection = ServerConnection(url, key=key or os.environ.get(KEY), timeout=timeout)

    def _score(self, exchanges: list[dict[str, Any]]) -> Mapping[str, Any]:
        answer = self._connection.ask("/v1/score", {"exchanges": exchanges})
        found = answer["judge"]["name"]
        is_name = self._name and not self._name.endswith(".toml") and ":" not in self._name
        if is_name and found != self._name:
            raise UserError(f"the server's judge is {found!r}, not {self._name!r}; omit the name to use it")
        return answer

    def _count(self, judgments: list[dict[str, Any]], seed: int) -> Mapping[str, Any]:
        return self._connection.ask("/v1/shares", {"judgments": judgments, "seed": seed})


def shared_judge(name: str | None = None, *, url: str | None = None) -> ReplyScorer:
    """Return the judge that plug-ins share in this process: on a server where there is a URL, else local."""
    with _SHARING:
        return _make_judge(name, url or os.environ.get(URL))


@cache
def _make_judge(name: str | None, url: str | None) -> ReplyScorer:
    return JudgeClient(url, name=name) if url else LocalJudge(name)


_SHARING = Lock()


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


def _shares(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, ShareEstimate]:
    return {
        label: ShareEstimate(**{key: row[key] for key in ("value", "low", "high")})
        for label, row in rows.items()
    }


def read_messages(messages: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Read an exchange from roles and texts; system and tool messages are left out.

    The messages of one side in a row are one turn. Messages that end with the user have an empty response.

    >>> read_messages([("system", "Be kind."), ("user", "I won!"), ("assistant", "Lovely!")])
    {'prompt': 'I won!', 'response': 'Lovely!', 'dialogue': []}
    """
    spoken = [(SPEAKERS[role], text) for role, text in messages if role in SPEAKERS and text.strip()]
    turns = [
        {"speaker": who, "text": "\n".join(text for _, text in run)}
        for who, run in groupby(spoken, key=lambda turn: turn[0])
    ]
    response = turns.pop()["text"] if turns and turns[-1]["speaker"] == "listener" else ""
    prompt = turns.pop()["text"] if turns else ""
    return {"prompt": prompt, "response": response, "dialogue": turns}


def context_of(fields: Any) -> dict[str, str]:
    """Return `situation` and `emotion` of the speaker from a tool's own fields."""
    if not isinstance(fields, dict):
        return {}
    return {key: fields[key] for key in ("situation", "emotion") if isinstance(fields.get(key), str)}
