"""What the server does when it is asked for too much, in the wrong way, or by the wrong people."""

import json
import select
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
from served import LONGEST, WaitingJudge, ask, exchanges, get, held, post, raw_connection, serving, wait_held
from servers import Answer, ScriptedServer

from empathy_judge.judge.base import Judge, load_judge
from empathy_judge.judge.composite import CascadeJudge, PanelJudge
from empathy_judge.judge.llm.prompted import PromptedJudge

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(load_judge("length")) as url:
        yield url


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server, timeout=LONGEST) as client:
        yield client


def complaint(answer: httpx.Response) -> str:
    """What is said of a request that is refused, always in the same shape."""
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return str(error["message"])


@pytest.mark.parametrize("runs", [1, 4])
def test_a_full_queue_names_the_time_to_wait(runs: int) -> None:
    """The queue counts runs of the network, of which a reply may take several."""
    judge = WaitingJudge(concurrency=1)
    judge.count_runs = lambda exchange: runs  # type: ignore[method-assign]
    with serving(judge, queue=3 * runs) as url, ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, f"{url}/v1/score", json=exchanges("a", "b", "c"))
        judge.wait_asked()
        assert held(url) == 3 * runs
        refused = ask(f"{url}/v1/score", json=exchanges("d"))
        assert refused.status_code == 503
        assert 1 <= int(refused.headers["retry-after"]) <= 600
        never = ask(f"{url}/v1/score", json=exchanges("d", "e", "f", "g"))
        assert never.status_code == 400, "what can never fit is not asked to come again"
        judge.let(3)
        assert first.result().status_code == 200
        judge.let(1)
        assert ask(f"{url}/v1/score", json=exchanges("d")).status_code == 200
    assert judge.asked == ["a", "b", "c", "d"]


def test_who_leaves_is_not_judged() -> None:
    judge = WaitingJudge(concurrency=1)
    with serving(judge) as url:
        body = json.dumps(exchanges("a", "b", "c")).encode()
        with raw_connection(url) as connection:
            connection.sendall(post("/v1/score", body))
            judge.wait_asked()
        wait_held(url, 1)
        judge.let(2)
        assert ask(f"{url}/v1/score", json=exchanges("d")).status_code == 200
    assert judge.asked == ["a", "d"]


def leave_while_asked(url: str, wait_asked: Callable[[], object]) -> None:
    """Ask for a judgment and leave in its midst; returns once the server has noticed."""
    with raw_connection(url) as connection:
        connection.sendall(post("/v1/score", json.dumps(exchanges("a")).encode()))
        wait_asked()
    while is_open(url):
        pass


@pytest.mark.parametrize("kind", ["samples", "panel", "cascade"])
def test_no_further_call_is_made_when_the_client_has_left(kind: str, tmp_path: Path) -> None:
    """Neither for the next sample or judge, nor to retry the call under way."""
    with ScriptedServer(lambda call: Answer(status=500, hang=call.number == 0)) as model:
        options = {"base_url": model.base_url, "concurrency": 1}
        paths = [str(tmp_path / f"{name}.toml") for name in ("m", "n")]
        for path in paths:
            given = {"kind": "prompted", "model": Path(path).stem, **options}
            Path(path).write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items()))
        if kind == "samples":
            judge: Judge = PromptedJudge(model="m", samples=5, **options)
        elif kind == "panel":
            judge = PanelJudge(judges=paths)
        else:
            judge = CascadeJudge(first=paths[0], second=paths[1])
        with serving(judge) as url:
            leave_while_asked(url, lambda: model.wait_for_calls(1))
            assert held(url) == (5 if kind == "samples" else 2)
            model.release.set()
            wait_held(url, 0)
        assert len(model.calls) == 1


def test_an_explanation_ends_when_its_client_leaves() -> None:
    judge = WaitingJudge(concurrency=1)
    row = {"id": "a", "prompt": "I won!", "response": "Oh! Lovely! Well done! Tell me more! When was it?"}
    with serving(judge) as url:
        with raw_connection(url) as connection:
            connection.sendall(post("/v1/score", json.dumps({"exchanges": [row], "explain": True}).encode()))
            judge.wait_asked()
            assert held(url) > 5, "a run for each part of the reply"
        while is_open(url):
            pass
        judge.let(20)
        assert ask(f"{url}/v1/score", json=exchanges("d")).status_code == 200
    assert judge.asked in (["a", "d"], ["a", "a", "d"]), "at most one more"


def is_open(url: str) -> bool:
    """Whether the server still waits for somebody else than us, by its own count of answers."""
    lines = get(f"{url}/metrics").text.splitlines()
    return not any(line.startswith('empathy_requests_total{path="/v1/score",status="499"}') for line in lines)


@pytest.mark.slow
def test_a_server_told_to_end_does_so_though_a_judge_never_answers(caplog: pytest.LogCaptureFixture) -> None:
    judge = WaitingJudge(concurrency=1)
    with ThreadPoolExecutor(1) as pool, serving(judge, deadline=0.2) as url:  # its end is waited for
        first = pool.submit(ask, f"{url}/v1/score", json=exchanges("a", "b"))
        judge.wait_asked()
    with suppress(httpx.HTTPError):
        assert first.result().status_code == 503
    assert judge.asked == ["a"]
    assert not [record for record in caplog.records if record.exc_info], "no traceback for who waits in vain"
    judge.let(1)


def drip(connection: socket.socket, start: bytes) -> bytes:
    """Send one byte after another until the server closes the connection; return its answer."""
    connection.sendall(start)
    connection.settimeout(0.02)
    answer, until = b"", monotonic() + LONGEST
    while monotonic() < until:
        try:
            received = connection.recv(4096)
        except TimeoutError:
            with suppress(ConnectionError):  # closed meanwhile: the next read sees it
                connection.send(b"x")
        except ConnectionError:
            return answer
        else:
            answer += received
            if not received:
                return answer
    raise AssertionError("the server never closes the connection")


@pytest.mark.parametrize(
    "first", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"], ids=["new", "used"]
)
def test_headers_that_never_end_are_cut_off(first: bytes) -> None:
    """The time-out is for the whole request: a byte now and then does not renew it."""
    with serving(load_judge("length"), idle_seconds=0.3) as url:
        with raw_connection(url) as connection:
            connection.sendall(first)
            while connection.recv(4096):  # nothing more is sent
                pass
        with raw_connection(url) as connection:
            answer = drip(connection, first + b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            assert answer.count(b"HTTP/1.1 200") == bool(first)


def test_a_body_sent_byte_by_byte_gets_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("empathy_judge.data.files.BODY_TIMEOUT", 0.3)
    with serving(load_judge("length"), idle_seconds=0.3) as url, raw_connection(url) as connection:
        head = post("/v1/score", b"x" * 1_000_000).partition(b"\r\n\r\n")[0]
        assert drip(connection, head + b"\r\n\r\n").startswith(b"HTTP/1.1 408")


def test_a_client_that_never_reads_the_answers_loses_the_connection() -> None:
    """Otherwise a few hundred such clients would use up all connections."""
    with serving(load_judge("length"), idle_seconds=0.2) as url, raw_connection(url) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400)
        ended = select.poll()
        ended.register(connection, 0)  # reports only the end of the connection
        assert ended.poll(LONGEST * 1000)


def test_requests_beyond_the_connection_limit_get_503() -> None:
    with serving(load_judge("length"), most_connections=3) as url, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(raw_connection(url))
        assert get(f"{url}/health").status_code == 503


def test_a_bug_in_a_judge_is_not_told_to_the_world(caplog: pytest.LogCaptureFixture) -> None:
    judge = WaitingJudge(concurrency=1)
    judge.let(2)
    with serving(judge) as url:
        row = {"id": "a", "prompt": "raise", "response": "a secret"}
        answer = ask(f"{url}/v1/score", json={"exchanges": [row, row | {"id": "b"}]})
        assert (answer.status_code, complaint(answer)) == (500, "the judge failed")
        assert ask(f"{url}/v1/score", json=exchanges("c")).status_code == 200, "it goes on"
    assert judge.asked == ["a", "c"], "the rest of a failed request is not judged"
    assert "KeyError" in caplog.text and "secret" not in caplog.text


def test_the_key_is_asked_for() -> None:
    with serving(load_judge("length"), key="k-12345678") as url:
        for headers in ({}, {"Authorization": "Bearer k-1234567"}, {"Authorization": "Basic k-12345678"}):
            for path in ("/v1/models", "/metrics", "/openapi.json", "/nowhere"):
                refused = get(f"{url}{path}", headers=headers)
                assert refused.status_code == 401 and "k-12345678" not in refused.text
        right = {"Authorization": "bearer k-12345678"}
        assert get(f"{url}/v1/models", headers=right).status_code == 200
        assert ask(f"{url}/v1/score", json=exchanges("a"), headers=right).status_code == 200
        assert ask(f"{url}/v1/score", json=exchanges("a")).status_code == 401
        assert [get(f"{url}{path}").status_code for path in ("/health", "/")] == [200, 200]
        assert get(f"{url}/v1/models", headers={"Authorization": b"Bearer \xff\xfe"}).status_code == 401


def test_a_name_made_to_point_here_is_refused_and_its_own_names_are_not(client: httpx.Client) -> None:
    strange = ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]:1")
    own = ("localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8321")
    found = {host: client.get("/health", headers={"Host": host}).status_code for host in (*strange, *own)}
    assert {found[host] for host in strange} <= {400, 421}, found
    assert {found[host] for host in own} == {200}, found


def test_a_body_too_large_is_refused_however_it_comes(server: str, client: httpx.Client) -> None:
    text = json.dumps({"exchanges": [{"prompt": "a", "response": "b" * 10_000_000}]}).encode()
    pieces = (text[start : start + 65_536] for start in range(0, len(text), 65_536))
    for content in (text, pieces):  # with a Content-Length, and in chunks without
        assert client.post("/v1/score", content=content, headers=JSON).status_code == 413


LONG = "b" * 100_001
USER = {"role": "user", "content": "I won!"}
MUCH = [{"speaker": "a", "text": "x" * 50_000}] * 5
FIELDS: list[tuple[Any, str]] = [
    ([{"prompt": "a", "response": "b", "dialogue": MUCH}], "exchanges.0: 250,002 characters in total"),
    ([{"prompt": "a", "response": LONG}], "exchanges.0: response: 100,001 characters"),
    ([{"prompt": "a", "response": "b"}, {"prompt": LONG, "response": "b"}], "exchanges.1: prompt: 100,001"),
    ([{"prompt": "a"}], "exchanges.0: response: missing or empty"),
    ([{"prompt": " \n", "response": "b"}], "exchanges.0: prompt: missing or empty"),
    ([{"prompt": ["a"], "response": "b"}], "exchanges.0: prompt: input should be a valid string"),
    ([{"prompt": "a", "response": "b", "dialogue": "x"}], "exchanges.0: dialogue"),
    ([{"messages": [USER]}], "exchanges.0.messages: expected a user's message and"),
    ([{"messages": [{**USER, "role": "assistant"}]}], "exchanges.0.messages: expected a user's message"),
    ([{"messages": []}], "exchanges.0.messages: expected"),
    ([{"prompt": "a", "response": "b", "id": "1"}] * 2, "exchanges.1.id: '1' is a duplicate"),
    ([{"prompt": "a", "response": "b"}] * 257, "at most 256"),
    ([], "exchanges: list should have at least 1 item"),
    ([7], "exchanges.0: input should be"),
    ("x", "exchanges: input should be a valid list"),
]


def test_a_wrong_field_is_named(client: httpx.Client) -> None:
    for given, says in FIELDS:
        refused = client.post("/v1/score", json={"exchanges": given})
        assert refused.status_code == 400 and says in complaint(refused), says
        assert refused.json()["error"]["param"].startswith("exchanges"), says


ROW = b'{"prompt": "a", "response": "b"}'
BODIES = {
    "empty": b"",
    "no json": b"{",
    "a list": b"[]",
    "null": b"null",
    "nan": b'{"exchanges": [{"prompt": "a", "response": "b", "x": NaN}]}',
    "infinity": b'{"exchanges": [{"prompt": "a", "response": "b", "x": 1e999}]}',
    "a huge number": b'{"exchanges": [{"prompt": "a", "response": "b", "id": ' + b"9" * 5000 + b"}]}",
    "a key twice": b'{"exchanges": [' + ROW + b'], "exchanges": [' + ROW + b"]}",
    "no utf-8": b'{"exchanges": [{"prompt": "\xff", "response": "b"}]}',
    "utf-16": '{"exchanges": []}'.encode("utf-16"),
    "deep": b'{"exchanges":' + b"[" * 100_000,
    "deep and whole": b'{"exchanges":' + b"[" * 900 + b"]" * 900 + b"}",
    "deep in a row": b'{"exchanges": [{"x": ' + b"[" * 50 + b"]" * 50 + b"}]}",
    "a text as flag": b'{"exchanges": [' + ROW + b'], "explain": "yes"}',
    "a null byte": b"\x00",
}


@pytest.mark.parametrize("path", ["/v1/score", "/v1/shares", "/v1/chat/completions"])
def test_a_malformed_body_is_refused(client: httpx.Client, path: str) -> None:
    answers = {name: client.post(path, content=body, headers=JSON) for name, body in BODIES.items()}
    assert not {name: answer.text for name, answer in answers.items() if answer.status_code != 400}
    assert all(map(complaint, answers.values()))


def test_only_json_is_read(client: httpx.Client) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert client.post("/v1/score", content=b"{}", headers={"Content-Type": kind}).status_code == 415


def test_odd_texts_are_judged(client: httpx.Client) -> None:
    texts = ("\ud800 alone", "\x00", "\U0001f3f3\ufe0f\u200d\U0001f308", "\u202etxet", "\u00e9" * 50_000)
    rows = [{"prompt": text, "response": text, "situation": text} for text in texts]
    answer = client.post("/v1/score", content=json.dumps({"exchanges": rows}).encode(), headers=JSON)
    assert answer.status_code == 200
    assert all(row["label"] for row in answer.json()["judgments"])


PATHS = ["/..%2f..%2fetc/passwd", "/../../etc/passwd", "//", "//v1/score", "/v1/score/", "/%00", "/.env"]
PATHS += ["/v1/models/%00", "/v1/models/..%2f..", "/v1/models/" + "x" * 5000, "/metrics/../health"]


def test_a_path_leads_nowhere_but_to_a_route(server: str) -> None:
    heads = {}
    for path in PATHS:
        with raw_connection(server) as connection:
            request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            heads[path] = connection.recv(4096).decode("latin-1")
    assert not {path: head for path, head in heads.items() if head.split()[1] not in ("404", "405")}


def test_other_methods_are_refused_and_no_other_site_may_read(client: httpx.Client) -> None:
    elsewhere = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    for method, path, status in (
        ("GET", "/v1/score", 405),
        ("DELETE", "/v1/models", 405),
        ("PUT", "/", 405),
        ("OPTIONS", "/v1/score", 405),  # the question of a browser before it lets another site's page ask
        ("GET", "/v1/models", 200),
        ("GET", "/", 200),
    ):
        answer = client.request(method, path, headers=elsewhere)
        assert answer.status_code == status, (method, path)
        assert not [name for name in answer.headers if name.startswith("access-control-")], (method, path)
