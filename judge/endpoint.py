"""The one network seam: any OpenAI-compatible server, by base URL, model and its key's variable."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from random import Random
from threading import Event, Lock
from time import monotonic
from typing import Any

from data.errors import OperationalError, UserError
from judge.keys import Key, check_key_name
from judge.limits import Budget, Gate, Pace
from judge.prices import Prices, Usage, check_prices, find_prices, guess_usage, read_usage
from judge.wire import Answer, Wire, check_base_url

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
