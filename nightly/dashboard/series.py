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
    """A model over the nights; `points` and `changes` have an entry for each night, None without it.

    `findings` are the gates that are not fine, by the index of their night.
    """

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
    """Read all that the pages show except single responses; `last` limits it to the newest nights."""
    every = history.nights()
    config = every[-1].config if every else ""
    nights = tuple(history.nights(config=config, last=last))
    index = {night.night: at for at, night in enumerate(nights)}
    findings: defaultdict[str, dict[int, list[GateResult]]] = defaultdict(dict)
    for night, gate in history.gates_not_fine(config=config, last=FOUND_NIGHTS):
        if night.night in index:
            findings[gate.model].setdefault(index[night.night], []).append(gate)
    models = []
    for name, points in history.all_series(config=config, last=last).items():
        by_index = {index[point.night.night]: point for point in points}
        row = [by_index.get(at) for at in range(len(nights))]
        # One kind for the whole line: a step from corrected to raw would look like a change of the model.
        level = next((point.result for point in reversed(points) if point.result.shares), None)
        models.append(
            ModelSeries(
                name=name,
                kind="corrected" if is_known(share_of(level, "corrected")) else "raw",
                points=tuple(point.result if point else None for point in row),
                changes=tuple(point.change if point else None for point in row),
                findings=dict(sorted(findings[name].items())),
            )
        )
    record = history.night(*nights[-1].key) if nights else None
    pooled = [rows for _, rows in history.results(EmotionResult, config=config, last=POOLED_NIGHTS)]
    by_emotion: defaultdict[tuple[str, str], list[EmotionResult]] = defaultdict(list)
    for item in chain.from_iterable(pooled):
        by_emotion[item.model, item.emotion].append(item)
    anchors = {night.key: rows for night, rows in history.results(AnchorResult, config=config, last=last)}
    shifts = judge_shifts([anchors.get(night.key, []) for night in nights], nights)
    return NightSeries(
        nights=nights,
        left_out=sum(night.config != config for night in every),
        models=tuple(models),
        tonight=record.gates if record else (),
        emotions={key: pool(rows) for key, rows in by_emotion.items()},
        pooled=len(pooled),
        health=tuple(_health(models, at, shift) for at, shift in enumerate(shifts)),
    )


def pool(rows: Sequence[EmotionResult]) -> PooledShare:
    """Pool one model's nights under one emotion.

    The interval is Wilson's with the number of prompts of one night, because the nights share the prompts.
    """
    judged = sum(row.n for row in rows)
    share, prompts = sum(row.good for row in rows) / judged, judged / len(rows)
    low, high = wilson_interval(np.array(share), np.array(prompts), NORMAL)
    return PooledShare(estimate_of(share, float(low), float(high)), prompts)


def share_of(result: ModelResult | None, kind: ShareKind, label: str = "Good") -> Estimate:
    """Return a label's share, undefined on a night without one."""
    shares = {} if result is None else result.corrected if kind == "corrected" else result.raw
    return shares.get(label, UNDEFINED)


def is_known(estimate: Estimate) -> bool:
    """Whether an estimate has a value."""
    return math.isfinite(estimate.value)


def new_instruments(nights: Sequence[Night]) -> dict[int, str]:
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
    anchors: Sequence[Sequence[AnchorResult]], nights: Sequence[Night]
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
