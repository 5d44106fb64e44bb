"""What the history knows of a model before tonight: its last night, its baseline and the nights between."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from calibration.monitoring.confidence_sequence import NIGHTS, Watch
from data.errors import UserError
from nightly.changes import (
    LEAST_SPREAD,
    SIDES,
    Change,
    Label,
    Reading,
    change_since,
    judge_shift,
    make_watch,
    pair,
)
from nightly.emotions import POOLED_NIGHTS, pool
from nightly.history import History
from nightly.measure import MeasuredModel, NightSetup
from nightly.schema import AnchorResult, EmotionResult, ModelNight, NightRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierNights:
    """A model before tonight; `watches` hold its nights from the baseline on, less those of a moved judge."""

    last: NightRecord | None = None
    baseline: NightRecord | None = None
    watches: Mapping[Label, Watch]


def read_earlier(history: History, setup: NightSetup) -> dict[str, EarlierNights]:
    """Each configured model's last night, baseline night and running sums, by model name."""
    config, pinned = setup.config, setup.config.baseline
    if pinned is not None and pinned < setup.night:
        # It must be there, and be kept, or all gates would be skipped for no one to see.
        night = history.night(config.name, pinned)
        if night is None:
            newest = [night.night for night in history.nights(config=config.name, last=5)]
            raise UserError(
                f"{config.path}: baseline: no night {pinned!r} of {config.name!r} in the history; "
                f"newest: {', '.join(newest) or 'none yet'}"
            )
        if night.models and not night.judgments:
            raise UserError(
                f"{config.path}: baseline: the responses of {pinned!r} are no longer kept; pin a newer night"
            )

    @cache
    def read(night: str) -> NightRecord:
        record = history.night(config.name, night)
        assert record is not None
        return record

    earlier = {}
    series = history.all_series(config=config.name)
    for entry in config.models:
        before = [point for point in series.get(entry.name, ()) if point.night.night < setup.night]
        counted = [point for point in before if point.night.night >= (pinned or "")]
        baseline = read(counted[0].night.night) if counted else None
        sums = [
            row
            for point in counted[1:]
            if baseline and (row := _sums(point, baseline, setup, read)) is not None
        ]
        earlier[entry.name] = EarlierNights(
            last=read(before[-1].night.night) if before else None,
            baseline=baseline,
            watches={label: make_watch([row[label] for row in sums]) for label, _, _ in SIDES},
        )
    return earlier


def changes_of(
    measured: MeasuredModel, earlier: EarlierNights, setup: NightSetup, anchors: Sequence[AnchorResult]
) -> dict[str, Change]:
    """A model's changes since its baseline and since its last night, as far as there are such nights."""
    changes: dict[str, Change] = {}
    result, now = measured.result, (setup.judge.name, setup.judge.version)
    for against, then in (("baseline", earlier.baseline), ("last night", earlier.last)):
        if then is None:
            continue
        change = change_since(
            against,
            pair(measured.judged, [item for item in then.judgments if item.model == result.model]),
            judge_shift(anchors, now=now, before=then, matters=setup.config.matters),
            watches=earlier.watches,
            models=len(setup.config.models),
            share=result.raw["Good"].share or 0.0,
            design_effect=setup.design_effect,
        )
        if change is not None:
            changes[against] = change
    return changes


def floor_readings(
    history: History, setup: NightSetup, tonight: Sequence[EmotionResult]
) -> dict[str, dict[str, Reading]]:
    """By model and emotion, the judge's Good share over the newest nights of the same judge."""
    earlier: defaultdict[tuple[str, str], list[EmotionResult]] = defaultdict(list)
    for night, rows in history.results(EmotionResult, config=setup.config.name, last=POOLED_NIGHTS):
        is_same = (night.judge, night.judge_version) == (setup.judge.name, setup.judge.version)
        if night.night < setup.night and is_same:
            for row in rows:
                earlier[row.model, row.emotion].append(row)
    readings: defaultdict[str, dict[str, Reading]] = defaultdict(dict)
    for row in tonight:
        pooled = pool([*earlier[row.model, row.emotion][-(POOLED_NIGHTS - 1) :], row]) if row.n else None
        if pooled is not None:
            readings[row.model][row.emotion] = Reading(
                value=pooled.share,
                interval=pooled.interval(),
                uniform=pooled.interval(looks=NIGHTS * len(setup.config.models)),
                spread=max(pooled.share * (1 - pooled.share), LEAST_SPREAD),
                design_effect=setup.design_effect,
            )
    return dict(readings)


def _sums(
    point: ModelNight, baseline: NightRecord, setup: NightSetup, read: Callable[[str], NightRecord]
) -> Mapping[str, Sequence[float]] | None:
    """A night's sums against the baseline; None where the judge had moved, or nothing is left to count."""
    kept = point.result.details.get("since_baseline")
    if kept and kept["night"] == baseline.night:
        return None if kept["judge_moved"] else kept["sums"]
    # Another baseline was pinned then: count anew, as far as the judgments are kept.
    then = read(point.night.night)
    now = (then.judge, then.judge_version)
    if judge_shift(then.anchors, now=now, before=baseline, matters=setup.config.matters).moved:
        return None
    of_model = [
        [item for item in record.judgments if item.model == point.result.model] for record in (then, baseline)
    ]
    return pair(*of_model).sums if all(of_model) else None
