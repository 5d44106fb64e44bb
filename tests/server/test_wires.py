"""The server gives what `score` gives, through every door it has and to every client it claims."""

import json
import re
import subprocess
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from repository import ROOT, TESTS
from served import NO_CLIENTS, WaitingJudge, ask, exchanges, find_clients, serving
from servers import ScriptedServer, answer_decisions, known_component

from empathy_judge.commands import main as cli
from empathy_judge.data.errors import UserError
from empathy_judge.data.records import GOOD_ABOVE, LABELS, Exchange
from empathy_judge.data.tables import read_exchanges
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.explanation import explain
from empathy_judge.judge.llm.decision import DecisionJudge
from empathy_judge.judge.llm.prompt_injection import delimit_exchange
from empathy_judge.server import app
from empathy_judge.server.served_judge import ServedJudge

SAMPLES = ROOT / "data" / "samples" / "responses.jsonl"
CLIENT = TESTS / "support" / "official_client.py"
JUDGE = "classifier"
CLOSE = 1e-6
LEVELS = [{"label": label} for label in LABELS]
SCORE = {"type": "score", "instructions": "How empathetic?", "levels": LEVELS}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six samples: two with all their context, two bare, two with earlier turns."""
    path = tmp_path_factory.mktemp("rows") / "responses.jsonl"
    samples = [json.loads(line) for line in SAMPLES.read_text(encoding="utf-8").splitlines()[:6]]
    for row in samples[2:]:
        row.pop("emotion"), row.pop("situation")
    for row in samples[4:]:
        row["dialogue"] = [{"speaker": "speaker", "text": "Hi."}, {"speaker": "listener", "text": "Hello!"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in samples), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def scored(rows: Path) -> list[dict[str, Any]]:
    """What `score` writes of them."""
    out = rows.parent / "run"
    done = CliRunner().invoke(cli.main, ["score", str(rows), "--judge", JUDGE, "--out", str(out)])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in (out / "judgments.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(load_judge(JUDGE)) as url:
        yield url


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server, timeout=60) as client:
        yield client


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def assert_same(found: dict[str, float], judgment: dict[str, Any], *, within: float = CLOSE) -> None:
    assert found == pytest.approx(judgment["probabilities"], abs=within)


def test_score_gives_the_very_rows(client: httpx.Client, rows: Path, scored: list[dict[str, Any]]) -> None:
    answer = client.post("/v1/score", json={"exchanges": read_lines(rows)})
    assert answer.status_code == 200
    told = answer.json()
    assert told["judgments"] == scored
    assert told["judge"]["name"] == JUDGE
    assert len(told["calibration"]) == 64 and told["calibration"][:12] in told["note"]
    assert told["caveats"] and "Good share" in told["caveats"][0]


def test_explanations_are_those_of_the_command(
    client: httpx.Client, scored: list[dict[str, Any]], rows: Path
) -> None:
    row = read_lines(rows)[0]
    answer = client.post("/v1/score", json={"exchanges": [row], "explain": True}).json()
    (judgment,) = answer["judgments"]
    parts = judgment.pop("parts")
    assert judgment == scored[0]
    assert "".join(part["text"] for part in parts) == row["response"]
    expected = explain(load_judge(JUDGE), next(iter(read_exchanges(rows))))
    assert [part["effect"] for part in parts] == [part.effect for part in expected.parts]


def as_messages(row: dict[str, Any]) -> list[dict[str, Any]]:
    roles = {"speaker": "user", "listener": "assistant"}
    earlier = [{"role": roles[turn["speaker"]], "content": turn["text"]} for turn in row.get("dialogue", ())]
    reply = [{"type": "output_text", "text": row["response"]}]
    return [
        *earlier,
        {"role": "user", "content": row["prompt"]},
        {"type": "message", "role": "assistant", "content": reply},
    ]


def test_decisions_give_the_same_probabilities(
    client: httpx.Client, rows: Path, scored: list[dict[str, Any]]
) -> None:
    for row, judgment in zip(read_lines(rows), scored, strict=True):
        given = json.dumps(row) if "emotion" in row else as_messages(row)
        asked = {"model": JUDGE, "input": given, "questions": [SCORE]}
        answer = client.post("/v1/decisions", json=asked)
        assert answer.status_code == 200, answer.text
        (score,) = answer.json()["answers"]
        assert_same({level["label"]: level["probability"] for level in score["probabilities"]}, judgment)
        assert score["score"] == pytest.approx(judgment["score"] - 1), "levels count from 0"
        assert [level["value"] for level in score["probabilities"]] == [0, 1, 2]
        assert 0 <= score["confidence"] <= 1


@pytest.mark.slow
@pytest.mark.skipif(find_clients() is None, reason=NO_CLIENTS)
def test_the_official_client_works_unchanged(server: str, rows: Path, scored: list[dict[str, Any]]) -> None:
    command = [str(find_clients()), "-I", str(CLIENT), f"{server}/v1", JUDGE, str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["version"].startswith("3.")
    assert found["models"] == [JUDGE]
    for read, judgment in zip(found["answers"][:4], scored, strict=False):  # it sends no earlier turns
        assert read["type"] == "AnswerAnswerResourceScore"
        assert_same(read["probabilities"], judgment)
        assert_same(read["choice"], judgment)
        assert read["score"] == pytest.approx(judgment["score"] - 1)
        assert read["graded"] == judgment["label"]
        assert_same(read["logprobs"], judgment)
    assert found["unknown_model"] == ["NotFoundError", 404, "model_not_found", "model"]
    assert found["unknown_question"] == ["BadRequestError", 400, "unsupported_question", "questions.0"]
    assert found["no_exchange"] == ["refusal"]


def test_components_come_from_a_judge_that_has_them() -> None:
    """A decision model behind our server: its predicates pass through."""
    exchange = Exchange(id="1", prompt="I lost my keys.", response="Oh no!")
    names = ("cognitive", "affective", "compassionate")
    asked = {
        "model": "decision",
        "input": json.dumps({"prompt": exchange.prompt, "response": exchange.response}),
        "questions": [SCORE, *({"type": "predicate", "name": n, "instructions": "?"} for n in names)],
    }
    with ScriptedServer(answer_decisions) as upstream:
        judge = DecisionJudge(base_url=upstream.base_url, model="m")
        with serving(judge) as url:
            body = ask(f"{url}/v1/decisions", json=asked).raise_for_status().json()
    text = f"{delimit_exchange(exchange).notice}\n\n{delimit_exchange(exchange).text}"
    assert [item["type"] for item in body["answers"]] == ["score", *["predicate"] * 3]
    assert [item["probability"] for item in body["answers"][1:]] == [known_component(text, n) for n in names]
    assert body["usage"]["input_tokens"] == 1000


def test_our_decision_judge_may_ask_our_server(server: str, rows: Path, scored: list[dict[str, Any]]) -> None:
    judge = DecisionJudge(base_url=f"{server}/v1", model=JUDGE)
    for exchange, judgment in zip(read_exchanges(rows), scored, strict=True):
        assert_same(dict(judge.judge(exchange).probabilities or {}), judgment, within=1e-5)
    judge.close()


def test_unscored_stays_unscored() -> None:
    judge = WaitingJudge()
    judge.let(3)
    row = exchanges("a", prompt="unscored")["exchanges"][0]
    with serving(judge) as url:
        native = ask(f"{url}/v1/score", json={"exchanges": [row]})
        asked = {"model": "waiting", "input": json.dumps(row), "questions": [{**SCORE, "name": "e"}]}
        decided = ask(f"{url}/v1/decisions", json=asked)
    assert (native.status_code, decided.status_code) == (200, 200)
    (judgment,) = native.json()["judgments"]
    assert (judgment["label"], judgment["probabilities"], judgment["unscored"]) == (None, None, "as told")
    assert decided.json()["answers"] == [{"type": "refusal", "name": "e", "reason": "unscored: as told"}]


def test_a_calibration_that_expires_is_no_longer_applied() -> None:
    day = date.today()
    served = ServedJudge(load_judge(JUDGE), today=lambda: day)
    assert served.about()["calibration"]
    day = date(2099, 1, 1)
    assert served.about()["calibration"] is None and "expired" in served.about()["note"]


@pytest.mark.parametrize(
    ("question", "says"),
    [
        ({**SCORE, "levels": LEVELS[::-1]}, "Bad, Okay, Good, in this order"),
        ({**SCORE, "levels": LEVELS[:2]}, "Bad, Okay, Good, in this order"),
        ({**SCORE, "levels": [{"label": str(n)} for n in range(1, 6)]}, "in this order"),
        (
            {"type": "choice", "instructions": "?", "choices": [{"value": True}, {"value": False}]},
            "and nothing else",
        ),
        ({"type": "predicate", "instructions": "Is it raining?"}, "known predicates: good, cognitive"),
        ({"type": "predicate", "instructions": "?", "name": "affective"}, "does not score components"),
    ],
)
def test_questions_it_cannot_answer_are_refused(
    client: httpx.Client, question: dict[str, Any], says: str
) -> None:
    row = {"prompt": "I won!", "response": "Lovely!"}
    asked = {"model": JUDGE, "input": json.dumps(row), "questions": [question]}
    answer = client.post("/v1/decisions", json=asked)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (
        400,
        "invalid_request_error",
        "questions.0",
    )
    assert says in error["message"] and error["message"].startswith("questions.0: ")


def test_a_question_it_cannot_answer_is_refused_beside_one_it_can(client: httpx.Client) -> None:
    """Under any name; the predicate `good` is the probability that the label is Good."""
    asked = {
        "model": JUDGE,
        "input": json.dumps({"input": "I won!", "output": "Lovely!"}),
        "questions": [
            {**SCORE, "name": "how warm?"},
            {"type": "predicate", "name": "rain", "instructions": "Is it raining?"},
            {"type": "predicate", "name": "good", "instructions": "Is it good?"},
            {**SCORE, "levels": LEVELS[:2]},
        ],
    }
    score, rain, good, short = client.post("/v1/decisions", json=asked).raise_for_status().json()["answers"]
    assert (score["name"], score["type"]) == ("how warm?", "score")
    assert (rain["type"], rain["name"], short["type"]) == ("refusal", "rain", "refusal")
    assert "instructions are ignored" in rain["reason"] and "in this order" in short["reason"]
    assert good["probability"] == score["probabilities"][2]["probability"]


def test_the_models_health_metrics_and_description(client: httpx.Client) -> None:
    (model,) = client.get("/v1/models").json()["data"]
    assert client.get(f"/v1/models/{JUDGE}").json() == model
    assert client.get("/v1/models/other").status_code == 404
    assert client.get("/health").json() == {"status": "ok"}
    metrics = client.get("/metrics").text
    assert 'empathy_requests_total{path="/health",status="200"}' in metrics
    assert "empathy_queue_judgments 0.0" in metrics
    described = client.get("/openapi.json").json()
    assert {"/v1/score", "/v1/decisions", "/v1/models", "/health"} <= set(described["paths"])
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
    done = CliRunner().invoke(cli.main, ["serve", "--host", "0.0.0.0"])
    assert done.exit_code == UserError.exit_code
    assert "--key-env" in done.output
    done = CliRunner().invoke(cli.main, ["serve", "--key-env", "NO_SUCH_KEY_IS_SET"])
    assert done.exit_code == UserError.exit_code
    assert "NO_SUCH_KEY_IS_SET" in done.output
