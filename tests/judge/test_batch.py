"""Batches: submitted once whatever is killed when, collected whole, and every request accounted for."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_servers import BatchServer, answer_line
from click.testing import Result
from command_line import run, write_toml

from empathy_judge.data.records import Judgment
from empathy_judge.data.tables import read_judgments
from empathy_judge.judge.llm import batch as requests

Write = Callable[..., Path]
SECRET = "sk-test-7f3a9c1e5b2d8f60"
KINDS = {
    "prompted": {"kind": "prompted", "model": "gpt-4o-mini"},
    "decision": {"kind": "decision", "model": "gpt-6-luna"},
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", SECRET)


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with BatchServer() as running:
        yield running


def write_judge(server: BatchServer, kind: str = "decision", **options: Any) -> str:
    about = {**KINDS[kind], "base_url": server.base_url, "key_env": "TEST_KEY", "retries": 2, **options}
    return write_toml("judge.toml", **about)


@pytest.fixture
def path(server: BatchServer, write_responses: Write) -> Path:
    write_judge(server)
    return write_responses(6)


def score(*arguments: object) -> Result:
    return run("score", *arguments, "--judge", "judge.toml")


def judged(folder: str = "run") -> list[Judgment]:
    return list(read_judgments(Path(folder, "judgments.jsonl")))


@pytest.mark.parametrize("kind", ["prompted", "decision"])
def test_submitted_then_collected_as_if_asked_directly(
    kind: str, server: BatchServer, write_responses: Write
) -> None:
    path = write_responses(40)
    write_judge(server, kind)
    first = score(path, "--batch", "--out", "run")
    assert first.exit_code == 3 and "\nNext, in an hour or more: " in first.stderr
    assert first.stdout == "submitted: 0 of 39 requests done; run the command again later\n"
    assert not Path("run/manifest.json").exists()
    again = score(path, "--batch", "--out", "run", "--json")
    assert again.exit_code == 3 and "0 of 39" in json.loads(again.stdout)["batch"]
    assert server.steps["submit"] == server.steps["upload"] == server.steps["ask"] == 1
    server.is_done = True
    done = score(path, "--batch", "--out", "run")
    assert done.exit_code == 0, done.output
    assert [item.id for item in judged()] == [f"r{n}" for n in range(40)]
    assert score(path, "--out", "direct").exit_code == 0
    same = ("id", "label", "probabilities", "score", "rationale", "unscored", "content_digest")
    pairs = list(zip(judged(), judged("direct"), strict=True))
    assert all(getattr(ours, name) == getattr(theirs, name) for ours, theirs in pairs for name in same)
    assert all(ours.usage["input_tokens"] == theirs.usage["input_tokens"] for ours, theirs in pairs)
    costs = [ours.usage["cost"] / theirs.usage["cost"] for ours, theirs in pairs]
    assert costs[0] == 1 and costs[1:] == pytest.approx([0.5] * 39, rel=1e-3), "half the price"
    left = {item.name for item in Path("run").iterdir()}
    assert not any(name.startswith("batch-") for name in left) and "batch.json" in left
    calls = server.steps.total()
    assert score(path, "--batch", "--out", "run").exit_code == 0
    assert server.steps.total() == calls, "a whole run asks for nothing"


def test_every_request_ends_as_a_judgment_or_with_a_reason(
    server: BatchServer, write_responses: Write
) -> None:
    def respond(row: dict[str, Any]) -> dict[str, Any] | None:
        number, line = int(row["custom_id"].split("-")[0]), answer_line(row)
        refusal = {"status_code": 400, "body": {"error": {"message": f"no {SECRET}"}}}
        expiry = {"response": None, "error": {"code": "batch_expired", "message": "too late"}}
        if number == 4:
            line["custom_id"] = "400-0"  # of no request
        if number == 9:
            line["response"]["body"] = {"answers": "garbage"}
        return {1: None, 2: {**line, "response": refusal}, 3: line | expiry}.get(number % 5, line)

    server.respond, server.is_done, server.ends_as = respond, True, "expired"
    path = write_responses(30)
    write_judge(server)
    done = score(path, "--batch", "--wait", "--out", "run", "--json")
    assert done.exit_code == 0, done.output
    reasons = {item.id: item.unscored for item in judged()}
    assert len(reasons) == 30
    assert reasons["r1"] == reasons["r4"] == "batch expired: this request is in none of its files"
    assert reasons["r2"] == "HTTP 400: no [key]"
    assert reasons["r3"] == "batch: batch_expired: too late"
    assert reasons["r9"] == "no answers to 4 questions"
    assert reasons["r0"] is reasons["r5"] is None
    counts = json.loads(done.stdout)["counts"]
    assert counts == {"judged": 10, "unscored": 20, "set_aside": 0}
    assert SECRET not in "".join(item.read_text() for item in Path("run").iterdir() if item.is_file())
    assert {call.headers["authorization"] for call in server.calls} == {f"Bearer {SECRET}"}


@pytest.mark.slow
def test_parts_are_no_larger_than_a_server_takes(
    server: BatchServer, write_responses: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MOST_REQUESTS", 10)
    path = write_responses(36)
    write_judge(server)
    server.is_done, server.page = True, 1
    assert score(path, "--batch", "--wait", "--out", "run").exit_code == 0
    assert [item["request_counts"]["total"] for item in server.batches] == [10, 10, 10, 5]
    assert len(judged()) == 36
    lines = [line for item in server.batches for line in server.files[item["input_file_id"]].splitlines()]
    assert len({json.loads(line)["custom_id"] for line in lines}) == 35
    monkeypatch.setattr(requests, "MOST_FILE_BYTES", 3 * len(lines[0]))
    assert score(path, "--batch", "--wait", "--out", "small").exit_code == 0
    sizes = [len(server.files[item["input_file_id"]]) for item in server.batches[4:]]
    assert len(sizes) > 10 and max(sizes) <= 3 * len(lines[0])


def test_what_can_be_sent_again_is_retried_and_a_submission_is_not(
    server: BatchServer, path: Path, waits: list[float]
) -> None:
    server.is_done = True
    server.fail = {"upload": [400]}
    refused = score(path, "--batch", "--out", "run")
    assert refused.exit_code == 5 and "HTTP 400" in refused.stderr and not server.batches
    server.fail = {"upload": [503], "submit": [500], "poll": [502], "download": [503], "list": [500]}
    failed = score(path, "--batch", "--out", "run")
    assert failed.exit_code == 5 and "run the command again to resume" in failed.stderr
    assert score(path, "--batch", "--out", "run").exit_code == 0
    assert len(server.batches) == 1 and len(judged()) == 6


def test_waiting_polls_until_all_is_there_and_files_have_a_limit(
    server: BatchServer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []

    def rest(seconds: float) -> None:
        rests.append(seconds)
        server.is_done = len(rests) == 3

    monkeypatch.setattr(requests, "sleep", rest)
    with monkeypatch.context() as small:
        small.setattr(requests, "LARGEST_LINE", 20)
        done = score(path, "--batch", "--wait", "--out", "run")
        assert done.exit_code == 5 and "larger than 120 bytes" in done.stderr
    assert not list(Path("run").glob("*output*"))
    assert score(path, "--batch", "--wait", "--out", "run").exit_code == 0
    assert rests == [30.0] * 3 and len(judged()) == 6


def test_a_failed_batch_judges_nothing_and_can_be_submitted_again(server: BatchServer, path: Path) -> None:
    server.is_done, server.ends_as = True, "failed"
    done = score(path, "--batch", "--out", "run")
    assert done.exit_code == 5 and "too many tokens enqueued" in done.stderr
    assert Path("run/journal.jsonl").read_text().count("\n") == 1, "only what was asked directly"
    server.ends_as = "completed"
    assert score(path, "--batch", "--wait", "--out", "run").exit_code == 0
    assert len(server.batches) == 2 and len(judged()) == 6


def test_what_cannot_be_batched_or_paid_for_is_refused_before_it_is_sent(
    server: BatchServer, write_responses: Write
) -> None:
    path = write_responses(200)
    local = run("score", path, "--judge", "length", "--batch", "--out", "l")
    assert local.exit_code == 2 and "does not support batches" in local.stderr
    for options in ({"reask": 1}, {"mode": "side-by-side"}):
        write_judge(server, "prompted", **options)
        done = score(path, "--batch", "--out", "run")
        assert done.exit_code == 2 and "--batch: not with" in done.stderr and not server.steps
    write_judge(server, "prompted")
    done = score(path, "--batch", "--out", "paid", "--max-cost", "0.01")
    assert done.exit_code == 5 and "Nothing was submitted" in done.stderr and not server.batches
    server.is_done = True
    assert score(path, "--batch", "--out", "paid", "--max-cost", "1").exit_code == 0
    assert len(server.batches) == 1


def test_batches_stay_with_their_run_server_and_state(server: BatchServer, path: Path) -> None:
    """A second run is started so as to be asked anew, say where the first left much unscored."""
    for folder in ("one", "two"):
        assert score(path, "--batch", "--out", folder).exit_code == 3
    assert len({item["metadata"]["empathy-judge"] for item in server.batches}) == 2
    write_judge(server, base_url="http://127.0.0.1:9/v1")
    moved = score(path, "--batch", "--out", "one")
    assert moved.exit_code == 2 and server.base_url in moved.stderr
    write_judge(server)
    Path("one/batch.json").write_text("{")
    damaged = score(path, "--batch", "--out", "one")
    assert damaged.exit_code == 2 and "damaged" in damaged.stderr
