"""The decision judge over both protocols: known numbers, unusable answers, whole runs, a real server."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from servers import Answer, Call, Script, ScriptedServer, answer, known_component, known_probabilities

from empathy_judge.commands import main as cli
from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.records import LABELS, Exchange
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.llm.decision import DecisionJudge

Write = Callable[..., Path]
Open = Callable[..., tuple[ScriptedServer, DecisionJudge]]
PROTOCOLS = ("decisions", "systemone")
COMPONENTS = ("cognitive", "affective", "compassionate")
EXCHANGE = Exchange(id="1", prompt="My dog died.", response="I am so sorry.", emotion="sad")
SECRET = "sk-test-7f3a9c1e5b2d8f60"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEST_KEY", SECRET)


@pytest.fixture
def open_judge() -> Iterator[Open]:
    """Starts a server with a script; gives it and a judge that asks it."""
    opened: list[tuple[ScriptedServer, DecisionJudge]] = []

    def start(script: Script = answer, **options: Any) -> tuple[ScriptedServer, DecisionJudge]:
        server = ScriptedServer(script).__enter__()
        given = {"base_url": server.base_url, "model": "gpt-6-luna", "key_env": "TEST_KEY", "retries": 2}
        opened.append((server, DecisionJudge(**{**given, **options})))
        return opened[-1]

    yield start
    for server, judge in opened:
        server.__exit__()
        judge.close()


def changed(change: Callable[[dict[str, Any]], None]) -> Script:
    """A good answer with one change in its body."""

    def script(call: Call) -> Answer:
        body = answer(call).body
        change(body)
        return Answer(body=body)

    return script


def overall(body: dict[str, Any]) -> dict[str, Any]:
    answers = body["answers"]
    found: dict[str, Any] = answers[0] if isinstance(answers, list) else answers["empathy"]
    return found


def set_level(body: dict[str, Any], position: int, value: Any) -> None:
    levels = overall(body)["probabilities"]
    if isinstance(levels, list):
        levels[position]["probability"] = value
    else:
        levels[str(position)] = value


def refuse(body: dict[str, Any], name: str) -> None:
    answers = body["answers"]
    items = {item["name"]: item for item in answers} if isinstance(answers, list) else answers
    items[name].clear()
    items[name].update(type="refusal", name=name)


# What is asked, and what becomes of the answer.


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_becomes_a_judgment(open_judge: Open, protocol: str) -> None:
    server, judge = open_judge(protocol=protocol)
    judgment = judge.judge(EXCHANGE)
    [call] = server.calls
    assert call.path == f"/v1/{protocol}"
    assert [call.body] == judge.write_requests(EXCHANGE)
    known = known_probabilities(call.text)
    assert judgment.probabilities == pytest.approx(known, abs=2e-6)
    assert judgment.label == max(LABELS, key=lambda label: known[label])
    assert judgment.score == pytest.approx(known["Bad"] + 2 * known["Okay"] + 3 * known["Good"], abs=1e-5)
    assert judgment.components == {name: known_component(call.text, name) for name in COMPONENTS}
    assert judgment.rationale is None
    assert judgment.usage == {"input_tokens": 1000, "output_tokens": 0, "cost": 0.0001}
    assert (judgment.id, judgment.content_digest, judgment.unscored) == ("1", EXCHANGE.content_digest, None)


def test_the_questions_are_typed_as_the_decisions_api_has_them(open_judge: Open) -> None:
    _, judge = open_judge()
    (request,) = judge.write_requests(EXCHANGE)
    assert sorted(request) == ["input", "model", "questions"]
    score, *predicates = request["questions"]
    assert sorted(score) == ["instructions", "levels", "name", "type"]
    assert [level["label"] for level in score["levels"]] == list(LABELS)
    assert all(level["description"] for level in score["levels"])
    assert all(sorted(item) == ["instructions", "name", "type"] for item in predicates)
    assert [item["name"] for item in predicates if item["type"] == "predicate"] == list(COMPONENTS)


Change = Callable[[dict[str, Any]], Any]
CHANGES: list[tuple[Change, str]] = [
    (lambda body: refuse(body, "empathy"), "refused"),
    (lambda body: set_level(body, 1, math.nan), "no probability for Okay"),
    (lambda body: set_level(body, 2, "0.5"), "no probability for Good"),
    (lambda body: set_level(body, 0, True), "no probability for Bad"),
    (lambda body: set_level(body, 0, 10**400), "no probability for Bad"),
    (lambda body: [set_level(body, i, 0.0) for i in range(3)], "probabilities sum to 0"),
    (lambda body: [set_level(body, i, 0.3) for i in range(3)], "probabilities sum to 0.9"),
    (lambda body: overall(body).update(probabilities=None), "no probabilities for the labels"),
    (lambda body: overall(body).update(type="choice"), "answered with 'choice' instead of a score"),
    (lambda body: body.clear(), "no answer"),
]
ONE_PROTOCOL: list[tuple[str, Change, str]] = [
    ("decisions", lambda body: overall(body)["probabilities"].pop(), "probabilities for Bad, Okay, not our"),
    ("decisions", lambda body: body["answers"].pop(), "3 answers to 4 questions"),
    ("decisions", lambda body: body["answers"].reverse(), "answers are not in the order of the questions"),
    ("systemone", lambda body: overall(body)["probabilities"].pop("2"), "probabilities for 0, 1, not our"),
]


@pytest.mark.parametrize(
    ("protocol", "change", "reason"),
    [*((protocol, *case) for case in CHANGES for protocol in PROTOCOLS), *ONE_PROTOCOL],
)
def test_an_unusable_answer_is_unscored_and_kept(
    open_judge: Open, protocol: str, change: Change, reason: str
) -> None:
    _, judge = open_judge(changed(change), protocol=protocol)
    judgment = judge.judge(EXCHANGE)
    assert judgment.unscored is not None and judgment.unscored.startswith(reason)
    assert (judgment.label, judgment.probabilities, judgment.score) == (None, None, None)
    assert (judgment.rationale or "").startswith("{")
    assert (judgment.usage or {})["cost"] > 0, "what was paid for is counted"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refused_component_leaves_the_judgment(open_judge: Open, protocol: str) -> None:
    _, judge = open_judge(changed(lambda body: refuse(body, "affective")), protocol=protocol)
    judgment = judge.judge(EXCHANGE)
    assert judgment.label
    assert set(judgment.components or {}) == set(COMPONENTS) - {"affective"}


# The judge's file and version.


def test_the_version_follows_from_what_could_change_a_judgment() -> None:
    def version(**options: Any) -> str:
        return DecisionJudge(**{"base_url": "http://127.0.0.1:1/v1", "model": "m", **options}).version

    same = {"base_url": "https://elsewhere/v1", "key_env": "OTHER", "concurrency": 2, "timeout": 5.0}
    assert version() == version(**same)
    assert len({version(), version(model="n"), version(protocol="systemone")}) == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("base_url = 'http://127.0.0.1:1/v1'", "needs model"),
        ("model = 'm'\nprotocol = 'telex'", "protocol: input should be 'decisions'"),
        (f"model = 'm'\nkey = '{SECRET}'", "key: unknown"),
        (f"model = 'm'\nkey_env = '{SECRET}'", "not the key itself"),
    ],
)
def test_the_judges_file_is_checked(content: str, said: str) -> None:
    Path("decision.toml").write_text(f"kind = 'decision'\n{content}\n", encoding="utf-8")
    with pytest.raises(UserError, match=said) as caught:
        load_judge("decision.toml")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_second_run_makes_no_call(write_responses: Write, open_judge: Open, protocol: str) -> None:
    server, _ = open_judge()
    given = {"kind": "decision", "base_url": server.base_url, "model": "gpt-6-luna", "key_env": "TEST_KEY"}
    lines = (f"{name} = {json.dumps(value)}\n" for name, value in {**given, "protocol": protocol}.items())
    Path("decision.toml").write_text("".join(lines), encoding="utf-8")
    words = ["score", str(write_responses(50)), "--judge", "decision.toml", "--out", "run"]
    first, second = (CliRunner().invoke(cli.main, words) for _ in range(2))
    assert first.exit_code == second.exit_code == 0, first.output
    assert len(server.calls) == 50
    manifest = json.loads(Path("run/manifest.json").read_text())
    assert manifest["counts"] == {"judged": 50, "unscored": 0, "set_aside": 0}
    assert manifest["cost"] == pytest.approx(50 * 0.0001)
    everything = "".join(item.read_text() for item in Path("run").iterdir()) + first.output
    assert SECRET not in everything


def test_a_server_without_decisions_ends_the_run(open_judge: Open) -> None:
    refusal = Answer(status=501, body={"error": {"message": "This model is not a decision model"}})
    _, judge = open_judge(lambda call: refusal, protocol="systemone")
    with pytest.raises(OperationalError, match="does not support typed questions at /systemone"):
        judge.judge(EXCHANGE)
