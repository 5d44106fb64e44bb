"""Shares and their intervals, against cases worked out by hand and against a known truth."""

from hashlib import sha256

import numpy as np
import pytest

from empathy_judge.calibration.shares.tally import BLOCKS, MAX_CLUSTERS, JudgedShares, Tally, model_shares
from empathy_judge.data.records import Judgment


def judgment(model: str, prompt: object, good: float | None, reason: str | None = None) -> Judgment:
    """A judgment that is Good with probability `good`, else Bad."""
    return Judgment(
        id="x",
        model=model,
        content_digest="c",
        prompt_digest=sha256(str(prompt).encode()).hexdigest()[:16],
        probabilities=None if good is None else {"Bad": 1 - good, "Okay": 0.0, "Good": good},
        unscored=reason,
    )


def shares_of(judgments: list[Judgment]) -> list[JudgedShares]:
    tally = Tally()
    for item in judgments:
        tally.add(item)
    return model_shares(tally, rng=np.random.default_rng(0))


def bounds(found: JudgedShares) -> tuple[float, float]:
    interval = found.shares["Good"].interval
    return interval.low, interval.high


def test_a_share_is_the_mean_probability_and_not_a_count_of_likeliest_labels() -> None:
    (found,) = shares_of([judgment("m", prompt, 0.6) for prompt in range(10)])
    assert (found.shares["Good"].value, found.shares["Bad"].value) == pytest.approx((0.6, 0.4))
    assert found.scored == 10


def test_models_that_answer_the_same_prompts_are_resampled_together() -> None:
    good = np.random.default_rng(3).random(50)
    rows = [judgment(model, n, value) for n, value in enumerate(good) for model in ("a", "b")]
    first, second = shares_of(rows)
    assert bounds(first) == bounds(second), "the same answers under the same draws"


def test_one_prompt_has_a_share_and_no_interval() -> None:
    (found,) = shares_of([judgment("m", "only", 0.3), judgment("m", "only", 0.5)])
    assert found.shares["Good"].value == pytest.approx(0.4)
    assert found.shares["Good"].interval is None


def test_unscored_is_counted_by_reason_and_is_no_share() -> None:
    reasons = ("not on the scale: 7", "not on the scale: 8", "refused")
    rows = [judgment("m", 1, 1.0), judgment("m", 2, 0.0), judgment("silent", 1, None, "refused")]
    found, silent = shares_of(rows + [judgment("m", reason, None, reason) for reason in reasons])
    assert (found.scored, found.unscored) == (2, {"not on the scale": 2, "refused": 1})
    assert found.shares["Good"].value == 0.5
    assert (silent.scored, silent.unscored, silent.shares) == (0, {"refused": 1}, {})


def test_the_best_model_comes_first_and_the_unscored_last() -> None:
    rows = [judgment("c", 1, None, "refused"), judgment("a", 1, 0.2), judgment("b", 1, 0.9)]
    assert [found.model for found in shares_of(rows)] == ["b", "a", "c"]
    assert shares_of([]) == []


def test_many_prompts_are_thrown_into_blocks_that_say_the_same() -> None:
    rng, prompts, tally = np.random.default_rng(11), MAX_CLUSTERS * 2, Tally()
    good = rng.random(prompts)
    for number, value in enumerate(good):
        tally.add(judgment("m", number, float(value)))
    assert len(tally.clusters) <= MAX_CLUSTERS and sum(map(len, tally.sums.values())) <= BLOCKS
    (found,) = model_shares(tally, rng=rng)
    assert found.scored == prompts
    assert found.shares["Good"].value == pytest.approx(good.mean())
    low, high = bounds(found)
    assert high - low == pytest.approx(2 * 1.96 * good.std() / np.sqrt(prompts), rel=0.1)


def test_labels_that_nobody_got_are_bounded_by_wilson_and_never_exact() -> None:
    (found,) = shares_of([judgment("m", prompt, 0.0) for prompt in range(20)])
    assert bounds(found) == pytest.approx((0, 3.8415 / 23.8415), abs=1e-4)
    ends = found.shares["Bad"].interval
    assert (ends.low, ends.high) == pytest.approx((20 / 23.8415, 1), abs=1e-4)
