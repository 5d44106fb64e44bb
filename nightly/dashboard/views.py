"""The dashboard's figures as plain values: charts with a place for each night, tables and headlines."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from data.records import LABELS, POSITIVE_EMOTIONS
from data.text import UNDEFINED, interval, money, number, percent, points, signed
from nightly.dashboard.series import (
    FOUND_NIGHTS,
    AnchorShift,
    Kind,
    Model,
    NightSeries,
    changes,
    share_of,
    unscored_share,
)
from nightly.emotions import PooledShare
from nightly.gates import gravest, severity
from nightly.schema import FINE, GateResult, ModelResult, ShareResult
from reports.charts import element, span

KINDS: Final[tuple[Kind, ...]] = ("corrected", "raw")
FACTS_NIGHTS: Final = 14  # nights in the table of nights
TABLE_NIGHTS: Final = FOUND_NIGHTS  # in a model's table; the chart has all of them
LOGGED: Final = 100  # findings listed for a model
SPARK_NIGHTS: Final = 30
TOLD: Final = 6  # findings at the top of the first page


def trend_data(series: NightSeries) -> dict[str, Any]:
    """The Good share of every model, night by night."""
    return {
        "nights": [night.night for night in series.nights],
        "changes": changes(series.nights),
        "models": [
            {
                "name": model.name,
                "page": f"model-{model.slug}.html",
                "kind": model.kind,
                **line(model.points, model.kind, "Good"),
                "found": regressions(model),
            }
            for model in series.models
        ],
    }


def model_data(series: NightSeries, model: Model) -> dict[str, Any]:
    """All shares of a model, corrected and as judged."""
    return {
        "nights": [night.night for night in series.nights],
        "changes": changes(series.nights),
        "kind": model.kind,
        "labels": {
            label: {kind: line(model.points, kind, label) for kind in KINDS} for label in reversed(LABELS)
        },
        "found": regressions(model),
    }


def health_data(series: NightSeries) -> dict[str, Any]:
    """The judge's shift in points, what was unscored in per cent, dollars for a thousand responses."""
    shifts = [shift.change.as_dict() if shift else None for shift in series.health.shifts]
    moved = [at for at, shift in enumerate(series.health.shifts) if shift and shift.is_shown]
    shift = next((item for item in reversed(series.health.shifts) if item), None)
    return {
        "nights": [night.night for night in series.nights],
        "changes": changes(series.nights),
        "shift": {
            key: [hundredths(item[key]) if item else None for item in shifts]
            for key in ("value", "low", "high")
        },
        "moved": moved,
        "unscored": [hundredths(value) for value in series.health.unscored],
        "reasons": [_reasons(counted) for counted in series.health.reasons],
        "cost": [_rounded(value) for value in series.health.cost],
        "per_thousand": [_rounded(value) for value in series.health.per_thousand],
        "told": _tell_shift(shift, len(moved), len(series.nights)),
    }


def line(nights: Iterable[ModelResult | None], kind: Kind, label: str) -> dict[str, list[float | None]]:
    """One label's shares and interval ends in per cent, a place for each night."""
    shares = [share_of(point, kind, label) for point in nights]
    return {
        "value": [hundredths(item.share) for item in shares],
        "low": [hundredths(item.low) for item in shares],
        "high": [hundredths(item.high) for item in shares],
    }


def regressions(model: Model) -> list[dict[str, Any]]:
    """Where on the line a regression is marked, and what the gates said."""
    return [
        {
            "at": at,
            "text": " ".join(
                item.sentence or item.gate for item in model.findings[at] if item.outcome == "regression"
            ),
        }
        for at in model.regressions
    ]


def hundredths(part: float | None) -> float | None:
    """In per cent, as exactly as a chart can show."""
    return None if part is None else round(100 * part, 2)


def _tell_shift(shift: AnchorShift | None, moved: int, nights: int) -> str:
    if shift is None:
        return "No anchors have been judged: the judge's changes cannot be told from the models'."
    verdict = "is shown to have moved" if shift.is_shown else "is not shown to have moved"
    return (
        f"The judge {verdict}: on {shift.count:,} anchors its Good probability is "
        f"{points(shift.change)} points from that of {shift.since}. "
        f"It is shown to have moved on {moved:,} of {nights:,} nights."
    )


def _reasons(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in list(counted.items())[:4])


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def headline(series: NightSeries) -> dict[str, Any]:
    """What stands at the top: the newest night's outcome, what its gates found, and a few counts."""
    if not series.nights:
        return {"status": "", "night": "", "found": [], "more": 0, "facts": []}
    night = series.nights[-1]
    findings = sorted((item for item in series.tonight if item.outcome not in FINE), key=_gravest_first)
    present = [result for model in series.models if (result := model.points[-1]) is not None]
    judged = sum(result.n for result in present)
    passed = sum(1 for item in series.tonight if item.outcome == "pass")
    shift = series.health.shifts[-1]
    return {
        "status": night.status or gravest(item.outcome for item in series.tonight) or "no gate",
        "night": night.night,
        "found": [(item.outcome, item.sentence or item.gate) for item in findings[:TOLD]],
        "more": max(0, len(findings) - TOLD),
        "facts": [
            ("Models", f"{len(present):,}", f"of {len(series.models):,} ever seen"),
            ("Responses judged", f"{judged:,}", f"{per_cent(series.health.unscored[-1])} unscored"),
            ("Gates passed", f"{passed:,} of {len(series.tonight):,}", "tonight"),
            (
                "Judge's shift on anchors",
                signed(shift.change.value if shift else None),
                "points of Good since " + (shift.since if shift else "ever"),
            ),
            ("Cost", money(series.health.cost[-1]), _whose_cost(present)),
            ("Nights", f"{len(series.nights):,}", f"since {series.nights[0].night}"),
        ],
    }


def model_rows(series: NightSeries) -> list[dict[str, Any]]:
    """The table of models; each figure with the number to sort it by."""
    last = len(series.nights) - 1
    rows = []
    for model in series.models:
        result = model.points[last]
        outcomes = [item.outcome for item in series.tonight if item.model == model.name]
        outcome = (gravest(outcomes) or "no gate") if result is not None else "not run"
        shown = result or model.newest
        regressions = model.regressions
        rows.append(
            {
                "name": model.name,
                "slug": model.slug,
                "outcome": outcome,
                "kind": model.kind,
                "good": share_text(share_of(shown, model.kind)),
                "bad": share_text(share_of(shown, model.kind, "Bad")),
                "spark": sparkline(model),
                "unscored": per_cent(unscored_share(shown)),
                "cost": money(shown.cost),
                "regressions": len(regressions),
                "since": series.nights[regressions[-1]].night if regressions else "",
                "nights": sum(point is not None for point in model.points),
                "keys": {
                    "good": share_of(shown, model.kind).share,
                    "bad": share_of(shown, model.kind, "Bad").share,
                    "unscored": unscored_share(shown),
                    "cost": shown.cost,
                },
            }
        )
    return rows


def most_urgent(rows: Sequence[Mapping[str, Any]]) -> int:
    """The row whose trend is shown first: the gravest outcome tonight, then the newest regression."""

    def urgency(at: int) -> tuple[bool, str]:
        return rows[at]["outcome"] == "regression", rows[at]["since"]

    return max(range(len(rows)), key=urgency, default=0)


def emotion_grid(series: NightSeries) -> dict[str, Any]:
    """Good shares by model and emotion, emotions of one kind beside each other, the hardest of it first."""
    cells = series.emotions
    models = [model for model in series.models if any(name == model.name for name, _ in cells)]
    names = {emotion for _, emotion in cells}

    def mean(emotion: str) -> float:
        held = [cell.share for (_, name), cell in cells.items() if name == emotion]
        return sum(held) / len(held)

    emotions = sorted(names, key=lambda name: (name in POSITIVE_EMOTIONS, mean(name), name))
    rows = [[cells.get((model.name, emotion)) for emotion in emotions] for model in models]
    return {
        "models": [model.name for model in models],
        "pages": [f"model-{model.slug}.html" for model in models],
        "emotions": emotions,
        "positive": sum(name in POSITIVE_EMOTIONS for name in emotions),
        "values": [[cell and hundredths(cell.share) for cell in row] for row in rows],
        "texts": [[cell and _cell_text(cell) for cell in row] for row in rows],
        "nights": series.pooled,
    }


def latest_facts(series: NightSeries, model: Model) -> list[tuple[str, str, str]]:
    """The figures at the top of a model's page, of its newest night."""
    shown = model.newest
    facts = []
    for label in reversed(LABELS):
        share = share_of(shown, model.kind, label)
        how = "corrected" if model.kind == "corrected" else "as judged"
        facts.append((f"{label} share", per_cent(share.share), f"{_ends(share)} {how}"))
    count = len(model.regressions)
    when = f"last on {series.nights[model.regressions[-1]].night}" if count else "so far"
    facts.append(("Judged", f"{shown.n:,}", f"{per_cent(unscored_share(shown))} unscored"))
    facts.append(("Cost", money(shown.cost), "that night"))
    facts.append(("Nights with a regression", f"{count:,}", when))
    return facts


def night_rows(series: NightSeries, model: Model, links: Mapping[str, str]) -> list[dict[str, Any]]:
    """A model's newest nights, newest first."""
    rows = []
    for at, result in reversed(list(enumerate(model.points))[-TABLE_NIGHTS:]):
        if result is None:
            continue
        night = series.nights[at].night
        rows.append(
            {
                "night": night,
                "link": links.get(night),
                "shares": [share_text(share_of(result, model.kind, label)) for label in reversed(LABELS)],
                "raw": share_text(share_of(result, "raw")),
                "n": f"{result.n:,}",
                "unscored": per_cent(unscored_share(result)),
                "cost": money(result.cost),
                "found": gravest(item.outcome for item in model.findings[at]) if at in model.findings else "",
            }
        )
    return rows


def log_rows(series: NightSeries, model: Model, links: Mapping[str, str]) -> list[dict[str, Any]]:
    """What gates found on a model, newest first."""
    rows = [
        {"night": series.nights[at].night, "outcome": item.outcome, "sentence": item.sentence or item.gate}
        for at in sorted(model.findings, reverse=True)
        for item in sorted(model.findings[at], key=_gravest_first)
        # With a floor for each emotion a night has dozens of these; what they say is of that night only.
        if item.outcome != "inconclusive" or at == len(series.nights) - 1
    ]
    return [row | {"link": links.get(row["night"])} for row in rows[:LOGGED]]


def sparkline(model: Model) -> str:
    """The newest nights' Good share as a small drawing; the figures stand beside it."""
    values = [share_of(point, model.kind).share for point in model.points[-SPARK_NIGHTS:]]
    known = [(at, value) for at, value in enumerate(values) if value is not None]
    low, high = span([value for _, value in known], least=0.1)
    width, height = 96.0, 26.0
    reach = max(1, len(values) - 1)
    places = [
        (2 + (width - 4) * at / reach, 2 + (height - 4) * (high - value) / (high - low))
        for at, value in known
    ]
    inside = element(
        "polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places), class_="spark", fill="none"
    )
    first = len(model.points) - len(values)
    marked = {at - first for at in model.regressions}
    inside += "".join(
        element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=2.8, class_="regressed")
        for (at, _), (x, y) in zip(known, places, strict=True)
        if at in marked
    )
    return element(
        "svg", inside, width=width, height=height, viewBox=f"0 0 {width} {height}", aria_hidden="true"
    )


def share_text(share: ShareResult) -> str:
    """A share in per cent with its interval.

    >>> share_text(ShareResult(share=0.613, low=0.55, high=0.67)), share_text(ShareResult(share=None))
    ('61.3 [55.0, 67.0]', 'undefined')
    """
    return UNDEFINED if share.share is None else f"{percent(share.share)} {_ends(share)}"


def per_cent(part: float | None) -> str:
    """A part of a whole, with its unit."""
    return UNDEFINED if part is None else f"{percent(part)} %"


def _ends(share: ShareResult) -> str:
    if share.low is None or share.high is None:
        return "no interval"
    return interval(share.low, share.high, 1, scale=100)


def _whose_cost(present: Sequence[ModelResult]) -> str:
    priced = sum(1 for result in present if result.cost is not None)
    return "tonight, all models" if priced == len(present) else f"tonight, of {priced:,} models where known"


def _cell_text(cell: PooledShare) -> str:
    ends = cell.interval()
    shown = f"{number(cell.share, 0, scale=100)} {interval(ends.low, ends.high, 0, scale=100)}"
    return f"{shown}, {cell.prompts:.0f} prompts"


def _gravest_first(item: GateResult) -> tuple[int, str]:
    return -severity(item.outcome), item.model
