"""The dashboard's figures as plain values: charts with a place for each night, tables and headlines."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from data.coverage import say_outside
from data.records import LABELS, POSITIVE_EMOTIONS
from data.text import UNDEFINED, interval, listed, money, number, percent, points, signed
from nightly.changes import TOLD_NIGHTS, say_moods
from nightly.dashboard.series import FOUND_NIGHTS, Kind, Model, NightSeries, changes, share_of
from nightly.dashboard.since_baseline import NAMED, change_of
from nightly.emotions import PooledShare
from nightly.gates import gravest, severity
from nightly.schema import FINE, GateResult, ModelResult, Outcome, ShareResult
from reports.charts import element, span

KINDS: Final[tuple[Kind, ...]] = ("corrected", "raw")
TABLE_NIGHTS: Final = FOUND_NIGHTS  # in a model's table; the chart has all of them
LOGGED: Final = 100  # findings listed for a model
SPARK_NIGHTS: Final = 30


def trend_data(series: NightSeries, models: Sequence[Model]) -> dict[str, Any]:
    """The Good share of every model and its change since the baseline, night by night, in the order given."""
    return {
        "nights": [night.night for night in series.nights],
        "changes": changes(series.nights),
        "models": [
            {
                "name": model.name,
                "page": model.page,
                "kind": model.kind,
                **line(model.points, model.kind, "Good"),
                "change": change_line(series, model),
                "found": regressions(model),
            }
            for model in models
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
    shifts = [night.shift for night in series.health]
    ends = [shift.change.as_dict() if shift else {} for shift in shifts]
    moved = [at for at, shift in enumerate(shifts) if shift and shift.is_shown]
    told = "No anchors have been judged: the judge's changes cannot be told from the models'."
    if newest := next((shift for shift in reversed(shifts) if shift), None):
        told = (
            f"The judge {'is shown' if newest.is_shown else 'is not shown'} to have moved: on "
            f"{newest.count:,} anchors its Good probability is {points(newest.change)} points from that of "
            f"{newest.since}. It is shown to have moved on {len(moved):,} of {len(series.nights):,} nights."
        )
    return {
        "nights": [night.night for night in series.nights],
        "changes": changes(series.nights),
        "shift": {key: [hundredths(item.get(key)) for item in ends] for key in ("value", "low", "high")},
        "moved": moved,
        "unscored": [hundredths(night.unscored) for night in series.health],
        "reasons": [
            ", ".join(f"{reason} {count:,}" for reason, count in list(night.reasons.items())[:4])
            for night in series.health
        ],
        "cost": [_rounded(night.cost) for night in series.health],
        "per_thousand": [_rounded(night.per_thousand) for night in series.health],
        "told": told,
    }


def line(nights: Iterable[ModelResult | None], kind: Kind, label: str) -> dict[str, list[float | None]]:
    """One label's shares and interval ends in per cent, a place for each night."""
    shares = [share_of(point, kind, label) for point in nights]
    return {
        "value": [hundredths(item.share) for item in shares],
        "low": [hundredths(item.low) for item in shares],
        "high": [hundredths(item.high) for item in shares],
    }


def change_line(series: NightSeries, model: Model) -> dict[str, list[float | None]]:
    """A model's change since its baseline and the interval's ends in points; a baseline itself is at 0."""
    changes = [change_of(point) for point in model.points]
    baselines = {night for item in changes if item for night in item.nights}
    starts = [0.0 if night.night in baselines else None for night in series.nights]
    return {
        "value": [
            hundredths(item.value) if item else start for item, start in zip(changes, starts, strict=True)
        ],
        "low": [hundredths(item.low) if item else None for item in changes],
        "high": [hundredths(item.high) if item else None for item in changes],
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


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def findings_tonight(series: NightSeries) -> list[tuple[Outcome, str]]:
    """What gates found on the newest night, the gravest first; what is true of many gates is said once."""
    if not series.nights:
        return []
    found = sorted((item for item in series.tonight if item.outcome not in FINE), key=_gravest_first)
    failed: dict[str, str] = dict(series.nights[-1].details.get("failed") or {})
    said: list[tuple[Outcome, str]] = [
        ("failed", f"{model} could not be measured: {reason}.") for model, reason in failed.items()
    ]
    said += [
        (item.outcome, item.sentence or item.name)
        for item in found
        if item.outcome == "regression" or (item.outcome == "failed" and item.model not in failed)
    ]
    said.sort(key=lambda item: -severity(item[0]))
    if stale := [item for item in found if item.outcome == "stale"]:
        more = f" So it is with {len(stale) - 1:,} more gates." if len(stale) > 1 else ""
        said.append(("stale", f"{stale[0].sentence or stale[0].name}{more}"))
    if unsure := [item for item in found if item.outcome == "inconclusive"]:
        names = list(dict.fromkeys(item.model for item in unsure))
        of = listed(names) if len(names) <= NAMED else f"{len(names)} models"
        gates = "1 gate cannot" if len(unsure) == 1 else f"{len(unsure):,} gates cannot"
        said.append(("inconclusive", f"{gates} tell yet, of {of}; each model's page says what would."))
    return said


def facts_tonight(series: NightSeries) -> list[tuple[str, str, str]]:
    """A few counts of the newest night."""
    if not series.nights:
        return []
    results = [result for model in series.models if (result := model.points[-1]) is not None]
    priced = sum(result.cost is not None for result in results)
    passed = sum(item.outcome == "pass" for item in series.tonight)
    health = series.health[-1]
    cost = "tonight, all models" if priced == len(results) else f"tonight, of {priced:,} models where known"
    return [
        ("Models", f"{len(results):,}", f"of {len(series.models):,} ever seen"),
        (
            "Responses judged",
            f"{sum(result.n for result in results):,}",
            "" if health.unscored is None else f"{per_cent(health.unscored)} unscored",
        ),
        ("Gates passed", f"{passed:,} of {len(series.tonight):,}", "tonight"),
        *(
            [
                (
                    "Judge's shift on anchors",
                    signed(health.shift.change.value),
                    f"points of Good since {health.shift.since}",
                )
            ]
            if health.shift
            else []
        ),
        *([("Cost", money(health.cost), cost)] if health.cost is not None else []),
    ]


def unlike_rated(series: NightSeries) -> list[tuple[str, str]]:
    """What is to be said of what models' newest figures rest on, where it is unlike what people rated."""
    return [
        (model.name, sentence)
        for model in series.models
        if (result := model.points[-1]) is not None
        for sentence in say_figures_rest(result)
    ]


def say_figures_rest(result: ModelResult) -> list[str]:
    """What a model's figures of a night rest on, as far as that needs a word."""
    details = result.details
    moods = say_moods(details.get("watch"))
    return [
        *([moods] if moods else []),
        *say_outside(details.get("outside")),
    ]


def emotion_grid(series: NightSeries, models: Sequence[Model]) -> dict[str, Any]:
    """Good shares by model and emotion, emotions of one kind beside each other, the hardest of it first."""
    cells = series.emotions
    models = [model for model in models if any(name == model.name for name, _ in cells)]
    names = {emotion for _, emotion in cells}

    def mean(emotion: str) -> float:
        held = [cell.share for (_, name), cell in cells.items() if name == emotion]
        return sum(held) / len(held)

    emotions = sorted(names, key=lambda name: (name in POSITIVE_EMOTIONS, mean(name), name))
    rows = [[cells.get((model.name, emotion)) for emotion in emotions] for model in models]
    return {
        "models": [model.name for model in models],
        "pages": [model.page for model in models],
        "emotions": emotions,
        "positive": sum(name in POSITIVE_EMOTIONS for name in emotions),
        "values": [[cell and hundredths(cell.share) for cell in row] for row in rows],
        "texts": [[cell and _cell_text(cell) for cell in row] for row in rows],
        "nights": series.pooled,
    }


def latest_facts(series: NightSeries, model: Model) -> list[tuple[str, str, str]]:
    """The figures at the top of a model's page, of its newest night."""
    shown, how = model.newest, "corrected" if model.kind == "corrected" else "as judged"
    shares = [(label, share_of(shown, model.kind, label)) for label in reversed(LABELS)]
    count = len(model.regressions)
    when = f"last on {series.nights[model.regressions[-1]].night}" if count else "so far"
    change = change_of(shown)
    moved = []
    if change is not None:
        ends = interval(change.low, change.high, 1, scale=100, sign=True)
        moved = [("Change of Good", signed(change.value), f"{ends} points since {change.since}, as judged")]
    if (watch := shown.details.get("watch")) and watch["nights"] >= TOLD_NIGHTS:
        is_told = say_moods(watch) is not None
        apart = (f"{100 * watch['spread']:.1f} points", "more") if is_told else ("no further", "")
        beyond = f"{apart[1]} than chance in answers explains, over {watch['nights']:,} nights".strip()
        moved.append(("Nights lie apart", apart[0], beyond))
    return [
        *moved,
        *((f"{label} share", per_cent(share.share), f"{_ends(share)} {how}") for label, share in shares),
        ("Judged", f"{shown.n:,}", f"{per_cent(shown.unscored_share)} unscored"),
        ("Cost", money(shown.cost), "that night"),
        ("Nights with a regression", f"{count:,}", when),
    ]


def night_rows(series: NightSeries, model: Model) -> list[tuple[str, ModelResult, Outcome | None]]:
    """A model's newest nights, newest first, and the gravest that gates found on each."""
    newest = list(enumerate(model.points))[: -TABLE_NIGHTS - 1 : -1]
    return [
        (series.nights[at].night, result, gravest(item.outcome for item in model.findings.get(at, ())))
        for at, result in newest
        if result is not None
    ]


def log_rows(series: NightSeries, model: Model) -> list[tuple[str, GateResult]]:
    """What gates found on a model, newest first."""
    rows = [
        (series.nights[at].night, item)
        for at in sorted(model.findings, reverse=True)
        for item in sorted(model.findings[at], key=_gravest_first)
        # With a floor for each emotion a night has dozens of these; what they say is of that night only.
        if item.outcome != "inconclusive" or at == len(series.nights) - 1
    ]
    return rows[:LOGGED]


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


def _cell_text(cell: PooledShare) -> str:
    ends = cell.interval()
    shown = f"{number(cell.share, 0, scale=100)} {interval(ends.low, ends.high, 0, scale=100)}"
    return f"{shown}, {cell.prompts:.0f} prompts"


def _gravest_first(item: GateResult) -> tuple[int, str]:
    return -severity(item.outcome), item.model
