"""Calls to a server that fails in every way; the waits between tries are skipped."""

import json
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
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
        script: Script, max_cost: float | None = None, **options: Any
    ) -> tuple[ScriptedServer, Endpoint]:
        server = ScriptedServer(script).__enter__()
        defaults = {"base_url": server.base_url, "model": "m", "key_env": "TEST_KEY", "timeout": 20.0}
        endpoint = Endpoint(**{**defaults, **options})
        endpoint.budget.most = max_cost
        opened.append((server, endpoint))
        return server, endpoint

    yield start
    for server, endpoint in opened:
        server.__exit__()
        endpoint.close()


def fail_first(count: int, failure: Answer) -> Script:
    return lambda call: failure if call.number < count else answer_chat(call)


def post_all(endpoint: Endpoint, count: int, threads: int = 8) -> list[Reply | CallFailed]:
    def post(number: int) -> Reply | CallFailed:
        try:
            return endpoint.post("/chat/completions", {**BODY, "seed": number})
        except CallFailed as failure:
            return failure

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(post, range(count)))


# Good answers.


def test_a_call_sends_its_body_and_key_and_counts_what_it_took(ask: Any) -> None:
    server, endpoint = ask(answer_chat, prices=PRICES)
    reply = endpoint.post("/chat/completions", BODY)
    assert reply.body["choices"][0]["message"]["content"] == "Good"
    assert reply.usage == {"input_tokens": 200, "output_tokens": 5, "cost": 0.025}
    [call] = server.calls
    assert (call.path, call.body) == ("/v1/chat/completions", BODY)
    assert call.headers["authorization"] == f"Bearer {SECRET}"
    assert endpoint.budget.spent == pytest.approx(0.025)
    assert endpoint.calls == 1


def test_what_the_server_had_read_before_costs_less(ask: Any) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 900}}
    _, endpoint = ask(lambda call: Answer(body={"usage": usage}), model="gpt-4o-mini-2024-07-18")
    assert endpoint.post("/x", BODY).usage["cost"] == pytest.approx((100 * 0.15 + 900 * 0.075) / 1e6)


def test_without_a_variable_no_key_is_sent(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Least of all what OpenAI's client would take from its own variables."""
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    server, endpoint = ask(answer_chat, key_env="")
    endpoint.post("/x", BODY)
    assert not [name for name, value in server.calls[0].headers.items() if SECRET in value]
    assert "authorization" not in server.calls[0].headers


def test_no_proxy_stands_before_our_own_machine(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    _, endpoint = ask(answer_chat)
    endpoint.post("/x", BODY)


# Failures that pass.


@pytest.mark.parametrize("status", [408, 429, 500, 529])
def test_a_passing_failure_is_tried_again(ask: Any, status: int) -> None:
    server, endpoint = ask(fail_first(2, Answer(status=status, body="busy")))
    endpoint.post("/x", BODY)
    assert len(server.calls) == endpoint.calls == 3


@pytest.mark.parametrize(("seconds", "tries"), [(30, 2), (86_400, 1)])
def test_a_server_cannot_have_us_wait_for_long(ask: Any, seconds: int, tries: int) -> None:
    """The fixture skips waits of up to a minute: to wait for a day would not end."""
    later = Answer(status=429, headers={"Retry-After": str(seconds)})
    server, endpoint = ask(lambda call: later, retries=1)
    with pytest.raises(CallFailed, match="HTTP 429"):
        endpoint.post("/x", BODY)
    assert len(server.calls) == tries


def test_the_last_failure_and_the_number_of_tries_are_reported(ask: Any) -> None:
    server, endpoint = ask(lambda call: Answer(status=500, body={"error": {"message": "out of\nmemory"}}))
    with pytest.raises(CallFailed) as caught:
        endpoint.post("/x", BODY)
    assert caught.value.reason == "HTTP 500 after 6 tries: out of memory"
    assert "out of" in caught.value.raw
    assert len(server.calls) == 6


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (Answer(hang=True), "timed out"),
        (Answer(body={"slow": "x" * 100}, drip=0.02), "timed out"),
        (Answer(body={"long": "x" * 100}, cut=True), "incomplete answer"),
        (Answer(raw=b""), "incomplete answer"),
        (Answer(raw=b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "incomplete answer"),
    ],
    ids=["hang", "drip", "cut", "nothing at all", "not HTTP"],
)
def test_a_broken_answer_is_tried_again(ask: Any, failure: Answer, reason: str) -> None:
    server, endpoint = ask(fail_first(1, failure), timeout=0.4, retries=1)
    endpoint.post("/x", BODY)
    assert endpoint.calls == 2
    server.script = lambda call: failure
    with pytest.raises(CallFailed) as caught:
        endpoint.post("/x", BODY)
    assert caught.value.reason == f"{reason} after 2 tries"


def test_what_may_have_been_charged_is_counted(ask: Any) -> None:
    _, endpoint = ask(lambda call: Answer(body="x" * 100, cut=True), prices=PRICES, retries=1)
    with pytest.raises(CallFailed) as caught:
        endpoint.post("/x", BODY)
    assert caught.value.usage["cost"] == pytest.approx(endpoint.budget.spent)
    assert endpoint.budget.spent > 0.05, "for both tries"
    _, endpoint = ask(lambda call: Answer(body="x" * 100, cut=True), prices=PRICES, max_cost=0.05)
    with pytest.raises(BudgetSpent):
        endpoint.post("/x", BODY)
    assert endpoint.calls == 1, "a retry that the budget does not cover is not sent"


# Failures that do not pass.


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (Answer(status=400, body={"error": {"message": "bad request"}}), "HTTP 400: bad request"),
        (Answer(status=413, body=""), "HTTP 413"),
        (Answer(status=422, body={"detail": [{"msg": "no"}]}), 'HTTP 422: [{"msg": "no"}]'),
        (Answer(status=501, body={"error": {"message": "not here"}}), "HTTP 501: not here"),
        (Answer(body="<html>A page</html>"), "not JSON: <html>A page</html>"),
        (Answer(body=""), "not JSON: an empty answer"),
        (Answer(body="[1, 2]"), "not JSON: [1, 2]"),
        (Answer(body="[" * 100_000), "not JSON: " + "[" * 156 + " ..."),
        (Answer(body=b"\xff\xfe\x00"), "not JSON: \ufffd\ufffd\ufffd"),
        (Answer(body="x" * (9 << 20)), "answer larger than 8 MB"),
    ],
)
def test_other_failures_are_told_at_once(ask: Any, failure: Answer, reason: str) -> None:
    server, endpoint = ask(lambda call: failure)
    with pytest.raises(CallFailed) as caught:
        endpoint.post("/x", BODY)
    assert caught.value.reason == reason
    assert len(caught.value.raw) <= 2000
    assert len(server.calls) == 1


@pytest.mark.parametrize(
    "failure",
    [
        Answer(status=401, body={"error": {"message": "no such key"}}),
        Answer(status=403),
        Answer(status=404, body={"error": {"message": "no such model"}}),
        Answer(status=429, body={"error": {"code": "insufficient_quota", "message": "pay"}}),
        Answer(status=307, headers={"Location": "http://127.0.0.1:9/elsewhere"}),
    ],
    ids=lambda failure: str(failure.status),
)
def test_what_would_fail_for_all_stops_the_run(ask: Any, failure: Answer) -> None:
    server, endpoint = ask(lambda call: failure, model="my-model")
    with pytest.raises(OperationalError) as caught:
        endpoint.post("/x", BODY)
    said = str(caught.value)
    assert server.base_url in said
    assert "'my-model'" in said
    assert f"HTTP {failure.status}" in said
    assert caught.value.exit_code == 5
    assert len(server.calls) == 1


def test_a_server_that_is_not_there_stops_the_run(ask: Any) -> None:
    server, _ = ask(answer_chat)
    server.__exit__()
    endpoint = Endpoint(base_url=server.base_url, model="m")
    with pytest.raises(OperationalError, match=r"no connection: .*refused; check that the server runs"):
        endpoint.post("/x", BODY)
    endpoint.close()
    assert endpoint.calls == 1


def test_a_server_that_fails_again_and_again_stops_the_run(ask: Any) -> None:
    _, endpoint = ask(lambda call: Answer(status=500), retries=0)
    for _ in range(GIVE_UP_AFTER - 1):
        with pytest.raises(CallFailed):
            endpoint.post("/x", BODY)
    with pytest.raises(OperationalError, match="20 consecutive calls failed; the last: HTTP 500"):
        endpoint.post("/x", BODY)


@pytest.mark.parametrize("status", [400, 403, 413])
def test_refused_requests_do_not_stop_the_run_once_one_was_answered(ask: Any, status: int) -> None:
    server, endpoint = ask(lambda call: Answer(status=status, body="") if call.number else answer_chat(call))
    endpoint.post("/x", BODY)
    refused = post_all(endpoint, 2 * GIVE_UP_AFTER)
    assert {getattr(item, "reason", None) for item in refused} == {f"HTTP {status}"}
    assert len(server.calls) == 1 + 2 * GIVE_UP_AFTER, "none is sent again"


def test_a_stop_ends_the_wait_and_nothing_is_tried_again(ask: Any) -> None:
    server, endpoint = ask(lambda call: Answer(status=429))

    def stop_and_fail(call: Call) -> Answer:
        endpoint.stop()
        return Answer(status=429, headers={"Retry-After": "60"})

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
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in SECRET)
    encoded = quote(SECRET, safe="")
    assert encoded != SECRET

    def echo(call: Call) -> Answer:
        sent = call.headers["authorization"]
        texts = (
            f'{{"error": {{"message": "wrong: {sent}"}}}}',
            f'{{"error": {{"message": "wrong: {escaped}"}}}}',
            f"wrong: {sent}",
            f"{'x' * 140} {sent} in the middle of the cut",
            f"wrong: GET /v1/models?key={encoded}",
            f'{{"error": {{"message": "wrong: {encoded}"}}}}',
        )
        return Answer(status=status, body=texts[call.number % len(texts)])

    _, endpoint = ask(echo, retries=0)
    for _ in range(6):
        with pytest.raises((CallFailed, OperationalError)) as caught:
            endpoint.post("/x", BODY)
        said = everything_said(caught.value)
        assert "[key]" in said
        assert encoded not in said
        assert SECRET not in said
        assert SECRET[:12] not in said
        assert escaped not in said
    assert SECRET not in repr(endpoint) + repr(vars(endpoint)) + repr(vars(endpoint._client))
    assert SECRET not in caplog.text


def test_a_key_goes_over_plain_http_to_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", SECRET)
    asked: list[Any] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *words, **_: asked.append(words) or [])
    for host in ("empathy_judge.judge.example", "10.0.0.7", "127.0.0.1.example"):
        endpoint = Endpoint(base_url=f"http://{host}/v1", model="m", key_env="TEST_KEY")
        with pytest.raises(UserError, match="would be sent unencrypted; use https"):
            endpoint.post("/x", BODY)
    assert asked == [], "not even the name was looked up"


def test_who_is_asked_with_which_key_is_said_once_before_the_first_call(
    ask: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A name that no other test uses: an earlier server may have had the same port in this process.
    monkeypatch.setenv("KEY_SAID_ONCE", SECRET)
    said_before: list[str] = []

    def script(call: Call) -> Answer:
        said_before.append(capsys.readouterr().err)
        return answer_chat(call)

    server, endpoint = ask(script, key_env="KEY_SAID_ONCE")
    for _ in range(2):
        endpoint.post("/x", BODY)
    host = server.base_url.split("/")[2]
    assert said_before == [f"asking {host} with the key in KEY_SAID_ONCE\n", ""]


def test_a_key_that_is_not_there_or_no_key_is_refused(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, endpoint = ask(answer_chat)
    for value, said in (
        ("", "not set"),
        ("sk-two\nlines-of-it", "line breaks"),
        ("schlüssel-1", "non-ASCII"),
    ):
        monkeypatch.setenv("TEST_KEY", value)
        with pytest.raises(UserError, match=f"TEST_KEY: .*{said}") as caught:
            endpoint.post("/x", BODY)
        assert not value or value not in everything_said(caught.value)
    assert server.calls == []


def test_a_key_in_the_place_of_its_name_is_refused_and_not_repeated() -> None:
    with pytest.raises(UserError, match="not the key itself") as caught:
        Endpoint(base_url="http://127.0.0.1:1/v1", model="m", key_env=SECRET)
    assert SECRET not in everything_said(caught.value)


@pytest.mark.parametrize(
    ("base_url", "said"),
    [
        ("ftp://127.0.0.1/v1", "is not an http"),
        ("file:///etc/passwd", "is not an http"),
        ("127.0.0.1:8000/v1", "is not an http"),
        ("http://", "is not an http"),
        ("", "is not an http"),
        ("http://127.0.0.1:99999/v1", "not a URL"),
        ("http://127.0.0.1/v1\nHost: x", "is not an http"),
        ("https://me:hunter2-pass@host/v1", "contains a user or password"),
        ("https://host/v1?api-key=hunter2-pass", "has a query"),
        ("me:hunter2-pass@host/v1", "contains a user or password"),
        ("http:/me:hunter2-pass@host/v1", "contains a user or password"),
        ("http://me:hunter2-pass\u2100@host/v1", "contains a user or password"),
    ],
)
def test_only_plain_http_addresses_are_taken(base_url: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        Endpoint(base_url=base_url, model="m")
    assert "hunter2" not in everything_said(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": 0}, "timeout: must be at least"),
        ({"concurrency": 0}, "concurrency: must be at least 1"),
        ({"retries": -1}, "retries: must be at least 0"),
        ({"requests_per_minute": float("nan")}, "requests_per_minute"),
        ({"prices": {"input": 1.0}}, "prices: output: missing"),
        ({"prices": {"input": 1.0, "output": -1.0}}, "prices: output: must be 0 or more"),
        ({"prices": {"input": 1.0, "output": 1.0, "extra": 1.0}}, "prices: extra: unknown"),
    ],
)
def test_options_are_checked(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Endpoint(base_url="http://127.0.0.1:1/v1", model="m", **options)


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


# Money.


def test_a_budget_stops_before_the_call_that_would_break_it(ask: Any) -> None:
    server, endpoint = ask(answer_chat, prices=PRICES, max_cost=0.101)
    done = 0
    with pytest.raises(BudgetSpent, match=r"budget of USD 0\.101 is reached: USD 0\.\d+ is spent"):
        while True:
            endpoint.post("/x", BODY)
            done += 1
    assert 0 < endpoint.budget.spent <= 0.101
    assert len(server.calls) == done == 3
    endpoint.budget.most = 1.0
    endpoint.post("/x", BODY)
    assert endpoint.budget.spent == pytest.approx(0.025 * (done + 1))


def test_a_budget_holds_for_all_threads_together(ask: Any) -> None:
    server, endpoint = ask(answer_chat, prices=PRICES, max_cost=0.3)

    def post(number: int) -> bool:
        try:
            endpoint.post("/x", {**BODY, "seed": number})
        except BudgetSpent:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        done = sum(pool.map(post, range(60)))
    assert done == len(server.calls) == 11, (
        "as many as one after the other: guesses that were too high block none"
    )
    assert endpoint.budget.spent == pytest.approx(0.025 * done)


@pytest.mark.parametrize("threads", [1, 8])
def test_calls_dearer_than_estimated_raise_later_estimates(ask: Any, threads: int) -> None:
    """The first call shows what calls cost, so the budget is kept."""
    usage = {"prompt_tokens": 2000, "completion_tokens": 0}  # USD 0.2, seven times the estimate
    server, endpoint = ask(lambda call: Answer(body={"usage": usage}), prices=PRICES, max_cost=0.55)
    with pytest.raises(BudgetSpent):
        post_all(endpoint, 10, threads=threads)
    assert len(server.calls) == 2
    assert endpoint.budget.spent == pytest.approx(0.4)


def test_a_budget_without_a_price_is_refused(ask: Any) -> None:
    server, endpoint = ask(answer_chat, max_cost=1.0)
    with pytest.raises(UserError, match="none is known for 'm'; set prices"):
        endpoint.post("/x", BODY)
    assert server.calls == []


def test_a_server_that_says_it_took_nothing_is_not_believed(ask: Any) -> None:
    usage = {"prompt_tokens": 0, "completion_tokens": 0}
    server, endpoint = ask(lambda call: Answer(body={"usage": usage}), prices=PRICES, max_cost=0.1)
    with pytest.raises(BudgetSpent):
        for _ in range(100):
            endpoint.post("/x", BODY)
    assert 1 < len(server.calls) < 30
    assert 0.05 < endpoint.budget.spent <= 0.1


def test_numbers_no_server_should_send_do_no_harm(ask: Any) -> None:
    for tokens in ("-5", "1e999", "NaN", '"many"', "true", "null", "9" * 400):
        body = f'{{"usage": {{"prompt_tokens": {tokens}, "completion_tokens": 1}}}}'
        _, endpoint = ask(lambda call, body=body: Answer(body=body), prices=PRICES)
        reply = endpoint.post("/x", BODY)
        assert "input_tokens" not in reply.usage
        assert 0 < endpoint.budget.spent < 1
        json.dumps(dict(reply.usage), allow_nan=False)
