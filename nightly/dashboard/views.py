"""The content of the dashboard's pages: the newest night's changes and findings, charts, tables and facts.

Changes are the judge's own, on the same prompts both nights, so their intervals are much narrower than those
of levels. If the judge moved, its part is subtracted.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import mean
from types import MappingProxyType
from typing import Any, Final, Literal

from empathy_judge.calibration.estimate import Estimate
from empathy_judge.data.records import LABELS, NOUNS, POSITIVE_EMOTIONS
from empathy_judge.data.text import UNDEFINED, listed, money, percent, points, show, slug
from empathy_judge.nightly.changes import REPORTED_NIGHTS, describe_variation, name_nights
from empathy_judge.nightly.dashboard.series import (
    FOUND_NIGHTS,
    ModelSeries,
    NightSeries,
    PooledShare,
    is_known,
    new_instruments,
    share_of,
)
from empathy_judge.nightly.gates import gravest, severity
from empathy_judge.nightly.output import NAMED, describe_unresponsive
from empathy_judge.nightly.schema import FINE, ChangeResult, GateResult, ModelResult, Outcome
from empathy_judge.reports.charts import Line, Mark, dot_plot, line_chart, percent_tick, signed_tick
from empathy_judge.reports.page import Cell, Figure, Table, row

CHART_NIGHTS: Final = 180  # in a chart
TREND_MODELS: Final = 6  # with a chart on the first page
DRAWN: Final = 40  # models in the chart of changes; the table has all
LOGGED: Final = 100  # findings listed for a model
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
# The order of models on the first page.
RANKS: Final = ("regression", "failed", "fell", "stale", "inconclusive", "", "not run")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTonight:
    """A model on the newest night: its gravest outcome, its change, and the limit of the change."""

    model: ModelSeries
    outcome: str
    change: ChangeResult | None
    limit: float | None

    @property
    def has_fallen(self) -> bool:
        """Whether tonight's interval of the change lies wholly below 0."""
        ends = None if self.change is None else self.change.shown.interval
        return ends is not None and ends.high < 0

    @property
    def is_worse(self) -> bool:
        """Whether a gate failed, or the change shows a drop."""
        return self.outcome == "regression" or self.has_fallen

    @property
    def rank(self) -> tuple[int, float, str]:
        """Its position on the page, the gravest first."""
        kinds = (self.outcome, "fell" if self.has_fallen else self.outcome)
        at = min(RANKS.index(kind) if kind in RANKS else RANKS.index("") for kind in kinds)
        return at, 0.0 if self.change is None else self.change.shown.value, self.model.name


def models_tonight(series: NightSeries) -> list[ModelTonight]:
    """Return every model on the newest night, the gravest outcome first."""
    tonight = []
    for model in series.models:
        gates = [item for item in series.tonight if item.model == model.name]
        outcome: str = gravest(item.outcome for item in gates) or "no gate"
        if model.points[-1] is None and outcome != "failed":
            outcome = "not run"
        change = model.changes[-1]
        change = change if change is not None and change.shown.interval is not None else None
        drops = [item.limit for item in gates if (item.gate, item.subject) == ("good_share_drop", "baseline")]
        limit = drops[0] if drops else None
        tonight.append(ModelTonight(model=model, outcome=outcome, change=change, limit=limit))
    return sorted(tonight, key=lambda item: item.rank)


def headline(series: NightSeries, tonight: Sequence[ModelTonight]) -> str:
    """Return the result of the newest night in one sentence or two."""
    run = [item for item in tonight if item.outcome not in ("not run", "failed")]
    if not run:
        return f"No model could be measured on {series.nights[-1].night}."
    if warnings := [line for item in run if (line := describe_unresponsive(item.model.newest))]:
        return " ".join(warnings)
    broken = [item for item in run if item.outcome == "regression"]
    worse = [item for item in broken if item.has_fallen]
    maybe = [item for item in run if item.has_fallen and item not in broken]
    others = len(run) - len(worse)
    if worse and (maybe or not others):
        return f"{_changes(worse, 'got worse')}.{f' {_list(maybe)} may be worse too.' if maybe else ''}"
    if worse:
        plural = "s" if others > 1 else ""
        return f"{_changes(worse, 'got worse')}. No significant change of the other {others} model{plural}."
    if broken:
        return f"{_list(broken)} failed a gate, without a significant drop of the Good share."
    if maybe:
        return f"{_changes(maybe, 'may be worse')}. No gate failed."
    if changed := [item for item in run if item.change is not None]:
        name = _list(changed[:1]) if len(changed) == 1 else f"the lowest, {_list(changed[:1])},"
        change = changed[0].change and f"{points(changed[0].change.shown)} points (Good share)"
        return f"No model is significantly worse than on {_since(run)}: {name} has {change}."
    shares = [(share_of(item.model.points[-1], item.model.kind), item.model.name) for item in run]
    known = sorted((-share.value, name) for share, name in shares if is_known(share))
    levels = listed([f"{name} {percent(-value)}%" for value, name in known[:NAMED]])
    return f"No earlier night to compare with yet: Good shares are {levels}."


def change_figure(tonight: Sequence[ModelTonight]) -> Figure | None:
    """Return the changes of all models with tonight's intervals, in points; None where there is none."""
    lines = [
        Line(
            name=item.model.name,
            figure=points(item.change.shown),
            marks=(Mark("found" if item.is_worse else "judge", item.change.shown),),
            band=None if item.limit is None else (-math.inf, -item.limit / 100),
        )
        for item in tonight
        if item.change is not None
    ][:DRAWN]
    if not lines:
        return None
    return dot_plot(
        f"Change of the Good share since {_since(tonight)}, in points",
        lines,
        name="changes",
        title="Change of each model's Good share since its baseline",
        tick=POINTS["tick"],
        unit=" points",
        reference=0.0,
    )


def _list(items: Sequence[ModelTonight]) -> str:
    names = [item.model.name for item in items]
    return listed(names if len(names) <= NAMED else [*names[: NAMED - 1], f"{len(names) - NAMED + 1} more"])


def _since(items: Sequence[ModelTonight]) -> str:
    nights = {name_nights(item.change.nights) for item in items if item.change}
    return nights.pop() if len(nights) == 1 else "their baselines"


def _changes(items: Sequence[ModelTonight], verb: str) -> str:
    changes = listed([points(item.change.shown) for item in items[: NAMED - 1] if item.change])
    return f"{_list(items)} {verb}: {changes} points (Good share) since {_since(items)}"


def trend_figures(series: NightSeries, models: Sequence[ModelSeries]) -> list[Figure]:
    """Return a chart for each of the first few models: its change from the baseline, or its Good share."""
    return [
        _change_figure(series, model) or _share_figure(series, model, "Good", caption=model.name)
        for model in models[:TREND_MODELS]
    ]


def model_figures(series: NightSeries, model: ModelSeries) -> list[Figure]:
    """Return the charts of a model: the change from its baseline, and each label's share."""
    shares = [_share_figure(series, model, label, caption=f"{label} share, %") for label in reversed(LABELS)]
    return [*filter(None, [_change_figure(series, model)]), *shares]


def health_figures(series: NightSeries) -> dict[str, Figure]:
    """Return the charts of the judge: its shift on the anchors, unscored responses, cost."""
    nights = dict(enumerate(series.health))
    return {
        "shift": _nightly_chart(
            series,
            [night.shift.change if night.shift else None for night in series.health],
            caption="Shift of the judge's Good probability on the anchors, points",
            name="shift",
            flagged={at for at, night in nights.items() if night.shift and night.shift.is_shown},
            **POINTS,
        ),
        "unscored": _nightly_chart(
            series,
            [night.unscored for night in series.health],
            caption="Unscored, %",
            name="unscored",
            look="people",
            notes={
                at: "".join(f"; {reason} {count:,}" for reason, count in list(night.reasons.items())[:4])
                for at, night in nights.items()
            },
            tick=percent_tick,
            show=lambda item: per_cent(item.value),
            reference=0.0,
        ),
        "cost": _nightly_chart(
            series,
            [night.cost for night in series.health],
            caption="Cost of a night, US dollars",
            name="cost",
            tick=lambda value: f"${value:.3g}",
            show=lambda item: money(item.value),
            reference=0.0,
        ),
    }


def describe_health(series: NightSeries) -> str:
    """Return a sentence on whether the judge moved."""
    shifts = [night.shift for night in series.health if night.shift]
    if not shifts:
        return "No anchors were scored: the judge's changes cannot be separated from the models'."
    newest, moved = shifts[-1], sum(shift.is_shown for shift in shifts)
    return (
        f"The judge has {'shifted' if newest.is_shown else 'not shifted significantly'}: on {newest.count:,} "
        f"anchors, its Good probability changed by {points(newest.change)} points since {newest.since}. "
        f"It shifted significantly on {moved:,} of {len(series.nights):,} nights."
    )


def _change_figure(series: NightSeries, model: ModelSeries) -> Figure | None:
    """Return the chart of a model's change from its baseline, which itself is at 0; None without changes."""
    if not any(model.changes):
        return None
    baselines = {night for item in model.changes if item for night in item.nights}
    starts = [0.0 if night.night in baselines else None for night in series.nights]
    return _nightly_chart(
        series,
        [item.shown if item else start for item, start in zip(model.changes, starts, strict=True)],
        caption=f"{model.name}: change of Good since baseline, points",
        name=f"change-{slug(model.name)}",
        model=model,
        **POINTS,
    )


def _share_figure(series: NightSeries, model: ModelSeries, label: str, *, caption: str) -> Figure:
    """Return the chart of one label's share, corrected where it can be, with the judge's own behind."""
    judged = [share_of(point, "raw", label).value for point in model.points]
    return _nightly_chart(
        series,
        [share_of(point, model.kind, label) for point in model.points],
        caption=caption if model.kind == "raw" else f"{caption} (dashed: uncorrected)",
        name=f"{label.lower()}-{slug(model.name)}",
        model=model if label == "Good" else None,
        look=LOOKS[label],
        behind=judged if model.kind == "corrected" else [],
        tick=percent_tick,
        show=percent,
    )


def _nightly_chart(
    series: NightSeries,
    values: Sequence[Estimate | float | None],
    *,
    caption: str,
    model: ModelSeries | None = None,
    behind: Sequence[float] = (),
    notes: Mapping[int, str] = MappingProxyType({}),
    flagged: Collection[int] = (),
    **how: Any,
) -> Figure:
    """Draw the newest nights; nights with a regression of the `model` are flagged."""
    start = max(0, len(values) - CHART_NIGHTS)
    if model is not None:
        flagged = model.regressions
        notes = {
            at: "; " + " ".join(item.sentence for item in model.findings[at] if item.outcome == "regression")
            for at in flagged
        }
    return line_chart(
        caption,
        [night.night for night in series.nights[start:]],
        [
            item if isinstance(item, Estimate) else Estimate(math.nan if item is None else item, None)
            for item in values[start:]
        ],
        title=caption,
        behind=behind[start:],
        notes={at - start: text for at, text in notes.items()},
        flagged={at - start for at in flagged},
        rules={at - start: text for at, text in new_instruments(series.nights).items() if at >= start},
        **how,
    )


def findings_tonight(series: NightSeries) -> list[tuple[Outcome, str]]:
    """Return the findings of the newest night, the gravest first; a failure of a model comes once."""
    if not series.nights:
        return []
    failed = series.nights[-1].failed
    # The headline names unresponsive models.
    once = {*failed, *(model.name for model in series.models if model.newest.is_unresponsive)}
    findings: list[tuple[Outcome, str]] = [
        *(("failed", f"{model} could not be measured: {reason}.") for model, reason in failed.items()),
        *(
            (item.outcome, item.sentence)
            for item in series.tonight
            if item.outcome not in FINE and (item.value is not None or item.model not in once)
        ),
    ]
    return sorted(findings, key=lambda item: -severity(item[0]))


def facts_tonight(series: NightSeries) -> list[tuple[str, str, str]]:
    """Return a few counts of the newest night."""
    if not series.nights:
        return []
    results = [result for model in series.models if (result := model.points[-1]) is not None]
    priced = sum(result.cost is not None for result in results)
    passed = sum(item.outcome == "pass" for item in series.tonight)
    health, judged = series.health[-1], sum(result.n for result in results)
    unscored = f"{per_cent(health.unscored)} unscored"
    return [
        ("Models", f"{len(results):,}", f"of {len(series.models):,} in the history"),
        (f"{NOUNS[series.nights[-1].unit].capitalize()} scored", f"{judged:,}", unscored),
        ("Gates passed", f"{passed:,} of {len(series.tonight):,}", "tonight"),
        *([("Cost", money(health.cost), f"tonight, of {priced:,} models")] if priced else []),
    ]


def model_notes(model: ModelSeries) -> list[str]:
    """Return sentences on how to read a model's newest figures."""
    notes = (describe_variation(model.changes[-1]), *(model.points[-1].notes if model.points[-1] else ()))
    return [note for note in notes if note]


def emotion_table(series: NightSeries, models: Sequence[ModelSeries]) -> Table:
    """Return pooled Good shares, negative emotions first, the lowest of each kind first.

    The tint of a cell is its distance from the mean.
    """
    cells = series.emotions
    names = [model.name for model in models if any(name == model.name for name, _ in cells)]
    by_emotion: dict[str, list[float]] = {}
    for (_, emotion), cell in cells.items():
        by_emotion.setdefault(emotion, []).append(cell.share.value)
    shares = [*chain.from_iterable(by_emotion.values())]
    middle = mean(shares) if shares else 0.0
    reach = max([0.05, *(abs(share - middle) for share in shares)])

    def show_cell(cell: PooledShare | None) -> Cell:
        if cell is None:
            return Cell(UNDEFINED)
        share = show(cell.share, digits=0, scale=100)
        return Cell(f"{share}, n = {cell.prompts:.0f}", tint=round((cell.share.value - middle) / reach, 2))

    emotions = sorted(by_emotion, key=lambda name: (name in POSITIVE_EMOTIONS, mean(by_emotion[name]), name))
    rows = [row(emotion, *(show_cell(cells.get((name, emotion))) for name in names)) for emotion in emotions]
    return Table(head=("Emotion", *names), rows=tuple(rows))


def latest_facts(series: NightSeries, model: ModelSeries) -> list[tuple[str, str, str]]:
    """Return the figures at the top of a model's page, of its newest night."""
    newest, how = model.newest, "corrected" if model.kind == "corrected" else "uncorrected"
    when = f"last on {series.nights[model.regressions[-1]].night}" if model.regressions else "none"
    facts = []
    change = next((item for item in reversed(model.changes) if item is not None), None)
    if change is not None and change.shown.interval is not None:
        since = f"points since {name_nights(change.nights)}, uncorrected"
        facts.append(("Change of Good", points(change.shown), since))
    if change is not None and change.nights_used >= REPORTED_NIGHTS:
        spread = f"{100 * change.spread:.1f} points" if describe_variation(change) else "none shown"
        facts.append(("Night-to-night variation", spread, f"beyond sampling, {change.nights_used:,} nights"))
    for label in reversed(LABELS):
        facts.append((f"{label} share, %", percent(share_of(newest, model.kind, label)), how))
    return [
        *facts,
        ("Judged", f"{newest.n:,}", f"{per_cent(newest.unscored_share)} unscored"),
        ("Prompt fit", show_fit(newest), "chance to be closer to its own prompt than to another"),
        ("Cost", money(newest.cost), "that night"),
        ("Nights with a regression", f"{len(model.regressions):,}", when),
    ]


def night_rows(series: NightSeries, model: ModelSeries) -> list[tuple[str, ModelResult, Outcome | None]]:
    """Return a model's newest nights, newest first, and the gravest outcome on each."""
    return [
        (series.nights[at].night, result, gravest(item.outcome for item in model.findings.get(at, ())))
        for at, result in list(enumerate(model.points))[: -FOUND_NIGHTS - 1 : -1]
        if result is not None
    ]


def log_rows(series: NightSeries, model: ModelSeries) -> list[tuple[str, GateResult]]:
    """Return the findings of gates on a model, newest first."""
    rows = [
        (series.nights[at].night, item)
        for at in sorted(model.findings, reverse=True)
        for item in sorted(model.findings[at], key=lambda item: -severity(item.outcome))
        # Inconclusive gates are listed for the newest night only.
        if item.outcome != "inconclusive" or at == len(series.nights) - 1
    ]
    return rows[:LOGGED]


def show_fit(result: ModelResult) -> str:
    """Return the prompt fit with its interval."""
    return show(result.fit.estimate if result.fit else None)


def per_cent(part: float | None) -> str:
    """Return a part of a whole in percent."""
    return UNDEFINED if part is None or math.isnan(part) else f"{percent(part)}%"
