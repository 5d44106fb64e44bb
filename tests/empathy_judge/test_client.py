"""The client in somebody's project: a child process or a server, the figures of `score`, errors in words."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from own_project import make_judge_environment, make_project, run_in
from repository import ROOT, SAMPLES
from served import serving
from servers import Answer, ScriptedServer

from empathy_judge import JudgeClient, JudgeError
from empathy_judge.judge.base import load_judge

ROWS = [json.loads(line) for line in (SAMPLES / "responses.jsonl").read_text(encoding="utf-8").splitlines()]
WARM = [row for row in ROWS if row["model"] == "demo-warm"][:24]
ASK = """
import json, sys
from empathy_judge import data, judge, server
assert data.OWN and judge.OWN and server.OWN
from empathy_judge import JudgeClient
rows = [json.loads(line) for line in open("rows.jsonl", encoding="utf-8")]
with JudgeClient() as client:
    judgments = client.judge_all(rows)
    (model,) = client.shares(judgments)
good, own = model.good, model.shares["Good"]
print(json.dumps({
    "rows": [dict(judgment.row) for judgment in judgments],
    "good": [good.value, good.low, good.high], "own": [own.value, own.low, own.high],
}))
"""


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def flat(share: dict[str, float]) -> list[float]:
    return [share["value"], share["low"], share["high"]]


@pytest.fixture
def length() -> Iterator[JudgeClient]:
    with JudgeClient("length") as judge:
        yield judge


@pytest.mark.slow
def test_a_project_with_its_own_data_package_gets_the_figures_of_score(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    rows = write_rows(project / "rows.jsonl", [*WARM, {**WARM[0], "id": "code", "response": "0" * 40}])
    command = [sys.executable, "cli.py", "score", str(rows), "--out", str(tmp_path / "run"), "--json"]
    scored = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (model,) = json.loads(scored.stdout)["models"]
    written = (tmp_path / "run" / "judgments.jsonl").read_text(encoding="utf-8").splitlines()
    # Once with the judge in the same environment, once with it in another.
    elsewhere = make_judge_environment(tmp_path / "elsewhere")
    for variables in ({}, {"EMPATHY_JUDGE_PYTHON": str(elsewhere)}):
        found = run_in(project, ASK, **variables)
        assert found["rows"] == list(map(json.loads, written))
        assert found["rows"][-1]["unscored"] and not found["rows"][-1]["probabilities"]
        assert found["good"] == pytest.approx(flat(model["corrected"]["Good"]), abs=1e-6)
        assert found["own"] == pytest.approx(flat(model["shares"]["Good"]), abs=1e-6)


def test_a_server_and_a_child_say_the_same(length: JudgeClient) -> None:
    rows = [{**row, "id": "same"} for row in ROWS[:70]]  # more than one request, of replies that share an id
    by_child = length.judge_all(rows)
    with serving(load_judge("length"), key="secret") as url, JudgeClient(url=url, key="secret") as remote:
        assert remote.judge_all(rows) == by_child
        assert remote.shares(by_child) == length.shares(by_child)
        with pytest.raises(JudgeError, match=r"judge is 'length', not 'classifier'"):
            JudgeClient("classifier", url=url, key="secret").judge("I won!", "Lovely!")
        with pytest.raises(JudgeError, match="401"):
            JudgeClient(url=url, key="wrong").judge("I won!", "Lovely!")
        with pytest.raises(JudgeError, match="prompt_digest"):
            remote.shares([{"id": "1", "model": "m", "content": "", "prompt_digest": "none"}])
    with pytest.raises(JudgeError, match="check that the server is running"):
        remote.judge("I won!", "Lovely!")


def test_threads_share_a_child_and_each_gets_its_own_answer(length: JudgeClient) -> None:
    def ask(count: int) -> Any:
        return length.judge("I won!", "word " * count, id=str(count)).row

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, range(1, 60)))
    assert together == [ask(count) for count in range(1, 60)]


def test_what_goes_wrong_is_told(length: JudgeClient) -> None:
    with pytest.raises(JudgeError, match="prompt: missing or empty"):
        length.judge(" ", "Lovely!")
    assert length.judge("I won!", "Lovely!").label  # and the child goes on
    with pytest.raises(JudgeError, match=r"unknown judge 'lenght'.* did you mean 'length'"):
        JudgeClient("lenght").judge("I won!", "Lovely!")
    with pytest.raises(JudgeError, match="cannot be started"):
        JudgeClient(python="/no/such/python").judge("I won!", "Lovely!")
    with pytest.raises(JudgeError, match="such as http"):
        JudgeClient(url="localhost:8321")


def all_messages(error: BaseException | None) -> str:
    """What a traceback would quote of an error and its causes."""
    return f"{error}{all_messages(error.__cause__ or error.__context__)}" if error else ""


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://me:hunter2@127.0.0.1:8321", "password"),
        ("me:hunter2@127.0.0.1:8321", "password"),
        ("https://judge.example/?key=hunter2", "query"),
        ("http://[hunter", "such as http"),
        ("http://judge.example", "unencrypted"),
        ("http://127.0.0.1.judge.example", "unencrypted"),
    ],
)
def test_no_key_goes_over_plain_http_and_no_password_is_shown(
    url: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPATHY_JUDGE_KEY", "hunter2-key")
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: pytest.fail("asked for an address"))
    with pytest.raises(JudgeError, match=says) as caught:
        JudgeClient(url=url).judge("I won!", "Lovely!")
    assert "hunter2" not in all_messages(caught.value)


def test_a_key_that_is_no_header_is_not_shown() -> None:
    with pytest.raises(JudgeError, match="key") as caught:
        JudgeClient(url="http://127.0.0.1:9", key="hunter2\nnext").judge("I won!", "Lovely!")
    assert "hunter2" not in all_messages(caught.value)


@pytest.mark.parametrize("after", ["86400", "9" * 5000, "\u00b2"])
def test_no_server_keeps_the_client_waiting(after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    busy = Answer(status=503, headers={"Retry-After": after})
    with ScriptedServer(lambda call: busy) as server, pytest.raises(JudgeError, match="503"):
        JudgeClient(url=server.base_url).judge("I won!", "Lovely!")
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
    monkeypatch.setattr("empathy_judge.connections.LARGEST_ANSWER", 2_000)
    with ScriptedServer(lambda call: answer) as server, pytest.raises(JudgeError) as caught:
        JudgeClient(url=server.base_url).judge("I won!", "Lovely!")
    assert len(str(caught.value)) < 1_000


def test_a_child_that_was_killed_is_started_again(length: JudgeClient) -> None:
    before = length.judge("I won!", "Lovely!")
    (child,) = psutil.Process().children()
    child.kill()
    child.wait()
    assert length.judge("I won!", "Lovely!") == before
    length.close()
    assert psutil.Process().children() == []


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import sys, time, os; from empathy_judge import JudgeClient; judge = JudgeClient('length'); "
        "judge.judge('I won!', 'Lovely!'); "
        # A fork that outlives its parent holds the pipes open.
        "os.fork() or time.sleep(300); print('ready', flush=True); time.sleep(300)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
    below = psutil.Process(parent.pid).children()
    (judge,) = (process for process in below if "start.py" in " ".join(process.cmdline()))
    (fork,) = (process for process in below if process != judge)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    try:
        judge.wait(60)
    finally:
        fork.kill()
        parent.stdout.close()


@pytest.mark.slow
def test_another_packages_judge_is_found_by_its_entry_point(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(
        "from empathy_judge.data.records import judgment_of\n"
        "from empathy_judge.data.rubric import read_rubric\n"
        "from empathy_judge.judge.base import Judge\n\n"
        "class Theirs(Judge):\n"
        "    name, version, rubric, concurrency = 'theirs', '1', read_rubric('crowd'), 1\n\n"
        "    def judge(self, exchange):\n"
        "        return judgment_of(exchange, {'Bad': 0.2, 'Okay': 0.3, 'Good': 0.5})\n",
        encoding="utf-8",
    )
    about = tmp_path / "their_judges-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: their-judges\nVersion: 1\n", encoding="utf-8"
    )
    entries = (
        "[empathy_judge.judges]\ntheirs = theirs:Theirs\nbroken = theirs:NoSuch\nlength = theirs:Theirs\n"
    )
    (about / "entry_points.txt").write_text(f"[empathy_judge.judges]\n{entries}", encoding="utf-8")

    def score(judge: str) -> "subprocess.CompletedProcess[str]":
        words = ["score", "data/samples/wry.jsonl", "--limit", "2", "--judge", judge, "--json"]
        command = [sys.executable, "cli.py", *words, "--out", str(tmp_path / judge)]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert json.loads(score("theirs").stdout)["judge"] == "theirs"
    assert json.loads(score("length").stdout)["judge"] == "length"  # a name of ours stays ours
    assert "'broken' of their-judges cannot be loaded: AttributeError" in score("broken").stderr
    assert "known: broken, cascade" in score("nobody").stderr
