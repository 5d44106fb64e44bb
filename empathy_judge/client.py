"""The client: judgments of single replies and shares of each model, in this process or by a server."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any, Self

from empathy_judge.data.errors import UserError
from empathy_judge.http_connection import ServerConnection

if TYPE_CHECKING:
    from empathy_judge.data.records import Exchange

log = logging.getLogger("empathy_judge")

URL = "EMPATHY_JUDGE_URL"
KEY = "EMPATHY_JUDGE_KEY"
MOST_EXCHANGES = 64  # in a request; a server has its own limit
MOST_CHARACTERS = 200_000
EMPTY = "..."  # replaces an empty reply, since every exchange needs one
PROMPTS = ("prompt", "question", "message", "input", "query")  # fields of tools
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


class JudgeClient:
    """A judge of single replies, in this process or on a server.

    `name` is a judge as in `empathy-judge score --judge`, loaded once. With `url`, or the variable
    EMPATHY_JUDGE_URL, a server is asked, and `name`, if given, must be its judge. `key`, or the variable
    EMPATHY_JUDGE_KEY, is the server's. Threads may share a client.

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
        self._server_judge = name if url and name and not name.endswith(".toml") and ":" not in name else None
        if not url:
            self._ask = _LocalJudge(name, calibration).ask
        elif calibration:
            raise UserError("calibration: a server has its own; start it with serve --calibration")
        else:
            self._ask = ServerConnection(url, key=key or os.environ.get(KEY), timeout=timeout).ask

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
        found = self._ask("/v1/shares", {"judgments": counted, "seed": seed})
        return list(map(ModelShares.from_row, found["models"]))

    def pooled_shares(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
        """Return the shares of all judgments together, as tools log them; NaN where there is no share."""
        (model,) = self.shares({**row, "model": "all"} for row in rows)
        if model.refused:
            log.warning("no corrected share: %s", model.refused)
        own, good = model.shares.get("Good"), model.good
        found = {"good": good and good.value, "good_low": good and good.low, "good_high": good and good.high}
        found |= {"good_by_judge": own and own.value, "judged": model.judged, "unscored": model.unscored}
        return {name: float("nan") if value is None else float(value) for name, value in found.items()}

    def _judge_part(self, rows: list[Mapping[str, Any]]) -> Iterator[ReplyJudgment]:
        # Ids must be unique in a request; the caller's need not be.
        sent = [
            {**row, "id": str(index), "response": row.get("response") if _has_text(row) else EMPTY}
            for index, row in enumerate(rows)
        ]
        answer = self._ask("/v1/score", {"exchanges": sent})
        name = answer["judge"]["name"]
        if self._server_judge not in (None, name):
            raise UserError(
                f"the server's judge is {name!r}, not {self._server_judge!r}; omit the name to use it"
            )
        for row, found in zip(rows, answer["judgments"], strict=True):
            own = {**found, "id": str(row["id"]), **({} if _has_text(row) else UNSCORED)}
            fields: dict[str, Any] = {key: own.get(key) for key in JUDGED}
            yield ReplyJudgment(**fields, judge=f"{name} {answer['judge']['version']}", row=own)


class _LocalJudge:
    """A judge in this process that answers as a server does."""

    def __init__(self, name: str | None, calibration: str | None) -> None:
        from empathy_judge.judge.base import DEFAULT, load_judge
        from empathy_judge.server.served_judge import ServedJudge

        self._served = ServedJudge(load_judge(name or DEFAULT), calibration)
        self._threads = self._served.judge.concurrency
        self._turns = BoundedSemaphore(self._threads)

    def ask(self, route: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a request."""
        from empathy_judge.data.tables import read_exchange

        if route == "/v1/shares":
            return self._served.shares(body["judgments"], seed=body["seed"])
        exchanges = [read_exchange(row, line=line) for line, row in enumerate(body["exchanges"], start=1)]
        with ThreadPoolExecutor(self._threads) as pool:
            return {**self._served.about(), "judgments": list(pool.map(self._judge, exchanges))}

    def _judge(self, exchange: "Exchange") -> dict[str, Any]:
        with self._turns:
            return self._served.row(exchange, is_explained=False)


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


def find_prompt(fields: Mapping[str, Any], names: Iterable[str] = PROMPTS) -> dict[str, Any] | None:
    """Return the prompt, and the turns before it, from a tool's own fields; None where there is none."""
    if isinstance(fields.get("messages"), list):
        texts = [(message["role"], message["content"]) for message in fields["messages"]]
        return read_messages([*texts, ("assistant", "...")])
    return next(({"prompt": fields[name]} for name in names if isinstance(fields.get(name), str)), None)
