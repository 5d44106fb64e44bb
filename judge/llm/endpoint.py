"""The one network seam: OpenAI's client to any compatible server, within our limits of time, size, money."""

import json
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import cache
from math import isfinite
from random import Random
from threading import Event, Lock, Thread
from time import monotonic, time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from data.errors import OperationalError, UserError, install_hint
from data.records import Exchange, Judgment
from data.text import duration, printable
from judge.base import Judge, check_wanted
from judge.llm.fencing import SURROGATE
from judge.llm.keys import Key, check_key_name
from judge.llm.limits import (
    Budget,
    Concurrency,
    Pace,
    Prices,
    Tokens,
    check_prices,
    find_prices,
    guess_tokens,
    least_tokens,
    read_tokens,
)

if TYPE_CHECKING:
    from ssl import SSLContext

PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})  # the same call may succeed a little later
MOST_BYTES = 8 << 20
SHORT = 160  # characters of what a server said, in a problem
CONNECT_SECONDS = 10.0
LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of one try: the JSON object of the answer as `body`, or else the `problem`."""

    status: int = 0
    text: str = ""
    body: dict[str, Any] | None = None
    problem: str = ""
    retry_after: float | None = None
    is_unreachable: bool = False  # not even a connection came about
    is_passing: bool = False  # the same call may succeed a little later
    may_have_cost: bool = False  # no whole answer, yet the server may have done the work and charge for it


TIMED_OUT = Attempt(problem="timed out", is_passing=True, may_have_cost=True)


class _TooLarge(Exception):
    """An answer is larger than any that we would use."""


@cache
def _trusted() -> "SSLContext":
    """Whom to believe who they are; once a process, as reading the certificates takes longer than a call."""
    import httpx

    return httpx.create_ssl_context()


class Connections:
    """OpenAI's client to one server: connections kept open between calls and shared by all threads."""

    def __init__(
        self, *, base_url: str, key: Key, timeout: float, most_bytes: int | None = MOST_BYTES
    ) -> None:
        import httpx

        try:
            import openai
        except ImportError:
            raise UserError(f"asking a server needs openai: {install_hint('prompted')}") from None
        if key.headers and urlsplit(base_url).scheme != "https" and not is_loopback(base_url):
            raise UserError(
                f"base_url: {base_url}: the key in {key.name} would be sent for all to read; use https, "
                "reach the server by a tunnel to 127.0.0.1, or leave key_env out"
            )
        _say_who_is_asked(base_url, key.name)
        self._key, self._timeout, self._most_bytes = key, timeout, most_bytes
        http_client = httpx.Client(
            headers={"Accept-Encoding": "identity"},
            verify=_trusted(),
            # Without a limit, since a try that was given up may hold its connection for a while.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            follow_redirects=False,  # the key is for this server and no other
            mounts=dict.fromkeys(LOOPBACK),  # no proxy stands before our own machine
            event_hooks={"request": [self._set_key], "response": [self._limit_size]},
        )
        none_of_these: dict[str, Any] = dict.fromkeys(
            ("OpenAI-Organization", "OpenAI-Project"), openai.Omit()
        )
        self._client = openai.OpenAI(
            base_url=base_url,
            api_key="none",  # else it would take OPENAI_API_KEY, whatever the server
            default_headers=none_of_these,
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
            max_retries=0,
            http_client=http_client,
        )

    def send(self, ask: Callable[[Any], Any], *, seconds: float | None = None) -> Attempt:
        """Have the client ask, within so many seconds; whatever happens on the way is an attempt, too.

        `ask` returns the response, or None where it has dealt with all of it. It runs on a thread of its own:
        the client's time-outs are for single reads, and a server that sends a byte a second meets them all.
        """
        result: Future[Attempt] = Future()

        def work() -> None:
            try:
                result.set_result(self._ask(ask))
            except BaseException as error:  # raised again where the result is waited for
                result.set_exception(error)

        Thread(target=work, daemon=True).start()
        try:
            return result.result(self._timeout if seconds is None else seconds)
        except FutureTimeout:
            return TIMED_OUT

    def close(self) -> None:
        """Let go of all connections."""
        self._client.close()

    def _ask(self, ask: Callable[[Any], Any]) -> Attempt:
        import httpx
        import openai

        try:
            response = ask(self._client)
        except openai.APIStatusError as error:
            response = error.response
        except openai.APIConnectionError as error:
            return self._explain(error.__cause__ or error)
        except httpx.TransportError as error:  # while a file was read
            return self._explain(error)
        if response is None:
            return Attempt(status=200, body={})
        response = getattr(response, "http_response", response)
        text, retry_after = response.content.decode("utf-8", "replace"), read_retry_after(response.headers)
        return read_attempt(response.status_code, text, self._key, retry_after=retry_after)

    def _set_key(self, request: Any) -> None:
        """Put our key into a request, or none; the client need not know it."""
        request.headers.pop("Authorization", None)
        request.headers.update(self._key.headers)

    def _limit_size(self, response: Any) -> None:
        """Read an answer only as far as we would use it, and only as long as somebody waits for it."""
        import httpx

        # Never unpacked, whatever the server says of it: a few packed bytes could unfold to gigabytes.
        response.headers.pop("content-encoding", None)
        if self._most_bytes is None:
            return
        content, deadline = bytearray(), monotonic() + self._timeout
        for part in response.stream:
            content += part
            if len(content) > self._most_bytes:
                raise _TooLarge
            if monotonic() > deadline:
                raise httpx.ReadTimeout("too slow")
        response.stream.close()
        response.stream = httpx.ByteStream(bytes(content))

    def _explain(self, error: BaseException) -> Attempt:
        """Say what an error of the HTTP library means for the call."""
        import httpx

        if isinstance(error, _TooLarge):
            return Attempt(problem=f"answer larger than {MOST_BYTES >> 20} MB", may_have_cost=True)
        if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
            problem = f"no connection: {self._key.hide(str(error)) or type(error).__name__}"
            return Attempt(problem=problem, is_unreachable=True, is_passing=True)
        if isinstance(error, httpx.TimeoutException):
            return TIMED_OUT
        is_cut = "incomplete" in str(error) or "without sending" in str(error)
        if isinstance(error, httpx.RemoteProtocolError) and not is_cut:
            return Attempt(problem="not HTTP", may_have_cost=True)
        if isinstance(error, httpx.TransportError):
            return Attempt(problem="answer cut short", is_passing=True, may_have_cost=True)
        raise error


def read_attempt(status: int, text: str, key: Key, *, retry_after: float | None = None) -> Attempt:
    """Find the JSON object of an answer, or its problem; the key is hidden in either."""
    is_good = 200 <= status < 300
    try:
        body = json.loads(text)
        if isinstance(body, dict):
            # Its text is written anew, since an escape could keep the key from being seen in it.
            body = key.hide_in(body)
            text = json.dumps(body, ensure_ascii=False)
    except (ValueError, RecursionError):  # brackets in brackets can be too many for what comes after, too
        body = None
    hide = key.hide if is_good else key.hide_quoted
    attempt = Attempt(status=status, text=hide(text), retry_after=retry_after)
    if is_good and not isinstance(body, dict):
        problem = f"not JSON: {_shorten(attempt.text) or 'an empty answer'}"
        return replace(attempt, problem=problem, may_have_cost=True)
    if is_good and not isinstance(body.get("error"), dict):
        return replace(attempt, body=body)
    if is_good:  # some gateways answer 200 and put the failure, with its status, inside
        code = body["error"].get("code")
        status = code if isinstance(code, int) and 400 <= code < 600 else 400
    message = key.hide_quoted(_shorten(complaint(body) or attempt.text))
    problem = f"HTTP {status}: {message}" if message else f"HTTP {status}"
    return replace(attempt, status=status, problem=problem, is_passing=status in PASSING)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds a server asks us to wait, given in milliseconds, in seconds or as a date; None if it does not.

    >>> read_retry_after({"retry-after": "7"})
    7.0
    >>> day = "Sun, 15 Nov 2026 10:00:{:02} GMT"
    >>> read_retry_after({"retry-after": day.format(30), "date": day.format(10)})
    20.0
    >>> read_retry_after({"retry-after": "soon"}) is None
    True
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        until = parsedate_to_datetime(headers.get("retry-after", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    try:  # by the server's own clock, where it tells the time: ours may be wrong
        now = parsedate_to_datetime(headers.get("date", "")).timestamp()
    except (ValueError, TypeError, OverflowError):
        now = time()
    return max(0.0, until - now)


def check_base_url(base_url: str) -> str:
    """A base URL we can call and may show: http(s), a host, and nothing secret in it."""
    try:
        parts = urlsplit(base_url)
        has_login, has_host = "@" in parts.netloc, bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise UserError(f"base_url: not a URL: {error}") from None
    if has_login:
        raise UserError(
            "base_url: holds a user or password; put the key into an environment variable (key_env)"
        )
    if parts.query or parts.fragment:
        raise UserError("base_url: ends in a query; give the address only, such as http://127.0.0.1:8000/v1")
    if parts.scheme not in ("http", "https") or not has_host or not base_url.isprintable() or " " in base_url:
        raise UserError(f"base_url: {base_url!r} is not an http(s) address such as http://127.0.0.1:8000/v1")
    return base_url.rstrip("/")


def complaint(body: Any) -> str:
    """Find what a server says is wrong, in the places where servers say it."""
    if not isinstance(body, dict):
        return ""
    for message in (body.get("error"), body.get("detail"), body.get("message")):
        if isinstance(message, dict):
            message = message.get("message")
        if message:
            return message if isinstance(message, str) else json.dumps(message)
    return ""


def _shorten(text: str) -> str:
    text = printable(" ".join(text.split()))
    return text if len(text) <= SHORT else f"{text[: SHORT - 4]} ..."


OVERLOADED = frozenset({429, 503, 529})
HOPELESS = frozenset({401, 402, 404, 405})  # every other call would be answered alike
SPENT_QUOTAS = ("insufficient_quota", "billing_hard_limit_reached")
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
LONGEST_RETRY_AFTER = 120.0
PATIENCE, PATIENCE_AN_ANSWER = 900.0, 30.0  # seconds that a server may have us wait in all
GIVE_UP_AFTER = 20  # calls in a row without an answer: the rest would be unscored, too
RAW = 2000  # characters kept of an answer that was none


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: its JSON object, and `input_tokens`, `output_tokens`, `cost`, `seconds` and `calls`.

    `cost` is in USD and absent where no price is known.
    """

    body: dict[str, Any]
    usage: Mapping[str, float]


class CallFailed(Exception):
    """This one call has no answer and will not get one; `reason` is short, and neither field holds a secret.

    `usage` holds what the call may have cost all the same.
    """

    def __init__(self, reason: str, raw: str = "", usage: Mapping[str, float] | None = None) -> None:
        super().__init__(reason)
        self.reason, self.raw, self.usage = reason, raw, dict(usage or {})


def is_loopback(base_url: str) -> bool:
    """Whether a server is on this very machine.

    >>> is_loopback("http://127.0.0.1:8000/v1"), is_loopback("https://api.openai.com/v1")
    (True, False)
    """
    host = urlsplit(base_url).hostname or ""
    return f"all://[{host}]" in LOOPBACK or f"all://{host}" in LOOPBACK


@cache
def _say_who_is_asked(base_url: str, key_env: str) -> None:
    """Say, before the first call, which host gets the texts and which variable's key; once a process."""
    if key_env or not is_loopback(base_url):
        with_key = f"with the key in {key_env}" if key_env else "without a key"
        print(f"asking {urlsplit(base_url).netloc} {with_key}", file=sys.stderr, flush=True)


class Endpoint:
    """Posts JSON to one model's server: blocking, safe to call from any number of threads."""

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        key_env: str = "",
        timeout: float = 60.0,
        retries: int = 5,
        concurrency: int = 32,
        requests_per_minute: float = 0,
        tokens_per_minute: float = 0,
        prices: Mapping[str, float] | None = None,
        price_kind: str = "chat",
        max_cost: float | None = None,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], object] | None = None,
        seed: int = 0,
    ) -> None:
        self.base_url, self.model, self.key_env = check_base_url(base_url), model, key_env
        check_key_name(key_env)
        _check_numbers(timeout=timeout, concurrency=concurrency, retries=retries)
        _check_numbers(requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute)
        self.timeout, self.retries, self.concurrency = timeout, retries, concurrency
        self.prices: Prices | None = (
            check_prices(prices) if prices else find_prices(model, kind=price_kind, base_url=self.base_url)
        )
        self.budget = Budget(max_cost)
        self.in_flight = Concurrency(concurrency)
        self.pace = Pace(requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute)
        self.calls = 0  # tries sent, in this process
        self._stopped = Event()
        self._clock, self._sleep_for = clock, sleep or self._stopped.wait
        self._chance = Random(seed)
        self._connections: Connections | None = None
        self._lock = Lock()
        self._answered = self._failed_in_a_row = 0
        self._dearest = 1.0  # the most a call has cost so far, over what was guessed for it

    def post(self, path: str, body: Mapping[str, Any]) -> Reply:
        """Send one request until it is answered; `CallFailed` when it will not be.

        `OperationalError` where every other call would fail as well, `BudgetSpent` before a call too many.
        """
        if self.budget.most is not None and self.prices is None:
            raise UserError(
                f"a limit of cost needs prices, and none is known for {self.model!r}; "
                "set prices = {input = ..., output = ...} in the judge's file, USD per million tokens"
            )
        # Half a character is none, and cannot be sent.
        body = json.loads(SURROGATE.sub("\ufffd", json.dumps(body, ensure_ascii=False)))
        size, started, may_have_cost = len(json.dumps(body)), self._clock(), 0.0
        guess, least = guess_tokens(body, size), least_tokens(size)
        for tries in range(1, self.retries + 2):
            attempt, cost = self._try_once(path, body, guess, least)
            if attempt.body is not None:
                with self._lock:
                    self._answered += 1
                    self._failed_in_a_row = 0
                used = read_tokens(attempt.body)
                tokens = {"input_tokens": used.input, "output_tokens": used.output} if used else {}
                paid = {"cost": round(cost + may_have_cost, 9)} if self.prices else {}
                took = {"seconds": round(self._clock() - started, 3), "calls": tries}
                return Reply(attempt.body, tokens | paid | took)
            may_have_cost += cost
            self._stop_if_hopeless(attempt, is_last=tries > self.retries)
            if not attempt.is_passing or tries > self.retries:
                break
            self._rest(attempt, tries)
        reason = _after(attempt.problem, tries) if attempt.is_passing else attempt.problem
        self._note_failure(attempt, reason)
        usage = {"cost": may_have_cost} if may_have_cost else {}
        raise CallFailed(reason, attempt.text[:RAW], usage)

    def stop(self) -> None:
        """End all waiting: calls under way are finished, none is tried again; `close` undoes this."""
        self._stopped.set()
        self.in_flight.wake()
        self.budget.wake()

    def close(self) -> None:
        """Let go of all connections; the next call opens new ones. Not while calls are under way."""
        with self._lock:
            if self._connections:
                self._connections.close()
            self._connections = None
            self._stopped.clear()

    def _try_once(
        self, path: str, body: Mapping[str, Any], guess: Tokens, least: Tokens
    ) -> tuple[Attempt, float]:
        """Try once: what came of it, and what it cost or may have cost."""
        import httpx

        with self._lock:
            if self._connections is None:
                key = Key(self.key_env)
                self._connections = Connections(base_url=self.base_url, key=key, timeout=self.timeout)
            connections = self._connections
        guessed = self.prices.cost(guess) if self.prices else 0.0
        reserved = guessed * self._dearest
        self.budget.reserve(reserved, self._stopped.is_set)
        cost, attempt = 0.0, Attempt()
        try:
            ticket = self.in_flight.enter(self._stopped.is_set)
            try:
                self._wait_turn(guess)
                check_wanted()
                attempt = connections.send(
                    lambda client: client.post(path, cast_to=httpx.Response, body=body)
                )
            finally:
                was_answered, was_overloaded = attempt.body is not None, attempt.status in OVERLOADED
                self.in_flight.leave(ticket, was_answered=was_answered, was_overloaded=was_overloaded)
            used = read_tokens(attempt.body or {})
            if used:
                self.pace.correct(tokens=used.total - guess.total)
                # A server that says too little must not have us spend without end.
                cost = max(map(self.prices.cost, (used, least))) if self.prices else 0.0
                self._dearest = max(self._dearest, cost / guessed if guessed else 1.0)
            elif attempt.body is not None or attempt.may_have_cost:
                cost = reserved
        finally:
            self.budget.settle(reserved, cost)
        return attempt, cost

    def _wait_turn(self, guess: Tokens) -> None:
        """Wait for a slot of the minute, and for the quiet that the server asked for."""
        self._sleep(self.pace.take(self._clock(), tokens=guess.total))
        while (seconds := self.pace.rest(self._clock())) > 0:
            self._sleep(seconds)
        with self._lock:
            self.calls += 1

    def _rest(self, attempt: Attempt, tries: int) -> None:
        """Wait before the next try: as long as the server asks, else ever longer, and never all at once."""
        with self._lock:
            part = self._chance.random()
        if attempt.retry_after is None:
            self._sleep(part * min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1)))
            return
        asked = min(attempt.retry_after, LONGEST_RETRY_AFTER)
        with self._lock:
            most = PATIENCE + PATIENCE_AN_ANSWER * self._answered
        if self.pace.count_wait(self._clock(), self._clock() + asked) > most:
            problem = f"asked us to wait for more than {duration(most)} in all, the last time with"
            raise self._hopeless(f"{problem} {attempt.problem}", "try again later.")
        if attempt.status in OVERLOADED:
            self.pace.pause(self._clock() + asked)
        self._sleep(asked + part * min(FIRST_WAIT, asked / 4))

    def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._sleep_for(seconds)
        if self._stopped.is_set():
            raise OperationalError(f"{self.base_url}: stopped before an answer came; what was judged is kept")

    def _stop_if_hopeless(self, attempt: Attempt, *, is_last: bool) -> None:
        """End the run where all other calls would fail as this one did."""
        with self._lock:
            is_first = not self._answered
        if attempt.is_unreachable and (is_first or is_last):
            raise self._hopeless(attempt.problem, "is the server running, and the address right?")
        is_redirect = 300 <= attempt.status < 400
        # A gateway also says 403 of one text it does not like: then others have been answered before.
        if attempt.status in HOPELESS or is_redirect or (attempt.status == 403 and is_first):
            named = f"the variable {self.key_env}" if self.key_env else "key_env (no key was sent)"
            raise self._hopeless(attempt.problem, f"check base_url, model and {named}.")
        if attempt.status == 429 and any(word in attempt.text for word in SPENT_QUOTAS):
            raise self._hopeless(attempt.problem, "raise the quota with the provider.")

    def _hopeless(self, problem: str, way_out: str) -> OperationalError:
        return OperationalError(
            f"{self.base_url}, model {self.model!r}: {problem}; {way_out} "
            "What was judged is kept: the same command goes on from there"
        )

    def _note_failure(self, attempt: Attempt, reason: str) -> None:
        """A refused request says nothing of the others; many without any answer do."""
        if attempt.status >= 400 and not attempt.is_passing:
            return
        with self._lock:
            self._failed_in_a_row += 1
            failed = self._failed_in_a_row
        if failed >= GIVE_UP_AFTER:
            raise self._hopeless(f"{failed} calls in a row failed, the last: {reason}", "try again later.")


class EndpointUser:
    """A judge or a model that asks through one endpoint."""

    endpoint: Endpoint

    def stop(self) -> None:
        """Finish the calls under way and try none again."""
        self.endpoint.stop()

    def close(self) -> None:
        """Let go of all connections; the next call opens them again."""
        self.endpoint.close()


class LanguageModelJudge(EndpointUser, Judge):
    """A judge whose requests can be written now and whose replies can be read later, as batches need it."""

    @property
    @abstractmethod
    def batch_path(self) -> str:
        """The path of the API to which a batch sends its requests."""

    @abstractmethod
    def write_requests(self, exchange: Exchange) -> list[dict[str, Any]]:
        """Write the requests that a judgment of an exchange takes."""

    @abstractmethod
    def read_replies(self, exchange: Exchange, replies: Sequence[Reply | CallFailed]) -> Judgment:
        """Read the judgment from the replies to these requests."""


def endpoints_of(judge: Judge) -> list[Endpoint]:
    """List every endpoint that a judge, or a judge of which it is made, asks."""
    endpoints = [judge.endpoint] if isinstance(judge, EndpointUser) else []
    for asked in judge.asked_judges:
        endpoints += endpoints_of(asked)
    return endpoints


def share_budget(judges: Iterable[Judge]) -> None:
    """Let all endpoints of these judges spend from one budget."""
    budget = Budget()
    for judge in judges:
        for endpoint in endpoints_of(judge):
            endpoint.budget = budget


def limit_cost(judge: Judge, max_cost: float | None) -> None:
    """Let a judge spend no more than so many USD in this process; one that asks no server spends nothing."""
    for endpoint in endpoints_of(judge):
        endpoint.budget.most = max_cost


def spent_by(judge: Judge) -> float:
    """USD so far, in this process; members that share a budget are counted once."""
    budgets = {id(endpoint.budget): endpoint.budget for endpoint in endpoints_of(judge)}
    return sum(budget.spent for budget in budgets.values())


def _after(problem: str, tries: int) -> str:
    """A reason as it is counted in the table of a run: the same words for the same failure.

    >>> _after("HTTP 500: out of memory", 6), _after("timed out", 1)
    ('HTTP 500 after 6 tries: out of memory', 'timed out')
    """
    what, colon, rest = problem.partition(": ")
    return f"{what} after {tries} tries{colon}{rest}" if tries > 1 else problem


def _check_numbers(**numbers: float) -> None:
    """Refuse what no limit can be."""
    for name, number in numbers.items():
        least = {"timeout": 0.001, "concurrency": 1}.get(name, 0)
        if not (isfinite(number) and number >= least):
            raise UserError(f"{name}: must be at least {least}, not {number}")
