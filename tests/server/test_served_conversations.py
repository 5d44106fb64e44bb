"""Whole conversations through the server: the rows of `score --unit conversation`, by unit and by model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from served import serving
from talks import HEARD, KIND, STUCK, messages

from empathy_judge.commands import main as cli
from empathy_judge.judge.base import load_both_units

CHATS: list[dict[str, Any]] = [
    {"id": "kind", "model": "a", "messages": messages(KIND)},
    {"id": "stuck", "model": "b", "messages": messages(STUCK)},
]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    judge, conversations = load_both_units("classifier")
    with serving(judge, conversations=conversations) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def test_a_conversation_is_judged_as_score_judges_it(client: httpx.Client, tmp_path: Path) -> None:
    chats = tmp_path / "chats.jsonl"
    chats.write_text("".join(json.dumps(row) + "\n" for row in CHATS), encoding="utf-8")
    words = ["score", str(chats), "--out", str(tmp_path / "run"), "--json"]
    done = CliRunner().invoke(cli.main, words)
    assert done.exit_code == 0, done.output
    written = [json.loads(line) for line in (tmp_path / "run" / "judgments.jsonl").read_text().splitlines()]
    told = client.post("/v1/score", json={"exchanges": CHATS, "unit": "conversation"}).json()
    assert told["judge"]["name"] == "conversation:classifier"
    assert [(row["id"], row["curve"], row["probabilities"]) for row in told["judgments"]] == [
        (row["id"], row["curve"], row["probabilities"]) for row in written
    ]
    shares = client.post("/v1/shares", json={"judgments": told["judgments"], "unit": "conversation"}).json()
    assert shares["models"] == json.loads(done.stdout)["models"]
    assert shares["unit"] == "conversation"


def test_without_a_unit_the_last_reply_is_judged(client: httpx.Client) -> None:
    pairs = list(zip(HEARD, KIND, strict=True))
    turns = [
        {"speaker": who, "text": text}
        for pair in pairs[:2]
        for who, text in zip(("speaker", "listener"), pair, strict=True)
    ]
    row = {"id": "kind", "model": "a", "prompt": HEARD[2], "response": KIND[2], "dialogue": turns}
    (ours,) = client.post("/v1/score", json={"exchanges": [row]}).json()["judgments"]
    (same,) = client.post("/v1/score", json={"exchanges": CHATS[:1], "unit": "reply"}).json()["judgments"]
    assert ours == same
    assert "curve" not in ours
    (whole,) = client.post("/v1/score", json={"exchanges": [row], "unit": "conversation"}).json()["judgments"]
    assert len(whole["curve"]) == 3


def test_other_wires_name_the_model_of_conversations(client: httpx.Client) -> None:
    whole = {"exchanges": CHATS[:1], "unit": "conversation"}
    (row,) = client.post("/v1/score", json=whole).json()["judgments"]
    chat = {"model": "conversation", "messages": messages(KIND)}
    assert client.post("/v1/chat/completions", json=chat).json()["judgment"]["score"] == row["score"]
    models = {model["id"]: model["unit"] for model in client.get("/v1/models").json()["data"]}
    assert models == {"classifier": "reply", "conversation": "conversation"}
    unknown = client.post("/v1/score", json={**whole, "unit": "talk"})
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "unit")
