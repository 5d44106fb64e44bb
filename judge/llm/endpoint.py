"""A model's server: calls within limits of time, size and money, counted and priced."""

import json
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from threading import BoundedSemaphore, Event, Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import urlsplit

from empathy_judge.data.errors import OperationalError, UserError, install_hint
from empathy_judge.data.records import Exchange, Judgment
from empathy_judge.data.text import SURROGATE
from empathy_judge.judge.base import Judge, raise_if_cancelled
from empathy_judge.judge.budget import Budget
from empathy_judge.judge.llm.keys import Key, check_key_name
from empathy_judge.judge.llm.limits import (
    Pace,
    Prices,
    TokenCounts,
    check_prices,
    find_prices,
    guess_tokens,
    read_tokens,
)

if TYPE_CHECKING:
    from empathy_judge.judge.llm.http_client import ServerAnswer, ServerClient

FATAL = frozenset({401, 402, 404, 405})  # every other call would get the same answer
KEY_REFUSED = frozenset({401, 403})
LOOPBACK = ("localhost", "127.0.0.1", "::1")
GIVE_UP_AFTER = 20  # calls in a row without an answer
RAW = 2000  # characters stored of an answer that could not be used


class EndpointOptions(TypedDict, total=False):
    """The options of a judge's or a model's file that are about its server; `model` is required.

    `prices` are USD per million tokens; a rate of 0 is no limit; `timeout` is in seconds.
    """

    model: str
    base_url: str
    key_env: str
    concurrency: int
    timeout: float
    retries: int
    requests_per_minute: float
    tokens_per_minute: float
    prices: dict[str, float] | None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: its JSON object, and `input_tokens`, `output_tokens`, `cost`, `seconds` and `calls`.

    `cost` is in USD and absent where no price is known.
    """

    body: dict[str, Any]
    usage: Mapping[str, float]


class CallFailed(Exception):
    """A call without an answer; `reason` is short, and neither field contains a secret.

    `usage` is what the call may have cost nevertheless.
    """

    def __init__(self, reason: str, raw: str = "", usage: Mapping[str, float] | None = None) -> None:
        super().__init__(reason)
        self.reason, self.raw, self.usage = reason, raw, dict(usage or {})


def check_base_url(base_url: str) -> str:
    """Return a base URL that can be called and shown: http(s), a host, and nothing secret in it."""
    if "@" in base_url:  # wherever it stands: no message may quote it
        raise UserError(
            "base_url: contains a user or password; set the key in an environment variable (key_env)"
        )
    try:
        parts = urlsplit(base_url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise UserError(f"base_url: not a URL: {error}") from None
    if parts.query or parts.fragment:
        raise UserError("base_url: has a query; expected the address only, such as http://127.0.0.1:8000/v1")
    if parts.scheme not in ("http", "https") or not has_host or not base_url.isprintable() or " " in base_url:
        raise UserError(f"base_url: {base_url!r} is not an http(s) address such as http://127.0.0.1:8000/v1")
    return base_url.rstrip("/")


def is_loopback(base_url: str) -> bool:
    """Return whether a server is on this machine.

    >>> is_loopback("http://127.0.0.1:8000/v1"), is_loopback("https://api.openai.com/v1")
    (True, False)
    """
    return urlsplit(base_url).hostname in LOOPBACK


@cache
def _announce(base_url: str, key_env: str) -> None:
    """Print, once a process, which host gets the texts and which variable's key."""
    if key_env or not is_loopback(base_url):
        with_key = f"with the key in {key_env}" if key_env else "without a key"
        print(f"asking {urlsplit(base_url).netloc} {with_key}", file=sys.stderr, flush=True)


class Endpoint:
    """One model's server: blocking calls from any number of threads."""

    def __init__(
        self,
        *,
        model: str,
        base_url: str = "https://api.openai.com/v1",
        key_env: str = "",
        concurrency: int = 32,
        timeout: float = 60.0,
        retries: int = 5,
        requests_per_minute: float = 0,
        tokens_per_minute: float = 0,
        prices: Mapping[str, float] | None = None,
        price_kind: str = "chat",
    ) -> None:
        self.base_url, self.model, self.key_env = check_base_url(base_url), model, key_env
        check_key_name(key_env)
        _check_numbers(timeout=timeout, concurrency=concurrency, retries=retries)
        _check_numbers(requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute)
        self.timeout, self.retries, self.concurrency = timeout, retries, concurrency
        self.prices: Prices | None = check_prices(prices) if prices else find_prices(model, kind=price_kind)
        if self.prices is None and not key_env and is_loopback(base_url):
            self.prices = Prices(input=0, output=0)  # our own machine charges nothing
        self.budget = Budget()
        self.pace = Pace(requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute)
        self.calls = 0  # tries sent, in this process
        self._in_flight = BoundedSemaphore(concurrency)
        self._stopped = Event()
        self._client: ServerClient | None = None
        self._lock = Lock()
        self._first = Lock()
        self._is_tried, self._refused = False, ""
        self._answered = self._failed_in_a_row = 0

    def post(self, path: str, body: Mapping[str, Any]) -> Reply:
        """Send one request, with retries; raise `CallFailed` where it gets no answer.

        Raise `OperationalError` where every other call would fail too, `BudgetSpent` before a call that the
        budget does not cover.
        """
        if self.budget.most is not None and self.prices is None:
            raise UserError(
                f"a cost limit needs prices, and none is known for {self.model!r}; "
                "set prices = {input = ..., output = ...} in the judge's file, USD per million tokens"
            )
        # A lone surrogate cannot be encoded.
        body = json.loads(SURROGATE.sub("\ufffd", json.dumps(body, ensure_ascii=False)))
        size, started = len(json.dumps(body)), monotonic()
        call = _Call(self, guess_tokens(body, size))
        answer = self._send_first(call, path, body) or call.send(path, body)
        if answer.body is None:
            raise self._explain(answer, call)
        with self._lock:
            self._answered += 1
            self._failed_in_a_row = 0
        used = read_tokens(answer.body)
        tokens = {"input_tokens": used.input, "output_tokens": used.output} if used else {}
        cost = {"cost": round(call.cost, 9)} if self.prices else {}
        took = {"seconds": round(monotonic() - started, 3), "calls": call.tries}
        return Reply(answer.body, tokens | cost | took)

    def _send_first(self, call: "_Call", path: str, body: Mapping[str, Any]) -> "ServerAnswer | None":
        """Send the first call while all others wait, so that a wrong key costs one; None for the others."""
        with self._first:
            if self._refused:
                raise OperationalError(self._refused)
            if self._is_tried:
                return None
            answer = call.send(path, body)
            if answer.status in KEY_REFUSED:
                self._refused = str(self._explain(answer, call))
            self._is_tried = answer.status not in FATAL | KEY_REFUSED
            return answer

    def share_rates(self, parts: int) -> None:
        """Use one of so many equal parts of the rates: other processes use the rest."""
        self.pace.share(parts)

    def stop(self) -> None:
        """End all calls at their next try; `close` undoes this."""
        self._stopped.set()

    def close(self) -> None:
        """Close all connections; the next call opens new ones. Not while calls are under way."""
        with self._lock:
            if self._client:
                self._client.close()
            self._client, self._refused = None, ""
            self._stopped.clear()

    def open_client(self, *, timeout: float | None = None, retries: int | None = None) -> "ServerClient":
        """Open a client for this server, by default with its own time-out and retries."""
        try:
            from empathy_judge.judge.llm.http_client import ServerClient
        except ImportError:
            raise UserError(
                f"calling a server needs the package openai: {install_hint('prompted')}"
            ) from None
        key = Key(self.key_env)
        if key.headers and urlsplit(self.base_url).scheme != "https" and not is_loopback(self.base_url):
            raise UserError(
                f"base_url: {self.base_url}: the key in {key.name} would be sent unencrypted; use https, a "
                "tunnel to 127.0.0.1, or remove key_env"
            )
        client = ServerClient(
            base_url=self.base_url,
            key=key,
            timeout=self.timeout if timeout is None else timeout,
            retries=self.retries if retries is None else retries,
            stopped=self._stopped,
        )
        _announce(self.base_url, key.name)
        return client

    def _explain(self, answer: "ServerAnswer", call: "_Call") -> Exception:
        """Return the error of a failed call: its own, or that of the whole run."""
        problem = answer.problem
        # Only of a failure that was retried, so that a run counts the same failure under the same words.
        if call.tries > 1 and (answer.status >= 500 or answer.status in (0, 408, 409, 429)):
            what, colon, rest = problem.partition(": ")
            problem = f"{what} after {call.tries} tries{colon}{rest}"
        with self._lock:
            is_first = not self._answered
            # A refused request predicts nothing about the others; many without an answer do.
            if answer.status < 400 or answer.status >= 500 or answer.status == 429:
                self._failed_in_a_row += 1
            failed = self._failed_in_a_row
        if answer.is_unreachable:
            return self._fatal(problem, "check that the server runs at this address.")
        # A gateway also answers 403 to a single text: then others have been answered before.
        is_redirect = 300 <= answer.status < 400
        if answer.status in FATAL or is_redirect or (answer.status == 403 and is_first):
            key = f"the key in the variable {self.key_env}" if self.key_env else "key_env (no key was sent)"
            others = "" if answer.status in KEY_REFUSED else "base_url, model and "
            return self._fatal(problem, f"check {others}{key}.")
        if answer.status == 429 and ("insufficient_quota" in answer.text or "billing" in answer.text):
            return self._fatal(problem, "raise the quota with the provider.")
        if failed >= GIVE_UP_AFTER:
            return self._fatal(f"{failed} consecutive calls failed; the last: {problem}", "try again later.")
        usage = {"cost": call.cost} if call.cost else {}
        return CallFailed(problem, answer.text[:RAW], usage)

    def _fatal(self, problem: str, fix: str) -> OperationalError:
        return OperationalError(
            f"{self.base_url}, model {self.model!r}: {problem}; {fix} "
            "Finished judgments are saved: run the command again to resume"
        )


class _Call:
    """One call: its tries, and what they cost or may have cost."""

    def __init__(self, endpoint: Endpoint, guess: TokenCounts) -> None:
        self.endpoint, self.guess = endpoint, guess
        self.tries, self.cost = 0, 0.0
        self.estimate = self.reserved = endpoint.prices.cost(guess) if endpoint.prices else 0.0

    def send(self, path: str, body: Mapping[str, Any]) -> "ServerAnswer":
        """Send the request within the limits, and settle its cost."""
        endpoint = self.endpoint
        with endpoint._lock:
            client = endpoint._client = endpoint._client or endpoint.open_client()
        self.reserved = endpoint.budget.reserve(self.estimate)
        cost = 0.0
        try:
            with endpoint._in_flight:
                endpoint._stopped.wait(endpoint.pace.take(monotonic(), tokens=self.guess.total))
                answer = client.post(path, body, self.begin_try)
            used = read_tokens(answer.body or {})
            if used:
                endpoint.pace.correct(tokens=used.total - self.guess.total)
                cost = endpoint.prices.cost(used) if endpoint.prices else 0.0
            elif answer.body is not None or answer.may_have_cost:
                cost = self.reserved
            return answer
        finally:
            endpoint.budget.settle(self.reserved, cost, estimate=self.estimate)
            self.cost += cost

    def begin_try(self, may_have_cost: bool) -> None:
        """Check before each try that somebody waits for it and that the budget covers it."""
        endpoint = self.endpoint
        raise_if_cancelled()
        if endpoint._stopped.is_set():
            raise OperationalError(
                f"{endpoint.base_url}: stopped before an answer came; finished judgments are saved"
            )
        if may_have_cost:
            endpoint.budget.settle(0.0, self.reserved)
            self.cost += self.reserved
            endpoint.budget.check(self.reserved)
        self.tries += 1
        with endpoint._lock:
            endpoint.calls += 1


class EndpointUser:
    """A judge or a model that asks through one endpoint."""

    endpoint: Endpoint
    concurrency: int

    def stop(self) -> None:
        """End all calls at their next try."""
        self.endpoint.stop()

    def close(self) -> None:
        """Close all connections; the next call opens them again."""
        self.endpoint.close()


class LanguageModelJudge(EndpointUser, Judge):
    """A judge whose requests can be written now and whose replies can be read later, as batches need it."""

    reask: int = 0  # further calls after an answer that cannot be read
    batch_path: str  # of the API, to which a batch sends its requests

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return (self.endpoint,)

    def most_cost(self, exchange: Exchange) -> float | None:
        bodies = self.write_requests(exchange)
        if (prices := self.endpoint.prices) is None:
            return None
        calls = (guess_tokens(body, len(json.dumps(body))) for body in bodies)
        return sum(map(prices.cost, calls)) * (1 + self.reask)

    @abstractmethod
    def write_requests(self, exchange: Exchange) -> list[dict[str, Any]]:
        """Write the requests that a judgment of an exchange takes."""

    @abstractmethod
    def read_replies(self, exchange: Exchange, replies: Sequence[Reply | CallFailed]) -> Judgment:
        """Read the judgment from the replies to these requests."""


def _check_numbers(**numbers: float) -> None:
    for name, number in numbers.items():
        least = {"timeout": 0.001, "concurrency": 1}.get(name, 0)
        if not (isfinite(number) and number >= least):
            raise UserError(f"{name}: must be at least {least}, not {number}")
