"""The rating page's server: blind, idempotent, and nothing is answered before it is on the disk."""

import errno
import json
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import run
from rating_plans import NAMES, make_plan, serving_plan

from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.records import LABELS
from empathy_judge.data.tables import write_rows
from empathy_judge.rating.collect import collect, count_rated
from empathy_judge.rating.journal import JOURNAL_FILE, Journal, lock_plan
from empathy_judge.rating.plan import RatingPlan, read_plan


@pytest.fixture
def plan(tmp_path: Path) -> RatingPlan:
    return make_plan(tmp_path, people=4, each=20)


@pytest.fixture
def client(tmp_path: Path, plan: RatingPlan) -> Iterator[httpx.Client]:
    with serving_plan(tmp_path) as client:
        yield client


def act(
    plan: RatingPlan, token: str, index: int, label: str | None, n: int = 1, **more: Any
) -> dict[str, Any]:
    return {"index": index, "key": plan.raters[token].order[index], "label": label, "n": n, **more}


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / JOURNAL_FILE).read_bytes().splitlines()]


def test_a_rating_is_on_the_disk_once_however_often_it_is_sent(
    client: httpx.Client, plan: RatingPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = next(iter(plan.raters))
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (real(handle), synced.append(len(lines(tmp_path)))))
    link = f"/r/{token}/ratings"
    for _ in range(3):
        assert client.post(link, json=act(plan, token, 0, "Good", reason="Warm.")).status_code == 200
    assert synced == [1] and len(lines(tmp_path)) == 1
    about = {"key": plan.raters[token].order[0], "index": 0, "label": "Good", "reason": "Warm."}
    assert lines(tmp_path)[0].items() >= about.items()
    assert client.post(link, json=act(plan, token, 0, None, 2)).status_code == 200
    late = client.post(link, json=act(plan, token, 0, "Good", reason="Warm."))
    assert late.status_code == 200, "a late copy of the first is known, and brings nothing back"
    assert client.get(f"/r/{token}/state").json()["acts"] == [
        {"index": 0, "n": 2, "label": None, "reason": ""}
    ]
    assert lines(tmp_path)[1]["undo"] is True
    assert client.post(link, json=act(plan, token, 0, "Bad", 3)).status_code == 200
    other_tab = client.post(link, json=act(plan, token, 0, "Okay", 3))
    assert other_tab.status_code == 409 and other_tab.json()["acts"][0]["label"] == "Bad"
    assert client.post(link, json=act(plan, token, 1, "Okay", 2)).status_code == 409
    assert len(lines(tmp_path)) == 3
    with closing(Journal(tmp_path, plan)) as journal:
        assert {index: entry.label for index, (_, entry) in journal.acts_of(token).items()} == {0: "Bad"}


def test_names_of_models_are_nowhere_in_what_a_rater_gets(client: httpx.Client, plan: RatingPlan) -> None:
    for token, rater in plan.raters.items():
        page, state = client.get(f"/r/{token}"), client.get(f"/r/{token}/state")
        assert [item["key"] for item in state.json()["items"]] == list(rater.order)
        sent = client.post(f"/r/{token}/ratings", json=act(plan, token, 0, "Good"))
        for answer in (page, state, sent):
            whole = answer.text + str(answer.headers) + str(answer.url)
            assert not any(name in whole for name in NAMES)
            assert not any(item.id in whole for item in plan.items.values())
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy and page.headers["cache-control"] == "no-store"
        assert page.text.count("nonce=") == 2


def test_what_is_not_ours_is_refused(client: httpx.Client, plan: RatingPlan, tmp_path: Path) -> None:
    token, other = list(plan.raters)[:2]
    assert client.get("/r/0123456789abcdef").status_code == 404
    assert token not in client.get("/").text
    assert client.post("/r/nobody/ratings", json=act(plan, token, 0, "Good")).status_code == 404
    assert client.get(f"/r/{token}", headers={"Host": "elsewhere.example"}).status_code == 421
    wrong: list[tuple[Any, str]] = [
        (act(plan, token, 0, "Great"), "label"),
        (act(plan, token, 0, "Good") | {"index": 99}, "index"),
        (act(plan, token, 0, "Good") | {"index": -1}, "index"),
        (act(plan, token, 0, "Good") | {"key": "abc"}, "index"),
        (act(plan, token, 0, "Good", reason="x" * 2001), "reason"),
        (act(plan, token, 0, "Good", n=0), "n"),
        ({"index": 0}, "key"),
    ]
    for body, field in wrong:
        answer = client.post(f"/r/{token}/ratings", json=body)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == field, body
    assert client.post(f"/r/{token}/ratings", content=b"{}").status_code == 415
    assert not (tmp_path / JOURNAL_FILE).read_text()
    assert client.get(f"/r/{other}/state").json()["acts"] == []


def test_one_server_at_a_time_and_a_torn_line_is_forgotten(plan: RatingPlan, tmp_path: Path) -> None:
    token = next(iter(plan.raters))
    with serving_plan(tmp_path) as client:
        client.post(f"/r/{token}/ratings", json=act(plan, token, 0, "Good", reason="a\u2028b"))
        with pytest.raises(OperationalError, match="serves this plan already"), lock_plan(tmp_path):
            pass
    journal = tmp_path / JOURNAL_FILE
    with journal.open("ab") as torn:
        torn.write(b'{"token": "half a li')
    assert count_rated(tmp_path, plan)[token] == 1
    with serving_plan(tmp_path) as client:
        state = client.get(f"/r/{token}/state").json()
        assert state["acts"] == [{"index": 0, "n": 1, "label": "Good", "reason": "a\u2028b"}]
        client.post(f"/r/{token}/ratings", json=act(plan, token, 1, "Bad"))
    assert [row["label"] for row in lines(tmp_path)] == ["Good", "Bad"]
    journal.write_text(journal.read_text().replace("Bad", "Bid"))
    with pytest.raises(UserError, match=r"journal.jsonl:2: not a rating of this plan"):
        collect(tmp_path)


def test_what_the_disk_refuses_is_not_acknowledged_and_can_be_sent_again(
    client: httpx.Client, plan: RatingPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = next(iter(plan.raters))

    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", refuse)
        assert client.post(f"/r/{token}/ratings", json=act(plan, token, 0, "Good")).status_code == 500
    assert lines(tmp_path) == []
    assert client.post(f"/r/{token}/ratings", json=act(plan, token, 0, "Good")).status_code == 200
    assert client.post(f"/r/{token}/ratings", json=act(plan, token, 1, "Bad")).status_code == 200
    assert [row["index"] for row in lines(tmp_path)] == [0, 1]


def test_many_raters_at_once_lose_and_double_nothing(
    client: httpx.Client, plan: RatingPlan, tmp_path: Path
) -> None:
    rng = random.Random(3)
    jobs = [(token, index, rng.choice(LABELS)) for token in plan.raters for index in range(20)] * 2
    rng.shuffle(jobs)

    def send(job: tuple[str, int, str]) -> int:
        token, index, label = job
        return client.post(f"/r/{token}/ratings", json=act(plan, token, index, label)).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(send, jobs)) == {200}
    assert sorted((row["token"], row["index"], row["label"]) for row in lines(tmp_path)) == sorted(set(jobs))


def test_whole_conversations_are_rated(tmp_path: Path) -> None:
    def row(model: str, number: int) -> dict[str, Any]:
        texts = (f"My cat {number} died.", "Oh no.", f"She was {number}.", f"I am sorry ({model[0]}).")
        turns = zip(("user", "assistant") * 2, texts, strict=True)
        return {"model": model, "messages": [{"role": role, "content": text} for role, text in turns]}

    file, folder = tmp_path / "chats.jsonl", tmp_path / "plan"
    write_rows(file, [row(model, n) for model in NAMES[:2] for n in range(12)])
    done = run("rate", "plan", file, "--people", 4, "--each", 8, "--out", folder)
    assert "4 raters rate 8 conversations each, in about 2 min" in done.stdout, done.output
    with serving_plan(folder) as client:
        token = next(iter(read_plan(folder).raters))
        page, state = client.get(f"/r/{token}").text, client.get(f"/r/{token}/state").json()
    assert '"unit": "conversation"' in page and "You see one conversation at a time" in page
    item = state["items"][0]
    assert [turn["answers"] for turn in item["context"]] == [False, True]
    assert item["prompt"].startswith("She was") and item["response"].startswith("I am sorry")
