"""What the history says, gathered for the dashboard: models' nights, what gates found, the judge's health."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Final, Literal

from calibration.estimate import Estimate
from calibration.monitoring.drift import paired_change
from data.text import slug
from nightly.emotions import POOLED_NIGHTS, PooledShare, pool
from nightly.history import History
from nightly.schema import (
    AnchorResult,
    EmotionResult,
    GateResult,
    ModelNight,
    ModelResult,
    Night,
    ShareResult,
)

Kind = Literal["corrected", "raw"]
FOUND_NIGHTS: Final = 60  # nights of which more than regressions is told


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model over the nights; `points` has one place for each night, None where it took no part."""

    name: str
    slug: str
    kind: Kind
    points: tuple[ModelResult | None, ...]
    findings: Mapping[int, tuple[GateResult, ...]]

    @property
    def newest(self) -> ModelResult:
        """The newest night it took part in."""
        return next(point for point in reversed(self.points) if point is not None)

    @property
    def regressions(self) -> list[int]:
        """The nights, by their place, on which a gate found one."""
        return [
            at for at, items in self.findings.items() if any(item.outcome == "regression" for item in items)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorShift:
    """How far the judge's Good probability on the anchors is from the first night they were judged on."""

    anchors: str
    since: str
    count: int
    change: Estimate

    @property
    def is_shown(self) -> bool:
        """Whether the whole interval lies on one side of nothing."""
        return self.change.interval is not None and not (
            self.change.interval.low <= 0 <= self.change.interval.high
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeHealth:
    """One place for each night; None where nothing is known. `reasons` counts all that was left unscored."""

    shifts: tuple[AnchorShift | None, ...]
    unscored: tuple[float | None, ...]
    reasons: tuple[Mapping[str, int], ...]
    cost: tuple[float | None, ...]
    per_thousand: tuple[float | None, ...]
    spans: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NightSeries:
    """The nights that belong together, oldest first; `left_out` are nights of other configs beside them.

    `tonight` is what gates said on the newest night, `emotions` pools the newest `pooled` nights.
    """

    nights: tuple[Night, ...]
    left_out: int
    models: tuple[Model, ...]
    tonight: tuple[GateResult, ...]
    emotions: Mapping[tuple[str, str], PooledShare]
    pooled: int
    health: JudgeHealth


def read_series(history: History, *, last: int | None = None) -> NightSeries:
    """All that the pages show, but for single responses; `last` keeps to the newest nights."""
    every = history.nights(last=last)
    nights = succession(every)
    places = {(night.config, night.night): at for at, night in enumerate(nights)}
    findings = _read_findings(history, places, last)
    rows = (
        _model(name, points, places, findings.get(name, {}))
        for name, points in history.all_series(last=last).items()
    )
    models = tuple(model for model in rows if model is not None)
    newest = history.latest(config=nights[-1].config) if nights else None
    emotions, pooled = _pool(history, places)
    anchors = {(night.config, night.night): items for night, items in history.anchors(last=last)}
    return NightSeries(
        nights=nights,
        left_out=len(every) - len(nights),
        models=models,
        tonight=newest.gates if newest else (),
        emotions=emotions,
        pooled=pooled,
        health=_health(nights, models, [anchors.get((night.config, night.night), []) for night in nights]),
    )


def succession(nights: Sequence[Night]) -> tuple[Night, ...]:
    """The newest night's config, and those it followed: configs that ended before the next one began.

    What ran beside it, over the same nights, is another measurement and would only zigzag with it.
    """
    spans: dict[str, tuple[str, str]] = {}
    for night in nights:
        spans[night.config] = (spans.get(night.config, (night.night, ""))[0], night.night)
    kept: set[str] = set()
    begin: str | None = None
    for config, (first, end) in sorted(spans.items(), key=lambda item: item[1][1], reverse=True):
        if begin is None or end < begin:
            kept.add(config)
            begin = first
    return tuple(night for night in nights if night.config in kept)


def share_of(result: ModelResult | None, kind: Kind, label: str = "Good") -> ShareResult:
    """A label's share; that of a night without one has no value."""
    shares = {} if result is None else result.corrected if kind == "corrected" else result.raw
    return shares.get(label, ShareResult(share=None))


def unscored_share(result: ModelResult) -> float | None:
    """The part of all that was to be judged that got no judgment."""
    missing = sum(result.unscored.values())
    return missing / (result.n + missing) if result.n + missing else None


def changes(nights: Sequence[Night]) -> list[dict[str, Any]]:
    """Nights from which on something else was measured with: another judge, calibration or config."""
    marks = []
    for at, (before, night) in enumerate(pairwise(nights), start=1):
        told = []
        if (before.judge, before.judge_version) != (night.judge, night.judge_version):
            told.append(f"judge {night.judge} {night.judge_version}".strip())
        if before.calibration != night.calibration:
            told.append(f"calibration {(night.calibration or 'none')[:8]}")
        if before.config != night.config:
            told.append("config")
        if told:
            marks.append({"at": at, "text": "new " + ", ".join(told)})
    return marks


def _model(
    name: str,
    points: Iterable[ModelNight],
    places: Mapping[tuple[str, str], int],
    findings: Mapping[int, tuple[GateResult, ...]],
) -> Model | None:
    row: list[ModelResult | None] = [None] * len(places)
    for point in points:
        at = places.get((point.night.config, point.night.night))
        if at is not None:
            row[at] = point.result
    newest = next((result for result in reversed(row) if result is not None), None)
    if newest is None:
        return None
    # One kind for the whole line: a step from corrected to raw would look like a change of the model.
    kind: Kind = "raw" if share_of(newest, "corrected").share is None else "corrected"
    return Model(name=name, slug=slug(name), kind=kind, points=tuple(row), findings=findings)


def _read_findings(
    history: History, places: Mapping[tuple[str, str], int], last: int | None
) -> dict[str, dict[int, tuple[GateResult, ...]]]:
    """By model and night: all regressions, and of the newest nights whatever else was not fine."""
    findings: defaultdict[str, dict[int, tuple[GateResult, ...]]] = defaultdict(dict)
    for night, item in history.gates_not_fine(last=FOUND_NIGHTS if last is None else min(last, FOUND_NIGHTS)):
        at = places.get((night.config, night.night))
        if at is not None:
            findings[item.model][at] = (*findings[item.model].get(at, ()), item)
    return {model: dict(sorted(nights.items())) for model, nights in findings.items()}


def _pool(
    history: History, places: Mapping[tuple[str, str], int]
) -> tuple[dict[tuple[str, str], PooledShare], int]:
    # Nights of other configs may stand between ours.
    recent = [
        rows
        for night, rows in history.emotions(last=2 * POOLED_NIGHTS)
        if (night.config, night.night) in places
    ][-POOLED_NIGHTS:]
    held: defaultdict[tuple[str, str], list[EmotionResult]] = defaultdict(list)
    for row in (row for rows in recent for row in rows):
        held[row.model, row.emotion].append(row)
    pooled = {key: pool(rows) for key, rows in held.items()}
    return {key: share for key, share in pooled.items() if share is not None}, len(recent)


def _health(
    nights: Sequence[Night], models: Sequence[Model], anchors: Sequence[Sequence[AnchorResult]]
) -> JudgeHealth:
    unscored: list[float | None] = []
    reasons, cost, per_thousand = [], [], []
    for at in range(len(nights)):
        present = [result for model in models if (result := model.points[at]) is not None]
        counted: Counter[str] = Counter()
        for result in present:
            counted.update(result.unscored)
        judged = sum(result.n for result in present)
        asked = judged + counted.total()
        unscored.append(counted.total() / asked if asked else None)
        reasons.append(dict(counted.most_common()))
        costs = [result.cost for result in present if result.cost is not None]
        cost.append(sum(costs) if costs else None)
        # Only where every model's cost is known: a part of the money over all responses would be too little.
        is_whole = costs and len(costs) == len(present) and judged
        per_thousand.append(1000 * sum(costs) / judged if is_whole else None)
    return JudgeHealth(
        shifts=judge_shifts(anchors, nights),
        unscored=tuple(unscored),
        reasons=tuple(reasons),
        cost=tuple(cost),
        per_thousand=tuple(per_thousand),
        spans=tuple(_spans(nights)),
    )


def judge_shifts(
    anchors: Sequence[Sequence[AnchorResult]], nights: Sequence[Night]
) -> tuple[AnchorShift | None, ...]:
    """Each night's anchors against the first night of the same set; all nights' intervals hold at once."""
    first: dict[str, tuple[str, dict[str, float]]] = {}
    shifts: list[AnchorShift | None] = []
    looks = max(1, sum(1 for rows in anchors if rows))
    for rows, night in zip(anchors, nights, strict=True):
        good = {row.item: row.good for row in rows if row.good is not None}
        if not good:
            shifts.append(None)
            continue
        digest = rows[0].anchors
        since, before = first.setdefault(digest, (night.night, good))
        differences = [good[item] - before[item] for item in sorted(good.keys() & before.keys())]
        shifts.append(
            AnchorShift(
                anchors=digest,
                since=since,
                count=len(differences),
                change=paired_change(differences, looks=looks),
            )
        )
    return tuple(shifts)


def _spans(nights: Sequence[Night]) -> list[dict[str, Any]]:
    """Stretches of nights judged by one judge under one calibration, newest first."""
    spans = []
    for (judge, version, calibration), group in groupby(
        nights, key=lambda night: (night.judge, night.judge_version, night.calibration)
    ):
        held = list(group)
        spans.append(
            {
                "judge": judge,
                "version": version,
                "calibration": calibration,
                "first": held[0].night,
                "last": held[-1].night,
                "nights": len(held),
            }
        )
    return spans[::-1]
