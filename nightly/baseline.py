"""What the history knows of a model before tonight: its last night, its baseline and the nights between."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

from calibration.monitoring.confidence_sequence import Watch
from data.errors import UserError
from nightly.bridge import Bridge, build_bridge
from nightly.changes import (
    SIDES,
    Change,
    Label,
    Reading,
    change_since,
    judge_shift,
    make_watch,
    pair,
)
from nightly.config import NightlyConfig
from nightly.emotions import NOISE_NIGHTS, POOLED_NIGHTS, pool, prompt_spread
from nightly.history import History
from nightly.measure import MeasuredModel, NightSetup
from nightly.schema import AnchorResult, EmotionResult, JudgedResponse, ModelNight, NightRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierNights:
    """A model before tonight; `watches` hold its nights from the baseline on, less those of a moved judge.

    The `baseline` has the replies of all nights it is averaged over, and `averaged` names these.
    """

    last: NightRecord | None = None
    baseline: NightRecord | None = None
    averaged: tuple[str, ...] = ()
    watches: Mapping[Label, Watch]


def check_baseline(history: History, setup: NightSetup) -> None:
    """Refuse a pinned night that is not there or not kept: all gates would be skipped for no one to see."""
    config, pinned = setup.config, setup.config.baseline
    if pinned is None or pinned >= setup.night:
        return
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


def read_earlier(
    history: History, setup: NightSetup, anchors: Sequence[AnchorResult]
) -> tuple[dict[str, EarlierNights], Bridge]:
    """Each model's last night, baseline and sums, as tonight's judge has them; `anchors` are tonight's."""
    config, series = setup.config, history.all_series(config=setup.config.name)
    before = {
        entry.name: [point for point in series.get(entry.name, ()) if point.night.night < setup.night]
        for entry in config.models
    }
    counted = {
        name: [point for point in points if point.night.night >= (config.baseline or "")]
        for name, points in before.items()
    }
    wanted = {point.night.night for points in counted.values() for point in points[: config.baseline_nights]}
    wanted |= {points[-1].night.night for points in before.values() if points}
    bridge = build_bridge(history, setup, anchors, sorted(wanted))

    @cache
    def read(night: str) -> NightRecord:
        record = bridge.records.get(night) or history.night(config.name, night)
        assert record is not None
        return record

    earlier = {}
    for name, points in counted.items():
        alike = _alike([read(point.night.night) for point in points[: config.baseline_nights]], config)
        averaged = tuple(night.night for night in alike)
        replies = tuple(chain.from_iterable(night.judgments for night in alike))
        baseline = replace(alike[0], judgments=replies) if alike else None
        sums = [
            row
            for point in points[config.baseline_nights :]
            if baseline and (row := _sums(point, baseline, averaged, setup, read)) is not None
        ]
        earlier[name] = EarlierNights(
            last=read(before[name][-1].night.night) if before[name] else None,
            baseline=baseline,
            averaged=averaged,
            watches={
                label: make_watch([row[label] for row in sums], baseline_nights=max(1, len(averaged)))
                for label, _, _ in SIDES
            },
        )
    return earlier, bridge


def _alike(nights: Sequence[NightRecord], config: NightlyConfig) -> list[NightRecord]:
    """The nights of a baseline, less those whose judge had moved since the first."""
    return [
        night
        for night in nights
        if night is nights[0]
        or not judge_shift(
            night.anchors, now=(night.judge, night.judge_version), before=nights[0], matters=config.matters
        ).moved
    ]


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
        )
        if change is not None:
            changes[against] = change
    return changes


def floor_readings(
    history: History, setup: NightSetup, tonight: Sequence[EmotionResult], judged: Sequence[JudgedResponse]
) -> dict[str, dict[str, Reading]]:
    """By model and emotion, the Good share over the judge's newest nights; what varies, all nights tell."""
    nights: defaultdict[str, defaultdict[str, list[EmotionResult]]] = defaultdict(lambda: defaultdict(list))
    for night, rows in history.results(EmotionResult, config=setup.config.name, last=NOISE_NIGHTS):
        is_same = (night.judge, night.judge_version) == (setup.judge.name, setup.judge.version)
        if night.night < setup.night and is_same:
            for row in rows:
                nights[row.model][row.emotion].append(row)
    for row in tonight:
        nights[row.model][row.emotion].append(row)
    readings: defaultdict[str, dict[str, Reading]] = defaultdict(dict)
    for model in dict.fromkeys(row.model for row in tonight):
        known = prompt_spread((item for item in judged if item.model == model), nights[model].values())
        asked = [row.emotion for row in tonight if row.model == model and row.n]
        for emotion in asked:
            pooled = pool(nights[model][emotion][-POOLED_NIGHTS:])
            assert pooled is not None
            interval, uniform = pooled.floor_intervals(known, floors=len(asked) * len(setup.config.models))
            readings[model][emotion] = Reading(
                value=pooled.share, interval=interval, uniform=uniform, prompts=pooled.prompts
            )
    return dict(readings)


def _sums(
    point: ModelNight,
    baseline: NightRecord,
    averaged: Sequence[str],
    setup: NightSetup,
    read: Callable[[str], NightRecord],
) -> Mapping[str, Sequence[float]] | None:
    """A night's sums against the baseline; None where the judge had moved, or nothing is left to count."""
    kept = point.result.details.get("since_baseline")
    now = (setup.judge.name, setup.judge.version)
    is_ours = (point.night.judge, point.night.judge_version) == now
    if is_ours and kept and tuple(kept.get("averaged") or [kept["night"]]) == tuple(averaged):
        return None if kept["judge_moved"] else kept["sums"]
    # Another baseline or another judge then: count anew, as far as the judgments are kept.
    then = read(point.night.night)
    judge = (then.judge, then.judge_version)
    if judge_shift(then.anchors, now=judge, before=baseline, matters=setup.config.matters).moved:
        return None
    of_model = [
        [item for item in record.judgments if item.model == point.result.model] for record in (then, baseline)
    ]
    return pair(*of_model).sums if all(of_model) else None
