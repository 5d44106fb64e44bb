"""Servers that never finish an answer, and a server that serves one call at a time."""

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from servers import Answer, Call, ScriptedServer, answer_chat

import empathy_judge as ej
from empathy_judge.data.records import Exchange
from empathy_judge.data.tables import read_rows, write_rows
from empathy_judge.judge.budget import ConcurrencyLimit
from empathy_judge.judge.llm.prompted import PromptedJudge
from empathy_judge.judge.llm.responder import ModelConfig, Responder, respond_to
from empathy_judge.judge.scoring import ScoringRequest, score_file

Make = Callable[..., PromptedJudge]
OK, LINE = b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def endless(start: bytes, then: bytes, every: float = 0.02) -> Answer:
    return Answer(raw=start, then=then, drip=every)


STALLS = {
    "silence": Answer(hang=True),
    "status line": endless(b"HTTP/1.1 200 ", b"O"),
    "header": endless(OK + b"A: ", b"b"),
    "headers": endless(OK, LINE),
    "interim answers": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 1e-4),
    "chunk extension": endless(CHUNKED + b"2;", b"x"),
    "trailers": endless(CHUNKED + b"2\r\n{}\r\n0\r\n", LINE),
    "body": endless(OK + b"Content-Length: 99999\r\n\r\n", b" "),
    "open end": endless(OK + b"\r\n{}", b""),
}
ROWS = [
    {"id": str(n), "prompt": f"I lost my {name}.", "response": "I am so sorry."}
    for n, name in enumerate([*STALLS, "dog", "cat"])
]
LATE = "timed out: no complete answer in 1 s"
OUTCOMES = Counter({LATE: len(STALLS), None: 2})


def stall(call: Call) -> Answer:
    """Stall as the prompt names it."""
    stalls = (found for name, found in STALLS.items() if f"lost my {name}." in call.content.decode())
    if call.path.endswith("/score"):
        body = {"judge": {"name": "n", "version": "1"}, "judgments": [{"label": "Good"}]}
        return next(stalls, Answer(body=body))
    return next(stalls, answer_chat(call, text="Good"))


def test_a_judge_ends_every_stalled_call_and_judges_the_rest(make_prompted: Make, tmp_path: Path) -> None:
    source = tmp_path / "replies.jsonl"
    write_rows(source, ROWS)
    with ScriptedServer(stall) as server:
        judge = make_prompted(server.base_url, mode="label", timeout=1.0, retries=2, concurrency=len(ROWS))
        done = score_file(ScoringRequest(source=source, judge=judge, out=tmp_path / "run"))
    rows = [row for _, row in read_rows(done.folder / "judgments.jsonl")]
    assert Counter(row["unscored"] for row in rows) == OUTCOMES
    assert len(server.calls) == len(ROWS), "a call that timed out is not sent again"


def test_a_model_that_stalls_fails_for_these_prompts_only(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    write_rows(prompts, ROWS)
    with ScriptedServer(stall) as server:
        config = ModelConfig(model="m", base_url=server.base_url, timeout=1.0, concurrency=len(ROWS))
        responder = Responder(config)
        done = respond_to(prompts, responder, responder.plan(prompts), tmp_path / "run")
    assert done.manifest["reasons"] == {LATE: len(STALLS)} and len(server.calls) == len(ROWS)
    assert done.manifest["counts"]["responses"] == 2


def test_a_client_ends_every_stalled_request() -> None:
    def outcome(row: dict[str, Any]) -> str | None:
        try:
            assert client.judge(row["prompt"], row["response"]).label == "Good"
        except ej.OperationalError as error:
            return str(error).partition("/v1/score: ")[2].partition(";")[0]
        return None

    with ScriptedServer(stall) as server, ThreadPoolExecutor(len(ROWS)) as pool:
        client = ej.JudgeClient(url=server.base_url, timeout=1.0)
        assert Counter(pool.map(outcome, ROWS)) == OUTCOMES


@pytest.mark.parametrize("served", [1, 2, 4, 100])
def test_calls_in_flight_settle_at_what_a_server_serves(served: int) -> None:
    """A simulated server works on so many calls at once; all others wait their turn."""
    limit, most = ConcurrencyLimit(8 if served > 4 else 2, most=32), 0
    for _ in range(400):
        calls = [limit.enter() for _ in range(limit.limit)]
        most = max(most, len(calls))
        for window in calls:
            limit.leave(window, max(1.0, len(calls) / served))
    assert limit.limit == min(served, 32)
    assert most <= min(32, 4 * served), "it never asks for much more"
    window = limit.enter()
    for _ in range(3):  # of one window
        limit.reduce(window)
    assert limit.limit == max(1, min(served, 32) // 2)


def test_a_fixed_number_stays_and_an_overloaded_server_gets_fewer_calls(make_prompted: Make) -> None:
    def script(call: Call) -> Answer:
        return Answer(status=503, body="") if call.number < 1 else answer_chat(call, text="Good")

    for options, start, left in (({}, 2, 1), ({"concurrency": 6}, 6, 6)):
        with ScriptedServer(script) as server:
            judge = make_prompted(server.base_url, mode="label", retries=1, **options)
            assert judge.endpoint.in_flight.limit == start
            assert judge.judge(Exchange(id="1", prompt="I won!", response="Lovely!")).label == "Good"
            assert judge.endpoint.in_flight.limit == left and judge.endpoint.timeout == 300
    assert make_prompted("https://judge.example/v1").endpoint.in_flight.limit == 8
    assert make_prompted("https://judge.example/v1").endpoint.timeout == 60


def test_a_server_with_one_thread_gets_every_call_once(make_prompted: Make, tmp_path: Path) -> None:
    thread, waiting, most = Lock(), Counter[str](), Counter[int]()

    def script(call: Call) -> Answer:
        waiting["calls"] += 1
        most[waiting["calls"]] += 1
        with thread:
            sum(range(200_000))  # the work of a call
        waiting["calls"] -= 1
        return answer_chat(call, text="Good")

    source = tmp_path / "replies.jsonl"
    rows = [{"id": str(n), "prompt": f"I won {n} times!", "response": "Lovely!"} for n in range(40)]
    write_rows(source, rows)
    with ScriptedServer(script) as server:
        judge = make_prompted(server.base_url, mode="label")
        done = score_file(ScoringRequest(source=source, judge=judge, out=tmp_path / "run"))
    assert done.summary.models[0].judged == 40
    assert len({json.dumps(call.body) for call in server.calls}) == len(server.calls) == 40
    assert max(most) <= 8, "not all at once"
