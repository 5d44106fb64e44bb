"""The client: judgments of replies, and the shares of labels of each model."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

from empathy_judge.connections import ChildConnection, JudgeError, ServerConnection

URL = "EMPATHY_JUDGE_URL"
KEY = "EMPATHY_JUDGE_KEY"
MOST_EXCHANGES = 64  # a request; a server takes no more than its own limit
MOST_CHARACTERS = 200_000
EMPTY = "..."  # sent for an empty reply, since every exchange needs one
UNSAID = {"label": None, "probabilities": None, "score": None, "unscored": "empty reply"}
JUDGED = ("id", "model", "label", "probabilities", "score", "unscored", "flag")
COUNTED = ("id", "model", "content_digest", "prompt_digest", "probabilities", "unscored", "flag", "features")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyJudgment:
    """What the judge says of one reply: a label with probabilities, or `unscored` with the reason.

    `score` is the rating it expects of a crowd, from 1 for Bad to 3 for Good; `flag` names the
    danger the speaker may be in. `judge` is the judge's name and version. `row` is all of it, as
    `score` writes it.
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
        """The probability of Good."""
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
        """The share of Good, corrected where the judge has a calibration; None where that is refused."""
        if self.refused:
            return None
        return (self.corrected or self.shares).get("Good")

    @property
    def good_at_worst(self) -> ShareEstimate | None:
        """The share of Good, with an interval that covers every possible label of the unscored replies."""
        share, total = self.good, self.judged + self.unscored
        if share is None or share.low is None or share.high is None:
            return None
        part = self.judged / total
        return replace(share, low=share.low * part, high=share.high * part + self.unscored / total)


@cache
def shared_judge(name: str | None = None, *, url: str | None = None) -> "JudgeClient":
    """Return this process's client for these options; plug-ins share it."""
    return JudgeClient(name, url=url)


class JudgeClient:
    """The judge, in a child process or on a server.

    `name` is a judge as in `empathy-judge score --judge`. With `url`, or the variable EMPATHY_JUDGE_URL, a
    server is asked, and `name`, if given, must be its judge; `key` is the server's. `python` is the
    interpreter of another environment with the judge in it, also in EMPATHY_JUDGE_PYTHON. The child process
    starts with the first request and ends with this process or by `close`. Threads may share a client.

        with JudgeClient() as judge:
            print(judge.judge("My dog died.", "I am so sorry. How old was he?"))
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        url: str | None = None,
        key: str | None = None,
        calibration: str | None = None,
        python: str | None = None,
        timeout: float | None = 600.0,
    ) -> None:
        url = url or os.environ.get(URL)
        self._name = name
        self._connection: ChildConnection | ServerConnection
        if url:
            if calibration:
                raise JudgeError("calibration: a server has its own; start it with serve --calibration")
            self._connection = ServerConnection(url, key=key or os.environ.get(KEY), timeout=timeout)
        else:
            self._connection = ChildConnection(
                name or "classifier", calibration, python=python, timeout=timeout
            )

    def judge(self, prompt: str, response: str, **context: Any) -> ReplyJudgment:
        """Judge one reply; `context` may be id, model, situation, emotion and dialogue."""
        (judgment,) = self.judge_all([{"prompt": prompt, "response": response, **context}])
        return judgment

    def judge_all(self, exchanges: Iterable[Mapping[str, Any]]) -> list[ReplyJudgment]:
        """Judge replies, each with the fields of a row of `responses.jsonl`; in the order given.

        An empty response is unscored, and no error.
        """
        numbered = ({"id": str(number), **row} for number, row in enumerate(exchanges, start=1))
        return [judgment for part in _parts(numbered) for judgment in self._ask(part)]

    def shares(
        self, judgments: Iterable[ReplyJudgment | Mapping[str, Any]], *, seed: int = 0
    ) -> list[ModelShares]:
        """Return the shares of each model, as `score` counts them, the highest share of Good first."""
        rows = [item.row if isinstance(item, ReplyJudgment) else item for item in judgments]
        counted = [{key: row[key] for key in COUNTED if row.get(key) is not None} for row in rows]
        found = self._connection.ask("/v1/shares", {"judgments": counted, "seed": seed})
        return list(map(ModelShares.from_row, found["models"]))

    def close(self) -> None:
        """End the child process; the next request starts another."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[ReplyJudgment]:
        # Ids must be unique in a request; the caller's need not be.
        sent = [
            {**row, "id": str(place), "response": row.get("response") if _is_said(row) else EMPTY}
            for place, row in enumerate(rows)
        ]
        answer = self._connection.ask("/v1/score", {"exchanges": sent})
        name, version = answer["judge"]["name"], answer["judge"]["version"]
        is_name = self._name is not None and not self._name.endswith(".toml") and ":" not in self._name
        if is_name and name != self._name:
            raise JudgeError(f"the server's judge is {name!r}, not {self._name!r}; omit the name to use it")
        for row, found in zip(rows, answer["judgments"], strict=True):
            own = {**found, "id": str(row["id"]), **({} if _is_said(row) else UNSAID)}
            fields: dict[str, Any] = {key: own.get(key) for key in JUDGED}
            yield ReplyJudgment(**fields, judge=f"{name} {version}", row=own)


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


def _is_said(row: Mapping[str, Any]) -> bool:
    """Return whether a reply has text; the judge refuses a wrong type."""
    response = row.get("response", "")
    return response is not None and not (isinstance(response, str) and not response.strip())


def _shares(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, ShareEstimate]:
    return {
        label: ShareEstimate(**{key: row[key] for key in ("value", "low", "high")})
        for label, row in rows.items()
    }
