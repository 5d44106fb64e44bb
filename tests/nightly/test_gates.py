"""Gates: the rule, the exit codes, and what machines are told."""

import json
import math
import re
import tomllib
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from histories import make_change

from empathy_judge.calibration.estimate import UNDEFINED, Estimate, Interval
from empathy_judge.calibration.monitoring.confidence_sequence import night_variance, recent_change, sum_night
from empathy_judge.calibration.monitoring.drift import emotion_changes, paired_change
from empathy_judge.nightly.changes import GateFigure, ModelChange
from empathy_judge.nightly.gates import EXIT_CODES, CheckedModel, Gate, check_gates, gravest, read_gates
from empathy_judge.nightly.output import as_annotations, check_outcomes
from empathy_judge.nightly.schema import Label, ModelResult, Outcome
from empathy_judge.reports.outputs import as_junit

DROP = Gate(kind="good_share_drop", limit=5, subject="baseline")
CONFIG = """
[gates]
good_share_drop = { baseline = 5, last_night = 8 }
bad_share_rise = 3
max_cost = 0.5
max_unscored = 2
"""


def figure(low: float, high: float, **more: Any) -> GateFigure:
    return GateFigure(tonight=Estimate((low + high) / 2, Interval(low, high)), **more)


def changed(figure: GateFigure, label: Label = "good", **more: Any) -> CheckedModel:
    """A model with one change against the baseline."""
    emotions = {label: more.pop("emotions", ())}
    change = ModelChange(record=make_change("m", 0.0), figures={label: figure}, emotions=emotions)
    return checked(changes={"baseline": change}, **more)


def checked(model: str = "m", unscored: dict[str, int] | None = None, **more: Any) -> CheckedModel:
    """A model's night with so many responses in all, and those unscored by reason."""
    missing = unscored or {}
    judged = more.pop("responses", 0) - sum(missing.values())
    result = ModelResult(model=model, n=judged, unscored=missing, cost=more.pop("cost", None))
    return CheckedModel(result=result, **more)


def outcome(gate: Gate, model: CheckedModel) -> Outcome:
    (result,) = check_gates([gate], [model])
    return result.outcome


def test_a_configuration_is_read_into_gates() -> None:
    gates = read_gates(tomllib.loads(CONFIG)["gates"])
    assert [(gate.kind, gate.subject, gate.limit) for gate in gates] == [
        ("good_share_drop", "baseline", 5),
        ("good_share_drop", "last night", 8),
        ("bad_share_rise", "baseline", 3),
        ("max_cost", "", 0.5),
        ("max_unscored", "", 2),
    ]
    assert read_gates({}) == ()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.12, -0.06, "regression"),  # surely more than 5 points down
        (-0.12, -0.05, "inconclusive"),  # the limit itself is allowed
        (-0.08, -0.02, "inconclusive"),
        (-0.05, 0.01, "pass"),
        (0.02, 0.1, "pass"),
    ],
)
def test_the_interval_decides(low: float, high: float, expected: Outcome) -> None:
    assert outcome(DROP, changed(figure(low, high))) == expected
    # A rise of Bad is a drop of Good turned round.
    rise = Gate(kind="bad_share_rise", limit=5, subject="baseline")
    assert outcome(rise, changed(figure(-high, -low), "bad")) == expected


def test_a_regression_needs_the_interval_that_holds_all_year_and_a_pass_tonights() -> None:
    def night(low: float, high: float) -> CheckedModel:
        return changed(figure(-0.12, -0.06, sustained=Estimate(-0.09, Interval(low, high)), nights=3))

    assert outcome(DROP, night(-0.17, -0.01)) == "inconclusive"
    assert outcome(DROP, night(-0.12, -0.055)) == "regression"
    (result,) = check_gates([DROP], [night(-0.12, -0.055)])
    said = result.sentence.replace("\N{MINUS SIGN}", "-")
    assert "Good share -9.0 points [-12.0, -6.0] against the baseline, limit -5" in said
    assert "allowing for many nights: mean of 3 nights -9.0 points [-12.0, -5.5]" in said
    calm = figure(-0.03, 0.03, sustained=Estimate(0.0, Interval(-0.06, 0.06)))
    assert outcome(DROP, changed(calm)) == "pass"


@pytest.mark.parametrize(
    ("change", "expected"),
    [(-0.062, "pass"), (-0.066, "inconclusive"), (-0.3, "regression"), (0.2, "pass")],
)
def test_at_least_as_good_is_one_sided(change: float, expected: Outcome) -> None:
    """By hand: an interval of 4.4 points to either side has one of 3.7 points to the worse side."""
    gate = Gate(kind="max_drop", limit=10, subject="baseline")
    half = 0.044
    (result,) = check_gates([gate], [changed(figure(change - half, change + half, prompts=160))])
    assert result.outcome == expected
    chance = re.search(r"at least as good .*: probability (over |under )?(\d+)%", result.sentence)
    assert chance is not None and (int(chance[2]) >= 95) == (expected == "pass")


def test_cost_and_unscored_are_counted_not_estimated() -> None:
    gates = read_gates({"max_cost": 0.5, "max_unscored": 2})

    def outcomes(**about: Any) -> list[Outcome]:
        return [result.outcome for result in check_gates(gates, [checked(**about)])]

    assert outcomes(cost=0.5, responses=100, unscored={"cut short": 2}) == ["pass", "pass"]
    assert outcomes() == ["skipped", "skipped"]
    _, unscored = check_gates(gates, [checked(cost=0.51, responses=100, unscored={"cut short": 3})])
    assert unscored.sentence == "m: failed: 3 of 100 unscored (3.0%), limit 2%: cut short (3)."
    # What is missing is not worse.
    assert outcomes(cost=0.51, responses=100, unscored={"cut short": 3}) == ["regression", "failed"]


def test_an_inconclusive_gate_says_how_many_prompts_would_decide_it() -> None:
    change = figure(-0.055, 0.015, prompts=64)
    (result,) = check_gates([DROP], [changed(change, responses=160, unscored={"timed out": 4})])
    assert "prompts a night would decide it (tonight 64)" in result.sentence
    assert "unscored: 2.5% tonight, 0.0% before" in result.sentence
    (result,) = check_gates([DROP], [changed(figure(-0.129, 0.031, prompts=64))])
    assert "the interval includes the limit, and more prompts a night will not help" in result.sentence


@pytest.mark.slow
def test_as_many_prompts_as_advised_decide_most_gates() -> None:
    """True drops of all sizes, with the advised number of prompts.

    The advice aims at 80%. Measured: 84% of the drops within the limit pass, 78% of those beyond it fail.
    """
    rng = np.random.default_rng(0)
    decided: dict[bool, list[bool]] = {True: [], False: []}
    for drop in rng.uniform(-0.1, 0.2, size=1500):
        (first,) = check_gates([DROP], [one_night(rng, drop, 64)])
        if advice := re.search(r"([\d,]+) prompts a night would", first.sentence):
            prompts = int(advice[1].replace(",", ""))
            decided[drop <= 0.05].append(outcome(DROP, one_night(rng, drop, prompts)) != "inconclusive")
    within, beyond = decided[True], decided[False]
    assert len(within) > 60 and np.mean(within) > 0.75
    assert len(beyond) > 100 and np.mean(beyond) > 0.72


def one_night(rng: np.random.Generator, drop: float, prompts: int) -> CheckedModel:
    differences = 0.2 * rng.standard_normal(prompts) - drop
    nights = [sum_night(differences)]
    tonight, sustained = paired_change(differences), recent_change(nights)
    lasting = 1 - 1 / night_variance(nights).overdispersion
    return changed(GateFigure(tonight=tonight, sustained=sustained, prompts=prompts, lasting=lasting))


@pytest.mark.parametrize(
    "change",
    [
        GateFigure(tonight=UNDEFINED),
        figure(-0.1, 0.0),
        GateFigure(tonight=Estimate(0.1, Interval(math.nan, math.nan))),
        GateFigure(tonight=Estimate(0.1, None)),
        figure(-0.1, 0.02, prompts=64),
    ],
)
def test_the_unknown_is_inconclusive_never_a_pass(change: GateFigure) -> None:
    (result,) = check_gates([DROP], [changed(change)])
    assert result.outcome == "inconclusive"
    json.dumps(asdict(result), allow_nan=False)


@pytest.mark.parametrize(
    ("emotions", "falls", "noise", "count"),
    [
        (["sad", "proud", "angry", "lonely"] * 40, ["sad", "lonely"], 0.1, 2),
        ([*"abcdefgh"] * 10, [*"abcdefgh"], 3.0, 3),
    ],
)
def test_a_regression_names_the_significant_emotions_or_the_largest(
    emotions: list[str], falls: list[str], noise: float, count: int
) -> None:
    rng = np.random.default_rng(1)
    apart = noise * rng.standard_normal(len(emotions)) - 0.5 * np.isin(emotions, falls)
    figure = GateFigure(tonight=paired_change(apart))
    (result,) = check_gates([DROP], [changed(figure, emotions=emotion_changes(apart, emotions))])
    assert result.outcome == "regression"
    assert set(result.emotions) <= set(falls) and len(result.emotions) == count


def test_a_stale_calibration_stops_shares_but_not_cost() -> None:
    gates = read_gates(tomllib.loads(CONFIG)["gates"])
    night = changed(figure(0, 0.01), cost=0.1, responses=9, stale="it expired")
    results = check_gates(gates, [night])
    assert {result.outcome for result in results if result.gate.startswith("max")} == {"pass"}
    assert {result.outcome for result in results if not result.gate.startswith("max")} == {"stale"}
    assert "stale: it expired" in results[0].sentence


@pytest.mark.parametrize(
    ("nights", "expected", "code"),
    [
        ([], "pass", 0),
        (["fine"], "pass", 0),
        (["fine", "unsure"], "inconclusive", 3),
        (["unsure", "stale"], "stale", 4),
        (["stale", "failed", "unsure"], "failed", 5),
        (["failed", "worse", "stale"], "regression", 1),
    ],
)
def test_the_gravest_outcome_is_the_exit_code(nights: list[str], expected: Outcome, code: int) -> None:
    results = check_gates([DROP], [NIGHTS[name] for name in nights])
    found = gravest(result.outcome for result in results) or "pass"
    assert (found, EXIT_CODES[found]) == (expected, code)


NIGHTS = {
    "fine": changed(figure(-0.01, 0.01), model="fine"),
    "unsure": changed(figure(-0.1, 0.01), model="unsure"),
    "stale": checked(model="stale", stale="it is missing"),
    "failed": checked(model="failed", failure="endpoint:\r\n 100 % of calls, refused"),
    "worse": changed(figure(-0.3, -0.2), model='a <b> & "c"\x00\ud800'),
    "new": checked(model="new"),
}


def test_junit_is_valid_and_counts_what_it_holds() -> None:
    gates = check_gates([DROP, Gate(kind="max_cost", limit=1)], NIGHTS.values())
    root = ElementTree.fromstring(as_junit(check_outcomes(gates), name="n").encode("utf-8"))
    # Of the cost nothing is known, and the failed night failed both gates.
    tags = {"testcase": 12, "failure": 1, "error": 3, "skipped": 7}
    for tag, count in tags.items():
        key = {"testcase": "tests", "failure": "failures", "error": "errors"}.get(tag, tag)
        assert len(root.findall(f".//{tag}")) == count == int(root.attrib[key])
        assert sum(int(suite.attrib[key]) for suite in root.findall("testsuite")) == count
    failure = root.find(".//failure")
    assert failure is not None and failure.attrib["type"] == "regression"
    assert failure.attrib["message"].startswith('a <b> & "c"\ufffd\ufffd: regression: Good share ')
    names = [case.attrib["name"] for case in root.findall(".//testcase")]
    assert names[:2] == ["good_share_drop against baseline", "max_cost"]


def test_annotations_are_one_escaped_line_each() -> None:
    nights = [NIGHTS[name] for name in ("fine", "unsure", "stale", "failed")]
    unsure, stale, failed = as_annotations(check_gates([DROP], nights))
    title = "title=inconclusive%3A good_share_drop against baseline::"
    assert unsure.startswith(f"::warning {title}unsure: inconclusive: Good share ")
    assert stale.startswith("::warning ")
    assert failed.endswith("failed: the night failed: endpoint:%0D%0A 100 %25 of calls, refused.")


def test_a_moved_judge_leaves_only_what_the_anchors_show_to_be_the_models() -> None:
    gates = [DROP, Gate(kind="max_cost", limit=1)]

    def outcomes(low: float, high: float, **shift: Any) -> list[Outcome]:
        change = ModelChange(record=make_change("m", 0.0), figures={"good": figure(low, high)}, **shift)
        model = checked(model="m", changes={"baseline": change}, cost=0.5)
        return [result.outcome for result in check_gates(gates, [model])]

    assert outcomes(-0.01, 0.01) == ["pass", "pass"]
    assert outcomes(-0.01, 0.01, moved="it moved") == ["stale", "pass"]
    assert outcomes(-0.3, -0.2, moved="it moved") == ["regression", "pass"]
    assert outcomes(-0.01, 0.01, suspected="it may have") == ["inconclusive", "pass"]
    assert outcomes(-0.3, -0.2, suspected="it may have")[0] == "regression"
