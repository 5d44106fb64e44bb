"""Models compared by human ratings: the crowd study's published figures, and the statistics themselves."""

import csv
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import SHARED
from scipy import stats

from empathy_judge.calibration.comparison import compare_ratings as rating_tests
from empathy_judge.calibration.comparison.compare_ratings import (
    RatedComparison,
    RatingColumns,
    compare_ratings,
)
from empathy_judge.calibration.comparison.published_models import DESIGN_EFFECTS, STUDY_COUNTS, published
from empathy_judge.calibration.comparison.verdicts import benjamini_hochberg, holm
from empathy_judge.data.rating_files.rated_inputs import read_people
from empathy_judge.data.records import LABELS, to_plain

RATINGS = SHARED / "empathy-study" / "ratings-without-texts.csv"
PAPER = ("human", "gpt-4", "llama-2-70b-chat", "gemini-1.0-pro", "mixtral-8x7b-instruct")
LLAMA, GEMINI, MIXTRAL = PAPER[2:]


def columns(model: list[str], rating: list[int], **given: list[str]) -> RatingColumns:
    size = len(model)
    return RatingColumns(
        model=np.array(model),
        rating=np.array(rating),
        rater=np.array(given.get("rater", [f"r{at}" for at in range(size)])),
        emotion=np.array(given.get("emotion", [""] * size)),
    )


@pytest.fixture(scope="module")
def study() -> RatedComparison:
    """The study's counts, which come with the product: raters are unknown, so each rates once."""
    with STUDY_COUNTS.open(encoding="utf-8", newline="") as stream:
        rows = [
            (cell["system"], level, cell["emotion"])
            for cell in csv.DictReader(stream)
            for level, label in enumerate(LABELS, start=1)
            for _ in range(int(cell[label.lower()]))
        ]
    models, levels, emotions = map(list, zip(*rows, strict=True))
    return compare_ratings(columns(models, levels, emotion=emotions), baseline="human", models=PAPER)


@pytest.fixture(scope="module")
def rated() -> RatedComparison:
    if not RATINGS.exists():
        pytest.skip("the study's ratings are missing: set EMPATHY_DATA to a folder with empathy-study")
    return rating_tests.compare_sheet(read_people(RATINGS), RATINGS, models=PAPER)


@pytest.fixture(params=["study", "rated"])
def comparison(request: pytest.FixtureRequest) -> RatedComparison:
    """What needs no raters comes out the same from counts as from ratings."""
    found = request.getfixturevalue(request.param)
    assert found.left_out == ("gpt-4-plain",)
    return found


def group(comparison: RatedComparison, name: str) -> rating_tests.RatedGroup:
    return next(table for table in comparison.groups if table.group == name)


# model: counts, mean, gain in per cent, points, chi-square 2x2 and p, 2x3 and p, phi
ALL = {
    "gpt-4": ((142, 563, 1295), 31.34, 15.45, 96.77, 7.8e-23, 134.12, 7.5e-30, 0.156),
    LLAMA: ((174, 607, 1219), 23.63, 11.65, 54.40, 1.6e-13, 82.62, 1.1e-18, 0.117),
    GEMINI: ((248, 671, 1081), 9.63, 4.75, 8.85, 2.9e-3, 19.34, 6.3e-5, 0.048),
    MIXTRAL: ((205, 603, 1192), 20.89, 10.30, 42.36, 7.6e-11, 57.53, 3.2e-13, 0.103),
}
POSITIVE = {
    "gpt-4": ((34, 228, 619), 36.34, 18.73, 64.10, 1.2e-15, 92.41, 8.6e-21, 0.192),
    LLAMA: ((48, 250, 583), 28.41, 14.64, 38.40, 5.8e-10, 59.52, 1.2e-13, 0.149),
    GEMINI: ((117, 283, 481), 5.95, 3.06, 1.54, 2.1e-1, 2.01, 3.7e-1, 0.031),
    MIXTRAL: ((76, 238, 567), 24.89, 12.83, 29.21, 6.5e-8, 33.95, 4.3e-8, 0.130),
}
NEGATIVE = {
    "gpt-4": ((108, 335, 676), 27.07, 12.87, 36.78, 1.3e-9, 51.94, 5.3e-12, 0.129),
    LLAMA: ((126, 357, 636), 19.55, 9.29, 19.00, 1.3e-5, 30.42, 2.5e-7, 0.093),
    GEMINI: ((131, 388, 600), 12.78, 6.08, 8.02, 4.6e-3, 22.11, 1.6e-5, 0.061),
    MIXTRAL: ((129, 365, 625), 17.48, 8.31, 15.15, 1.0e-4, 26.64, 1.6e-6, 0.083),
}
PUBLISHED = {"all": ALL, "positive": POSITIVE, "negative": NEGATIVE}
OVERALL = {"all": 173.89, "positive": 138.83, "negative": 67.04}  # chi-square of models by labels
HUMAN = {"all": (342, 672, 986), "positive": (133, 294, 454), "negative": (209, 378, 532)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_tables_of_the_study(comparison: RatedComparison, name: str) -> None:
    rows = {row.model: row for row in group(comparison, name).models}
    assert list(rows) == list(PAPER)
    assert tuple(rows["human"].counts.values()) == HUMAN[name]
    assert rows["human"].yates is None and math.isnan(rows["human"].relative)
    for model, (counts, gain, points, yates, yates_p, full, full_p, phi) in PUBLISHED[name].items():
        row = rows[model]
        assert tuple(row.counts.values()) == counts
        assert (round(100 * row.relative, 2), round(100 * row.points, 2)) == (gain, points)
        assert (round(row.yates.value, 2), round(row.full.value, 2)) == (yates, full)
        assert (float(f"{row.yates.p:.1e}"), float(f"{row.full.p:.1e}")) == (yates_p, full_p)
        assert round(row.yates.effect, 3) == phi
    overall = group(comparison, name).omnibus
    assert (round(overall.value, 2), overall.freedom) == (OVERALL[name], 8)
    assert name != "all" or round(overall.effect, 3) == 0.093


CELLS = """afraid llama 26 39 4.66 .173|afraid gpt 26 38 3.91 .227|annoyed gpt 27 43 6.62 .101
annoyed mixtral 27 41 4.97 .157|anxious gpt 24 42 9.20 .062|anxious llama 24 39 6.22 .101
anxious gemini 24 39 6.22 .101|anxious mixtral 24 36 3.85 .227|apprehensive gpt 25 51 20.72 .001
apprehensive gemini 25 40 6.23 .101|apprehensive llama 25 38 4.57 .173|confident gpt 32 46 6.86 .101
content gpt 40 54 6.02 .106|excited gpt 30 44 5.41 .128|excited mixtral 30 44 5.41 .128
excited llama 30 43 4.59 .173|grateful gpt 26 43 8.36 .069|grateful llama 26 43 8.36 .069
grateful mixtral 26 41 6.36 .101|hopeful llama 31 43 4.27 .199|impressed gpt 34 53 10.62 .042
joyful gpt 33 47 6.34 .101|prepared llama 31 43 4.06 .217|proud mixtral 32 51 11.44 .042
proud gpt 32 48 7.70 .078|proud llama 32 46 5.69 .122|surprised gpt 24 43 10.33 .042
surprised llama 24 41 8.14 .069"""


def test_the_tests_of_single_emotions(comparison: RatedComparison) -> None:
    """28 below 0.05 of 128, 4 after Benjamini-Hochberg, 1 after Holm, all in favor of the models."""
    wanted = {}
    for line in CELLS.replace("\n", "|").split("|"):
        emotion, model, *numbers = line.split()
        name = next(full for full in PAPER if full.startswith(model))
        wanted[emotion, name] = tuple(float(number) for number in numbers)
    found = {
        (test.emotion, test.model): (
            test.baseline_good,
            test.good,
            round(test.yates.value, 2),
            round(test.q, 3),
        )
        for test in comparison.emotions
        if test.yates.p < 0.05
    }
    assert found == wanted and (len(comparison.emotions), len(found)) == (128, 28)
    assert sum(test.q < 0.05 for test in comparison.emotions) == 4
    (last,) = [test for test in comparison.emotions if test.p_holm < 0.05]
    assert (last.emotion, last.model) == ("apprehensive", "gpt-4")


def test_raters_as_units(rated: RatedComparison) -> None:
    """With raters as units Gemini's p goes from 0.003 to 0.029."""
    tests = [row.test for row in group(rated, "all").models[1:]]
    assert [float(f"{test.p:.0e}") for test in tests] == [8e-15, 3e-8, 0.03, 4e-6]
    by_group = {name: [round(row.test.t, 2) for row in group(rated, name).models[1:]] for name in PUBLISHED}
    assert by_group == {
        "all": [8.10, 5.65, 2.19, 4.68],
        "positive": [6.70, 5.28, 0.93, 4.17],
        "negative": [5.45, 3.52, 2.33, 3.38],
    }
    effects = [row.design_effect for row in group(rated, "all").models]
    assert effects == pytest.approx([DESIGN_EFFECTS[name][-1] for name in PAPER], rel=0.03)


def test_a_published_model_has_intervals_that_count_raters() -> None:
    gemini = published("study:gemini-1.0-pro").shares["Good"].interval
    half = (gemini.high - gemini.low) / 2
    assert half == pytest.approx(1.97 * math.sqrt(0.5405 * 0.4595 / 2000 * 2.603), rel=0.01)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_adjusted_p_values(p_values: list[float]) -> None:
    found = benjamini_hochberg(p_values)
    np.testing.assert_allclose(found, stats.false_discovery_control(p_values), atol=1e-12)
    stepped, most = holm(p_values), np.minimum(1, len(p_values) * np.array(p_values))
    assert (stepped >= found - 1e-12).all() and (stepped <= most + 1e-12).all()


def yes_or_no(raters: np.ndarray, is_good: np.ndarray) -> RatingColumns:
    return columns(["m"] * len(raters), np.where(is_good, 3, 1).tolist(), rater=raters.astype(str).tolist())


def test_the_raters_test_is_welchs() -> None:
    rng = np.random.default_rng(3)
    one, other = np.repeat(np.arange(30), 8), np.repeat(np.arange(30, 55), 8)
    good, others = rng.random(240) < 0.6, rng.random(200) < 0.5
    found = rating_tests.rater_test(yes_or_no(one, good), yes_or_no(other, others))
    wanted = stats.ttest_ind(good.reshape(30, 8).mean(1), others.reshape(25, 8).mean(1), equal_var=False)
    assert (found.t, found.p, found.freedom) == pytest.approx((wanted.statistic, wanted.pvalue, wanted.df))
    ends = found.difference.interval
    assert (ends.low, ends.high) == pytest.approx(tuple(wanted.confidence_interval()))


def test_raters_who_saw_both_models_are_paired() -> None:
    """A rater's severity cancels: the paired test detects what Welch's cannot."""
    rng, raters = np.random.default_rng(4), np.repeat(np.arange(40), 10)
    severity = rng.normal(0, 2, 40)[raters]
    good = severity + rng.normal(0, 0.7, 400) > -0.5
    others = severity + rng.normal(0, 0.7, 400) > 0.3
    paired = rating_tests.rater_test(yes_or_no(raters, good), yes_or_no(raters, others))
    apart = rating_tests.rater_test(yes_or_no(raters, good), yes_or_no(raters + 40, others))
    assert paired.is_shared and not apart.is_shared
    assert paired.difference.value == pytest.approx(apart.difference.value)
    assert paired.p < 0.001 < apart.p
    wanted = stats.ttest_rel(good.reshape(40, 10).mean(1), others.reshape(40, 10).mean(1))
    assert paired.t == pytest.approx(wanted.statistic, rel=0.02)


def test_ratings_that_are_all_alike_are_undefined_and_no_crash() -> None:
    found = compare_ratings(columns(["a", "a", "b", "b"], [3, 3, 3, 3]), baseline="a")
    (table,) = found.groups
    row = table.models[1]
    assert math.isnan(row.yates.p) and math.isnan(row.test.p)
    assert row.relative == 0 and found.emotions == ()


def test_one_rating_each_and_an_emotion_that_is_none_of_the_32() -> None:
    ratings = columns(list("abab"), [1, 3, 2, 2], emotion=["proud", "proud", "wistful", "wistful"])
    found = compare_ratings(ratings, baseline="a")
    assert [table.group for table in found.groups] == ["all", "positive", "negative"]
    assert math.isnan(found.groups[0].models[1].relative)
    nobody = found.groups[2].models[0]
    assert nobody.ratings == 0 and math.isnan(nobody.shares["Good"].value)
    assert {test.emotion for test in found.emotions} == {"proud", "wistful"}
    json.dumps(to_plain(found), allow_nan=False)
