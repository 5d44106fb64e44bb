"""The ceiling: people whose agreement is known beforehand."""

import json
import math

import krippendorff
import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from empathy_judge.calibration.agreement.ceiling import MIN_SHARED, ceiling
from empathy_judge.calibration.pairing import Paired
from empathy_judge.data.judgments import parse_scale
from empathy_judge.data.records import to_plain


def seen(quality: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    """A person of that much noise: quality as seen, cut into levels 1 to 5."""
    impression = quality + noise * rng.normal(size=quality.shape)
    return 1 + np.searchsorted([-1.2, -0.4, 0.4, 1.2], impression)


def crowd(
    *, people: int, judge: float, noise: float = 0.8, items: int = 150, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(raters, items) of people equally noisy, and a judge with noise of its own."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=items)
    table = np.stack([seen(quality, noise, rng) for _ in range(people)])
    return table.astype(float), seen(quality, judge, rng).astype(float)


def paired_from(table: np.ndarray, judge: np.ndarray) -> Paired:
    raters, items = np.nonzero(np.isfinite(table))
    return Paired(
        id=items.astype(str),
        model=np.where(items % 2, "ada", "bea"),
        rater=np.char.add("rater-", raters.astype(str)),
        batch=np.char.add("rater-", raters.astype(str)),
        prompt=items.astype(str),
        rating=table[raters, items].astype(np.int64),
        score=judge[items],
        label=judge[items].astype(np.int64),
        scale=parse_scale("1-5"),
    )


def test_people_s_agreement_is_the_libraries() -> None:
    table, judge = crowd(people=4, judge=0.8, items=80)
    table[0, :20] = np.nan
    found = ceiling(paired_from(table, judge), rng=np.random.default_rng(0), draws=200)
    theirs = krippendorff.alpha(table, level_of_measurement="ordinal", value_domain=[1, 2, 3, 4, 5])
    alpha = found.alpha_ordinal
    assert alpha.value == pytest.approx(theirs)
    assert alpha.interval.low < alpha.value < alpha.interval.high
    assert (found.raters, found.responses, found.shared, found.not_identifiable) == (4, 80, 80, None)


def test_leaving_a_person_out_by_hand() -> None:
    table, judge = crowd(people=3, judge=0.5, items=60)
    found = ceiling(paired_from(table, judge), rng=np.random.default_rng(0), draws=50)
    rest = [np.rint(np.median(np.delete(table, row, axis=0), axis=0)).astype(int) for row in range(3)]
    levels = [1, 2, 3, 4, 5]
    for said, estimate in ((table, found.person_against_rest), ([judge] * 3, found.judge_against_rest)):
        rows = np.concatenate(said).astype(int)
        theirs = cohen_kappa_score(rows, np.concatenate(rest), weights="quadratic", labels=levels)
        assert estimate.value == pytest.approx(theirs)


def test_a_better_judge_stands_above_a_person_and_a_worse_below() -> None:
    for noise, is_above in ((0.2, True), (3.0, False)):
        paired = paired_from(*crowd(people=4, judge=noise))
        gap = ceiling(paired, rng=np.random.default_rng(0), draws=300).gap
        assert (gap.interval.low > 0) if is_above else (gap.interval.high < 0)


def test_people_who_all_say_the_same_have_no_kappa() -> None:
    paired = paired_from(np.full((3, 40), 5.0), np.full(40, 5.0))
    found = ceiling(paired, rng=np.random.default_rng(0), draws=20)
    assert math.isnan(found.alpha_ordinal.value) and math.isnan(found.gap.value)
    json.dumps(to_plain(found), allow_nan=False)


@pytest.mark.parametrize(
    ("twice", "reason"), [(0, "every reply has one rating"), (MIN_SHARED - 1, "only 9 replies")]
)
def test_too_few_replies_with_several_ratings_are_not_identifiable(twice: int, reason: str) -> None:
    table, judge = crowd(people=2, judge=0.8, items=60)
    table[1, twice:] = np.nan
    found = ceiling(paired_from(table, judge), rng=np.random.default_rng(0), draws=20)
    assert reason in found.not_identifiable and math.isnan(found.gap.value)
    json.dumps(to_plain(found), allow_nan=False)
