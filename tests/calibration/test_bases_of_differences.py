"""What a difference rests on: with a known truth its interval covers it, however few people rated."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
from scipy.special import ndtr

from calibration.comparison.differences import LEAST_RATERS, Difference, differences, rated_difference
from calibration.comparison.judged_models import ComparisonSettings, JudgedModel, Published, judged_level
from calibration.estimate import Estimate, Interval
from calibration.shares.ppi import RatedModel, one_hot, ppi_estimate
from calibration.shares.transport import CalibratedModels
from data.records import LABELS

# Standard deviations on the scale that the two cuts make into Bad, Okay and Good.
CUTS = np.array([-0.9, 0.0])
PROMPT, REPLY, SEVERITY, TASTE, SLIP, BLUR = 0.4, 0.4, 0.5, 0.25, 0.8, 0.3
STRAY = 0.04  # of the judge's share of Good, from model to model
MIDDLE = 0.2
Design = Literal["split", "crossed", "apart"]  # each reply read by one; by all; and other people a model


def shares(latent: Any, spread: float) -> np.ndarray:
    under = ndtr((CUTS - np.asarray(latent)[..., None]) / spread)
    return np.stack([under[..., 0], under[..., 1] - under[..., 0], 1 - under[..., 1]], axis=-1)


def truth(level: float) -> np.ndarray:
    """A crowd's shares of all prompts, were all people asked."""
    return shares(level, math.hypot(PROMPT, REPLY, SEVERITY, TASTE, SLIP))


def judged(level: float, prompt: np.ndarray, reply: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A judge that sees most of what people see, and strays on this model."""
    seen = level + 0.7 * (prompt + reply) + rng.normal(0, BLUR, len(prompt))
    found = shares(seen, math.hypot(SEVERITY, TASTE, SLIP))
    good = np.clip(found[:, 2] + rng.normal(0, STRAY), 0.01, 0.99)
    rest = (1 - good) / (1 - found[:, 2])
    return np.column_stack([found[:, 0] * rest, found[:, 1] * rest, good])


def two_models(
    raters: int,
    prompts: int,
    rng: np.random.Generator,
    *,
    gap: float = 0.0,
    design: Design = "split",
    unrated: int = 0,
) -> tuple[JudgedModel, JudgedModel]:
    """Both answer the same prompts, and `unrated` more only the judge reads; `gap` parts their levels."""
    prompt = rng.normal(0, PROMPT, prompts + unrated)
    severity = rng.normal(0, SEVERITY, raters)
    item = np.repeat(np.arange(prompts), raters if design == "crossed" else 1)
    who = np.arange(len(item)) % raters
    models = []
    for name, level in (("a", MIDDLE + gap / 2), ("b", MIDDLE - gap / 2)):
        if design == "apart":
            severity = rng.normal(0, SEVERITY, raters)
        reply, taste = rng.normal(0, REPLY, len(prompt)), rng.normal(0, TASTE, raters)
        felt = level + (prompt + reply)[item] + (severity + taste)[who] + rng.normal(0, SLIP, len(item))
        rated = RatedModel(
            judged=judged(level, prompt, reply, rng),
            item=item,
            value=one_hot(1 + (felt[:, None] > CUTS).sum(axis=1), 3),
            cluster=np.array([f"{name if design == 'apart' else ''}{number}" for number in who]),
            prompt=np.arange(len(prompt)).astype(str),
        )
        models.append(JudgedModel(name=name, rated=rated))
    return models[0], models[1]


def calibrated(rng: np.random.Generator, *, count: int = 6) -> ComparisonSettings:
    """A line through models rated well, on which the judge strays as it does on new ones."""
    crowd = np.array([truth(level) for level in np.linspace(-0.4, 0.8, count)])
    judge = crowd + rng.normal(0, STRAY, count)[:, None] * [-0.3, -0.7, 1.0]
    noise = 2 * crowd * (1 - crowd) / 1500
    crowd = crowd + rng.normal(0, np.sqrt(noise))
    names = tuple(f"known-{at}" for at in range(count))
    rows = zip(judge.T.tolist(), crowd.T.tolist(), noise.T.tolist(), strict=True)
    return ComparisonSettings(
        calibrated=tuple(
            CalibratedModels(models=names, judge=tuple(one), crowd=tuple(two), noise=tuple(three))
            for one, two, three in rows
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Of so many cases, how many were refused, missed the truth, were called different, and at 1 %."""

    cases: int
    refused: int
    missed: int
    found: int
    found_at_one: int


def tally(
    raters: int,
    prompts: int,
    cases: int,
    *,
    gap: float = 0.0,
    design: Design = "split",
    unrated: int = 0,
    has_line: bool,
) -> Tally:
    rng = np.random.default_rng([raters, prompts, len(design), round(100 * gap), has_line])
    wanted = float((truth(MIDDLE + gap / 2) - truth(MIDDLE - gap / 2))[2])
    counts = dict.fromkeys(("refused", "missed", "found", "found_at_one"), 0)
    for _ in range(cases):
        pair = two_models(raters, prompts, rng, gap=gap, design=design, unrated=unrated)
        settings = calibrated(rng) if has_line else ComparisonSettings()
        (item,) = differences([pair], settings, is_planning=False)
        ends = item.good.interval
        counts["refused"] += ends is None
        counts["missed"] += ends is not None and not ends.low <= wanted <= ends.high
        counts["found"] += item.p < 0.05
        counts["found_at_one"] += item.p < 0.01
    return Tally(cases=cases, **counts)


def most(cases: int, rate: float) -> int:
    """More than this many of so many come by chance in 1 of 1,000."""
    from scipy.stats import binom

    return int(binom.ppf(0.999, cases, rate))


@pytest.mark.parametrize("design", ["split", "crossed", "apart"])
@pytest.mark.parametrize(("raters", "prompts"), [(4, 16), (8, 64), (20, 64)])
def test_by_ratings_alone_models_alike_are_told_apart_in_at_most_one_of_twenty(
    raters: int, prompts: int, design: Design
) -> None:
    found = tally(raters, prompts, 40, design=design, has_line=False)
    assert found.refused == 0 and found.missed == found.found <= most(40, 0.05)


def test_responses_that_only_the_judge_read_do_not_make_it_err_more() -> None:
    found = tally(8, 48, 40, unrated=100, has_line=False)
    assert found.refused == 0 and found.missed <= most(40, 0.05)


@pytest.mark.parametrize(
    ("raters", "prompts", "gap", "design"),
    [(2, 16, 0.0, "split"), (2, 160, 0.0, "crossed"), (3, 64, 0.4, "split"), (8, 64, 0.4, "crossed")],
)
def test_by_line_and_ratings_intervals_hold_the_truth(
    raters: int, prompts: int, gap: float, design: Design
) -> None:
    """Two people and 16 prompts: where the shorter of two intervals counts, one in four misses."""
    found = tally(raters, prompts, 30, gap=gap, design=design, has_line=True)
    assert found.missed <= most(30, 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("has_line", [False, True])
@pytest.mark.parametrize("gap", [0.0, 0.4])
@pytest.mark.parametrize("design", ["split", "crossed", "apart"])
@pytest.mark.parametrize("raters", [2, 3, 4, 8, 20])
@pytest.mark.parametrize("prompts", [16, 64, 160])
def test_intervals_hold_the_truth_in_every_cell(
    raters: int, prompts: int, design: Design, gap: float, has_line: bool
) -> None:
    if raters > prompts:
        pytest.skip("more raters than prompts")
    found = tally(raters, prompts, 200, gap=gap, design=design, has_line=has_line)
    if raters < LEAST_RATERS and not has_line:
        assert found.refused == found.cases
        return
    assert found.refused <= 0.1 * found.cases  # a judge that strays far leaves the calibrated range
    assert found.missed <= most(200, 0.07)
    assert gap or found.found_at_one <= most(200, 0.02)


@pytest.mark.parametrize("raters", [2, 4, 20])
def test_a_level_by_raters_who_all_read_the_same_holds_the_truth(raters: int) -> None:
    """Agreement of two people on 160 replies says little about the next two."""
    rng = np.random.default_rng(raters)
    missed = 0
    for _ in range(80):
        one, _ = two_models(raters, 160, rng, design="crossed")
        ends = judged_level(one, ComparisonSettings()).shares["Good"].interval
        assert ends is not None
        missed += not ends.low <= truth(MIDDLE)[2] <= ends.high
    assert missed <= most(80, 0.05)


# --- refusals


def compare(
    one: JudgedModel, other: JudgedModel | Published, settings: ComparisonSettings | None = None
) -> Difference:
    (found,) = differences([(one, other)], settings or ComparisonSettings())
    return found


@pytest.mark.parametrize(("raters", "words"), [(1, "1 rater is too few"), (2, "2 raters are too few")])
def test_too_few_raters_are_refused_with_how_many_more_would_do(raters: int, words: str) -> None:
    one, other = two_models(raters, 64, np.random.default_rng(0), gap=2.0)
    found = compare(one, other)
    assert found.verdict == "refused" and found.reason is not None
    assert words in found.reason and found.reason.endswith(f"{LEAST_RATERS - raters} more would do")
    ends = Interval(0.2, 0.3)
    study = Published(
        name="study:x", shares=dict.fromkeys(LABELS, Estimate(0.25, ends)), ratings=2000, design_effect=2
    )
    against = compare(one, study)
    assert against.verdict == "refused" and words in str(against.reason)


def test_as_many_raters_as_it_asked_for_find_a_large_difference() -> None:
    one, other = two_models(LEAST_RATERS, 64, np.random.default_rng(0), gap=2.0)
    found = compare(one, other)
    assert (found.how, found.verdict) == ("ratings", "better")


def test_where_the_line_does_not_reach_few_raters_do_not_stand_in_for_it() -> None:
    rng = np.random.default_rng(1)
    one, other = two_models(2, 64, rng, gap=3.0)
    found = compare(one, other, calibrated(rng))
    assert found.verdict == "refused" and found.reason is not None
    assert "calibrated range" in found.reason and "2 raters are too few" in found.reason


# --- the difference itself


def test_two_raters_of_both_models_leave_one_degree_of_freedom() -> None:
    one, other = two_models(2, 64, np.random.default_rng(2))
    found = rated_difference(ppi_estimate(one.rated), ppi_estimate(other.rated))
    np.testing.assert_allclose(found.freedom, 1.0)
    apart = two_models(8, 64, np.random.default_rng(2), design="apart")
    np.testing.assert_allclose(rated_difference(*(ppi_estimate(item.rated) for item in apart)).freedom, 14.0)


def test_turned_round_it_is_the_same_difference() -> None:
    one, other = (ppi_estimate(item.rated) for item in two_models(6, 48, np.random.default_rng(3), gap=0.5))
    there, back = rated_difference(one, other), rated_difference(other, one)
    np.testing.assert_allclose(there.value, -back.value)
    np.testing.assert_allclose(there.low, -back.high)
    np.testing.assert_allclose(there.freedom, back.freedom)


def test_ratings_that_are_the_same_for_both_are_not_exact() -> None:
    one, _ = two_models(6, 48, np.random.default_rng(4))
    found = compare(one, JudgedModel(name="b", rated=one.rated))
    assert found.good.value == 0 and found.good.interval is not None
    assert found.good.interval.high > 0.05 and found.p == 1
