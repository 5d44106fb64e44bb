"""The one network seam: any OpenAI-compatible server, by base URL, model and its key's variable."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from math import isfinite
from random import Random
from threading import Event, Lock, local
from time import monotonic, time
from typing import Any
from urllib.parse import urlsplit

from data.errors import OperationalError, UserError
from judge.llm.keys import Key, check_key_name
from judge.llm.limits import (
    Budget,
    Gate,
    Pace,
    Prices,
    Usage,
    check_prices,
    find_prices,
    guess_usage,
    read_usage,
)

# One try of one call over HTTP: bounded in time and size, and told apart by what went wrong.

PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})  # the same call may succeed a little later
MOST_BYTES = 8 << 20
SHORT = 160  # characters of what a server said, in a problem
CONNECT_SECONDS = 10.0
LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of one try: the JSON object that was `found`, or else the `problem`."""

    status: int = 0
    text: str = ""
    found: dict[str, Any] | None = None
    problem: str = ""
    retry_after: float | None = None
    is_unreachable: bool = False  # not even a connection came about
    is_passing: bool = False  # the same call may succeed a little later
    may_have_cost: bool = False  # no whole answer, yet the server may have done the work and charge for it


class Wire:
    """Connections to one server, kept open between calls and shared by all threads."""

    def __init__(self, *, base_url: str, key: Key, timeout: float, connections: int) -> None:
        import httpx

        self._base_url, self._key, self._timeout = base_url, key, timeout
        self._deadline = _Deadline()
        self._client = httpx.Client(
            # Answers come uncompressed: a few packed bytes could otherwise unfold to gigabytes.
            headers={"Accept-Encoding": "identity", "Content-Type": "application/json"} | key.headers,
            timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS), pool=None),
            limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
            follow_redirects=False,  # the key is for this server and no other
            mounts=dict.fromkeys(LOOPBACK),  # no proxy stands before our own machine
        )
        _bound_waiting(self._client, self._deadline)

    def send(self, path: str, content: bytes, *, method: str = "POST") -> Answer:
        """Send one body; whatever happens on the way is an answer too."""
        import httpx

        self._deadline.end = monotonic() + self._timeout
        try:
            with self._client.stream(method, self._base_url + path, content=content) as response:
                return self._receive(response)
        except (httpx.ConnectTimeout, httpx.ConnectError) as error:
            said = self._key.hide(str(error)) or type(error).__name__
            return Answer(problem=f"no connection: {said}", is_unreachable=True, is_passing=True)
        except (httpx.TimeoutException, TimeoutError):
            return Answer(problem="timed out", is_passing=True, may_have_cost=True)
        except httpx.RemoteProtocolError as error:
            is_cut = "incomplete" in str(error) or "without sending" in str(error)
            problem = "answer cut short" if is_cut else "not HTTP"
            return Answer(problem=problem, is_passing=is_cut, may_have_cost=True)
        except httpx.TransportError:
            return Answer(problem="answer cut short", is_passing=True, may_have_cost=True)

    def close(self) -> None:
        """Let go of all connections."""
        self._client.close()

    def _receive(self, response: Any) -> Answer:
        content = bytearray()
        for part in response.iter_raw():
            content += part
            if len(content) > MOST_BYTES:
                return Answer(problem=f"answer larger than {MOST_BYTES >> 20} MB", may_have_cost=True)
        answer = Answer(
            status=response.status_code,
            text=content.decode("utf-8", "replace"),
            retry_after=read_retry_after(response.headers),
        )
        return read_answer(answer, self._key)


def read_answer(answer: Answer, key: Key) -> Answer:
    """The same answer with its JSON object, or with its problem; the key is hidden in either."""
    is_good = 200 <= answer.status < 300
    try:
        found = json.loads(answer.text)
        if isinstance(found, dict):
            # Its text is written anew, since an escape could keep the key from being seen in it.
            found = key.hide_in(found)
            answer = replace(answer, text=json.dumps(found, ensure_ascii=False))
    except (ValueError, RecursionError):  # brackets in brackets can be too many for what comes after, too
        found = None
    hide = key.hide if is_good else key.hide_quoted
    answer = replace(answer, text=hide(answer.text))
    if is_good and not isinstance(found, dict):
        problem = f"not JSON: {_shorten(answer.text) or 'an empty answer'}"
        return replace(answer, problem=problem, may_have_cost=True)
    if is_good and not isinstance(found.get("error"), dict):
        return replace(answer, found=found)
    if is_good:  # some gateways answer 200 and put the failure, with its status, inside
        code = found["error"].get("code")
        answer = replace(answer, status=code if isinstance(code, int) and 400 <= code < 600 else 400)
    said = key.hide_quoted(_shorten(complaint(found) or answer.text))
    problem = f"HTTP {answer.status}: {said}" if said else f"HTTP {answer.status}"
    return replace(answer, problem=problem, is_passing=answer.status in PASSING)


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


class _Deadline(local):
    """When the try of this thread must be over."""

    end = float("inf")

    def shorten(self, timeout: float | None) -> float:
        left = self.end - monotonic()
        if left <= 0:
            raise TimeoutError
        return left if timeout is None else min(left, timeout)


class _Connection:
    """A connection of the HTTP library whose every wait ends at the deadline."""

    def __init__(self, inner: Any, deadline: _Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        received: bytes = self._inner.read(max_bytes, timeout=self._deadline.shorten(timeout))
        return received

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout=self._deadline.shorten(timeout))

    def start_tls(self, ssl_context: Any, server_hostname: Any = None, timeout: float | None = None) -> Any:
        inner = self._inner.start_tls(ssl_context, server_hostname, self._deadline.shorten(timeout))
        return _Connection(inner, self._deadline)

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Connector:
    """Opens such connections."""

    def __init__(self, inner: Any, deadline: _Deadline) -> None:
        self._inner, self._deadline = inner, deadline

    def connect_tcp(self, *arguments: Any, **options: Any) -> _Connection:
        return _Connection(self._inner.connect_tcp(*arguments, **options), self._deadline)

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


def _bound_waiting(client: Any, deadline: _Deadline) -> None:
    """httpx bounds each read and not the sum of them: a server that sends a byte a second never times out.

    Its pools take a network backend and httpx has no argument to hand one on, so it is set in their place.
    """
    for transport in (client._transport, *client._mounts.values()):
        if transport is not None:
            pool = transport._pool
            pool._network_backend = _Connector(pool._network_backend, deadline)


def complaint(found: Any) -> str:
    """What a server says is wrong, in the places where servers say it."""
    if not isinstance(found, dict):
        return ""
    for said in (found.get("error"), found.get("detail"), found.get("message")):
        if isinstance(said, dict):
            said = said.get("message")
        if said:
            return said if isinstance(said, str) else json.dumps(said)
    return ""


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHORT else f"{text[: SHORT - 4]} ..."


OVERLOADED = frozenset({429, 503, 529})
HOPELESS = frozenset({401, 402, 404, 405})  # every other call would be answered alike
SPENT_QUOTAS = ("insufficient_quota", "billing_hard_limit_reached")
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
LONGEST_RETRY_AFTER = 120.0
GIVE_UP_AFTER = (
    20  # calls in a row without an answer: the server is broken, and the rest would be unscored too
)
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
        self.prices: Prices | None = check_prices(prices) if prices else find_prices(model, kind=price_kind)
        self.budget = Budget(max_cost)
        self.gate = Gate(concurrency)
        self.pace = Pace(requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute)
        self.calls = 0  # tries sent, in this process
        self._stopped = Event()
        self._clock, self._sleep_for = clock, sleep or self._stopped.wait
        self._chance = Random(seed)
        self._wire: Wire | None = None
        self._lock = Lock()
        self._answered = self._failed_in_a_row = 0
        self._dearest = 1.0  # the most a call has cost so far, over what was guessed for it

    def __repr__(self) -> str:
        return f"Endpoint(base_url={self.base_url!r}, model={self.model!r}, key_env={self.key_env!r})"

    @property
    def spent(self) -> float:
        """USD so far, in this process."""
        return self.budget.spent

    @property
    def max_cost(self) -> float | None:
        """USD that may be spent in this process; None for any amount."""
        return self.budget.most

    @max_cost.setter
    def max_cost(self, most: float | None) -> None:
        self.budget.most = most

    def post(self, path: str, body: Mapping[str, Any]) -> Reply:
        """Send one request until it is answered; `CallFailed` when it will not be.

        `OperationalError` where every other call would fail as well, `BudgetSpent` before a call too many.
        """
        if self.max_cost is not None and self.prices is None:
            raise UserError(
                f"a limit of cost needs prices, and none is known for {self.model!r}; "
                "set prices = {input = ..., output = ...} in the judge's file, USD per million tokens"
            )
        # A lone surrogate is written as its escape, which is what JSON has for it.
        content = json.dumps(body, ensure_ascii=True).encode()
        guess, started, may_have_cost = guess_usage(body, len(content)), self._clock(), 0.0
        for tries in range(1, self.retries + 2):
            answer, cost = self._try_once(path, content, guess)
            if answer.found is not None:
                self._note_success()
                seconds = round(self._clock() - started, 3)
                usage = self._usage(answer.found, cost + may_have_cost, seconds=seconds, calls=tries)
                return Reply(answer.found, usage)
            may_have_cost += cost
            self._stop_if_hopeless(answer, is_last=tries > self.retries)
            if not answer.is_passing or tries > self.retries:
                break
            self._rest(answer, tries)
        reason = _after(answer.problem, tries) if answer.is_passing else answer.problem
        self._note_failure(answer, reason)
        usage = {"cost": may_have_cost} if may_have_cost else {}
        raise CallFailed(reason, answer.text[:RAW], usage)

    def stop(self) -> None:
        """End all waiting: calls under way are finished, none is tried again; `close` undoes this."""
        self._stopped.set()
        self.gate.wake()
        self.budget.wake()

    def close(self) -> None:
        """Let go of all connections; the next call opens new ones. Not while calls are under way."""
        with self._lock:
            if self._wire:
                self._wire.close()
            self._wire = None
            self._stopped.clear()

    def _try_once(self, path: str, content: bytes, guess: Usage) -> tuple[Answer, float]:
        """One try: its answer, and what it cost or may have cost."""
        wire = self._open()
        guessed = self.prices.cost(guess) if self.prices else 0.0
        reserved = guessed * self._dearest
        self.budget.reserve(reserved, self._stopped.is_set)
        cost, answer = 0.0, Answer()
        try:
            ticket = self.gate.enter(self._stopped.is_set)
            try:
                self._wait_turn(guess)
                answer = wire.send(path, content)
            finally:
                was_answered, was_overloaded = answer.found is not None, answer.status in OVERLOADED
                self.gate.leave(ticket, was_answered=was_answered, was_overloaded=was_overloaded)
            used = read_usage(answer.found or {})
            if used:
                self.pace.correct(tokens=_tokens(used) - _tokens(guess))
                cost = self.prices.cost(used) if self.prices else 0.0
                self._dearest = max(self._dearest, cost / guessed if guessed else 1.0)
            elif answer.found is not None or answer.may_have_cost:
                cost = reserved
        finally:
            self.budget.settle(reserved, cost)
        return answer, cost

    def _open(self) -> Wire:
        with self._lock:
            if self._wire is None:
                self._wire = Wire(
                    base_url=self.base_url,
                    key=Key(self.key_env),
                    timeout=self.timeout,
                    connections=self.concurrency,
                )
            return self._wire

    def _wait_turn(self, guess: Usage) -> None:
        """Wait for a slot of the minute, and for the quiet that the server asked for."""
        self._sleep(self.pace.take(self._clock(), tokens=_tokens(guess)))
        while (seconds := self.pace.rest(self._clock())) > 0:
            self._sleep(seconds)
        with self._lock:
            self.calls += 1

    def _rest(self, answer: Answer, tries: int) -> None:
        """Wait before the next try: as long as the server asks, else ever longer, and never all at once."""
        with self._lock:
            part = self._chance.random()
        if answer.retry_after is None:
            self._sleep(part * min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1)))
            return
        asked = min(answer.retry_after, LONGEST_RETRY_AFTER)
        if answer.status in OVERLOADED:
            self.pace.pause(self._clock() + asked)
        self._sleep(asked + part * min(FIRST_WAIT, asked / 4))

    def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._sleep_for(seconds)
        if self._stopped.is_set():
            raise OperationalError(f"{self.base_url}: stopped before an answer came; what was judged is kept")

    def _stop_if_hopeless(self, answer: Answer, *, is_last: bool) -> None:
        """End the run where all other calls would fail as this one did."""
        with self._lock:
            is_first = not self._answered
        if answer.is_unreachable and (is_first or is_last):
            raise self._hopeless(answer.problem, "is the server running, and the address right?")
        is_redirect = 300 <= answer.status < 400
        # A gateway also says 403 of one text it does not like: then others have been answered before.
        if answer.status in HOPELESS or is_redirect or (answer.status == 403 and is_first):
            named = f"the variable {self.key_env}" if self.key_env else "key_env (no key was sent)"
            raise self._hopeless(answer.problem, f"check base_url, model and {named}.")
        if answer.status == 429 and any(word in answer.text for word in SPENT_QUOTAS):
            raise self._hopeless(answer.problem, "raise the quota with the provider.")

    def _hopeless(self, problem: str, way_out: str) -> OperationalError:
        return OperationalError(
            f"{self.base_url}, model {self.model!r}: {problem}; {way_out} "
            "What was judged is kept: the same command goes on from there"
        )

    def _note_success(self) -> None:
        with self._lock:
            self._answered += 1
            self._failed_in_a_row = 0

    def _note_failure(self, answer: Answer, reason: str) -> None:
        """A refused request says nothing of the others; many without any answer do."""
        if answer.status >= 400 and not answer.is_passing:
            return
        with self._lock:
            self._failed_in_a_row += 1
            failed = self._failed_in_a_row
        if failed >= GIVE_UP_AFTER:
            raise self._hopeless(f"{failed} calls in a row failed, the last: {reason}", "try again later.")

    def _usage(self, found: Mapping[str, Any], cost: float, **about: float) -> dict[str, float]:
        used = read_usage(found)
        tokens = {"input_tokens": used.input, "output_tokens": used.output} if used else {}
        return tokens | ({"cost": round(cost, 9)} if self.prices else {}) | about


def _after(problem: str, tries: int) -> str:
    """A reason as it is counted in the table of a run: the same words for the same failure.

    >>> _after("HTTP 500: out of memory", 6), _after("timed out", 1)
    ('HTTP 500 after 6 tries: out of memory', 'timed out')
    """
    what, colon, said = problem.partition(": ")
    return f"{what} after {tries} tries{colon}{said}" if tries > 1 else problem


def _tokens(usage: Usage) -> float:
    return usage.input + usage.output


def _check_numbers(**numbers: float) -> None:
    """Refuse what no limit can be."""
    for name, number in numbers.items():
        least = {"timeout": 0.001, "concurrency": 1}.get(name, 0)
        if not (isfinite(number) and number >= least):
            raise UserError(f"{name}: must be at least {least}, not {number}")
