"""A comparison of judged models in sentences: one a pair, and what one must know to read them."""

import math
from collections.abc import Mapping
from typing import Any

from calibration.comparison.compare_runs import ComparedRuns
from calibration.comparison.differences import ALPHA, Difference
from calibration.comparison.published_models import is_published
from calibration.estimate import Estimate
from data.judgments import say_flags
from data.records import LABELS
from data.text import UNDEFINED, listed, show_estimate
from reports.page import Page, Section, Table, row

MOST_NAMED = 6
NOTABLE = 0.01  # a share by which a difference may differ from that of the levels unexplained
BASES = {"ratings": "ratings", "line": "the line", "both": "line and ratings", "judge": "the judge alone"}
NONE = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
Row = Mapping[str, Any]


def compared_runs_row(compared: ComparedRuns) -> dict[str, Any]:
    """Make the JSON values of a comparison of runs, with a sentence for each pair and the notes."""
    calibration = compared.corrector.calibration
    result: dict[str, Any] = {
        "kind": "runs",
        "judge": {name: getattr(compared.judge, name) for name in ("name", "version", "rubric")},
        "calibration": {
            "digest": calibration.digest,
            "created": calibration.created.isoformat(),
            "expires": calibration.expires.isoformat(),
            "models": list(calibration.betweens()[-1].models),
        }
        if calibration
        else None,
        "says": compared.corrector.says,
        "margin": compared.margin,
        "models": [
            {**level.as_dict(), "letters": compared.letters[level.model]} for level in compared.models
        ],
        "baselines": [
            {
                "model": item.name,
                "shares": {label: share.as_dict() for label, share in item.shares.items()},
                "ratings": item.ratings,
                "design_effect": item.design_effect,
            }
            for item in compared.baselines
        ],
        "pairs": [{**item.as_dict(), "sentence": say_pair(item, compared.margin)} for item in compared.pairs],
        "tests": compared.tests,
        "never_met": list(compared.never_met),
        "repeated": list(compared.repeated),
        **compared.flags,
    }
    result["notes"] = [*notes_of(result), *(f"{line}." for line in say_flags(result.get("flagged")))]
    return result


def say_pair(item: Difference, margin: float) -> str:
    """One sentence about two models."""
    step = f"{100 * margin:g} points"
    if item.verdict == "refused":
        whose = item.one if is_published(item.other) else "each"
        more = f" About {about(item.more):,} ratings of {whose} would tell." if item.more else ""
        return f"{item.one} and {item.other} cannot be compared: {item.reason or 'undefined'}.{more}"
    figures = f"{say_points(item.good)}, {say_p(item.p_holm)}"
    if item.p < ALPHA <= item.p_holm:
        figures += f" ({say_p(item.p)} before Holm)"
    if item.verdict in ("better", "worse"):
        return _say_apart(item, figures)
    if item.verdict == "no difference":
        return (
            f"No difference shown between {item.one} and {item.other}: {figures};"
            f" one of {step} would have been found."
        )
    more = ""
    if item.more:
        whose = f" of {item.one}" if is_published(item.other) else " of each"
        what = "prompts" if item.unit == "prompts" else f"ratings{whose}"
        more = f"; about {about(item.more):,} more {what} would find a difference of {step}"
    return f"Too few to tell {item.one} from {item.other}: {figures}{more}."


def _say_apart(item: Difference, figures: str) -> str:
    if item.how == "judge":
        side = "above" if item.verdict == "better" else "below"
        said = f"The judge puts {item.one} {side} {item.other}: {figures}."
    else:
        said = f"{item.one} is {item.verdict} than {item.other}: {figures}."
    return said if item.is_robust else f"{said} Unscored responses could undo this."


def about(count: int) -> int:
    """A number to two digits, rounded up: a plan is no more exact than that.

    >>> about(1302), about(47), about(100)
    (1400, 47, 100)
    """
    step = int(10 ** max(0, len(str(count)) - 2))
    return -(-count // step) * step


def say_points(estimate: Estimate) -> str:
    """A difference of shares in points, with its interval.

    >>> from calibration.estimate import Interval
    >>> say_points(Estimate(0.0812, Interval(0.02, 0.1405)))
    'Good +8.1 points [+2.0, +14.1]'
    """
    if estimate.interval is None:
        return f"Good {signed(estimate.value)} points"
    low, high = signed(estimate.interval.low), signed(estimate.interval.high)
    return f"Good {signed(estimate.value)} points [{low}, {high}]"


def say_p(value: float) -> str:
    """An adjusted p-value.

    >>> say_p(0.0214), say_p(1e-9)
    ('p = .021', 'p < .001')
    """
    if not math.isfinite(value):
        return "p undefined"
    if value < 0.001:
        return "p < .001"
    return f"p = {value:.3f}".replace("0.", ".", 1) if value < 0.9995 else "p = 1"


def signed(share: float, digits: int = 1) -> str:
    """A share's difference in points, always with its sign.

    >>> signed(0.05), signed(-0.0312) == f"{MINUS}3.1", signed(0.0)
    ('+5.0', True, '0.0')
    """
    if not math.isfinite(share):
        return "undefined"
    text = f"{100 * share:+.{digits}f}"
    return text.lstrip("+-") if not float(text) else text.replace("-", MINUS)


def _some(names: list[str]) -> str:
    if len(names) <= MOST_NAMED:
        return listed(names)
    return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"


def notes_of(result: Row) -> list[str]:
    """What one must know to read the comparison, the weightiest first."""
    notes = []
    met = result["never_met"]
    calibration = result["calibration"]
    hows = {model["how"] for model in result["models"]}
    if calibration is None and hows - {"ratings"}:
        notes.append(
            f"Not corrected ({result['says']}): intervals cover the choice of prompts only. Nothing here says"
            " how far this judge strays from people on a model it has never met."
        )
    elif met:
        count = len(calibration["models"])
        notes.append(
            f"Models the judge has never met: {_some(met)}. Their levels rest on how far it strayed on"
            f" {count} models people rated; a model of a new kind may lie further off. Ratings of a few dozen"
            " of its replies narrow this: --ratings."
        )
    if calibration is not None and result["repeated"]:
        notes.append(
            f"In several runs: {_some(result['repeated'])}. How far the judge strays is likely the same in"
            " each, so between runs of one model the judge's own difference is the closer guide."
        )
    lost = {model["model"]: model["unscored"] for model in result["models"] if model["unscored"]}
    if lost:
        counts = ", ".join(f"{name} {count:,}" for name, count in lost.items())
        notes.append(f"Unscored: {counts}; see below what they could change at worst.")
    if result["tests"] > 1:
        notes.append(f"p-values are adjusted for {result['tests']} comparisons (Holm).")
    shared = [pair["shared_prompts"] for pair in result["pairs"] if pair["shared_prompts"]]
    if shared:
        least, most = min(shared), max(shared)
        prompts = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        notes.append(f"Paired by prompt: {prompts} prompts are shared by two models.")
    notes += _say_levels(result)
    if len(result["models"]) > 1:
        notes.append("Models that share a letter are not told apart.")
    if result["baselines"]:
        notes.append("study: people's ratings in the published study, of replies to its own 2,000 prompts.")
    return notes


def _say_levels(result: Row) -> list[str]:
    """Why differences are not those of the levels beside them, where one sees that they are not."""
    levels = {model["model"]: model for model in result["models"] if model["shares"]}
    weighed, based = [], []
    for pair in result["pairs"]:
        one, other = levels.get(pair["one"]), levels.get(pair["other"])
        if one is None or other is None or not pair["shares"]:
            continue
        gap = one["shares"]["Good"]["value"] - other["shares"]["Good"]["value"]
        if not abs(gap - pair["shares"]["Good"]["value"]) >= NOTABLE:
            continue
        names = f"{one['model']} {NONE} {other['model']}"
        own, first, second = (BASES[item["how"]] for item in (pair, one, other))
        if own == first == second:
            weighed.append(f"{names} ({signed(gap)} by levels)")
        else:
            based.append(
                f"{names} ({signed(gap)} by levels) rests on {own}, the level of {one['model']} on {first},"
                f" that of {other['model']} on {second}"
            )
    notes = []
    if weighed:
        notes.append(
            f"Not the difference of the levels: {_some(weighed)}. What raters and prompts do to both models"
            " cancels in a difference, so ratings and line weigh otherwise in it than in a level."
        )
    if based:
        notes.append(f"Not the difference of the levels: {_some(based)}.")
    return notes


def show_p(value: float) -> str:
    """A p-value to four places, or by its power of ten.

    >>> show_p(0.02897), show_p(7.77e-23), show_p(1.0), show_p(float("nan")) == NONE
    ('.0290', '7.8e-23', '1', True)
    """
    if not math.isfinite(value):
        return NONE
    if value >= 0.99995:
        return "1"
    if value < 0.0001:
        return f"{value:.1e}"
    return f"{value:.4f}".removeprefix("0")


def plain(value: float, digits: int) -> str:
    """A number, or a dash where it is undefined."""
    return f"{value:,.{digits}f}".replace("-", MINUS) if math.isfinite(value) else NONE


def percent(value: float, digits: int = 2) -> str:
    """A relative difference in per cent, or a dash."""
    return signed(value, digits) if math.isfinite(value) else NONE


# The page of a comparison of judged runs.
BY = {"ratings": "ratings", "line": "line", "both": "both", "judge": "judge", "refused": UNDEFINED}
BY_NOTE = (
    "by: line, the judge corrected through calibrated models; ratings, people's of this model; both, the two"
    " together; judge, the judge's own share, uncorrected."
)
MOST_PAIRS = 60


def contest_page(result: Row) -> Page:
    """Show what `compared_runs_row` holds."""
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
