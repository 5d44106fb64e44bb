"""The dashboard's charts over nights, tables and lists of facts."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from calibration.estimate import UNDEFINED as NO_ESTIMATE
from calibration.estimate import Estimate, estimate_of
from data.coverage import say_outside
from data.records import LABELS, POSITIVE_EMOTIONS
from data.text import UNDEFINED, interval, listed, money, number, percent, points, signed, slug
from nightly.changes import TOLD_NIGHTS, say_moods
from nightly.dashboard.series import FOUND_NIGHTS, Model, NightSeries, changes, share_of
from nightly.dashboard.since_baseline import NAMED, change_of
from nightly.emotions import PooledShare
from nightly.gates import gravest, severity
from nightly.schema import FINE, GateResult, ModelResult, Outcome, ShareResult
from reports.charts import element, line_chart, percent_tick, signed_tick, span
from reports.page import Figure

TABLE_NIGHTS: Final = FOUND_NIGHTS  # in a model's table
CHART_NIGHTS: Final = 180  # in a chart
TREND_MODELS: Final = 6  # with a chart on the first page
LOOKS: Final[Mapping[str, Literal["judge", "people", "rival"]]] = {
    "Good": "judge",
    "Okay": "rival",
    "Bad": "people",
}
POINTS: Final[Mapping[str, Any]] = {
    "tick": lambda value: signed_tick(100 * value),
    "show": points,
    "reference": 0.0,
}
LOGGED: Final = 100  # findings listed for a model
SPARK_NIGHTS: Final = 30


def trend_figures(series: NightSeries, models: Sequence[Model]) -> list[Figure]:
    """Return a chart for each of the first few models: its change from the baseline, or its Good share."""
    return [
        _change_figure(series, model) or _share_figure(series, model, "Good", caption=model.name)
        for model in models[:TREND_MODELS]
    ]


def model_figures(series: NightSeries, model: Model) -> list[Figure]:
    """Return the charts of a model: the change from its baseline, and each label's share."""
    change = _change_figure(series, model)
    return [
        *([change] if change else []),
        *(_share_figure(series, model, label, caption=f"{label} share, %") for label in reversed(LABELS)),
    ]


def health_figures(series: NightSeries) -> dict[str, Figure]:
    """Return the charts of the judge: its shift on the anchors, unscored responses, cost."""
    shifts = [night.shift.change if night.shift else NO_ESTIMATE for night in series.health]
    moved = {at for at, night in enumerate(series.health) if night.shift and night.shift.is_shown}
    reasons = {
        at: "".join(f"; {reason} {count:,}" for reason, count in list(night.reasons.items())[:4])
        for at, night in enumerate(series.health)
    }
    prices = {
        at: f", {money(night.per_thousand)} for 1,000 judged"
        for at, night in enumerate(series.health)
        if night.per_thousand is not None
    }
    unscored = [_exact(night.unscored) for night in series.health]
    costs = [_exact(night.cost) for night in series.health]
    return {
        "shift": _nightly_chart(
            series,
            shifts,
            caption="Shift of the judge's Good probability on the anchors, points",
            name="shift",
            flagged=moved,
            **POINTS,
        ),
        "unscored": _nightly_chart(
            series,
            unscored,
            caption="Unscored, %",
            name="unscored",
            look="people",
            notes=reasons,
            tick=percent_tick,
            show=lambda item: per_cent(item.value),
            reference=0.0,
        ),
        "cost": _nightly_chart(
            series,
            costs,
            caption="Cost of a night, US dollars",
            name="cost",
            notes=prices,
            tick=lambda value: f"${value:.3g}",
            show=lambda item: money(item.value),
            reference=0.0,
        ),
    }


def describe_health(series: NightSeries) -> str:
    """Return a sentence on whether the judge moved."""
    shifts = [night.shift for night in series.health if night.shift]
    if not shifts:
        return "No anchors have been judged: the judge's changes cannot be separated from the models'."
    newest, moved = shifts[-1], sum(shift.is_shown for shift in shifts)
    return (
        f"The judge {'is shown' if newest.is_shown else 'is not shown'} to have moved: on "
        f"{newest.count:,} anchors its Good probability is {points(newest.change)} points from that of "
        f"{newest.since}. It is shown to have moved on {moved:,} of {len(series.nights):,} nights."
    )


def _change_figure(series: NightSeries, model: Model) -> Figure | None:
    """Return the chart of a model's change from its baseline, which itself is at 0; None without changes."""
    changes = [change_of(point) for point in model.points]
    if not any(changes):
        return None
    baselines = {night for item in changes if item for night in item.nights}
    values = [
        estimate_of(item.value, item.low, item.high)
        if item
        else Estimate(0.0, None)
        if night.night in baselines
        else NO_ESTIMATE
        for item, night in zip(changes, series.nights, strict=True)
    ]
    return _nightly_chart(
        series,
        values,
        caption=f"{model.name}: change of Good since baseline, points",
        name=f"change-{slug(model.name)}",
        model=model,
        **POINTS,
    )


def _share_figure(series: NightSeries, model: Model, label: str, *, caption: str) -> Figure:
    """Return the chart of one label's share, corrected where it can be, with the judge's own behind."""
    shares = [share_of(point, model.kind, label) for point in model.points]
    judged = [share_of(point, "raw", label).share for point in model.points]
    return _nightly_chart(
        series,
        [_estimate(item) for item in shares],
        caption=caption if model.kind == "raw" else f"{caption} (dashed: as judged)",
        name=f"{label.lower()}-{slug(model.name)}",
        model=model if label == "Good" else None,
        look=LOOKS[label],
        behind=[math.nan if share is None else share for share in judged] if model.kind != "raw" else [],
        tick=percent_tick,
        show=percent,
    )


def _nightly_chart(
    series: NightSeries,
    values: Sequence[Estimate],
    *,
    caption: str,
    model: Model | None = None,
    behind: Sequence[float] = (),
    notes: Mapping[int, str] = MappingProxyType({}),
    flagged: Collection[int] = (),
    **how: Any,
) -> Figure:
    """Draw the newest nights; nights with a regression of the `model` are flagged."""
    start = max(0, len(values) - CHART_NIGHTS)
    if model is not None:
        flagged = model.regressions
        notes = {at: f"; {_regression_text(model, at)}" for at in flagged}
    return line_chart(
        caption,
        [night.night for night in series.nights[start:]],
        values[start:],
        title=caption,
        behind=behind[start:],
        notes={at - start: text for at, text in notes.items()},
        flagged={at - start for at in flagged},
        rules={at - start: text for at, text in changes(series.nights).items() if at >= start},
        **how,
    )


def _regression_text(model: Model, at: int) -> str:
    found = [item for item in model.findings[at] if item.outcome == "regression"]
    return " ".join(item.sentence or item.gate for item in found)


def _exact(value: float | None) -> Estimate:
    return NO_ESTIMATE if value is None else Estimate(value, None)


def _estimate(share: ShareResult) -> Estimate:
    if share.share is None or share.low is None or share.high is None:
        return _exact(share.share)
    return estimate_of(share.share, share.low, share.high)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EmotionTile:
    """One model's pooled Good share under one emotion; `tint` is its distance from the mean, -1 to 1."""

    text: str
    tint: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EmotionTable:
    """Good shares by emotion and model, unpleasant emotions first, the hardest of each kind first."""

    models: tuple[Model, ...]
    rows: tuple[tuple[str, tuple[EmotionTile | None, ...]], ...]
    nights: int


def emotion_table(series: NightSeries, models: Sequence[Model]) -> EmotionTable:
    """Return the pooled Good shares of all models that have any."""
    cells = series.emotions
    models = [model for model in models if any(name == model.name for name, _ in cells)]
    shares = [cell.share for cell in cells.values()]
    middle = sum(shares) / len(shares) if shares else 0.0
    reach = max([0.05, *(abs(share - middle) for share in shares)])

    def mean(emotion: str) -> float:
        held = [cell.share for (_, name), cell in cells.items() if name == emotion]
        return sum(held) / len(held)

    def tile(model: Model, emotion: str) -> EmotionTile | None:
        cell = cells.get((model.name, emotion))
        if cell is None:
            return None
        return EmotionTile(text=_cell_text(cell), tint=round((cell.share - middle) / reach, 2))

    emotions = sorted(
        {emotion for _, emotion in cells}, key=lambda name: (name in POSITIVE_EMOTIONS, mean(name), name)
    )
    rows = tuple((emotion, tuple(tile(model, emotion) for model in models)) for emotion in emotions)
    return EmotionTable(models=tuple(models), rows=rows, nights=series.pooled)


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
