"""Calls to a server that fails in every way: answer x tries x cost x message; waits are skipped."""

import logging
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import sleep
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


def error(status: int, message: str = "", **more: Any) -> Answer:
    return Answer(status=status, body={"error": {"message": message, **more}} if message else "")


def later(seconds: str) -> Answer:
    return Answer(status=429, body="", headers={"Retry-After": seconds})


CASES = {  # "retried": tried three times; "final": only once; "fatal": once, and it ends the whole run
    "500": ("retried", False, error(500, "out of\nmemory"), "HTTP 500 after 3 tries: out of memory"),
    **{str(n): ("retried", False, error(n), f"HTTP {n} after 3 tries") for n in (408, 409, 429, 529)},
    "come back": ("retried", False, later("30"), "HTTP 429 after 3 tries"),
    "come back at a date": ("retried", False, later("Wed, 21 Oct 2026"), "HTTP 429 after 3 tries"),
    "hang": ("final", True, Answer(hang=True), "timed out: no complete answer in 0.3 s"),
    "drip": ("final", True, Answer(body={"slow": "x" * 100}, drip=0.02), "timed out: no complete answer"),
    "cut": ("retried", True, Answer(body="x" * 100, cut=True), "incomplete answer after 3 tries"),
    "nothing": ("retried", True, Answer(raw=b""), "incomplete answer after 3 tries"),
    "not HTTP": ("retried", True, Answer(raw=b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "incomplete answer"),
    "come back tomorrow": ("final", False, later("86400"), "HTTP 429"),
    "400": ("final", False, error(400, "bad request"), "HTTP 400: bad request"),
    "413": ("final", False, error(413), "HTTP 413"),
    "422": ("final", False, Answer(status=422, body={"detail": [{"n": 1}]}), 'HTTP 422: [{"n": 1}]'),
    "501": ("final", False, error(501, "not here"), "HTTP 501: not here"),
    "200 with an error": ("final", False, error(200, "odd", code=418), "HTTP 418: odd"),
    "a page": ("final", True, Answer(body="<html>A page</html>"), "not JSON: <html>A page</html>"),
    "empty": ("final", True, Answer(body=""), "not JSON: an empty answer"),
    "a list": ("final", True, Answer(body="[1, 2]"), "not JSON: [1, 2]"),
    "nested": ("final", True, Answer(body="[" * 100_000), "not JSON: [[[["),
    "bytes": ("final", True, Answer(body=b"\xff\xfe\x00"), "not JSON: \ufffd\ufffd\ufffd"),
    "large": ("final", True, Answer(body="x" * (9 << 20)), "answer larger than 8 MB"),
    "401": ("fatal", False, error(401, "no such key"), "HTTP 401: no such key; check the key"),
    "403": ("fatal", False, error(403), "HTTP 403; check the key"),
    "404": ("fatal", False, error(404, "no such model"), "check base_url, model and the key"),
    "quota": ("fatal", False, error(429, "pay", code="insufficient_quota"), "raise the quota"),
    "redirect": ("fatal", False, Answer(status=307, headers={"Location": "http://127.0.0.1:9"}), "HTTP 307"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_failure_is_retried_charged_and_reported(ask: Any, waits: list[float], name: str) -> None:
    end, is_charged, answer, reason = CASES[name]
    tries = 3 if end == "retried" else 1
    server, endpoint = ask(answer, prices=PRICES, retries=2, timeout=0.3 if name in ("hang", "drip") else 20)
    with pytest.raises(OperationalError if end == "fatal" else CallFailed) as caught:
        endpoint.post("/x", BODY)
    assert reason in str(caught.value)
    assert len(server.calls) == endpoint.calls == tries
    paused = [seconds for seconds in waits if seconds]
    assert len(paused) == tries - 1 and (paused == [30.0, 30.0]) == (name == "come back")
    assert (endpoint.budget.spent > 0.025 * tries) == is_charged and (endpoint.budget.spent > 0) == is_charged
    if end == "fatal":
        assert server.base_url in str(caught.value) and "'m'" in str(caught.value)
        return
    assert caught.value.usage.get("cost", 0.0) == pytest.approx(endpoint.budget.spent)
    assert len(caught.value.raw) <= 2000 and len(caught.value.reason) < 200
    if end == "retried":  # and if it passes
        server.script = lambda call: answer if call.number < 5 else answer_chat(call)
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
    server, endpoint = ask(answer_chat)
    server.__exit__()
    with pytest.raises(OperationalError, match=r"no connection: .*refused; check that the server runs"):
        endpoint.post("/x", BODY)
    assert endpoint.calls == 1


def test_many_failures_in_a_row_stop_the_run_and_refused_requests_do_not(ask: Any) -> None:
    _, endpoint = ask(Answer(status=500), retries=0)
    assert all(isinstance(item, CallFailed) for item in post_all(endpoint, GIVE_UP_AFTER - 1))
    with pytest.raises(OperationalError, match="20 consecutive calls failed; the last: HTTP 500"):
        endpoint.post("/x", BODY)
    for status in (400, 403, 413):
        server, endpoint = ask(answer_chat)
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
    assert said_before == [f"asking {server.base_url} with the key in KEY_SAID_ONCE\n", ""]


def test_a_proxy_is_of_a_known_kind_and_left_out_for_an_address_with_its_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ConnectionRefusedError("no network here")

    monkeypatch.setattr("socket.create_connection", refuse)
    monkeypatch.setenv("ALL_PROXY", "socks4://127.0.0.1:9")
    with pytest.raises(UserError, match=r"socks4 is not supported; NO_PROXY=judge.example"):
        Endpoint(base_url="http://judge.example:8000/v1", model="m").post("/x", BODY)
    monkeypatch.setenv("NO_PROXY", "judge.example:8000")
    with pytest.raises(OperationalError, match="no network here"):
        Endpoint(base_url="http://judge.example:8000/v1", model="m").post("/x", BODY)


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
        ({"requests_per_minute": float("nan")}, "requests_per_minute"),
        ({"prices": {"input": 1.0}}, "prices: output: "),
        ({"prices": {"input": 1.0, "output": -1.0}}, "prices: output: must be 0 or more"),
        *(
            ({"base_url": url}, "is not an http")
            for url in ("file:///etc", "127.0.0.1:80", "", "http://h\nx")
        ),
        ({"base_url": "http://127.0.0.1:99999/v1"}, "not a URL"),
        ({"base_url": "https://host/v1?api-key=hunter2-pass"}, "has a query"),
        ({"base_url": "https://me:hunter2-pass@host/v1"}, "contains a user or password"),
        ({"base_url": "me:hunter2-pass@host/v1"}, "contains a user or password"),
        ({"base_url": "http://me:hunter2-pass\u2100@host/v1"}, "contains a user or password"),
    ],
)
def test_options_are_checked_and_secrets_not_repeated(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        Endpoint(**{"base_url": "http://127.0.0.1:1/v1", "model": "m", **options})
    assert not [secret for secret in ("hunter2", SECRET) if secret in everything_said(caught.value)]


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
    in_flight: set[int] = set()
    counts: list[int] = []

    def script(call: Call) -> Answer:
        in_flight.add(call.number)
        counts.append(len(in_flight))
        sleep(0.01)
        in_flight.remove(call.number)
        return Answer()

    _, endpoint = ask(script, concurrency=3)
    assert all(isinstance(item, Reply) for item in post_all(endpoint, 24, threads=12))
    assert max(counts) == 3


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
        _, endpoint = ask(Answer(body=f'{{"usage": {{"prompt_tokens": {number}}}}}'), prices=PRICES)
        reply = endpoint.post("/x", BODY)
        assert "input_tokens" not in reply.usage and 0 < endpoint.budget.spent < 1
