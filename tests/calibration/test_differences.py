"""Differences of judged models: a known shift is found, none is not, and too few is said."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtr
from simulated_ratings import calibrated, two_models

from empathy_judge.calibration.comparison.differences import Difference, chances_of_best, differences
from empathy_judge.calibration.comparison.judged_models import ComparisonSettings, JudgedModel, compared_level
from empathy_judge.calibration.comparison.published_models import PublishedModel
from empathy_judge.calibration.comparison.wide_prior import HEAVIER
from empathy_judge.calibration.estimate import Estimate, Interval, estimate_of
from empathy_judge.calibration.prompt_fit import PromptFit
from empathy_judge.calibration.shares.correction import NO_LEVEL
from empathy_judge.calibration.shares.ppi import RatedModel, one_hot
from empathy_judge.calibration.shares.transport import CalibratedModels, recorded_deviation
from empathy_judge.data.records import to_plain

NONE = np.zeros(0, dtype=np.intp)


def shares_of(good: np.ndarray) -> np.ndarray:
    return np.column_stack([0.3 * (1 - good), 0.7 * (1 - good), good])


def model_of(name: str, good: np.ndarray, *, first: int = 0, **more: Any) -> JudgedModel:
    """A model without ratings, with these shares of Good."""
    numbers = np.arange(first, first + len(good)).astype(str)
    none = {"item": NONE, "value": np.zeros((0, 3)), "cluster": NONE}
    return JudgedModel(name=name, rated=RatedModel(judged=shares_of(good), prompt=numbers, **none), **more)


def judged(
    name: str, shift: float, rng: np.random.Generator, *, prompts: int = 160, hard: Any = 0.0, first: int = 0
) -> JudgedModel:
    """A model whose share of Good is about .6 + shift; prompts are as `hard` for all."""
    good = np.clip(0.6 + shift + hard + rng.normal(0, 0.1, prompts), 0.02, 0.98)
    return model_of(name, good, first=first)


def with_ratings(model: JudgedModel, level: float, count: int, rng: np.random.Generator) -> JudgedModel:
    """The same with ratings of its first responses, five by each rater, Good with this chance."""
    value = one_hot(np.where(rng.random(count) < level, 3, 1), 3)
    raters = np.array([f"{model.name}-{at // 5}" for at in range(count)])
    rated = replace(model.rated, item=np.arange(count), value=value, cluster=raters)
    return replace(model, rated=rated)


def by_line(count: int = 6, spread: float = 0.01, **more: Any) -> ComparisonSettings:
    """Calibrated models from .45 to .75; the crowd's share is the judge's less .05, give or take."""
    judge = np.linspace(0.45, 0.75, count)
    crowd = judge - 0.05 + np.random.default_rng(0).normal(0, spread, count)
    names = tuple(f"known-{at}" for at in range(count))
    lines = tuple(
        CalibratedModels(models=names, judge=tuple(one), crowd=tuple(two), noise=(1e-4,) * count)
        for one, two in zip(shares_of(judge).T.tolist(), shares_of(crowd).T.tolist(), strict=True)
    )
    return ComparisonSettings(calibrated=lines, **more)


def compare(
    one: JudgedModel, other: JudgedModel | PublishedModel, settings: ComparisonSettings | None = None
) -> Difference:
    (found,) = differences([(one, other)], settings or ComparisonSettings())
    return found


def test_prompts_both_answered_cancel() -> None:
    rng = np.random.default_rng(1)
    hard = rng.normal(0, 0.15, 160)
    one, other = (judged(name, 0.0, rng, hard=hard) for name in "ab")
    apart = judged("b", 0.0, np.random.default_rng(2), hard=hard, first=1000)
    paired, clustered = compare(one, other), compare(one, apart)
    assert (paired.shared_prompts, clustered.shared_prompts) == (160, 0)
    assert paired.error < 0.7 * clustered.error
    pairwise = one.rated.judged[:, 2] - other.rated.judged[:, 2]
    assert paired.error == pytest.approx(pairwise.std(ddof=1) / math.sqrt(160), rel=0.02)


def deviating(name: str, share: float, sd: float = 0.2, prompts: int = 64) -> JudgedModel:
    """A model to whose replies the judge gives scores with this mean and standard deviation."""
    score = share + sd * np.linspace(-1, 1, prompts) * math.sqrt(3 / prompts / (prompts + 1)) * (prompts - 1)
    judged = np.column_stack([1 - score, 0 * score, score])
    return replace(model_of(name, score), rated=replace(model_of(name, score).rated, judged=judged))


def test_a_language_model_without_ratings_has_a_probability_and_no_level() -> None:
    """Known answers: 0.37 of score is 1.85 standard deviations, at which t with 4 degrees reaches 97.6%."""
    settings = ComparisonSettings(has_no_level=True)
    deviation, freedom = recorded_deviation()
    found = {
        gap: compare(deviating("a", 0.5 + gap), deviating("b", 0.5), settings) for gap in (0.0, 0.1, 0.37)
    }
    for gap, pair in found.items():
        assert pair.probability == pytest.approx(
            stdtr(freedom, gap / (HEAVIER * 0.2 * deviation * 2**0.5)), abs=1e-6
        )
        assert (pair.how, pair.needed) == ("prior", None)
        assert json.loads(json.dumps(to_plain(pair.shares)))["Good"] == {
            "value": None,
            "low": None,
            "high": None,
        }
        assert all(map(math.isnan, pair.at_least))
    assert [pair.verdict for pair in found.values()] == ["inconclusive", "inconclusive", "better"]
    assert found[0.37].reverse().verdict == "worse"
    level = compared_level(deviating("a", 0.5), settings)
    assert (level.how, level.reason) == ("prior", NO_LEVEL) and math.isnan(level.shares["Good"].value)
    three = [deviating(name, share) for name, share in (("a", 0.55), ("b", 0.5), ("c", 0.1))]
    best = chances_of_best(three, settings)
    assert best["a"] > best["b"] > 0.25 and best["c"] < 0.02
    # Replies that the judge labels alike do not make it exact.
    assert 0.6 < compare(deviating("a", 0.9, 0.0), deviating("b", 0.87, 0.0), settings).probability < 0.75
    lost = replace(deviating("a", 0.86), unscored=64)
    pair = compare(lost, deviating("b", 0.5), settings)
    assert (pair.verdict, pair.is_withheld) == ("inconclusive", True), "counted as Bad it is worse"
    same = replying(three[0], ["x"] * 64)
    assert compare(same, replace(same, name="d"), settings).how == "same"


def test_a_language_model_calls_equal_models_better_in_at_most_5_percent() -> None:
    rng, (deviation, freedom) = np.random.default_rng(0), recorded_deviation()
    settings = ComparisonSettings(has_no_level=True)
    strays = deviation * 0.1 * rng.standard_t(freedom, (1000, 2))
    pairs = [[deviating("a", 0.5 + stray, 0.1) for stray in both] for both in strays]
    wrong = [
        abs(compare(one, replace(other, name="b"), settings).probability - 0.5) > 0.475
        for one, other in pairs
    ]
    assert 0.01 <= np.mean(wrong) <= 0.05


def test_too_few_is_said_with_how_many_more_prompts_would_tell() -> None:
    rng = np.random.default_rng(3)
    one, other = judged("a", 0.0, rng, prompts=12), judged("b", 0.0, rng, prompts=12, first=100)
    found = compare(one, other)
    assert (found.verdict, found.unit) == ("inconclusive", "prompts")
    assert 30 < found.needed < 200
    many = 12 + found.needed
    enough = compare(judged("a", 0.0, rng, prompts=many), judged("b", 0.0, rng, prompts=many, first=1000))
    assert 2.8 * enough.error == pytest.approx(0.05, rel=0.35)


def test_the_same_is_said_where_the_whole_interval_lies_within_the_margin() -> None:
    rng = np.random.default_rng(4)
    pair = [with_ratings(judged(name, 0.0, rng, prompts=4000), 0.6, 4000, rng) for name in "ab"]
    found = compare(*pair, ComparisonSettings(margin=0.07))
    assert found.verdict == "similar" and found.needed is None
    assert compare(*pair, ComparisonSettings(margin=0.01)).verdict == "at least as good"


def test_a_model_without_a_scored_response_cannot_be_compared() -> None:
    one, empty = judged("a", 0.0, np.random.default_rng(0)), model_of("b", np.zeros(0), unscored=9)
    for settings in (ComparisonSettings(), by_line()):
        found = compare(one, empty, settings)
        assert found.verdict == "inconclusive" and found.reason
        assert compared_level(empty, settings).how == "refused"
        json.dumps(to_plain(found), allow_nan=False)


def test_by_the_line_a_large_shift_is_found_and_its_level_corrected() -> None:
    rng = np.random.default_rng(1)
    one, other = judged("a", 0.12, rng), judged("b", -0.12, rng)
    settings = by_line(12)
    found = compare(one, other, settings)
    assert (found.verdict, found.how) == ("better", "line")
    # The line is steeper or flatter than 1 only by chance, and 5 points below the judge.
    assert compared_level(one, settings).good == pytest.approx(0.67, abs=0.03)
    # What the judge alone says is too sure: it has no model's stray in it.
    narrow = found.judge.interval.high - found.judge.interval.low
    assert found.good.interval.high - found.good.interval.low > narrow


def test_beyond_the_rated_range_a_difference_is_a_bound() -> None:
    rng = np.random.default_rng(2)
    settings = by_line(design_effect=2.0)
    high, middle, low = judged("high", 0.35, rng), judged("middle", 0.0, rng), judged("low", -0.5, rng)
    found = compare(high, middle, settings)
    assert (found.verdict, found.bound, found.good.interval.high) == ("better", "at least", 1.0)
    assert found.good.interval.low > 0 and math.isnan(found.good.value)
    level = compared_level(high, settings).shares["Good"]
    assert (level.bound, level.interval.high) == ("at least", 1.0)
    assert level.interval.low > 0.6 and math.isnan(level.value)
    turned = compare(low, middle, settings)
    assert (turned.verdict, turned.bound) == ("worse", "at most")
    back = compare(middle, low, settings)
    reversed_ = turned.reverse()
    assert (reversed_.verdict, reversed_.bound, reversed_.one) == (back.verdict, back.bound, back.one)
    assert reversed_.good.order == pytest.approx(back.good.order, abs=2e-3)
    assert compare(high, low, settings).verdict == "better"
    lower = compare(judged("lower", -0.55, rng), low, settings)
    assert lower.verdict in ("probably worse", "inconclusive") and lower.shares


def test_replies_that_do_not_respond_have_no_level_and_no_favourable_verdict() -> None:
    rng = np.random.default_rng(2)
    settings = by_line()
    fit = PromptFit(estimate_of(0.52, 0.4, 0.64), prompts=20, repeated=0.0)
    unfit, good = replace(judged("unfit", 0.3, rng), fit=fit), judged("good", 0.0, rng)
    level = compared_level(unfit, settings)
    assert (level.how, dict(level.shares)) == ("refused", {}) and level.reason
    for found in (compare(unfit, good, settings), compare(unfit, study(0.3, 0.03), settings)):
        assert found.verdict == "inconclusive" and not found.shares and "unfit" in str(found.reason)


def test_variants_are_told_apart_where_unrelated_models_are_not() -> None:
    rng = np.random.default_rng(6)
    one, other = judged("a", 0.055, rng), judged("b", -0.055, rng)
    settings = by_line(spread=0.04)
    unrelated = compare(one, other, settings)
    variants = compare(one, other, replace(settings, are_variants=True))
    assert 0.88 < unrelated.probability < variants.probability


# --- equal replies, and at least as good


def replying(model: JudgedModel, texts: list[str]) -> JudgedModel:
    return replace(model, replies=tuple(texts))


def test_a_copy_has_no_difference_and_equal_replies_no_error() -> None:
    rng = np.random.default_rng(8)
    settings = by_line()
    one, texts = judged("a", 0.0, rng, prompts=20), [f"reply {number}" for number in range(20)]
    copy = compare(replying(one, texts), replying(replace(one, name="copy"), texts), settings)
    assert (copy.how, copy.verdict, copy.good) == ("same", "similar", Estimate(0.0, Interval(0.0, 0.0)))
    good = one.rated.judged[:, 2].copy()
    good[10:] = good[10:][::-1]  # other replies of equal quality
    half = replace(one, name="half", rated=replace(one.rated, judged=shares_of(good)))
    half = replying(half, texts[:10] + [f"other {number}" for number in range(10)])
    found = compare(replying(one, texts), half, settings)
    apart = compare(one, replace(half, replies=()), settings)
    assert (found.verdict, found.reverse().verdict) == ("at least as good", "at least as good")
    assert min(found.at_least) > min(apart.at_least)
    beyond = [
        replace(item, rated=replace(item.rated, judged=shares_of(item.rated.judged[:, 2] + 0.25)))
        for item in (replying(one, texts), half)
    ]
    assert compare(*beyond, settings).verdict == "at least as good", "above the rated range, too"


def test_nothing_is_at_least_as_good_where_the_judge_cannot_see_a_loss() -> None:
    rng = np.random.default_rng(9)
    settings = by_line(12)
    one, other = judged("a", 0.0, rng), judged("b", -0.02, rng)
    assert compare(one, other, settings).verdict == "at least as good"
    assert compare(other, one, replace(settings, max_drop=0.01)).verdict == "inconclusive"
    repeating = replace(one, fit=PromptFit(estimate_of(0.9, 0.8, 1.0), prompts=20, repeated=0.5))
    below, above = judged("below", -0.4, rng), judged("above", 0.35, rng)
    for model, baseline in ((repeating, other), (below, other), (other, above)):
        assert math.isnan(compare(model, baseline, settings).at_least[0])
    assert compare(above, other, settings).at_least[0] > 0.95


def test_prompts_are_counted_as_won_lost_or_even() -> None:
    one = model_of("a", np.array([0.9, 0.2, 0.5, 0.5]), contents=("a0", "a1", "a2", "a3"))
    other = model_of("b", np.array([0.2, 0.9, 0.5, 0.4]), contents=("b0", "b1", "b2", "b3"))
    wins = compare(one, other).wins
    assert (wins.prompts, wins.wins, wins.losses) == (4, 2, 1)
    assert [gap.contents for gap in wins.most] == [("a0", "b0"), ("a1", "b1"), ("a3", "b3")]


def test_ratings_narrow_a_difference_and_the_people_are_planned() -> None:
    """80 people who rate ten replies each find 10 points; 15 points need 36."""
    rng = np.random.default_rng(3)
    one, other = judged("a", 0.0, rng, prompts=1800), judged("b", 0.0, rng, prompts=1800)
    settings = by_line(spread=0.04)
    without = compare(one, other, settings)
    assert (without.verdict, without.unit, without.needed) == ("at least as good", "people", None)
    wide = compare(one, other, replace(by_line(spread=0.2), margin=0.15))
    assert wide.needed == pytest.approx(36, abs=4)
    rated = compare(with_ratings(one, 0.55, 1200, rng), with_ratings(other, 0.55, 1200, rng), settings)
    assert rated.how == "both" and rated.error < 0.6 * without.error


def study(value: float, half: float) -> PublishedModel:
    ends = Interval(value - half, value + half)
    shares = {"Bad": Estimate(0.1, Interval(0.08, 0.12)), "Okay": Estimate(0.3, Interval(0.28, 0.32))}
    return PublishedModel(name="study:x", shares={**shares, "Good": Estimate(value, ends)}, ratings=2000)


def test_against_the_study_both_errors_count() -> None:
    model = judged("a", 0.0, np.random.default_rng(0))
    settings = by_line(8)
    level = compared_level(model, settings).shares["Good"]
    found = compare(model, study(0.3, 0.03), settings)
    assert found.verdict == "better" and found.how == "line" and found.shared_prompts == 0
    low = found.good.value - math.hypot(level.value - level.interval.low, 0.03)
    assert found.good.interval.low == pytest.approx(low, abs=0.005)


def test_where_the_studys_own_error_is_too_large_no_number_is_promised() -> None:
    model = judged("a", 0.0, np.random.default_rng(0))
    found = compare(model, study(0.55, 0.06), by_line())
    assert found.verdict == "at least as good" and found.needed is None


@pytest.mark.parametrize("raters", [1, 2, 3])
def test_fewer_than_four_raters_decide_nothing(raters: int) -> None:
    one, other = two_models(raters, 64, np.random.default_rng(0), gap=2.0)
    unrated = [replace(item, rated=item.rated.without_ratings()) for item in (one, other)]
    for settings in (ComparisonSettings(), calibrated(np.random.default_rng(1))):
        found, without = compare(one, other, settings), compare(*unrated, settings)
        assert (found.verdict, found.how, found.good) == (without.verdict, without.how, without.good)
        assert compared_level(one, settings).shares == compared_level(unrated[0], settings).shares


def test_ratings_that_are_the_same_for_both_are_not_exact() -> None:
    one, _ = two_models(6, 48, np.random.default_rng(4))
    found = compare(one, JudgedModel(name="b", rated=one.rated))
    assert (found.good.value, found.p) == (0, 1) and found.good.interval.high > 0.05
