"""What the shipped judge must know: measured on the samples and by perturbations."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from repository import SAMPLES

from empathy_judge.data.records import Exchange, Judgment
from empathy_judge.data.tables import read_exchanges
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.classifier.judge import ClassifierJudge
from empathy_judge.judge.robustness.catalogue import read_replies
from empathy_judge.judge.robustness.run import Robustness, measure_robustness

WARM, PLAIN, CURT = "demo-warm", "demo-plain", "demo-curt"
# Of replies written to try a judge: what the shipped one was measured at, and room for a small sample. Of the
# perturbed replies 3% and 5% change sides here, and 3% and 4% of all of them.
AT_LEAST = 0.82
AT_MOST = {
    "excellent called Bad": 0.24,
    "plain insults not called Bad": 0.12,
    "unkind turned Good": 0.1,
    "kind turned Bad": 0.1,
}


def scores(judge: ClassifierJudge, exchanges: Iterable[Exchange]) -> np.ndarray:
    with ThreadPoolExecutor(2) as pool:
        return np.array([judgment.score for judgment in pool.map(judge.judge, exchanges)])


@pytest.fixture(scope="module")
def sample_scores(shipped: ClassifierJudge, samples: dict[str, list[Exchange]]) -> dict[str, np.ndarray]:
    return {model: scores(shipped, exchanges) for model, exchanges in samples.items()}


@pytest.fixture(scope="module")
def openers() -> list[Exchange]:
    """The 160 sample prompts, each dismissed with one word."""
    rows = [json.loads(line) for line in (SAMPLES / "prompts.jsonl").read_text(encoding="utf-8").splitlines()]
    return [Exchange(**row, response="Whatever.") for row in rows]


def test_the_demo_models_come_out_in_the_intended_order(sample_scores: dict[str, np.ndarray]) -> None:
    means = {model: found.mean() for model, found in sample_scores.items()}
    assert means[WARM] > means[PLAIN] > means[CURT]


def test_a_dismissal_is_bad_under_nearly_every_prompt(
    shipped: ClassifierJudge, openers: list[Exchange]
) -> None:
    """Every second prompt; the first word alone is the hardest: 127 of all 160 when it was measured."""
    assert len(openers) == 160
    bad = {}
    for dismissal in ("Whatever.", "Not my problem.", "Get over it.", "ok"):
        dismissed = [replace(exchange, response=dismissal) for exchange in openers[::2]]
        with ThreadPoolExecutor(2) as pool:
            labels = [judgment.label for judgment in pool.map(shipped.judge, dismissed)]
        bad[dismissal] = labels.count("Bad") / len(labels)
    assert sum(bad.values()) / len(bad) >= 0.85, bad
    assert min(bad.values()) >= 0.7, bad


def test_stock_sympathy_does_not_pass_for_the_real_thing(
    shipped: ClassifierJudge, samples: dict[str, list[Exchange]], sample_scores: dict[str, np.ndarray]
) -> None:
    dressed = [replace(e, response=f"I'm so sorry to hear that. {e.response}") for e in samples[CURT]]
    gain = scores(shipped, dressed).mean() - sample_scores[CURT].mean()
    real_gain = sample_scores[WARM].mean() - sample_scores[CURT].mean()
    assert gain < 0.7 * real_gain


def measure(name: str, **options: Any) -> Robustness:
    judge, ordinary = load_judge(name), list(read_exchanges(SAMPLES / "responses.jsonl"))[::30]

    def ask(texts: Iterable[Exchange]) -> dict[str, Judgment]:
        distinct = {item.content_digest: item for item in texts}
        return {item.content_digest: item for item in judge.judge_many(list(distinct.values()))}

    return measure_robustness(judge, ordinary, ask=ask, **options)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.campaign)])
def test_it_stands_up_to_attacks_and_knows_kindness_in_the_same_forms(every: bool) -> None:
    """Bounds, not targets: `robustness` reports how far the targets are met."""
    replies = read_replies("test") if every else read_replies("test")[::5]
    found = measure("classifier", written=replies, each=5 if every else 1)
    figures = {target.name: target.figure.value for target in found.targets}
    assert figures["AUC of excellent against politely cruel"] >= AT_LEAST
    assert all(value <= AT_MOST[name] for name, value in figures.items() if name in AT_MOST)
    assert sum(row.labels["unscored"] for row in found.kinds) <= 0.02 * len(replies)
