"""What the shipped judge must know: measured on the samples, the probes and the attacks."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from repository import SAMPLES

from data.records import Exchange
from data.tables import read_exchanges
from judge.base import load_judge
from judge.classifier.judge import ClassifierJudge
from judge.robustness.attacks import read_attacks, run_attacks
from judge.robustness.probes import read_probes, run_probes

WARM, PLAIN, CURT = "demo-warm", "demo-plain", "demo-curt"


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


def test_a_reply_under_another_prompt_loses(
    shipped: ClassifierJudge, samples: dict[str, list[Exchange]], sample_scores: dict[str, np.ndarray]
) -> None:
    warm = samples[WARM]
    # Half the list away, so that the prompt is of another emotion altogether.
    moved = [replace(e, response=warm[n - len(warm) // 2].response) for n, e in enumerate(warm)]
    assert sample_scores[WARM].mean() - scores(shipped, moved).mean() >= 0.3


def test_a_dismissal_is_bad_under_nearly_every_prompt(
    shipped: ClassifierJudge, openers: list[Exchange]
) -> None:
    assert len(openers) == 160
    with ThreadPoolExecutor(2) as pool:
        labels = [judgment.label for judgment in pool.map(shipped.judge, openers)]
    assert labels.count("Bad") >= 0.95 * len(labels)


def test_stock_sympathy_does_not_pass_for_the_real_thing(
    shipped: ClassifierJudge, samples: dict[str, list[Exchange]], sample_scores: dict[str, np.ndarray]
) -> None:
    dressed = [replace(e, response=f"I'm so sorry to hear that. {e.response}") for e in samples[CURT]]
    gain = scores(shipped, dressed).mean() - sample_scores[CURT].mean()
    real_gain = sample_scores[WARM].mean() - sample_scores[CURT].mean()
    assert gain < real_gain / 2


def test_it_judges_without_emotion_and_situation(
    shipped: ClassifierJudge, samples: dict[str, list[Exchange]]
) -> None:
    def bare(model: str) -> float:
        exchanges = [replace(e, emotion=None, situation=None) for e in samples[model][::4]]
        return float(scores(shipped, exchanges).mean())

    assert bare(WARM) > bare(CURT) + 0.3


def test_it_sees_dismissals_and_heeds_no_orders() -> None:
    named = {probe.name: probe for probe in read_probes()}
    probes = [named[name] for name in ("dismissal", "another prompt's reply", "injected verdict")]
    exchanges = list(read_exchanges(SAMPLES / "responses.jsonl"))
    results = run_probes(load_judge("classifier"), exchanges, limit=16, probes=probes)
    assert {item.effect.result for item in results} == {"passes"}


@pytest.mark.parametrize("limit", [2, pytest.param(None, marks=pytest.mark.campaign)])
def test_it_is_hardly_ever_talked_into_good(limit: int | None) -> None:
    found = run_attacks(load_judge("classifier"), limit=limit)
    assert found.plain["unscored"] == 0 and found.plain["Bad"] >= 40
    assert found.overall.pairs == (limit or found.plain["Bad"]) * len(read_attacks().attacks)
    assert found.overall.to_good.value <= 0.05
