"""The page of a comparison of judged runs."""

import math
from collections.abc import Mapping
from typing import Any

from data.records import LABELS
from nightly.page import UNDEFINED, Page, Section, Table, row
from nightly.verdicts import say_p, signed
from nightly.wording import show_estimate

Row = Mapping[str, Any]
BY = {"ratings": "ratings", "line": "line", "both": "both", "judge": "judge", "refused": UNDEFINED}
BY_NOTE = (
    "by: line, the judge corrected through calibrated models; ratings, people's of this model; both, the two"
    " together; judge, the judge's own share, uncorrected."
)
MOST_PAIRS = 60


def contest_page(result: Row) -> Page:
    """All that `nightly.comparing.compare_runs` found."""
    judge = result["judge"]
    pairs = result["pairs"]
    left = len(pairs) - MOST_PAIRS
    sections = [
        Section(
            name="order",
            short="Order",
            title="Order",
            tables=(_order(result),),
            notes=(*result["notes"], BY_NOTE),
        ),
        Section(
            name="pairs",
            short="Differences",
            title="Differences",
            tables=(_pairs(result),),
            notes=(f"{left:,} more pairs are in the JSON.",) if left > 0 else (),
        ),
    ]
    if any(model["unscored"] for model in result["models"]):
        sections.append(_at_worst(result))
    return Page(
        title="Models compared",
        subtitle=f"judge {judge['name']} {judge['version']}; {result['says']}",
        verdict=tuple(pair["sentence"] for pair in pairs[:MOST_PAIRS]),
        sections=tuple(sections),
    )


def _order(result: Row) -> Table:
    is_rated = bool(result["baselines"]) or any(model["ratings"] for model in result["models"])
    rows = []
    for model in result["models"]:
        shares = [_share(model["shares"].get(label)) for label in LABELS]
        rated = (model["ratings"],) if is_rated else ()
        rows.append(row(model["model"], model["letters"], *shares, model["judged"], *rated, BY[model["how"]]))
    for study in result["baselines"]:
        shares = [_share(study["shares"][label]) for label in LABELS]
        rows.append(row(study["model"], "", *shares, "", study["ratings"], "people"))
    head = ("model", "tie", *LABELS, "judged", *(("rated",) if is_rated else ()), "by")
    return Table(
        caption="Per cent of responses, with 95 % intervals",
        head=head,
        rows=tuple(rows),
        words=frozenset({0, 1, len(head) - 1}),
    )


def _pairs(result: Row) -> Table:
    pairs = result["pairs"][:MOST_PAIRS]
    # Where the judge alone decides, its own difference is the difference.
    is_corrected = any(pair["how"] != "judge" for pair in pairs)
    rows = []
    for pair in pairs:
        alone = (_points(pair["judge"]),) if is_corrected else ()
        rows.append(
            row(
                _names(pair),
                _points(pair["shares"].get("Good")),
                _points(pair["shares"].get("Bad")),
                *alone,
                _p(pair["p_holm"]),
            )
        )
    return Table(
        caption="In points, with 95 % intervals",
        head=("pair", "Good", "Bad", *(("Good by\nthe judge",) if is_corrected else ()), "p Holm"),
        rows=tuple(rows),
    )


def _at_worst(result: Row) -> Section:
    levels = Table(
        caption="Per cent Good, were every unscored response not Good, or every one Good",
        head=("model", "unscored", "Good", "at worst"),
        rows=tuple(
            row(
                model["model"],
                f"{model['unscored']:,} of {model['unscored'] + model['judged']:,}",
                show_estimate(model["shares"].get("Good"), is_share=True),
                _ends(model["extremes"]),
            )
            for model in result["models"]
            if model["unscored"]
        ),
    )
    lost = {model["model"] for model in result["models"] if model["unscored"]}
    pairs = Table(
        caption="Differences in points, were all unscored responses of the two opposite",
        head=("pair", "Good", "at worst", "verdict"),
        rows=tuple(
            row(
                _names(pair),
                _points(pair["shares"].get("Good")),
                _ends(pair["extremes"], has_sign=True),
                _holds(pair),
            )
            for pair in result["pairs"][:MOST_PAIRS]
            if {pair["one"], pair["other"]} & lost
        ),
        words=frozenset({0, 3}),
    )
    return Section(
        name="unscored",
        short="Unscored",
        title="What unscored responses could change",
        tables=(levels, pairs),
    )


def _holds(pair: Row) -> str:
    if pair["verdict"] not in ("better", "worse"):
        return str(pair["verdict"])
    return f"{pair['verdict']}, {'holds' if pair['is_robust'] else 'could be undone'}"


def _names(pair: Row) -> str:
    return f"{pair['one']}\n\N{EN DASH} {pair['other']}"


def _p(value: float | None) -> str:
    return say_p(math.nan if value is None else value).removeprefix("p ").removeprefix("= ")


def _share(estimate: Row | None) -> str:
    return show_estimate(estimate, is_share=True).replace(" [", "\n[") if estimate else UNDEFINED


def _points(estimate: Row | None) -> str:
    if not estimate or estimate["value"] is None:
        return UNDEFINED
    text = signed(estimate["value"])
    if estimate["low"] is None:
        return text
    return f"{text}\n[{signed(estimate['low'])}, {signed(estimate['high'])}]"


def _ends(ends: list[float] | None, *, has_sign: bool = False) -> str:
    if ends is None:
        return UNDEFINED
    low, high = (signed(end) if has_sign else f"{100 * end:.1f}" for end in ends)
    return f"[{low}, {high}]"
