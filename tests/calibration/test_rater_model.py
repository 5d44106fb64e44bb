"""The rater model: planted truth is found again, published figures met, and what cannot be told is not."""

import csv
import json
import math
from typing import Any

import numpy as np
import pytest
from repository import SHARED
from scipy import stats
from severe_raters import EFFECTS, THRESHOLDS, some_ratings

from calibration.agreement.rater_likelihood import (
    count_cells,
    log_likelihood,
    place_at_severities,
    place_nodes,
)
from calibration.agreement.rater_model import RaterModel, fit_rater_model
from data.errors import UserError
from data.records import to_plain


def fit(rows: dict[str, Any], **options: Any) -> RaterModel:
    return fit_rater_model(rows["rating"], rows["rater"], rows["model"], **options)


def test_planted_parameters_are_found_again() -> None:
    rows = some_ratings(0, raters=400, slope=0.02)
    found = fit(rows, covariates={"trait": rows["trait"]})
    assert found.undefined is None and found.spread == "shared"
    assert found.severity_sd["a"].value == pytest.approx(0.6, abs=0.06)
    assert found.rater_share["a"].value == pytest.approx(0.36 / 1.36, abs=0.05)
    assert found.thresholds == pytest.approx(THRESHOLDS, abs=0.12)
    for name, effect in EFFECTS.items():
        assert abs(found.effects[name].value - effect) <= 3.5 * found.effects[name].standard_error
    slope = found.covariates["trait"]
    assert slope.value == pytest.approx(0.02, abs=3.5 * slope.standard_error) and slope.standard_error < 0.004
    assert sum(found.variance.values()) == pytest.approx(1)
    assert found.variance["covariates"] == pytest.approx(0.16**2 / 1.5, abs=0.012)


def test_severities_of_single_raters_are_found_up_to_shrinkage() -> None:
    rows = some_ratings(1, raters=60, each=60, crossed=True)
    found = fit(rows)
    guessed = np.array([found.severities[str(person)].value for person in range(60)])
    assert np.corrcoef(guessed, rows["severity"])[0, 1] > 0.95
    assert guessed.std() < 1.1  # in units of the spread, and shrunken


@pytest.mark.parametrize("crossed", [False, True])
def test_a_severe_crowd_is_told_from_a_poor_model_where_raters_are_shared(crossed: bool) -> None:
    """When severe people rate one model more often, shared raters put its share right; nested ones cannot."""
    rng = np.random.default_rng(3)
    severity = np.repeat([1.0, -1.0], 60)
    each = 20
    person = np.repeat(np.arange(120), each)
    of_b = rng.random(len(person)) < np.where(severity[person] > 0, 0.8, 0.2) if crossed else person < 60
    liking = rng.standard_normal(len(person)) - severity[person]  # the models are equally good
    rating = 1 + (liking[:, None] > THRESHOLDS).sum(axis=1)
    found = fit_rater_model(rating, person, np.where(of_b, "b", "a"), spread="shared")
    raw_gap = found.raw["b"]["Good"] - found.raw["a"]["Good"]
    gap = found.adjusted["b"]["Good"].value - found.adjusted["a"]["Good"].value
    assert raw_gap < -0.25
    # Not quite 0: a severity guessed from 20 ratings is shrunken.
    assert (abs(gap) < 0.06) if crossed else (gap < -0.25)


def test_models_may_spread_by_themselves() -> None:
    rows = some_ratings(4, raters=300, noise={"b": 2.0})
    found = fit(rows)
    assert found.spread == "by model" and found.aic < fit(rows, spread="shared").aic
    assert found.severity_sd["b"].value == pytest.approx(0.6, abs=0.12)  # in units of the model's noise
    for name in EFFECTS:
        assert found.adjusted[name]["Good"].value == pytest.approx(found.raw[name]["Good"], abs=0.01)
    shared = fit(rows, spread="shared")
    assert abs(shared.adjusted["b"]["Bad"].value - shared.raw["b"]["Bad"]) > 0.02


def test_the_gradient_is_the_derivative() -> None:
    rng = np.random.default_rng(5)
    for apart in (False, True):
        cells = count_cells(
            rng.integers(0, 20, 300),
            rng.integers(0, 3, 300),
            rng.integers(0, 4, 300),
            rng.normal(size=(300, 2)),
            models=3,
            levels=4,
            by_model=apart,
        )
        point = 0.4 * rng.normal(size=sum(cells.sizes))
        nodes = place_nodes(np.zeros(20), np.ones(20))
        slopes = [
            (log_likelihood(cells, point + step, nodes)[0] - log_likelihood(cells, point - step, nodes)[0])
            / 2e-6
            for step in 1e-6 * np.eye(len(point))
        ]
        assert log_likelihood(cells, point, nodes)[1] == pytest.approx(slopes, abs=1e-5)


@pytest.mark.parametrize(("each", "step"), [(10, 1e-3), (200, 1e-3), (5000, 1e-4)])
def test_the_integral_is_right_even_for_a_rater_of_hundreds(each: int, step: float) -> None:
    """Against a fine sum over severities."""
    rng = np.random.default_rng(6)
    level = rng.integers(0, 3, each)
    cells = count_cells(
        np.zeros(each, np.intp), np.zeros(each, np.intp), level, np.zeros((each, 0)), models=1, levels=3
    )
    point = np.array([-0.5, 0.0, 1.5])  # thresholds -0.5 and 0.5, a spread of 1.5
    severity = np.arange(-8, 8, step)
    edges = np.array([-np.inf, -0.5, 0.5, np.inf])
    given = np.zeros_like(severity)
    for rank, count in enumerate(np.bincount(level, minlength=3)):
        inside = np.diff(stats.norm.cdf(edges[rank : rank + 2, None] + 1.5 * severity), axis=0)[0]
        given += count * np.log(np.maximum(inside, 1e-300))
    joint = given + stats.norm.logpdf(severity)
    weights = np.exp(joint - joint.max()) * step
    value, _, (means, _) = log_likelihood(cells, point, place_at_severities(cells, point))
    assert value == pytest.approx(math.log(weights.sum()) + joint.max(), abs=1e-4)
    assert means[0] == pytest.approx((weights * severity).sum() / weights.sum(), abs=1e-3)


def test_no_severity_leaves_zero_in_the_interval() -> None:
    found = fit(some_ratings(7, sd=0.0), spread="shared")
    interval = found.severity_sd["a"].interval
    assert interval is not None and interval.low == 0 and interval.high < 0.3


def test_the_order_of_rows_is_no_matter_and_json_takes_all() -> None:
    rows = some_ratings(8, raters=30)
    mixed = np.random.default_rng(0).permutation(len(rows["rating"]))
    one, two = fit(rows), fit({name: rows[name][mixed] for name in ("rating", "rater", "model")})
    assert one.log_likelihood == pytest.approx(two.log_likelihood, abs=1e-9)
    assert json.loads(json.dumps(to_plain(one), allow_nan=False))["reference"] == "a"


# --- what cannot be told


@pytest.mark.parametrize(
    ("rating", "rater", "model"),
    [
        ([], [], []),
        ([3, 3, 3, 3], "aabb", "xxxx"),
        ([1, 2, 3, 1, 2, 3], "aaabbb", "xxxyyy"),  # one rater a model
        ([1, 2, 3, 1], "abcd", "xxxx"),  # one rating a rater
        ([1, 2, 3], "aaa", "xyx"),  # one rater
        ([3, 3, 1, 1], "abab", "xxyy"),  # each model all the highest or all the lowest
    ],
)
def test_what_ratings_do_not_tell_is_undefined(rating: list[int], rater: str, model: str) -> None:
    found = fit_rater_model(np.array(rating, dtype=int), list(rater), list(model))
    assert found.undefined and not found.adjusted and not found.severity_sd
    assert found.ratings == len(rating)
    json.dumps(to_plain(found), allow_nan=False)


def test_a_model_of_one_label_keeps_its_raw_shares() -> None:
    rows = some_ratings(9, raters=40)
    rows["rating"][rows["model"] == "b"] = 3
    found = fit(rows)
    assert found.effects["b"].value == math.inf and math.isnan(found.effects["b"].standard_error)
    assert found.adjusted["b"]["Good"].value == 1 and found.adjusted["b"]["Good"].interval is None
    assert found.adjusted["a"]["Good"].interval is not None
    with pytest.raises(UserError, match="relative to 'b'; possible: a, c"):
        fit(rows, reference="b")


def test_a_label_nobody_gave_has_no_share() -> None:
    rows = some_ratings(10, raters=40)
    rows["rating"] = np.maximum(rows["rating"], 2)
    found = fit(rows)
    assert found.adjusted["a"]["Bad"].value == 0 and found.spread == "shared"
    assert fit(rows, spread="by model").undefined


def test_covariates_unknown_constant_or_double() -> None:
    rows = some_ratings(11, raters=40, slope=0.03)
    unknown = np.where(rows["rater"] == "7", np.nan, rows["trait"])
    found = fit(rows, covariates={"trait": unknown, "same": np.ones(len(unknown))})
    assert found.left_out == 10 and found.raters == 119 and "7" not in found.severities
    assert math.isnan(found.covariates["same"].value) and found.covariates["trait"].standard_error < 0.02
    with pytest.raises(UserError, match="two values of a covariate"):
        fit(rows, covariates={"trait": np.arange(len(unknown))})


# --- the study


@pytest.fixture(scope="module")
def study() -> dict[str, Any]:
    path = SHARED / "empathy-study" / "ratings-without-texts.csv"
    if not path.exists():
        pytest.skip("public dataset not at hand: set EMPATHY_DATA to a folder with empathy-study")
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return {
        "rating": np.array([int(row["rating"]) for row in rows]),
        "rater": np.array([row["rater"] for row in rows]),
        "model": np.array([row["system"] for row in rows]),
        "trait": np.array([float(row["rater_teq"]) for row in rows]),
    }


def test_the_study_in_a_few_seconds(study: dict[str, Any]) -> None:
    found = fit(study, covariates={"questionnaire": study["trait"]}, reference="human")
    assert found.spread == "by model" and found.raters == 1200
    # Raters were dealt out by chance, so shares over one population are near the raw ones.
    for name, shares in found.adjusted.items():
        assert shares["Good"].value == pytest.approx(found.raw[name]["Good"], abs=0.006)
    questionnaire = found.covariates["questionnaire"]
    assert questionnaire.value == pytest.approx(0.0164, abs=0.001)
    assert questionnaire.value > 6 * questionnaire.standard_error
