"""What the history says, gathered for the dashboard: nights in one line, models' series, what gates found."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby, pairwise
from typing import Any, Final, Literal

from sqlalchemy import select

from calibration.estimate import Estimate
from calibration.monitoring.drift import paired_change
from data.text import slug
from nightly.gates import EXIT_CODES
from nightly.history import History, database_errors
from nightly.schema import (
    GATES,
    NIGHTS,
    AnchorResult,
    EmotionResult,
    GateResult,
    ModelNight,
    ModelResult,
    Night,
    ShareResult,
)

Kind = Literal["corrected", "raw"]
FINE: Final = ("pass", "skipped")
FOUND_NIGHTS: Final = 60  # nights of which more than regressions is told
POOLED_NIGHTS: Final = 7  # of emotions: one night has a handful of prompts for each
NORMAL: Final = 1.959964  # the 97.5 % point of the normal distribution


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
        return next(point for point in reversed(self.points) if point is not None)

    @property
    def regressions(self) -> list[int]:
        """The nights, by their place, on which a gate found one."""
        return [
            at for at, found in self.findings.items() if any(item.outcome == "regression" for item in found)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chronicle:
    """The nights that belong together, oldest first; `left_out` are nights of other configs beside them."""

    nights: tuple[Night, ...]
    left_out: int
    models: tuple[Model, ...]
    findings: Mapping[int, tuple[GateResult, ...]]  # of the night as a whole
    tonight: tuple[GateResult, ...]
    emotions: Mapping[tuple[str, str], "Cell"]
    pooled: int

    @property
    def places(self) -> dict[str, int]:
        return {night.night: at for at, night in enumerate(self.nights)}


@dataclass(frozen=True, slots=True)
class Cell:
    """A model's Good share under an emotion, pooled over nights, with an interval that counts prompts."""

    share: float
    low: float
    high: float
    prompts: float


def read_chronicle(history: History, *, last: int | None = None) -> Chronicle:
    """All that the pages show, but for the judge's health and single responses."""
    every = history.nights(last=last)
    nights = succession(every)
    places = {(night.config, night.night): at for at, night in enumerate(nights)}
    found = _read_findings(history, places, last)
    series = history.all_series(last=last)
    newest = history.latest(config=nights[-1].config) if nights else None
    emotions, pooled = _pool(history, places)
    return Chronicle(
        nights=nights,
        left_out=len(every) - len(nights),
        models=tuple(
            model
            for name, points in series.items()
            if (model := _model(name, points, places, found.get(name, {}))) is not None
        ),
        findings=found.get("", {}),
        tonight=newest.gates if newest else (),
        emotions=emotions,
        pooled=pooled,
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


def gravest(outcomes: Iterable[str]) -> str:
    """The outcome that counts; "no gate" where there is none.

    >>> gravest(["pass", "inconclusive", "regression"]), gravest([])
    ('regression', 'no gate')
    """
    order: list[str] = list(EXIT_CODES)
    return max(outcomes, key=lambda name: order.index(name) if name in order else 0, default="no gate")


def share(result: ModelResult | None, kind: Kind, label: str = "Good") -> ShareResult | None:
    """A label's share, or None where it has no value."""
    if result is None:
        return None
    found = (result.corrected if kind == "corrected" else result.raw).get(label)
    return found if found is not None and found.share is not None else None


def unscored_share(result: ModelResult) -> float | None:
    """Of all that was to be judged, the part without a judgment."""
    missing = sum(result.unscored.values())
    return missing / (result.n + missing) if result.n + missing else None


def changes(nights: Sequence[Night]) -> list[dict[str, Any]]:
    """Nights from which on something else was measured with: another judge, calibration or config."""
    found = []
    for at, (before, night) in enumerate(pairwise(nights), start=1):
        told = []
        if (before.judge, before.judge_version) != (night.judge, night.judge_version):
            told.append(f"judge {night.judge} {night.judge_version}".strip())
        if before.calibration != night.calibration:
            told.append(f"calibration {(night.calibration or 'none')[:8]}")
        if before.config != night.config:
            told.append("config")
        if told:
            found.append({"at": at, "text": "new " + ", ".join(told)})
    return found


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
    kind: Kind = "corrected" if share(newest, "corrected") else "raw"
    return Model(name=name, slug=slug(name), kind=kind, points=tuple(row), findings=findings)


def _read_findings(
    history: History, places: Mapping[tuple[str, str], int], last: int | None
) -> dict[str, dict[int, tuple[GateResult, ...]]]:
    """By model and night: all regressions, and of the newest nights whatever else was not fine."""
    rows: list[tuple[str, str, GateResult]] = list(_read_regressions(history))
    for night, results in history.gates(last=FOUND_NIGHTS if last is None else min(last, FOUND_NIGHTS)):
        others = (item for item in results if item.outcome not in (*FINE, "regression"))
        rows += [(night.config, night.night, item) for item in others]
    found: defaultdict[str, dict[int, tuple[GateResult, ...]]] = defaultdict(dict)
    for config, night_name, item in rows:
        at = places.get((config, night_name))
        if at is not None:
            found[item.model][at] = (*found[item.model].get(at, ()), item)
    return {model: dict(sorted(own.items())) for model, own in found.items()}


def _read_regressions(history: History) -> Iterator[tuple[str, str, GateResult]]:
    # The database picks them: with a floor for each emotion there are a million results in three years.
    columns = [GATES.c[item.name] for item in fields(GateResult)]
    asked = select(NIGHTS.c.config, NIGHTS.c.night, *columns).join(GATES, GATES.c.night_id == NIGHTS.c.id)
    with database_errors(history.engine.url), history.engine.connect() as connection:
        for config, night, *values in connection.execute(asked.where(GATES.c.outcome == "regression")):
            names = (column.name for column in columns)
            yield config, night, GateResult(**dict(zip(names, values, strict=True)))


def _pool(history: History, places: Mapping[tuple[str, str], int]) -> tuple[dict[tuple[str, str], Cell], int]:
    # Nights of other configs may stand between ours.
    recent = [
        (night, rows)
        for night, rows in history.emotions(last=2 * POOLED_NIGHTS)
        if (night.config, night.night) in places
    ][-POOLED_NIGHTS:]
    held: defaultdict[tuple[str, str], list[EmotionResult]] = defaultdict(list)
    for _, rows in recent:
        for row in rows:
            held[row.model, row.emotion].append(row)
    return {key: cell for key, rows in held.items() if (cell := _cell(rows))}, len(recent)


def _cell(rows: Sequence[EmotionResult]) -> Cell | None:
    """Wilson's interval, by hand since libraries want whole counts; a prompt asked again is not a new one."""
    judged = sum(row.n for row in rows)
    if not judged:
        return None
    part, prompts = sum(row.good for row in rows) / judged, judged / len(rows)
    middle = (part + NORMAL**2 / (2 * prompts)) / (1 + NORMAL**2 / prompts)
    reach = NORMAL / (1 + NORMAL**2 / prompts)
    reach *= math.sqrt(max(0.0, part * (1 - part)) / prompts + NORMAL**2 / (4 * prompts**2))
    return Cell(part, max(0.0, middle - reach), min(1.0, middle + reach), prompts)


# How the judge does over the nights: its shift on anchors, what it left unscored, what it cost.


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
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
class Health:
    """One place for each night; None where nothing is known. `reasons` counts all that was left unscored."""

    shifts: tuple[Shift | None, ...]
    unscored: tuple[float | None, ...]
    reasons: tuple[Mapping[str, int], ...]
    cost: tuple[float | None, ...]
    per_thousand: tuple[float | None, ...]
    spans: tuple[dict[str, Any], ...]


def read_health(history: History, chronicle: Chronicle, *, last: int | None = None) -> Health:
    """The judge over the nights of a chronicle."""
    nights = chronicle.nights
    anchors = {(night.config, night.night): rows for night, rows in history.anchors(last=last)}
    shifts = judge_shifts([anchors.get((night.config, night.night), []) for night in nights], nights)
    columns = [[model.points[at] for model in chronicle.models] for at in range(len(nights))]
    unscored: list[float | None] = []
    reasons, cost, per_thousand = [], [], []
    for column in columns:
        present = [result for result in column if result is not None]
        counted: Counter[str] = Counter()
        for result in present:
            counted.update(result.unscored)
        judged = sum(result.n for result in present)
        asked = judged + counted.total()
        unscored.append(counted.total() / asked if asked else None)
        reasons.append(dict(counted.most_common()))
        known = [result.cost for result in present if result.cost is not None]
        cost.append(sum(known) if known else None)
        # Only where every model's cost is known: a part of the money over all responses would be too little.
        is_whole = known and len(known) == len(present) and judged
        per_thousand.append(1000 * sum(known) / judged if is_whole else None)
    return Health(
        shifts=shifts,
        unscored=tuple(unscored),
        reasons=tuple(reasons),
        cost=tuple(cost),
        per_thousand=tuple(per_thousand),
        spans=tuple(_spans(nights)),
    )


def judge_shifts(
    anchors: Sequence[Sequence[AnchorResult]], nights: Sequence[Night]
) -> tuple[Shift | None, ...]:
    """Each night's anchors against the first night of the same set; all nights' intervals hold at once."""
    first: dict[str, tuple[str, dict[str, float]]] = {}
    shifts: list[Shift | None] = []
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
            Shift(
                anchors=digest,
                since=since,
                count=len(differences),
                change=paired_change(differences, looks=looks),
            )
        )
    return tuple(shifts)


def _spans(nights: Sequence[Night]) -> list[dict[str, Any]]:
    """Stretches of nights judged by one judge under one calibration, newest first."""
    found = []
    for (judge, version, calibration), group in groupby(
        nights, key=lambda night: (night.judge, night.judge_version, night.calibration)
    ):
        held = list(group)
        found.append(
            {
                "judge": judge,
                "version": version,
                "calibration": calibration,
                "first": held[0].night,
                "last": held[-1].night,
                "nights": len(held),
            }
        )
    return found[::-1]
