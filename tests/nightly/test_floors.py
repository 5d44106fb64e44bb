"""Floors fail with as few prompts as an emotion has, and not by chance in a season of nights."""

import numpy as np
import pytest

from calibration.estimate import Floats
from nightly.emotions import POOLED_NIGHTS, PooledShare, pool, prompt_spread
from nightly.schema import EmotionResult, JudgedResponse

EMOTIONS = 8


def upper_ends(rng: np.random.Generator, level: float, prompts: int, nights: int) -> Floats:
    """By which floors fail, (looks, emotions): prompts differ by 20 points, answers by 8 a night."""
    base = level + 0.2 * rng.standard_normal((EMOTIONS, prompts))
    rows: list[list[EmotionResult]] = [[] for _ in range(EMOTIONS)]
    found = []
    for night in range(nights):
        good = np.clip(base + 0.08 * rng.standard_normal(base.shape), 0, 1)
        for at, held in enumerate(rows):
            total = float(good[at].sum())
            held.append(EmotionResult(model="m", emotion=str(at), n=prompts, bad=0, okay=0, good=total))
        if night % 6 == 0:
            judged = [
                JudgedResponse(
                    model="m", id="", prompt=f"{at} {n}", response="", emotion=str(at), good=good[at, n]
                )
                for at in range(EMOTIONS)
                for n in range(prompts)
            ]
            known = prompt_spread(judged, rows)
            pooled = [pool(held[-POOLED_NIGHTS:]) for held in rows]
            ends = [one.floor_estimates(known, floors=EMOTIONS)[1].interval.high for one in pooled if one]
            found.append(ends)
    return np.array(found)


@pytest.mark.parametrize(("prompts", "level"), [(10, 0.05), (20, 0.18)])
def test_a_level_far_below_its_floor_fails_within_a_week(prompts: int, level: float) -> None:
    rng = np.random.default_rng(1)
    ends = np.array([upper_ends(rng, level, prompts, 7)[-1] for _ in range(10)])
    assert np.mean(ends < 0.4) >= 0.6


@pytest.mark.parametrize("prompts", [5, 20])
def test_a_level_at_its_floor_seldom_fails_in_a_season(prompts: int) -> None:
    rng = np.random.default_rng(2)
    assert np.mean([(upper_ends(rng, 0.4, prompts, 91) < 0.4).any() for _ in range(20)]) <= 0.05


def test_probabilities_all_alike_do_not_make_a_floor_certain() -> None:
    judged = [
        JudgedResponse(model="m", id="", prompt=str(n), response="", emotion="sad", good=0.5)
        for n in range(5)
    ]
    both = PooledShare(0.5, 5).floor_estimates(prompt_spread(judged, []), floors=1)
    tonight, uniform = (estimate.interval for estimate in both)
    assert tonight is not None and uniform is not None
    assert 0.45 < tonight.low < 0.5 and uniform.low < tonight.low
    assert PooledShare(0.5, 5).interval().low < 0.25
