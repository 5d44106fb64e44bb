"""A model's server: calls within limits of time, size and money, counted and priced."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite
from threading import Event, Lock
from time import monotonic
from typing import Any, TypedDict
from urllib.parse import urlsplit

from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.text import SURROGATE
from empathy_judge.judge.base import URL_KEY, raise_if_cancelled
from empathy_judge.judge.budget import (
    Budget,
    ConcurrencyLimit,
    Pace,
    Prices,
    TokenCounts,
    check_prices,
    find_prices,
    guess_tokens,
    read_tokens,
    usage_of,
)
from empathy_judge.judge.llm.http_client import LOOPBACK, Key, ServerAnswer, ServerClient, check_key_name

FATAL = frozenset({401, 402, 404, 405})  # every other call would get the same answer
KEY_REFUSED = frozenset({401, 403})
OVERLOADED = frozenset({429, 503, 529})
TIMEOUT, LOCAL_TIMEOUT = 60.0, 300.0  # seconds for a whole answer
FIRST_CALLS, FIRST_LOCAL_CALLS, MOST_CALLS = 8, 2, 32  # in flight, where the concurrency is not set
GIVE_UP_AFTER = 20  # calls in a row without an answer
RAW = 2000  # characters stored of an answer that could not be used


class EndpointOptions(TypedDict, total=False):
    """The options of a judge's or a model's file that are about its server; `model` is required."""

    model: str
    base_url: str
    key_env: str
    concurrency: int | None  # by default as many as the server serves, at most `MOST_CALLS`
    timeout: float | None  # by default `LOCAL_TIMEOUT` on this machine, `TIMEOUT` elsewhere
    retries: int
    requests_per_minute: float  # 0 is no limit
    tokens_per_minute: float
    prices: dict[str, float] | None  # USD per million tokens


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: its JSON object, and `input_tokens`, `output_tokens` and `cost`, where known."""

    body: dict[str, Any]
    usage: dict[str, float]


class CallFailed(Exception):
    """A call without an answer, and what it may have cost nevertheless; no field contains a secret."""

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


@cache
def _announce(base_url: str, key_env: str) -> None:
    """Print, once a process, which address gets the texts and which variable's key."""
    with_key = f"with the key in {key_env}" if key_env else "without a key"
    print(f"asking {base_url} {with_key}", file=sys.stderr, flush=True)


class Endpoint:
    """One model's server: blocking calls from any number of threads."""

    def __init__(
        self,
        *,
        model: str,
        base_url: str = "https://api.openai.com/v1",
        key_env: str = "",
        concurrency: int | None = None,
        timeout: float | None = None,
        retries: int = 5,
        requests_per_minute: float = 0,
        tokens_per_minute: float = 0,
        prices: Mapping[str, float] | None = None,
        price_kind: str = "chat",
    ) -> None:
        self.base_url, self.model, self.key_env = check_base_url(base_url), model, key_env
        check_key_name(key_env)
        self.is_local = urlsplit(base_url).hostname in LOOPBACK
        self.timeout = (LOCAL_TIMEOUT if self.is_local else TIMEOUT) if timeout is None else timeout
        self.concurrency = MOST_CALLS if concurrency is None else concurrency  # threads that call
        for name, number, least in (
            ("timeout", self.timeout, 0.001),
            ("concurrency", self.concurrency, 1),
            ("retries", retries, 0),
            ("requests_per_minute", requests_per_minute, 0),
            ("tokens_per_minute", tokens_per_minute, 0),
        ):
            if not (isfinite(number) and number >= least):
                raise UserError(f"{name}: must be at least {least}, not {number}")
        self.retries = retries
        self.prices: Prices | None = check_prices(prices) if prices else find_prices(model, kind=price_kind)
        if self.prices is None and not key_env and self.is_local:
            self.prices = Prices(input=0, output=0)  # our own machine charges nothing
        self.budget = Budget()
        self.pace = Pace(requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute)
        self.calls = 0  # tries sent, in this process
        self.stopped = Event()
        start = FIRST_LOCAL_CALLS if self.is_local else FIRST_CALLS
        self.in_flight = ConcurrencyLimit(concurrency or start, most=None if concurrency else MOST_CALLS)
        self.lock, self._first = Lock(), Lock()
        self._client: ServerClient | None = None
        self._is_tried, self._has_answered, self._refused = False, False, ""
        self._failed_in_a_row = 0

    def post(self, path: str, body: Mapping[str, Any]) -> Reply:
        """Send one request, with retries.

        Raise `CallFailed` where it gets no answer, `OperationalError` where every other call would fail too,
        and `BudgetSpent` before a call that the budget does not cover.
        """
        if self.budget.most is not None and self.prices is None:
            raise UserError(
                f"a cost limit needs prices, and none is known for {self.model!r}; "
                "set prices = {input = ..., output = ...} in the judge's file, USD per million tokens"
            )
        call = _Call(self, path, body)
        answer = self._send_first(call) or call.send()
        if answer.body is None:
            raise self._explain(answer, call)
        with self.lock:
            self._has_answered, self._failed_in_a_row = True, 0
        return Reply(answer.body, usage_of(call.used, call.cost if self.prices else None))

    def _send_first(self, call: "_Call") -> ServerAnswer | None:
        """Send the first call while all others wait, so that a wrong key costs one; None for the others."""
        with self._first:
            if self._refused:
                raise OperationalError(self._refused)
            if self._is_tried:
                return None
            answer = call.send()
            if answer.status in KEY_REFUSED:
                self._refused = str(self._explain(answer, call))
            self._is_tried = answer.status not in FATAL | KEY_REFUSED
            return answer

    def stop(self) -> None:
        """End all calls at their next try; `close` undoes this."""
        self.stopped.set()

    def close(self) -> None:
        """Close all connections; the next call opens new ones. Not while calls are under way."""
        with self.lock:
            if self._client:
                self._client.close()
            self._client, self._refused = None, ""
            self.stopped.clear()

    @property
    def client(self) -> ServerClient:
        """The client for this server, until the endpoint is closed."""
        with self.lock:
            self._client = self._client or self._open_client(Key(self.key_env))
            return self._client

    def _open_client(self, key: Key) -> ServerClient:
        if key.headers and not self.base_url.startswith("https:") and not self.is_local:
            problem = f"the key in {key.name} would be sent unencrypted"
            raise UserError(
                f"base_url: {self.base_url}: {problem}; use https, a tunnel to 127.0.0.1, or remove key_env"
            )
        if key.name or not self.is_local:
            _announce(self.base_url, key.name)
        return ServerClient(
            base_url=self.base_url, key=key, timeout=self.timeout, retries=self.retries, stopped=self.stopped
        )

    def _explain(self, answer: ServerAnswer, call: "_Call") -> Exception:
        """Return the error of a failed call: its own, or that of the whole run."""
        problem, status = answer.problem, answer.status
        # Only of a failure that was retried, so that a run counts the same failure under the same words.
        if call.tries > 1 and (answer.wait is not None or answer.may_have_cost):
            what, colon, rest = problem.partition(": ")
            problem = f"{what} after {call.tries} tries{colon}{rest}"
        with self.lock:
            is_first = not self._has_answered
            # A refused request predicts nothing about the others; many without an answer do.
            self._failed_in_a_row += status < 400 or status >= 500 or status == 429
            failed = self._failed_in_a_row
        fix = ""
        # A gateway also answers 403 to a single text: then others have been answered before.
        if status in FATAL or 300 <= status < 400 or (status == 403 and is_first):
            key = f"the key in the variable {self.key_env}" if self.key_env else ""
            if status in KEY_REFUSED:
                fix = f"check {key}" if key else f"no key was sent: set key_env, or {URL_KEY} for URL#MODEL"
            else:
                fix = f"check base_url, model and {key}" if key else "check the address and the model"
        elif answer.is_unreachable:
            fix = "check that the server runs at this address"
        elif status == 429 and ("insufficient_quota" in answer.text or "billing" in answer.text):
            fix = "raise the quota with the provider"
        elif failed >= GIVE_UP_AFTER:
            fix, problem = "try again later", f"{failed} consecutive calls failed; the last: {problem}"
        if not fix:
            return CallFailed(problem, answer.text[:RAW], {"cost": call.cost} if call.cost else {})
        saved = "" if is_first else ". Finished judgments are saved: run the command again to resume"
        return OperationalError(f"{self.base_url}, model {self.model!r}: {problem}; {fix}{saved}")


class _Call:
    """One call: its tries, the tokens that it used, and what it cost or may have cost."""

    def __init__(self, endpoint: Endpoint, path: str, body: Mapping[str, Any]) -> None:
        # A lone surrogate cannot be encoded.
        self.body = json.loads(SURROGATE.sub("\ufffd", json.dumps(body, ensure_ascii=False)))
        self.endpoint, self.path, self.tries, self.cost = endpoint, path, 0, 0.0
        self.guess = guess_tokens(self.body)
        self.used: TokenCounts | None = None
        self.estimate = self.reserved = endpoint.prices.cost(self.guess) if endpoint.prices else 0.0

    def send(self) -> ServerAnswer:
        """Send the request within the limits, and settle its cost."""
        endpoint, cost, seconds, client = self.endpoint, 0.0, None, self.endpoint.client
        self.reserved = endpoint.budget.reserve(self.estimate)
        self.window = endpoint.in_flight.enter()
        try:
            endpoint.stopped.wait(endpoint.pace.take(monotonic(), tokens=self.guess.total))
            start = monotonic()
            answer = client.post(self.path, self.body, self.begin_try)
            self.note_overload(answer)
            if answer.body is not None and self.tries == 1:
                seconds = monotonic() - start
            if used := read_tokens(answer.body or {}):
                endpoint.pace.correct(tokens=used.total - self.guess.total)
                cost = endpoint.prices.cost(used) if endpoint.prices else 0.0
            elif answer.body is not None or answer.may_have_cost:
                cost = self.reserved
            self.used = used
            return answer
        finally:
            endpoint.in_flight.leave(self.window, seconds)
            endpoint.budget.settle(self.reserved, cost, estimate=self.estimate)
            self.cost += cost

    def note_overload(self, answer: ServerAnswer) -> None:
        if answer.is_late or answer.status in OVERLOADED:
            self.endpoint.in_flight.reduce(self.window)

    def begin_try(self, last: ServerAnswer | None) -> None:
        """Check before each try that somebody waits for it and that the budget covers it."""
        endpoint = self.endpoint
        raise_if_cancelled()
        if last:
            self.note_overload(last)
        if endpoint.stopped.is_set():
            raise OperationalError(f"{endpoint.base_url}: stopped before an answer came")
        if last and last.may_have_cost:
            endpoint.budget.settle(0.0, self.reserved)
            self.cost += self.reserved
            endpoint.budget.check(self.reserved)
        self.tries += 1
        with endpoint.lock:
            endpoint.calls += 1
