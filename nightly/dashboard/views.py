"""The history as the dashboard shows it: models' nights, the judge's health, sentences, facts and tables.

Changes are the judge's own, on the same prompts both nights, so their intervals are much narrower than those
of levels. If the judge moved, its part is subtracted.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import mean
from typing import Final, Literal

import numpy as np

from empathy_judge.calibration.cluster import NORMAL, wilson_interval
from empathy_judge.calibration.estimate import UNDEFINED as NO_ESTIMATE
from empathy_judge.calibration.estimate import Estimate, estimate_of
from empathy_judge.calibration.monitoring.drift import LEAST_PROMPTS, is_beyond, paired_change
from empathy_judge.data.records import LABELS, NOUNS, POSITIVE_EMOTIONS
from empathy_judge.data.text import UNDEFINED, money, percent, points, show, slug
from empathy_judge.nightly import schema
from empathy_judge.nightly.changes import REPORTED_NIGHTS, describe_variation, name_nights
from empathy_judge.nightly.gates import gravest, severity
from empathy_judge.nightly.history import History
from empathy_judge.nightly.output import sentences
from empathy_judge.reports.page import Cell, Table, row

ShareKind = Literal["corrected", "raw"]
POOLED_NIGHTS: Final = 7  # one night has few prompts of an emotion
FOUND_NIGHTS: Final = 60  # nights of which more than regressions is shown
LOGGED: Final = 100  # findings listed for a model
# The order of models on the first page.
RANKS: Final = ("regression", "failed", "fell", "stale", "not calibrated", "inconclusive", "", "not run")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSeries:
    """A model over the nights; `points` and `changes` have an entry for each night, None without it.

    `findings` are the gates that are not fine, by the index of their night.
    """

    name: str
    kind: ShareKind
    points: tuple[schema.ModelResult | None, ...]
    changes: tuple[schema.ChangeResult | None, ...]
    findings: Mapping[int, Sequence[schema.GateResult]]

    @property
    def page(self) -> str:
        """The file of its page."""
        return f"model-{slug(self.name)}.html"

    @property
    def newest(self) -> schema.ModelResult:
        """The newest night it took part in."""
        return next(point for point in reversed(self.points) if point is not None)

    @property
    def regressions(self) -> list[int]:
        """The nights with a regression, by their index."""
        return [at for at, found in self.findings.items() if any(i.outcome == "regression" for i in found)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorShift:
    """The change of the Good probability on the anchors since the first night with the same anchors."""

    since: str
    count: int
    change: Estimate

    @property
    def is_shown(self) -> bool:
        """Whether the whole interval lies on one side of 0."""
        return is_beyond(self.change.interval, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NightHealth:
    """The judge on one night, None where unknown; `reasons` counts the unscored responses."""

    shift: AnchorShift | None
    unscored: float | None
    reasons: Mapping[str, int]
    cost: float | None


@dataclass(frozen=True, slots=True)
class PooledShare:
    """A Good share over several nights; `prompts` is the number of one night."""

    share: Estimate
    prompts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NightSeries:
    """The nights of the newest night's config, oldest first; `left_out` counts those of other configs.

    `tonight` are the gates of the newest night and `sentences` its results, `emotions` pools the newest
    `pooled` nights, where a night has enough prompts of an emotion.
    """

    nights: tuple[schema.Night, ...]
    left_out: int
    models: tuple[ModelSeries, ...]
    tonight: tuple[schema.GateResult, ...]
    sentences: tuple[str, ...]
    emotions: Mapping[tuple[str, str], PooledShare]
    pooled: int
    health: tuple[NightHealth, ...]


def read_series(history: History, *, last: int | None = None) -> NightSeries:
    """Read all that the pages show except single responses; `last` limits it to the newest nights."""
    every = history.nights()
    config = every[-1].config if every else ""
    nights = tuple(history.nights(config=config, last=last))
    index = {night.night: at for at, night in enumerate(nights)}
    findings: defaultdict[str, dict[int, list[schema.GateResult]]] = defaultdict(dict)
    for night, gate in history.gates_not_fine(config=config, last=FOUND_NIGHTS):
        if night.night in index:
            findings[gate.model].setdefault(index[night.night], []).append(gate)
    models = []
    for name, nights_of in history.all_series(config=config, last=last).items():
        by_index = {index[point.night.night]: point for point in nights_of}
        row = [by_index.get(at) for at in range(len(nights))]
        # One kind for the whole line: a step from corrected to raw would look like a change of the model.
        level = next((point.result for point in reversed(nights_of) if point.result.shares), None)
        models.append(
            ModelSeries(
                name=name,
                kind="corrected" if math.isfinite(share_of(level, "corrected").value) else "raw",
                points=tuple(point.result if point else None for point in row),
                changes=tuple(point.change if point else None for point in row),
                findings=dict(sorted(findings[name].items())),
            )
        )
    record = history.night(*nights[-1].key) if nights else None
    pooled = [rows for _, rows in history.results(schema.EmotionResult, config=config, last=POOLED_NIGHTS)]
    by_emotion: defaultdict[tuple[str, str], list[schema.EmotionResult]] = defaultdict(list)
    for item in chain.from_iterable(pooled):
        by_emotion[item.model, item.emotion].append(item)
    cells = ((key, pool(rows)) for key, rows in by_emotion.items())
    scored = history.results(schema.AnchorResult, config=config, last=last)
    anchors = {night.key: rows for night, rows in scored}
    shifts = judge_shifts([anchors.get(night.key, []) for night in nights], nights)
    return NightSeries(
        nights=nights,
        left_out=sum(night.config != config for night in every),
        models=tuple(models),
        tonight=record.gates if record else (),
        sentences=tuple(sentences(record)) if record else (),
        emotions={key: cell for key, cell in cells if cell.prompts >= LEAST_PROMPTS},
        pooled=len(pooled),
        health=tuple(_health(models, at, shift) for at, shift in enumerate(shifts)),
    )


def pool(rows: Sequence[schema.EmotionResult]) -> PooledShare:
    """Pool one model's nights under one emotion, with Wilson's interval for the prompts of one night."""
    judged = sum(row.n for row in rows)
    share, prompts = sum(row.good for row in rows) / judged, judged / len(rows)
    low, high = wilson_interval(np.array(share), np.array(prompts), NORMAL)
    return PooledShare(estimate_of(share, float(low), float(high)), prompts)


def share_of(result: schema.ModelResult | None, kind: ShareKind, label: str = "Good") -> Estimate:
    """Return a label's share, undefined on a night without one."""
    shares = {} if result is None else result.corrected if kind == "corrected" else result.raw
    return shares.get(label, NO_ESTIMATE)


def new_instruments(nights: Sequence[schema.Night]) -> dict[int, str]:
    """Return a note for each night, by its index, on which another judge or calibration was used first."""
    marks = {}
    for at, (before, night) in enumerate(pairwise(nights), start=1):
        new = []
        if before.judge_key != night.judge_key:
            new.append(f"judge {' '.join(night.judge_key)}".strip())
        if before.calibration != night.calibration:
            new.append(f"calibration {(night.calibration or 'none')[:8]}")
        if new:
            marks[at] = "new " + ", ".join(new)
    return marks


def _health(models: Sequence[ModelSeries], at: int, shift: AnchorShift | None) -> NightHealth:
    results = [result for model in models if (result := model.points[at]) is not None]
    reasons = sum((Counter(result.unscored) for result in results), Counter[str]())
    asked = sum(result.n for result in results) + reasons.total()
    costs = [result.cost for result in results if result.cost is not None]
    return NightHealth(
        shift=shift,
        unscored=reasons.total() / asked if asked else None,
        reasons=dict(reasons.most_common()),
        cost=sum(costs) if costs else None,
    )


def judge_shifts(
    anchors: Sequence[Sequence[schema.AnchorResult]], nights: Sequence[schema.Night]
) -> Iterator[AnchorShift | None]:
    """Compare each night's anchors with the first night of the same set; all intervals hold at once."""
    first: dict[str, tuple[str, dict[str, float]]] = {}
    looks = max(1, sum(1 for rows in anchors if rows))
    for rows, night in zip(anchors, nights, strict=True):
        good = {row.item: row.good for row in rows if row.good is not None}
        if not good:
            yield None
            continue
        since, before = first.setdefault(rows[0].anchors, (night.night, good))
        differences = [good[item] - before[item] for item in sorted(good.keys() & before.keys())]
        change = paired_change(differences, looks=looks)
        yield AnchorShift(since=since, count=len(differences), change=change)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTonight:
    """A model on the newest night: its gravest outcome, its change, and the limit of the change."""

    model: ModelSeries
    outcome: str
    change: schema.ChangeResult | None
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
        drops = (item for item in gates if item.gate in ("good_share_drop", "max_drop"))
        limit = next((item.limit for item in drops if item.subject == "baseline"), None)
        tonight.append(ModelTonight(model=model, outcome=outcome, change=change, limit=limit))
    return sorted(tonight, key=lambda item: item.rank)


def name_baseline(items: Sequence[ModelTonight]) -> str:
    nights = {name_nights(item.change.nights) for item in items if item.change}
    return nights.pop() if len(nights) == 1 else "their baselines"


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


def emotion_table(series: NightSeries, models: Sequence[ModelSeries]) -> Table:
    """Return pooled Good shares, negative emotions first; tints are distances from the mean."""
    cells = series.emotions
    names = [model.name for model in models if any(name == model.name for name, _ in cells)]
    by_emotion: defaultdict[str, list[float]] = defaultdict(list)
    for (_, emotion), cell in cells.items():
        by_emotion[emotion].append(cell.share.value)
    shares = [cell.share.value for cell in cells.values()]
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


def night_rows(
    series: NightSeries, model: ModelSeries
) -> list[tuple[str, schema.ModelResult, schema.Outcome | None]]:
    """Return a model's newest nights, newest first, and the gravest outcome on each."""
    return [
        (series.nights[at].night, result, gravest(item.outcome for item in model.findings.get(at, ())))
        for at, result in list(enumerate(model.points))[: -FOUND_NIGHTS - 1 : -1]
        if result is not None
    ]


def log_rows(series: NightSeries, model: ModelSeries) -> list[tuple[str, schema.GateResult]]:
    """Return the findings of gates on a model, newest first."""
    rows = [
        (series.nights[at].night, item)
        for at in sorted(model.findings, reverse=True)
        for item in sorted(model.findings[at], key=lambda item: -severity(item.outcome))
        # Inconclusive gates are listed for the newest night only.
        if item.outcome != "inconclusive" or at == len(series.nights) - 1
    ]
    return rows[:LOGGED]


def show_fit(result: schema.ModelResult) -> str:
    """Return the prompt fit with its interval."""
    return show(result.fit.estimate if result.fit else None)


def per_cent(part: float | None) -> str:
    """Return a part of a whole in percent."""
    return UNDEFINED if part is None or math.isnan(part) else f"{percent(part)}%"
