"""The engine and the judges it ships with: order, threads, limits, and what happens when a judge fails."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from empathy_judge.data.errors import UserError
from empathy_judge.data.records import LABELS, Exchange, Judgment, judgment_of
from empathy_judge.data.rubric import read_rubric
from empathy_judge.data.runs import RunPlan, open_run
from empathy_judge.judge.base import Judge, load_judge
from empathy_judge.judge.composite import CascadeJudge, PanelJudge
from empathy_judge.judge.engine import score_exchanges
from empathy_judge.judge.llm.decision import DecisionJudge
from empathy_judge.judge.llm.prompted import PromptedJudge
from empathy_judge.judge.llm.responder import ModelConfig, Responder

SECRET = "sk-test-7f3a9c1e5b2d8f60"
PLAN = RunPlan(judge="test", version="1", rubric="r", input="i")
EXCHANGES = [Exchange(id=f"e{n}", prompt="p", response=f"response {n}", model="m") for n in range(40)]


class StubJudge(Judge):
    """Remembers whom it was asked for."""

    name = "stub"
    version = "1"

    def __init__(self, *, concurrency: int = 1) -> None:
        self.rubric, self.concurrency = read_rubric(), concurrency
        self.asked: list[str] = []

    def judge(self, exchange: Exchange) -> Judgment:
        self.asked.append(exchange.id)
        return judgment_of(exchange, {"Bad": 0.0, "Okay": 0.0, "Good": 1.0})


def ids(folder: Path, name: str = "judgments.jsonl") -> list[str]:
    return [json.loads(line)["id"] for line in (folder / name).read_text().splitlines()]


def test_the_order_of_the_input_is_kept_whatever_the_threads_do(tmp_path: Path) -> None:
    second_is_done = threading.Event()

    class Late(StubJudge):
        def judge(self, exchange: Exchange) -> Judgment:
            assert exchange.id != "e0" or second_is_done.wait(timeout=20)
            judgment = super().judge(exchange)
            second_is_done.set()
            return judgment

    judge = Late(concurrency=2)
    with open_run(tmp_path, PLAN) as run:
        score_exchanges(judge, EXCHANGES, run)
        assert run.asked == 40
        run.write_judgments()
    assert judge.asked[0] == "e1" and ids(tmp_path) == [item.id for item in EXCHANGES]


def test_no_more_exchanges_are_in_memory_than_threads(tmp_path: Path) -> None:
    judge, taken, ahead = StubJudge(concurrency=4), list[Exchange](), list[int]()

    def exchanges() -> Iterator[Exchange]:
        for exchange in EXCHANGES:
            taken.append(exchange)
            ahead.append(len(taken) - len(judge.asked))
            yield exchange

    with open_run(tmp_path, PLAN) as run:
        score_exchanges(judge, exchanges(), run)
    assert max(ahead) <= 4


def test_a_bug_is_raised_and_what_was_judged_or_under_way_is_kept(tmp_path: Path) -> None:
    both, failed = threading.Barrier(2, timeout=20), threading.Event()

    class Failing(StubJudge):
        def judge(self, exchange: Exchange) -> Judgment:
            if exchange.id in ("e6", "e7"):
                both.wait()
            if exchange.id == "e6":
                failed.set()
                raise ZeroDivisionError
            assert exchange.id != "e7" or failed.wait(timeout=20)
            return super().judge(exchange)

    with pytest.raises(ZeroDivisionError), open_run(tmp_path, PLAN) as run:
        score_exchanges(Failing(concurrency=2), EXCHANGES, run)
    kept = ids(tmp_path, "journal.jsonl")
    assert {f"e{n}" for n in range(8)} - set(kept) == {"e6"}
    judge = StubJudge()
    with open_run(tmp_path, PLAN) as run:
        score_exchanges(judge, EXCHANGES, run)
    assert judge.asked == [item.id for item in EXCHANGES if item.id not in kept]


def test_the_baselines_give_probabilities() -> None:
    """Those of the majority were summed by hand from the study's table: 2,000 dialogues, six arms."""
    majority, length = (load_judge(name).judge(EXCHANGES[0]).probabilities for name in ("majority", "length"))
    counted = {"Bad": 1267 / 12000, "Okay": 3692 / 12000, "Good": 7041 / 12000}
    assert majority == pytest.approx(counted, abs=1e-6) and list(majority) == list(LABELS)
    assert sum(length.values()) == pytest.approx(1, abs=2e-6)


ASKED = "kind = 'decision'\nmodel = 'm'\n"
PROMPTED = "kind = 'prompted'\nmodel = 'm'\n"
PANEL = "kind = 'panel'\n"
CASCADE = "kind = 'cascade'\nfirst = 'length'\n"
REFUSED = {
    "kind = 'length'\nrubrik = 'x'": "judge.toml: rubrik: unknown; known keys: kind, rubric",
    "kind = 'length'\nrubric = 5": "judge.toml: rubric: input should be a valid string, not 5",
    "kind = 'lenght'": "did you mean 'length'?",
    "rubric = 'crowd'": "judge.toml: kind: missing; use one of cascade, classifier",
    "kind = ": "judge.toml: not TOML",
    "kind = 'decision'\nbase_url = 'http://127.0.0.1:1/v1'": "needs model",
    f"{ASKED}protocol = 'telex'": "judge.toml: protocol: input should be 'decisions'",
    f"{ASKED}key = '{SECRET}'": "judge.toml: key: unknown",
    f"{ASKED}key_env = '{SECRET}'": "not the key itself",
    f"{PROMPTED}reask = 2": "judge.toml: reask: input should be 0 or 1",
    f"{PROMPTED}constraint = 'vllm'": 'constraint: not with mode = "analytic"',
    f"{PROMPTED}mode = 'direct'": "judge.toml: mode: input should be 'shares', 'side-by-side', 'label' or",
    f"{PROMPTED}probabilities = 'logprobs'": 'probabilities: not with mode = "analytic"',
    f"{PROMPTED}mode = 'shares'\nreason_characters = 9": 'reason_characters: not with mode = "shares"',
    f"{PROMPTED}mode = 'side-by-side'\nsamples = 2": 'samples: not with mode = "side-by-side"',
    f"{PROMPTED}mode = 'side-by-side'\nexamples = 'x'": 'examples: not with mode = "side-by-side"',
    f"{PROMPTED}mode = 'label'\njson_schema = 'always'": 'json_schema: not with mode = "label"',
    f"{PROMPTED}samples = 0": "samples: 0 is too few",
    f"{PROMPTED}samples = 2\nprobabilities = 'none'": 'are not used with probabilities = "none"',
    f"{PROMPTED}program = 'none.json'": "none.json: no optimized prompt here",
    PANEL: "at least two",
    f"{PANEL}judges = ['length', 'length']": "the same judge",
    f"{PANEL}judges = ['length', 'lenght']": "unknown judge 'lenght'",
    f"{PANEL}judges = ['length', 'judge.toml']": "refers to itself",
    CASCADE: "second: missing",
    f"{CASCADE}second = 'majority'\nask_below = 1.5": "not a probability",
    f"{CASCADE}second = 'length'": "the same judge",
}


@pytest.mark.parametrize("content", REFUSED)
def test_a_judge_file_is_checked(tmp_path: Path, content: str) -> None:
    path = tmp_path / "judge.toml"
    with pytest.raises(UserError, match=r"judge\.toml: no such file"):
        load_judge(str(path))
    path.write_text(content)
    with pytest.raises(UserError, match=re.escape(REFUSED[content])) as caught:
        load_judge(str(path))
    assert SECRET not in str(caught.value)


Options = dict[str, Any]
SERVED: Options = {"model": "m", "base_url": "http://127.0.0.1:9/v1"}
ELSEWHERE: Options = {"base_url": "https://elsewhere/v1", "key_env": "K", "concurrency": 2, "timeout": 5.0}
MORE_PROMPTED: Options = {
    **{"model": "n", "mode": "shares", "samples": 3, "temperature": 0.5, "max_tokens": 9, "seed": 1},
    **{"reask": 1, "json_schema": "never", "extra_body": {"top_k": 1}},
}
MORE_PANEL: Options = {"combine": "median", "allow_missing": True, "judges": ["majority", "length"]}
MORE_CASCADE: Options = {"ask_below": 0.7, "first": "classifier", "second": "classifier"}
VERSIONS: dict[Callable[..., Any], tuple[Options, Options]] = {
    DecisionJudge: (SERVED, {"model": "n", "protocol": "systemone"}),
    PromptedJudge: (SERVED, MORE_PROMPTED),
    partial(PromptedJudge, mode="label"): (SERVED, {"probabilities": "none", "constraint": "vllm"}),
    partial(PromptedJudge, mode="analytic"): (SERVED, {"reason_characters": 9, "rubric": "anchored"}),
    partial(PromptedJudge, mode="side-by-side"): (SERVED, {"seed": 1, "max_tokens": 9}),
    PanelJudge: ({"judges": ["length", "majority"]}, MORE_PANEL),
    CascadeJudge: ({"first": "length", "second": "majority"}, MORE_CASCADE),
    ModelConfig: (SERVED, {"model": "n", "style": "plain", "seed": 1, "max_tokens": 5}),
}


@pytest.mark.parametrize("make", VERSIONS)
def test_a_version_follows_all_that_decides_and_nothing_else(make: Callable[..., Any]) -> None:
    def version(**options: Any) -> str:
        made = make(**(usual | options))
        return str((Responder(made) if isinstance(made, ModelConfig) else made).version)

    usual, changes = VERSIONS[make]
    assert version() == version(**(ELSEWHERE if "model" in usual else {}))
    versions = {version(**{name: value}) for name, value in changes.items()}
    assert len(versions | {version()}) == len(changes) + 1
