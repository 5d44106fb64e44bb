"""Judges of single replies, in this process and on a server: equal figures, errors in words, no key shown."""

import inspect
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from repository import SAMPLES
from served import serving
from servers import Answer, ScriptedServer
from topics import on_topic

import empathy_judge as ej
from empathy_judge.judge import base
from empathy_judge.judge.base import load_judge
from empathy_judge.pytest_plugin import assert_good_share

ROWS = [json.loads(line) for line in (SAMPLES / "responses.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def length() -> ej.JudgeClient:
    return ej.JudgeClient("length")


def test_a_server_and_this_process_give_equal_judgments(length: ej.JudgeClient) -> None:
    rows = [{**row, "id": "same"} for row in [*ROWS[:70], {**ROWS[0], "response": " "}]]  # two requests
    judged = length.judge_all(rows)
    assert judged[-1].unscored and judged[-1].good is None
    with serving(load_judge("length"), key="secret") as url:
        remote = ej.JudgeClient(url=url, key="secret")
        assert remote.judge_all(rows) == judged
        assert remote.shares(judged) == length.shares(judged)
        with pytest.raises(ej.UserError, match="has its own judge"):
            ej.JudgeClient("classifier", url=url, key="secret")
        with pytest.raises(ej.UserError, match="401"):
            ej.JudgeClient(url=url, key="wrong").judge("I won!", "Lovely!")
        for judge in (remote, length):
            with pytest.raises(ej.UserError, match="prompt_digest"):
                judge.shares([{"id": "1", "model": "m", "content_digest": "", "prompt_digest": "none"}])
    with pytest.raises(ej.OperationalError, match="check that the server is running"):
        remote.judge("I won!", "Lovely!")


def test_the_figures_are_those_of_score(length: ej.JudgeClient, tmp_path: Path) -> None:
    rows = [*ROWS[:40], {**ROWS[0], "id": "empty", "response": "0" * 40}]
    run = ej.score(rows, "length", out=tmp_path / "run")
    assert run.folder is not None
    written = (run.folder / "judgments.jsonl").read_text(encoding="utf-8").splitlines()
    judged = length.judge_all(rows)
    assert [json.loads(json.dumps(dict(item.row))) for item in judged] == list(map(json.loads, written))
    assert length.shares(judged) == [*run.models]


def test_threads_share_a_judge_and_each_gets_its_own_answer(length: ej.JudgeClient) -> None:
    def ask(count: int) -> Any:
        return length.judge("I won!", "word " * count, id=str(count)).row

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, range(1, 60)))
    assert together == [ask(count) for count in range(1, 60)]


def all_messages(error: BaseException | None) -> str:
    """Return what a traceback would quote of an error and its causes."""
    return f"{error}{all_messages(error.__cause__ or error.__context__)}" if error else ""


@pytest.mark.parametrize(
    ("url", "key", "problem"),
    [
        ("http://me:hunter2@127.0.0.1:8321", "hunter2-key", "password"),
        ("me:hunter2@127.0.0.1:8321", "hunter2-key", "password"),
        ("https://judge.example/?key=hunter2", "hunter2-key", "query"),
        ("http://[hunter", "hunter2-key", "such as http"),
        ("localhost:8321", "hunter2-key", "such as http"),
        ("http://127.0.0.1:99999", "hunter2-key", "such as http"),
        ("http://judge.example", "hunter2-key", "unencrypted"),
        ("http://127.0.0.1.judge.example", "hunter2-key", "unencrypted"),
        ("http://127.0.0.1:9", "hunter2\nnext", "key"),
    ],
)
def test_no_key_goes_over_plain_http_and_no_password_is_shown(
    url: str, key: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPATHY_JUDGE_KEY", key)
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: pytest.fail("asked for an address"))
    with pytest.raises(ej.UserError, match=problem) as caught:
        ej.JudgeClient(url=url)
    assert "hunter2" not in all_messages(caught.value)


def test_a_connection_that_fails_or_comes_too_late_ends_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*_: Any, **__: Any) -> Any:
        raise TimeoutError(110, "Connection timed out")

    endless = Answer(raw=b"HTTP/1.1 200 OK\r\nA: ", then=b"b", drip=0.02)
    with ScriptedServer(lambda call: endless) as server, monkeypatch.context() as patched:
        patched.setattr(
            "empathy_judge.client.Timer.start", lambda timer: timer.function()
        )  # before it connects
        with pytest.raises(ej.OperationalError, match="no complete answer in 5 s"):
            ej.JudgeClient(url=server.base_url, timeout=5.0).judge("I won!", "Lovely!")
    monkeypatch.setattr("socket.create_connection", give_up)
    for timeout in (None, 600.0):
        with pytest.raises(ej.OperationalError, match="Connection timed out; check that the server"):
            ej.JudgeClient(url="http://127.0.0.1:9", timeout=timeout).judge("I won!", "Lovely!")


@pytest.mark.parametrize("after", ["86400", "9" * 5000, "\u00b2"])
def test_no_server_keeps_the_client_waiting(after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    busy = Answer(status=503, headers={"Retry-After": after})
    with ScriptedServer(lambda call: busy) as server, pytest.raises(ej.OperationalError, match="503"):
        ej.JudgeClient(url=server.base_url).judge("I won!", "Lovely!")
    assert len(server.calls) <= 5 and all(0 <= wait <= 60 for wait in waits)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body={"judge": "x" * 10_000}),
        Answer(status=400, body={"error": {"message": "x" * 10_000}}),
        Answer(status=400, body="x" * 10_000),
        Answer(body="[" * 900 + "]" * 900),
        Answer(body="[" * 100_000),
        Answer(raw=b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    ],
)
def test_no_answer_is_larger_than_its_limit(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("empathy_judge.client.LARGEST_ANSWER", 2_000)
    with ScriptedServer(lambda call: answer) as server, pytest.raises(ej.UserError) as caught:
        ej.JudgeClient(url=server.base_url).judge("I won!", "Lovely!")
    assert len(str(caught.value)) < 1_000


def test_another_packages_judge_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs.py").write_text(
        "from empathy_judge.judge.baselines import LengthJudge\n\n"
        "class Theirs(LengthJudge):\n    name = 'theirs'\n",
        encoding="utf-8",
    )
    about = tmp_path / "their_judges-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-judges\nVersion: 1\n")
    entries = "theirs = theirs:Theirs\nbroken = theirs:NoSuch\nlength = theirs:Theirs\n"
    (about / "entry_points.txt").write_text(f"[empathy_judge.judges]\n{entries}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("empathy_judge.judge.base._offered", base._offered.__wrapped__)
    assert ej.JudgeClient("theirs").judge("I won!", "Lovely!").judge.startswith("theirs ")
    assert ej.JudgeClient("length").judge("I won!", "Lovely!").judge.startswith("length ")  # ours stays ours
    with pytest.raises(ej.UserError, match="'broken' of their-judges cannot be loaded: AttributeError"):
        ej.JudgeClient("broken")
    with pytest.raises(ej.UserError, match="known: broken, classifier, "):
        ej.JudgeClient("nobody")


class Partial(ej.JudgeClient):
    """A judge that finds whoever is sorry much better."""

    def judge_all(self, exchanges: Iterable[Mapping[str, Any]]) -> list[ej.ReplyJudgment]:
        rows = [*exchanges]
        goods = [0.2 + 0.6 * ("sorry" in row["response"]) + 0.01 * (at % 3) for at, row in enumerate(rows)]
        shares = [{"Bad": 0.9 - good, "Okay": 0.1, "Good": good} for good in goods]
        return [
            replace(item, row={**item.row, "probabilities": share})
            for item, share in zip(super().judge_all(rows), shares, strict=True)
        ]


def test_the_pytest_fixture_follows_the_verdict_against_a_baseline(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cold = [{"prompt": prompt, "response": f"{opening}"} for prompt, opening in map(on_topic, range(24))]
    warm = [{**row, "response": row["response"] + " I am sorry."} for row in cold]
    judge = Partial("length")
    check = inspect.unwrap(assert_good_share)(judge)  # without the fixture's wrapper
    check(warm, baseline=cold)
    assert "new is probably better than baseline" in capsys.readouterr().out
    check(cold, baseline=cold)
    with pytest.raises(pytest.skip.Exception, match="baseline is probably better than new"):
        check(cold, baseline=warm)
    with pytest.raises(ValueError, match="either"):
        check(cold)
    judged = judge.judge_all(
        [{**row, "model": name} for name, rows in (("a", cold), ("b", warm)) for row in rows]
    )
    with serving(load_judge("length")) as url:
        (pair,) = ej.JudgeClient(url=url).compare(judged, "a", max_drop=5)
    assert [pair] == judge.compare(judged, "a", max_drop=5)
    assert (pair.one, pair.verdict, pair.exit_code) == ("b", "probably better", 0)
    with pytest.raises(ej.UserError, match="no model 'c'"):
        judge.compare(judged, "c")
