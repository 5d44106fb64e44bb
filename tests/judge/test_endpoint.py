"""Calls to a server that fails in every way: answer x tries x cost x message; waits are skipped."""

import json
import logging
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from servers import Answer, Call, Script, ScriptedServer, answer_chat

from empathy_judge.data.errors import BudgetSpent, OperationalError, UserError
from empathy_judge.judge.budget import Pace
from empathy_judge.judge.llm.endpoint import GIVE_UP_AFTER, CallFailed, Endpoint, Reply

SECRET = "sk-test-7f3a+9c1e5b2d8f60="
# An answer takes 200 and 5 tokens, which is USD 0.025; before it comes, some USD 0.03 are reserved.
BODY = {"model": "m", "messages": [{"role": "user", "content": "hello " * 90}], "max_tokens": 10}
PRICES = {"input": 100.0, "output": 1000.0}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, waits: list[float]) -> Iterator[Any]:
    """Starts a server with a script; gives it and an endpoint for it."""
    monkeypatch.setenv("TEST_KEY", SECRET)
    opened: list[Any] = []

    def start(
        script: Script | Answer, max_cost: float | None = None, **options: Any
    ) -> tuple[ScriptedServer, Endpoint]:
        server = ScriptedServer((lambda call: script) if isinstance(script, Answer) else script).__enter__()
        defaults = {"base_url": server.base_url, "model": "m", "key_env": "TEST_KEY", "timeout": 20.0}
        endpoint = Endpoint(**{**defaults, **options})
        endpoint.budget.most = max_cost
        opened.append((server, endpoint))
        return server, endpoint

    yield start
    for server, endpoint in opened:
        server.__exit__()
        endpoint.close()


def post_all(endpoint: Endpoint, count: int, threads: int = 8) -> list[Reply | CallFailed]:
    def post(number: int) -> Reply | CallFailed:
        try:
            return endpoint.post("/chat/completions", {**BODY, "seed": number})
        except CallFailed as failure:
            return failure

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(post, range(count)))


# One table: what is answered, how often it is tried, whether it is charged, and what is reported.


@dataclass(frozen=True, kw_only=True)
class Case:
    """A failure; `charged` counts the tries that may have cost, `fatal` ends the whole run."""

    answer: Answer
    reason: str
    tries: int = 1
    charged: int = 0
    fatal: bool = False


def error(status: int, message: str = "", **more: Any) -> Answer:
    return Answer(status=status, body={"error": {"message": message, **more}} if message else "")


def later(seconds: str) -> Answer:
    return Answer(status=429, body="", headers={"Retry-After": seconds})


CASES = {
    # may pass
    "500": Case(answer=error(500, "out of\nmemory"), reason="HTTP 500 after 3 tries: out of memory", tries=3),
    **{
        str(status): Case(answer=error(status), reason=f"HTTP {status} after 3 tries", tries=3)
        for status in (408, 409, 429, 529)
    },
    "come back": Case(answer=later("30"), reason="HTTP 429 after 3 tries", tries=3),
    "come back at a date": Case(answer=later("Wed, 21 Oct 2026"), reason="HTTP 429 after 3 tries", tries=3),
    "come back tomorrow": Case(answer=later("86400"), reason="HTTP 429"),
    "hang": Case(answer=Answer(hang=True), reason="timed out after 3 tries", tries=3, charged=3),
    "drip": Case(
        answer=Answer(body={"slow": "x" * 100}, drip=0.02), reason="timed out after", tries=3, charged=3
    ),
    "cut": Case(
        answer=Answer(body="x" * 100, cut=True), reason="incomplete answer after", tries=3, charged=3
    ),
    "nothing": Case(answer=Answer(raw=b""), reason="incomplete answer after 3 tries", tries=3, charged=3),
    "not HTTP": Case(
        answer=Answer(raw=b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), reason="incomplete", tries=3, charged=3
    ),
    # would fail again
    "400": Case(answer=error(400, "bad request"), reason="HTTP 400: bad request"),
    "413": Case(answer=error(413), reason="HTTP 413"),
    "422": Case(
        answer=Answer(status=422, body={"detail": [{"msg": "no"}]}), reason='HTTP 422: [{"msg": "no"}]'
    ),
    "501": Case(answer=error(501, "not here"), reason="HTTP 501: not here"),
    "200 with an error": Case(answer=error(200, "odd", code=418), reason="HTTP 418: odd"),
    "a page": Case(
        answer=Answer(body="<html>A page</html>"), reason="not JSON: <html>A page</html>", charged=1
    ),
    "empty": Case(answer=Answer(body=""), reason="not JSON: an empty answer", charged=1),
    "a list": Case(answer=Answer(body="[1, 2]"), reason="not JSON: [1, 2]", charged=1),
    "nested": Case(answer=Answer(body="[" * 100_000), reason="not JSON: " + "[" * 159 + "…", charged=1),
    "bytes": Case(answer=Answer(body=b"\xff\xfe\x00"), reason="not JSON: \ufffd\ufffd\ufffd", charged=1),
    "large": Case(answer=Answer(body="x" * (9 << 20)), reason="answer larger than 8 MB", charged=1),
    # would fail for all
    "401": Case(answer=error(401, "no such key"), reason="HTTP 401: no such key; check the key", fatal=True),
    "403": Case(answer=error(403), reason="HTTP 403; check the key", fatal=True),
    "404": Case(answer=error(404, "no such model"), reason="check base_url, model and the key", fatal=True),
    "quota": Case(answer=error(429, "pay", code="insufficient_quota"), reason="raise the quota", fatal=True),
    "redirect": Case(
        answer=Answer(status=307, headers={"Location": "http://127.0.0.1:9/x"}), reason="HTTP 307", fatal=True
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_failure_is_retried_charged_and_reported(ask: Any, waits: list[float], name: str) -> None:
    case = CASES[name]
    is_slow = name in ("hang", "drip")
    server, endpoint = ask(case.answer, prices=PRICES, retries=2, timeout=0.3 if is_slow else 20.0)
    with pytest.raises((CallFailed, OperationalError)) as caught:
        endpoint.post("/x", BODY)
    assert isinstance(caught.value, OperationalError) == case.fatal
    assert case.reason in str(caught.value) if case.fatal else caught.value.reason.startswith(case.reason)
    assert len(server.calls) == endpoint.calls == case.tries
    paused = [seconds for seconds in waits if seconds]
    assert len(paused) == case.tries - 1 and (paused == [30.0, 30.0]) == (name == "come back")
    assert (endpoint.budget.spent > 0.025 * case.charged) == (case.charged > 0)
    if case.fatal:
        assert server.base_url in str(caught.value) and "'m'" in str(caught.value)
        assert caught.value.exit_code == 5
        return
    assert caught.value.usage.get("cost", 0.0) == pytest.approx(endpoint.budget.spent)
    assert len(caught.value.raw) <= 2000
    if case.tries > 1:  # and if it passes
        server.script = lambda call: case.answer if call.number < 5 else answer_chat(call)
        endpoint.post("/x", BODY)
        assert len(server.calls) == 6


def test_a_call_sends_its_body_and_key_and_counts_what_it_took(ask: Any) -> None:
    server, endpoint = ask(answer_chat, prices=PRICES)
    reply = endpoint.post("/chat/completions", BODY)
    assert reply.body["choices"][0]["message"]["content"] == "Good"
    assert reply.usage == {"input_tokens": 200, "output_tokens": 5, "cost": 0.025}
    [call] = server.calls
    assert (call.path, call.body) == ("/v1/chat/completions", BODY)
    assert call.headers["authorization"] == f"Bearer {SECRET}"
    assert (endpoint.budget.spent, endpoint.calls) == (pytest.approx(0.025), 1)
    usage = {"prompt_tokens": 1000, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 900}}
    _, endpoint = ask(Answer(body={"usage": usage}), model="gpt-4o-mini-2024-07-18")
    assert endpoint.post("/x", BODY).usage["cost"] == pytest.approx((100 * 0.15 + 900 * 0.075) / 1e6)


def test_a_server_that_is_not_there_stops_the_run(ask: Any) -> None:
    server, _ = ask(answer_chat)
    server.__exit__()
    endpoint = Endpoint(base_url=server.base_url, model="m")
    with pytest.raises(OperationalError, match=r"no connection: .*refused; check that the server runs"):
        endpoint.post("/x", BODY)
    endpoint.close()
    assert endpoint.calls == 1


def test_many_failures_in_a_row_stop_the_run_and_refused_requests_do_not(ask: Any) -> None:
    _, endpoint = ask(Answer(status=500), retries=0)
    for _ in range(GIVE_UP_AFTER - 1):
        with pytest.raises(CallFailed):
            endpoint.post("/x", BODY)
    with pytest.raises(OperationalError, match="20 consecutive calls failed; the last: HTTP 500"):
        endpoint.post("/x", BODY)
    for status in (400, 403, 413):
        server, endpoint = ask(
            lambda call, status=status: error(status) if call.number else answer_chat(call)
        )
        endpoint.post("/x", BODY)
        server.script = lambda call, status=status: error(status)
        refused = post_all(endpoint, 2 * GIVE_UP_AFTER)
        assert {getattr(item, "reason", None) for item in refused} == {f"HTTP {status}"}
        assert len(server.calls) == 1 + 2 * GIVE_UP_AFTER, "none is sent again"


def test_a_stop_ends_the_wait_and_nothing_is_tried_again(ask: Any) -> None:
    server, endpoint = ask(Answer(status=429))

    def stop_and_fail(call: Call) -> Answer:
        endpoint.stop()
        return later("60")

    server.script = stop_and_fail
    with pytest.raises(OperationalError, match="stopped"):
        endpoint.post("/x", BODY)
    assert len(server.calls) == 1
    endpoint.close()
    server.script = answer_chat
    endpoint.post("/x", BODY)


# The key.


def everything_said(error: BaseException) -> str:
    """All that a log or a traceback could show of an error and its causes."""
    seen, said = error, []
    while seen is not None:
        said += [str(seen), repr(seen), str(vars(seen))]
        seen = seen.__cause__ or seen.__context__  # type: ignore[assignment]
    return "\n".join(said)


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_an_echoed_key_is_never_shown(ask: Any, caplog: pytest.LogCaptureFixture, status: int) -> None:
    caplog.set_level(logging.DEBUG)
    escaped, encoded = "".join(f"\\u{ord(letter):04x}" for letter in SECRET), quote(SECRET, safe="")
    texts = [
        *(f'{{"error": {{"message": "wrong: {key}"}}}}' for key in (f"Bearer {SECRET}", escaped, encoded)),
        *(f"wrong: Bearer {SECRET}", f"{'x' * 140} {SECRET} in the cut", f"GET /v1/models?key={encoded}"),
    ]
    _, endpoint = ask(lambda call: Answer(status=status, body=texts[call.number % len(texts)]), retries=0)
    for _ in texts:
        with pytest.raises((CallFailed, OperationalError)) as caught:
            endpoint.post("/x", BODY)
        said = everything_said(caught.value)
        assert "[key]" in said
        assert not [key for key in (encoded, SECRET, SECRET[:12], escaped) if key in said]
    assert SECRET not in repr(endpoint) + repr(vars(endpoint)) + repr(vars(endpoint.client)) + caplog.text


def test_a_key_goes_to_its_own_server_only(
    ask: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a variable no key is sent, least of all one of OpenAI's own variables."""
    asked: list[Any] = []
    monkeypatch.setenv("TEST_KEY", SECRET)
    with monkeypatch.context() as blocked:
        blocked.setattr(socket, "getaddrinfo", lambda *words, **_: asked.append(words) or [])
        for host in ("judge.example", "10.0.0.7", "127.0.0.1.example"):
            endpoint = Endpoint(base_url=f"http://{host}/v1", model="m", key_env="TEST_KEY")
            with pytest.raises(UserError, match="would be sent unencrypted; use https"):
                endpoint.post("/x", BODY)
    assert asked == [], "not even the name was looked up"
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, SECRET)
    for name in ("OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):  # our own machine has no proxy
        monkeypatch.setenv(name, "http://127.0.0.1:9/v1")
    server, endpoint = ask(answer_chat, key_env="")
    endpoint.post("/x", BODY)
    assert SECRET not in str(server.calls[0].headers) and "authorization" not in server.calls[0].headers
    # A name that no other test uses: an earlier server may have had the same port in this process.
    monkeypatch.setenv("KEY_SAID_ONCE", SECRET)
    said_before: list[str] = []
    server, endpoint = ask(
        lambda call: said_before.append(capsys.readouterr().err) or answer_chat(call), key_env="KEY_SAID_ONCE"
    )
    for _ in range(2):
        endpoint.post("/x", BODY)
    host = server.base_url.split("/")[2]
    assert said_before == [f"asking {host} with the key in KEY_SAID_ONCE\n", ""]


def test_a_key_that_is_missing_or_no_key_is_refused(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, endpoint = ask(answer_chat)
    for value, said in {"": "not set", "sk-two\nlines": "line breaks", "schlüssel-1": "non-ASCII"}.items():
        monkeypatch.setenv("TEST_KEY", value)
        with pytest.raises(UserError, match=f"TEST_KEY: .*{said}") as caught:
            endpoint.post("/x", BODY)
        assert not value or value not in everything_said(caught.value)
    assert server.calls == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key_env": SECRET}, "not the key itself"),
        ({"timeout": 0}, "timeout: must be at least"),
        ({"concurrency": 0}, "concurrency: must be at least 1"),
        ({"retries": -1}, "retries: must be at least 0"),
        ({"requests_per_minute": float("nan")}, "requests_per_minute"),
        ({"prices": {"input": 1.0}}, "prices: output: "),
        ({"prices": {"input": 1.0, "output": -1.0}}, "prices: output: must be 0 or more"),
        ({"prices": {"input": 1.0, "output": 1.0, "extra": 1.0}}, "prices: extra: unknown"),
        *(
            ({"base_url": url}, "is not an http")
            for url in ("ftp://127.0.0.1/v1", "file:///etc/passwd", "127.0.0.1:8000/v1", "http://", "")
        ),
        ({"base_url": "http://127.0.0.1/v1\nHost: x"}, "is not an http"),
        ({"base_url": "http://127.0.0.1:99999/v1"}, "not a URL"),
        ({"base_url": "https://host/v1?api-key=hunter2-pass"}, "has a query"),
        *(
            ({"base_url": f"{scheme}me:hunter2-pass@host/v1"}, "contains a user or password")
            for scheme in ("https://", "", "http:/")
        ),
        ({"base_url": "http://me:hunter2-pass\u2100@host/v1"}, "contains a user or password"),
    ],
)
def test_options_are_checked_and_secrets_not_repeated(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        Endpoint(**{"base_url": "http://127.0.0.1:1/v1", "model": "m", **options})
    assert not [secret for secret in ("hunter2", SECRET) if secret in everything_said(caught.value)]


# Limits.


def test_calls_and_tokens_are_spread_over_the_minute() -> None:
    calls = Pace(requests_per_minute=60, tokens_per_minute=0)
    assert [calls.take(0.0, tokens=5) for _ in range(3)] == [0, 1, 2]
    assert calls.take(100.0, tokens=5) == 0
    calls.share(2)
    assert [calls.take(200.0, tokens=5) for _ in range(2)] == [0, 2], "two processes: half the rate each"
    tokens = Pace(requests_per_minute=0, tokens_per_minute=60)
    assert tokens.take(0.0, tokens=5) == 0
    tokens.correct(tokens=2)
    assert tokens.take(0.0, tokens=5) == 7
    free = Pace(requests_per_minute=0, tokens_per_minute=0)
    assert [free.take(0.0, tokens=1e9) for _ in range(3)] == [0, 0, 0]


def test_no_more_calls_are_in_flight_than_allowed(ask: Any) -> None:
    server, endpoint = ask(lambda call: Answer(body={"n": call.number}, delay=0.01), concurrency=3)
    assert all(isinstance(item, Reply) for item in post_all(endpoint, 24, threads=12))
    assert server.most_in_flight == 3


@pytest.mark.parametrize(
    ("tokens", "max_cost", "threads", "calls", "spent"),
    [
        (None, 0.101, 1, 3, 0.075),
        (None, 0.3, 16, 11, 0.275),  # as many as one after the other: guesses that were too high block none
        (2000, 0.55, 1, 2, 0.4),  # seven times the estimate: the first call shows what calls cost
        (2000, 0.55, 8, 2, 0.4),
    ],
)
def test_a_budget_stops_before_the_call_that_would_break_it(
    ask: Any, tokens: int | None, max_cost: float, threads: int, calls: int, spent: float
) -> None:
    usage = {"usage": {"prompt_tokens": tokens, "completion_tokens": 0}}
    server, endpoint = ask(Answer(body=usage) if tokens else answer_chat, prices=PRICES, max_cost=max_cost)
    with pytest.raises(BudgetSpent, match=rf"budget of USD {max_cost} is reached: USD 0\.\d+ is spent"):
        post_all(endpoint, 60, threads=threads)
    assert len(server.calls) == calls
    assert endpoint.budget.spent == pytest.approx(spent)
    endpoint.budget.most = 2.0
    endpoint.post("/x", BODY)


def test_what_cannot_be_counted_is_refused_or_charged_at_most(ask: Any) -> None:
    server, endpoint = ask(answer_chat, max_cost=1.0)
    with pytest.raises(UserError, match="none is known for 'm'; set prices"):
        endpoint.post("/x", BODY)
    assert server.calls == []
    _, endpoint = ask(Answer(body="x" * 100, cut=True), prices=PRICES, max_cost=0.05)
    with pytest.raises(BudgetSpent):
        endpoint.post("/x", BODY)
    assert endpoint.calls == 1, "a retry that the budget does not cover is not sent"
    usage = {"prompt_tokens": 0, "completion_tokens": 0}  # a server that reports 0 is not believed
    server, endpoint = ask(Answer(body={"usage": usage}), prices=PRICES, max_cost=0.1)
    with pytest.raises(BudgetSpent):
        post_all(endpoint, 100, threads=1)
    assert 1 < len(server.calls) < 30 and 0.05 < endpoint.budget.spent <= 0.1
    for number in ("-5", "1e999", "NaN", '"many"', "true", "null", "9" * 400):
        body = f'{{"usage": {{"prompt_tokens": {number}, "completion_tokens": 1}}}}'
        _, endpoint = ask(Answer(body=body), prices=PRICES)
        reply = endpoint.post("/x", BODY)
        assert "input_tokens" not in reply.usage and 0 < endpoint.budget.spent < 1
        json.dumps(reply.usage, allow_nan=False)
