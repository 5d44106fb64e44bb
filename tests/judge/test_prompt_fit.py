"""Prompt fit: replies that do not respond to their prompts are caught, and others are not."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from empathy_judge.calibration.estimate import estimate_of
from empathy_judge.calibration.prompt_fit import (
    RESPONSIVE,
    TOO_FEW_PROMPTS,
    UNCHECKED,
    UNRESPONSIVE,
    PromptFit,
    fit_messages,
    measure_fit,
)
from empathy_judge.data.records import CONVERSATION, REPLY, Exchange, Turn
from empathy_judge.judge.embeddings import MAX_REPLIES, FitCollector

GENERIC = "I'm so sorry to hear that. You are not alone, and I am here for you."


def fit_by_model(exchanges: Sequence[Exchange], unit: str = REPLY) -> dict[str, PromptFit | None]:
    collector = FitCollector(unit)
    for exchange in exchanges:
        collector.add(exchange)
    return collector.result()


def unit_rows(rng: np.random.Generator, count: int) -> np.ndarray:
    rows = rng.normal(size=(count, 16))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def distinct(count: int) -> list[str]:
    return [f"reply {number}" for number in range(count)]


def test_fit_of_known_embeddings() -> None:
    prompts = unit_rows(np.random.default_rng(1), 20)
    own = np.arange(20)
    perfect = measure_fit(prompts, prompts, own, distinct(20))
    assert perfect is not None and perfect.estimate == estimate_of(1, 1, 1)
    # Prompts with one embedding tie: no reply is closer to one of them.
    tied = measure_fit(prompts, prompts[:1].repeat(20, axis=0), own, distinct(20))
    assert tied is not None and tied.estimate.value == pytest.approx(0.5)


def test_the_interval_is_a_t_interval_over_replies_and_wider_where_they_share_prompts() -> None:
    rng = np.random.default_rng(2)
    prompts = unit_rows(rng, 12)
    replies = prompts + unit_rows(rng, 12) * 1.5
    once = measure_fit(replies, prompts, np.arange(12), distinct(12))
    similarity = replies @ prompts.T
    wins = [np.mean(np.delete(row, number) < row[number]) for number, row in enumerate(similarity)]
    half = stats.t.ppf(0.975, 11) * np.std(wins, ddof=1) / np.sqrt(12)
    low, high = max(0.0, np.mean(wins) - half), min(1.0, np.mean(wins) + half)
    assert once is not None and once.estimate.interval is not None
    assert [once.estimate.interval.low, once.estimate.interval.high] == pytest.approx([low, high])
    # The same reply five times is no more evidence than once.
    often = measure_fit(replies.repeat(5, axis=0), prompts, np.arange(12).repeat(5), distinct(60))
    assert often is not None and often.estimate.interval is not None
    assert often.estimate.interval.low == pytest.approx(once.estimate.interval.low)


@pytest.mark.parametrize(
    ("ends", "is_english", "state", "messages"),
    [
        ((0.98, 0.96, 1.0), True, RESPONSIVE, 0),
        ((0.52, 0.4, 0.64), True, UNRESPONSIVE, 1),
        ((0.7, 0.64, 0.76), True, RESPONSIVE, 0),
        ((0.6, 0.35, 0.85), True, UNCHECKED, 1),
        ((0.52, 0.4, 0.64), False, UNCHECKED, 1),
    ],
)
def test_states(ends: tuple[float, float, float], is_english: bool, state: str, messages: int) -> None:
    fit = PromptFit(estimate_of(*ends), prompts=20, repeated=0.0, is_english=is_english)
    assert fit.state == state
    assert len(fit_messages(fit)) == messages
    assert PromptFit.from_dict(fit.as_dict()) == fit


def test_repeats_are_counted_across_prompts_only() -> None:
    embeddings = np.eye(12)
    own = np.array([*range(11), 0])
    texts = distinct(12)
    texts[11] = texts[0]  # to the same prompt: no repeat
    texts[4] = f"  {texts[3].upper()}!\n"
    fit = measure_fit(embeddings, np.eye(12)[:11], own, texts)
    assert fit is not None and fit.repeated == pytest.approx(2 / 12)
    embeddings[6] = embeddings[5] + 0.1 * embeddings[7]
    alike = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    fit = measure_fit(alike, np.eye(12)[:11], own, texts)
    assert fit is not None and fit.repeated == pytest.approx(4 / 12)


def test_samples_respond_and_shuffled_or_generic_replies_are_caught(
    samples: dict[str, list[Exchange]],
) -> None:
    rows = [row for model in samples.values() for row in model[:32]]
    warm = samples["demo-warm"][:24]
    moved = np.random.default_rng(3).permutation(24)
    for one, other in zip(moved, np.roll(moved, 1), strict=True):
        rows.append(replace(warm[one], model="shuffled", response=warm[other].response))
    rows += [replace(row, model="generic", response=GENERIC) for row in warm]
    rows += [replace(row, model="few") for row in warm[:9] * 2]
    fits = fit_by_model(rows)
    states = {model: fit.state for model, fit in fits.items() if fit}
    assert states == dict.fromkeys(samples, RESPONSIVE) | dict.fromkeys(("shuffled", "generic"), UNRESPONSIVE)
    assert fits["few"] is None and fit_messages(None) == [TOO_FEW_PROMPTS]
    generic = fits["generic"]
    assert generic is not None and (generic.repeated, generic.prompts) == (1, 24)
    assert generic.estimate.value == pytest.approx(0.5)
    assert fit_by_model(rows[:30], unit=CONVERSATION) == {}


def test_the_collector_is_bounded_and_independent_of_order_and_repetition() -> None:
    turns = tuple(Turn(speaker="user", text=f"turn {number}") for number in range(4))
    row = Exchange(id="1", prompt="", response="yes", dialogue=turns)
    rows = [replace(row, prompt=f"prompt {number}") for number in range(2 * MAX_REPLIES)]
    one, other = FitCollector(), FitCollector()
    for row in rows:
        one.add(row)
    for row in [*reversed(rows), *rows]:
        other.add(row)
    assert one.rows == other.rows
    (kept,) = one.rows.values()
    assert len(kept) == MAX_REPLIES
    assert kept[0][1] == "turn 0\nturn 1" and kept[0][2].endswith("\nturn 3\nturn 2")
