"""The server gives what `score` gives; its page, its models and its metrics."""

import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from repository import ROOT
from served import WaitingJudge, ask, exchanges, serving

import empathy_judge as ej
from empathy_judge.commands import main as cli
from empathy_judge.data.errors import UserError
from empathy_judge.data.records import GOOD_ABOVE
from empathy_judge.data.tables import read_exchange
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.explanation import explain
from empathy_judge.server import app
from empathy_judge.server.served_judge import ServedJudge

SAMPLES = ROOT / "data" / "samples" / "responses.jsonl"
JUDGE = "classifier"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Six samples: two with all their context, two bare, two with earlier turns."""
    rows = read_lines(SAMPLES)[:6]
    for row in rows[:2]:
        row |= {"emotion": "afraid", "situation": "Somebody tried my door at night."}
    for row in rows[4:]:
        row["dialogue"] = [{"speaker": "speaker", "text": "Hi."}, {"speaker": "listener", "text": "Hello!"}]
    return rows


@pytest.fixture(scope="module")
def scored(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What `score` writes of them."""
    run = ej.score(rows, JUDGE, out=tmp_path_factory.mktemp("scored") / "run")
    assert run.folder is not None
    return read_lines(run.folder / "judgments.jsonl")


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(load_judge(JUDGE)) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_score_gives_the_very_rows(client: httpx.Client, rows: Any, scored: list[dict[str, Any]]) -> None:
    answer = client.post("/v1/score", json={"exchanges": rows})
    assert answer.status_code == 200
    told = answer.json()
    assert told["judgments"] == scored
    assert told["judge"]["name"] == JUDGE
    assert len(told["calibration"]) == 64 and told["calibration"][:12] in told["note"]
    assert told["caveats"] and "Good share" in told["caveats"][0]


def test_explanations_are_those_of_the_command(
    client: httpx.Client, scored: list[dict[str, Any]], rows: list[dict[str, Any]]
) -> None:
    row = rows[0]
    answer = client.post("/v1/score", json={"exchanges": [row], "explain": True}).json()
    (judgment,) = answer["judgments"]
    parts = judgment.pop("parts")
    assert judgment == scored[0]
    assert "".join(part["text"] for part in parts) == row["response"]
    expected = explain(load_judge(JUDGE), read_exchange(row, line=1))
    assert [part["effect"] for part in parts] == [part.effect for part in expected.parts]


def test_unscored_stays_unscored() -> None:
    judge = WaitingJudge()
    judge.let(2)
    row = exchanges("a", prompt="unscored")["exchanges"][0]
    with serving(judge) as url:
        native = ask(f"{url}/v1/score", json={"exchanges": [row]})
        chat = {"model": "waiting", "messages": [{"role": "user", "content": json.dumps(row)}]}
        graded = ask(f"{url}/v1/chat/completions", json=chat)
    (judgment,) = native.json()["judgments"]
    assert (judgment["label"], judgment["probabilities"], judgment["unscored"]) == (None, None, "as told")
    (choice,) = graded.json()["choices"]
    assert (choice["message"]["content"], choice["message"]["refusal"]) == (None, "unscored: as told")
    assert graded.json()["judgment"]["label"] is None


def test_a_calibration_that_expires_is_no_longer_applied() -> None:
    day = date.today()
    served = ServedJudge(load_judge(JUDGE), today=lambda: day)
    assert served.about()["calibration"]
    day = date(2099, 1, 1)
    assert served.about()["calibration"] is None and "expired" in served.about()["note"]


def test_the_models_health_metrics_and_description(client: httpx.Client) -> None:
    (model,) = client.get("/v1/models").json()["data"]
    assert client.get(f"/v1/models/{JUDGE}").json() == model
    assert client.get("/v1/models/other").status_code == 404
    assert client.get("/health").json() == {"status": "ok"}
    metrics = client.get("/metrics").text
    assert 'empathy_requests_total{path="/health",status="200"}' in metrics
    assert "empathy_queue_judgments 0.0" in metrics
    described = client.get("/openapi.json").json()
    assert {"/v1/score", "/v1/chat/completions", "/v1/models", "/health"} <= set(described["paths"])
    assert [client.get(path).status_code for path in ("/docs", "/redoc")] == [404, 404]


def test_the_page_may_run_only_its_own_script(client: httpx.Client) -> None:
    first, second = client.get("/"), client.get("/")
    policy = first.headers["content-security-policy"]
    nonce = policy.partition("'nonce-")[2].partition("'")[0]
    assert f'nonce="{nonce}"' in first.text
    assert policy != second.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "unsafe" not in policy
    assert first.headers["x-content-type-options"] == "nosniff"


def test_the_page_states_the_label_rule_of_the_code() -> None:
    """The bound comes from `label_of`'s constant, and the script has none of its own."""
    page = app.page_html("abc")
    assert f'data-good-above="{GOOD_ABOVE:.0%}"' in page and "${result.dataset.goodAbove}" in page
    assert not re.findall(r"\b\d+ ?%", page.partition("<script")[2])


def test_strangers_need_a_key() -> None:
    for words, named in ((["--host", "0.0.0.0"], "--key-env"), (["--key-env", "NOT_SET"], "NOT_SET")):
        done = CliRunner().invoke(cli.main, ["serve", *words])
        assert done.exit_code == UserError.exit_code and named in done.output
