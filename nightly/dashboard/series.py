"""The history as the dashboard shows it: models' nights, results of gates, the judge's health."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final, Literal

import numpy as np

from empathy_judge.calibration.cluster import NORMAL, wilson_interval
from empathy_judge.calibration.estimate import UNDEFINED, Estimate, estimate_of
from empathy_judge.calibration.monitoring.drift import is_beyond, paired_change
from empathy_judge.data.text import slug
from empathy_judge.nightly.history import History
from empathy_judge.nightly.schema import (
    AnchorResult,
    ChangeResult,
    EmotionResult,
    GateResult,
    ModelResult,
    Night,
)

ShareKind = Literal["corrected", "raw"]
POOLED_NIGHTS: Final = 7  # one night has few prompts of an emotion
FOUND_NIGHTS: Final = 60  # nights of which more than regressions is shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSeries:
    """A model over the nights; `points` and `changes` have one place for each night, None without it."""

    name: str
    kind: ShareKind
    points: tuple[ModelResult | None, ...]
    changes: tuple[ChangeResult | None, ...]
    findings: Mapping[int, Sequence[GateResult]]

    @property
    def page(self) -> str:
        """The file of its page."""
        return f"model-{slug(self.name)}.html"

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

    since: str
    count: int
    change: Estimate

    @property
    def is_shown(self) -> bool:
        """Whether the whole interval lies on one side of nothing."""
        return is_beyond(self.change.interval, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NightHealth:
    """The judge on one night; None where nothing is known. `reasons` counts all that was left unscored."""

    shift: AnchorShift | None
    unscored: float | None
    reasons: Mapping[str, int]
    cost: float | None


@dataclass(frozen=True, slots=True)
class PooledShare:
    """A Good share over several nights; `prompts` is how many one night has."""

    share: Estimate
    prompts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NightSeries:
    """The nights that belong together, oldest first; `left_out` are nights of other configs beside them.

    `tonight` are the gates of the newest night, and `emotions` pools the newest `pooled` nights.
    """

    nights: tuple[Night, ...]
    left_out: int
    models: tuple[ModelSeries, ...]
    tonight: tuple[GateResult, ...]
    emotions: Mapping[tuple[str, str], PooledShare]
    pooled: int
    health: tuple[NightHealth, ...]


def read_series(history: History, *, last: int | None = None) -> NightSeries:
    """All that the pages show, but for single responses; `last` keeps to the newest nights."""
    every = history.nights(last=last)
    nights = succession(every)
    places = {night.key: at for at, night in enumerate(nights)}
    findings: defaultdict[str, dict[int, list[GateResult]]] = defaultdict(dict)
    for night, gate in history.gates_not_fine(last=min(last or FOUND_NIGHTS, FOUND_NIGHTS)):
        at = places.get(night.key)
        if at is not None:
            findings[gate.model].setdefault(at, []).append(gate)
    models = []
    for name, points in history.all_series(last=last).items():
        by_place = {places.get(point.night.key): point for point in points}
        series = [by_place.get(at) for at in range(len(nights))]
        row = tuple(point.result if point else None for point in series)
        measured = [result for result in row if result is not None]
        if measured:
            # One kind for the whole line: a step from corrected to raw would look like a change of the model.
            level = next((result for result in reversed(measured) if result.shares), None)
            kind: ShareKind = "corrected" if is_known(share_of(level, "corrected")) else "raw"
            models.append(
                ModelSeries(
                    name=name,
                    kind=kind,
                    points=row,
                    changes=tuple(point.change if point else None for point in series),
                    findings=dict(sorted(findings[name].items())),
                )
            )
    record = history.night(*nights[-1].key) if nights else None
    # Nights of other configs may stand between ours.
    recent = history.results(EmotionResult, last=2 * POOLED_NIGHTS)
    counted = [rows for night, rows in recent if night.key in places][-POOLED_NIGHTS:]
    held: defaultdict[tuple[str, str], list[EmotionResult]] = defaultdict(list)
    for item in chain.from_iterable(counted):
        held[item.model, item.emotion].append(item)
    anchors = {night.key: items for night, items in history.results(AnchorResult, last=last)}
    shifts = judge_shifts([anchors.get(night.key, []) for night in nights], nights)
    return NightSeries(
        nights=nights,
        left_out=len(every) - len(nights),
        models=tuple(models),
        tonight=record.gates if record else (),
        emotions={key: pool(rows) for key, rows in held.items()},
        pooled=len(counted),
        health=tuple(_health(models, at, shift) for at, shift in enumerate(shifts)),
    )


def pool(rows: Sequence[EmotionResult]) -> PooledShare:
    """Pool one model's nights under one emotion.

    The interval is Wilson's of as many prompts as one night has: one asked again is not a new one.
    """
    judged = sum(row.n for row in rows)
    share, prompts = sum(row.good for row in rows) / judged, judged / len(rows)
    low, high = wilson_interval(np.array(share), np.array(prompts), NORMAL)
    return PooledShare(estimate_of(share, float(low), float(high)), prompts)


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


def share_of(result: ModelResult | None, kind: ShareKind, label: str = "Good") -> Estimate:
    """Return a label's share, undefined on a night without one."""
    shares = {} if result is None else result.corrected if kind == "corrected" else result.raw
    return shares.get(label, UNDEFINED)


def is_known(estimate: Estimate) -> bool:
    """Whether an estimate has a value."""
    return math.isfinite(estimate.value)


def new_instruments(nights: Sequence[Night]) -> dict[int, str]:
    """Return the places of nights from which on another judge, calibration or config was used."""
    marks = {}
    for at, (before, night) in enumerate(pairwise(nights), start=1):
        new = []
        if before.judge_key != night.judge_key:
            new.append(f"judge {' '.join(night.judge_key)}".strip())
        if before.calibration != night.calibration:
            new.append(f"calibration {(night.calibration or 'none')[:8]}")
        if before.config != night.config:
            new.append("config")
        if new:
            marks[at] = "new " + ", ".join(new)
    return marks


def _health(models: Sequence[ModelSeries], at: int, shift: AnchorShift | None) -> NightHealth:
    results = [result for model in models if (result := model.points[at]) is not None]
    reasons: Counter[str] = Counter()
    for result in results:
        reasons.update(result.unscored)
    judged = sum(result.n for result in results)
    asked = judged + reasons.total()
    costs = [result.cost for result in results if result.cost is not None]
    return NightHealth(
        shift=shift,
        unscored=reasons.total() / asked if asked else None,
        reasons=dict(reasons.most_common()),
        cost=sum(costs) if costs else None,
    )


def judge_shifts(
    anchors: Sequence[Sequence[AnchorResult]], nights: Sequence[Night]
) -> Iterator[AnchorShift | None]:
    """Each night's anchors against the first night of the same set; all nights' intervals hold at once."""
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
