"""Changes of feeling: against scipy, on cases with a known answer, and as published from the real files."""

import json
from dataclasses import astuple
from math import isnan
from random import Random
from typing import Any

import numpy as np
import pytest
from repository import dataset
from scipy import stats

from empathy_judge.data.records import to_plain
from empathy_judge.emotionbench import alignment, shift_tests
from empathy_judge.emotionbench.alignment import AFFECTS, ModelAlignment, ShiftRow, align_sheets
from empathy_judge.emotionbench.importer import import_results
from empathy_judge.emotionbench.questionnaires import Sheet, read_questionnaire
from empathy_judge.emotionbench.situations import FACTOR_NAMES

PANAS, NORMS = read_questionnaire("PANAS"), alignment.read_norms()
POSITIVE, NEGATIVE = (PANAS.scales[affect] for affect in AFFECTS)


def sheet(positive: int, negative: int, **about: Any) -> Sheet:
    marks = {**dict.fromkeys(POSITIVE, positive), **dict.fromkeys(NEGATIVE, negative)}
    return Sheet(**{"model": "m", "scale": "PANAS", "marks": marks, **about})


def evoked(factor: str, number: int, positive: int, negative: int, **about: Any) -> Sheet:
    return sheet(positive, negative, factor=factor, situation=f"{factor}/scenario-{number}", **about)


def find(result: ModelAlignment, name: str) -> ShiftRow:
    return next(row for row in result.rows if row.name == name)


def test_tests_are_scipys() -> None:
    chance = np.random.default_rng(0)
    for scale, kind in ((1.1, "Student"), (6.0, "Welch")):
        one, two = chance.normal(3, scale, 40), chance.normal(2, 1, 30)
        found = shift_tests.published_test(shift_tests.spread(one), shift_tests.spread(two))
        wanted = stats.ttest_ind(one, two, equal_var=kind == "Student")
        assert found.kind == kind
        assert (found.t, found.p, found.freedom) == pytest.approx(
            (wanted.statistic, wanted.pvalue, wanted.df)
        )
        interval = wanted.confidence_interval()
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    changes = [1.0, -2.0, 4.0, 3.5, 0.0]
    single = stats.ttest_1samp(changes, 0.0)
    assert shift_tests.paired_test(changes).p == pytest.approx(single.pvalue)
    clusters_of_one = shift_tests.clustered_test(changes, list("abcde"))
    assert clusters_of_one.t == pytest.approx(single.statistic)


def test_a_default_that_never_varies_is_tested_as_published() -> None:
    found = shift_tests.published_test(shift_tests.Spread(32.0, 7.0, 50), shift_tests.Spread(10.0, 0.0, 50))
    assert found.kind == "Welch" and found.p < 1e-20
    same = shift_tests.published_test(shift_tests.Spread(10.0, 0.0, 50), shift_tests.Spread(10.0, 0.0, 50))
    assert same.p == 1.0
    assert shift_tests.arrow(0.0, same.p) == "-"


def test_tests_without_enough_scores_are_undefined() -> None:
    few = shift_tests.spread([3.0])
    assert shift_tests.published_test(few, shift_tests.spread([1.0, 2.0])).kind == "undefined"
    assert isnan(shift_tests.paired_test([2.0]).p) and isnan(shift_tests.paired_test([2.0, 2.0]).p)
    assert isnan(shift_tests.clustered_test([1.0, 2.0], ["a", "a"], [1.0, 2.0]).p)
    assert isnan(shift_tests.clustered_test([1.0, 2.0], ["a", "b"], [1.0]).p)
    assert shift_tests.arrow(1.0, float("nan")) == ""


def test_clustered_tests_hold_their_level() -> None:
    chance = np.random.default_rng(1)
    wrong = {"clustered": 0, "published": 0}
    for _ in range(400):
        means = np.repeat(chance.normal(0, 2, 6), 10)
        values, default = means + chance.normal(0, 1, 60), chance.normal(0, 1, 50)
        clusters = [str(number) for number in range(6) for _ in range(10)]
        wrong["clustered"] += shift_tests.clustered_test(values, clusters, default).p < 0.05
        spreads = shift_tests.spread(values), shift_tests.spread(default)
        wrong["published"] += shift_tests.published_test(*spreads).p < 0.05
    assert wrong["clustered"] / 400 < 0.08
    assert wrong["published"] / 400 > 0.3, "what the correction is for"


def test_a_models_rows_are_reckoned_by_hand() -> None:
    sheets = [sheet(4, 1, pair="order-0"), sheet(5, 1, pair="order-1")]
    sheets += [evoked("Anger-0", 0, 2, 3, pair="order-0"), evoked("Anger-0", 1, 2, 5, pair="order-1")]
    sheets += [evoked("Fear-4", 0, 3, 2, pair="order-0")]
    result = align_sheets(sheets, PANAS, norms=NORMS)
    assert [row.name for row in result.rows] == ["Overall", "Anger", "Fear", "Anger-0", "Fear-4"]
    anger = find(result, "Anger-0")
    positive, negative = (anger.scales[affect] for affect in AFFECTS)
    assert positive.default.mean == 45 and positive.evoked.mean == 20
    assert (positive.change, negative.change) == (-25, 30)
    assert negative.evoked.sd == pytest.approx(np.std([30, 50], ddof=1))
    assert (anger.sheets, anger.situations) == (2, 2)
    people = positive.people
    assert people is not None and (people.default, people.evoked, people.change) == (26.63, 24.46, -2.17)
    assert positive.effects["in_people_sd"] == pytest.approx(-25 / 9.95)
    # In order 0 from 40 to 20, in order 1 from 50 to 20.
    assert positive.tests["paired"].units == 2
    assert positive.tests["paired"].t == pytest.approx(-25 / 5)
    overall = find(result, "Overall").scales["negative"]
    assert overall.evoked.mean == pytest.approx((30 + 50 + 20) / 3), "the mean of runs, not of factors"
    json.dumps(to_plain(result), allow_nan=False)


def test_many_tests_are_corrected_among_factors() -> None:
    chance = Random(0)
    sheets = [sheet(chance.randint(2, 4), chance.randint(2, 4)) for _ in range(30)]
    for factor in FACTOR_NAMES:
        sheets += [evoked(factor, n % 5, chance.randint(2, 4), chance.randint(2, 4)) for n in range(20)]
    result = align_sheets(sheets, PANAS, norms=NORMS)
    factors = [row for row in result.rows if row.level == "factor"]
    tests = [row.scales[affect].tests["published"] for row in factors for affect in AFFECTS]
    p_values = [test.p for test in tests]
    assert [test.q for test in tests] == pytest.approx(stats.false_discovery_control(p_values))
    assert isnan(find(result, "Overall").scales["positive"].tests["published"].q)


def test_order_and_level_are_two_questions() -> None:
    people = {name: (20.0 + place, float(place)) for place, name in enumerate("abcdef")}
    ordered = alignment.agreement_with_people(
        {name: (e + 20, 3 * c) for name, (e, c) in people.items()}, people, ceiling=0.8
    )
    assert ordered.rank.value == pytest.approx(1.0)
    assert (ordered.level_error, ordered.level_bias) == (20, 20)
    level = alignment.agreement_with_people({name: (e, -c) for name, (e, c) in people.items()}, people)
    assert (level.rank.value, level.level_error) == (pytest.approx(-1.0), 0)
    nothing = alignment.agreement_with_people({}, people)
    assert nothing.factors == 0 and isnan(nothing.rank.value) and isnan(nothing.level_error)
    assert isnan(alignment.agreement_with_people({"a": (1.0, 1.0)}, people).rank.value)
    assert isnan(alignment.agreement_with_people(dict.fromkeys("abcdef", (1.0, 1.0)), people).rank.value)


# --- the real files


def real(name: str) -> list[Sheet]:
    return list(import_results(dataset(f"emotionbench/results/{name}")).sheets)


@pytest.mark.slow
def test_the_crowds_norms_come_out_exactly() -> None:
    result = align_sheets(real("PANAS Test/crowd.xlsx"), PANAS, norms=NORMS)
    rows = {row.name: row for row in result.rows}
    assert set(rows) == set(NORMS)
    for name, norm_row in NORMS.items():
        assert rows[name].sheets == norm_row.people
        for affect, norm in norm_row.norms.items():
            found = rows[name].scales[affect]
            pairs = zip(astuple(norm), astuple(found.norm), strict=True)
            assert all(abs(printed - value) <= 0.005 + 1e-6 for printed, value in pairs), name
    overall = rows["Overall"].scales
    assert [f"{overall[affect].change:+.2f}" for affect in AFFECTS] == ["-5.13", "+10.44"]
    assert [f"{rows['Anger'].scales[affect].change:+.2f}" for affect in AFFECTS] == ["-5.26", "+9.86"]
    assert [round(overall[affect].effects["dz"], 2) for affect in AFFECTS] == [-0.58, 1.09]
    factors = [row.scales for row in result.rows if row.level == "factor"]
    moved = [sum(scales[affect].arrow in "↑↓" for scales in factors) for affect in AFFECTS]
    assert moved == [24, 34]


# Each emotion and overall, then the 36 factors: change with its arrow, positive / negative.
EMOTIONS = """-15.2/-2.5 -11.3/-0.9 -20.1/+3.1 -16.4/-3.2 -15.3/-3.2 -15.8/+2.9 -14.3/+2.6 -13.0/+0.6"""
FACTORS = """↓-11.1/↓-3.9 ↓-15.2/--2.1 ↓-15.7/↑+4.4 ↓-19.0/↓-4.7 ↓-15.0/↓-6.0 ↓-14.6/↑+2.8
    ↓-6.9/--0.2 ↓-11.7/↓-2.5 ↓-11.9/↓-3.8 ↓-17.1/↑+6.5 ↓-17.1/-+1.8 ↓-21.1/↑+3.1 ↓-20.3/↑+9.3
    ↓-23.5/-+0.7 ↓-21.1/↓-3.0 ↓-18.3/↓-7.0 ↓-16.5/-+0.1 ↓-15.9/↓-3.6 ↓-14.9/↓-2.4 ↓-18.4/-+1.7
    ↓-17.8/--1.3 ↓-4.6/↓-11.6 ↓-13.2/↓-8.9 ↓-15.5/↑+4.6 ↓-18.4/↑+3.0 ↓-18.6/↑+2.8 ↓-10.7/-+1.2
    ↓-11.3/↑+3.8 ↓-16.1/↑+5.6 ↓-14.5/-+0.0 ↓-14.3/↑+4.3 ↓-15.3/--0.7 ↓-12.4/↓-3.9 ↓-15.3/-+0.1
    ↓-11.8/↑+3.1 ↓-12.4/↑+2.9"""


def test_a_model_comes_out_as_published() -> None:
    result = align_sheets(real("PANAS Test/gpt-3.5-turbo-PANAS-testing.csv"), PANAS, norms=NORMS)

    def told(row: ShiftRow, mark: bool = True) -> list[str]:
        scales = [row.scales[affect] for affect in AFFECTS]
        return [f"{found.arrow if mark else ''}{found.change:+.1f}" for found in scales]

    levels = [result.default[affect] for affect in AFFECTS]
    assert [f"{level.mean:.1f}±{level.sd:.1f}" for level in levels] == ["39.2±2.3", "26.3±2.0"]
    assert told(find(result, "Overall")) == ["↓-15.4", "-+0.2"]
    emotions = ["/".join(told(row, mark=False)) for row in result.rows if row.level == "emotion"]
    assert emotions == EMOTIONS.split()
    factors = ["/".join(told(row)) for row in result.rows if row.level == "factor"]
    assert factors == FACTORS.split()
    assert result.agreement is not None
    found = [result.agreement[affect] for affect in AFFECTS]
    likeness = [(round(about.rank.value, 2), round(about.level_error, 1)) for about in found]
    assert likeness == [(0.50, 2.4), (0.61, 3.2)]
