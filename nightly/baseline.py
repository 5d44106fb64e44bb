"""What the history knows before tonight: each model's last night and baseline, and the sums of its watch."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from calibration.estimate import Interval
from calibration.monitoring.confidence_sequence import ALPHA, NIGHTS, Watch
from data.errors import UserError
from nightly.changes import Label, judge_shift, pair, sums_of, watch_of
from nightly.gates import Reading
from nightly.history import History
from nightly.measure import Bench
from nightly.schema import EmotionResult, ModelNight, NightRecord

POOLED_NIGHTS: Final = 7  # of an emotion's floor: one night has a handful of prompts for each


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A model before tonight; `watches` hold its nights since then, less those of a judge that moved."""

    last: NightRecord | None
    baseline: NightRecord | None
    watches: Mapping[Label, Watch]


def read_past(history: History, bench: Bench) -> dict[str, Past]:
    """Of every model of the config."""
    config = bench.config
    series = history.all_series(config=config.name)
    _check_baseline(history, bench)
    records: dict[str, NightRecord | None] = {}

    def record(night: str) -> NightRecord:
        if night not in records:
            records[night] = history.night(config.name, night)
        found = records[night]
        assert found is not None
        return found

    return {entry.name: _past(series.get(entry.name, []), bench, record) for entry in config.models}


def floor_readings(
    history: History, bench: Bench, tonight: Sequence[EmotionResult], *, models: int
) -> dict[str, dict[str, Reading]]:
    """By model and emotion, the judge's Good share over the newest nights of the same judge."""
    rows: defaultdict[tuple[str, str], list[EmotionResult]] = defaultdict(list)
    for night, found in history.emotions(config=bench.config.name, last=POOLED_NIGHTS):
        is_same = (night.judge, night.judge_version) == (bench.judge.name, bench.judge.version)
        if night.night < bench.night and is_same:
            for row in found:
                rows[row.model, row.emotion].append(row)
    readings: defaultdict[str, dict[str, Reading]] = defaultdict(dict)
    looks = NIGHTS * models
    for row in tonight:
        if row.n:
            held = [*rows[row.model, row.emotion][-(POOLED_NIGHTS - 1) :], row]
            readings[row.model][row.emotion] = _floor(held, looks=looks)
    return dict(readings)


def _past(points: Sequence[ModelNight], bench: Bench, record: Callable[[str], NightRecord]) -> Past:
    before = [point for point in points if point.night.night < bench.night]
    since = [point for point in before if point.night.night >= (bench.config.baseline or "")]
    nothing: dict[Label, Watch] = {"good": Watch(), "bad": Watch()}
    last = record(before[-1].night.night) if before else None
    if not since:
        return Past(last=last, baseline=None, watches=nothing)
    baseline = record(since[0].night.night)
    kept = [_sums(point, baseline, bench, record) for point in since[1:]]
    found = [sums for sums in kept if sums is not None]
    return Past(
        last=last,
        baseline=baseline,
        watches={label: watch_of([sums[label] for sums in found]) for label in nothing},
    )


def _sums(
    point: ModelNight, baseline: NightRecord, bench: Bench, record: Callable[[str], NightRecord]
) -> Mapping[str, Sequence[float]] | None:
    """A night's sums since the baseline; None where the judge had moved, or nothing is left to count."""
    kept = point.result.details.get("since_baseline")
    if kept and kept["night"] == baseline.night:
        return None if kept["judge_moved"] else kept["sums"]
    # Another baseline was pinned then: count anew, as far as the judgments are kept.
    then = record(point.night.night)
    now = (then.judge, then.judge_version)
    matters = bench.config.matters
    if judge_shift(then.anchors, baseline.anchors, now=now, before=baseline, matters=matters).moved:
        return None
    of_model = [
        [item for item in found.judgments if item.model == point.result.model] for found in (then, baseline)
    ]
    return sums_of(pair(*of_model)) if all(of_model) else None


def _check_baseline(history: History, bench: Bench) -> None:
    """A night that is pinned must be there, and be kept, or all gates would be skipped for no one to see."""
    config, pinned = bench.config, bench.config.baseline
    if pinned is None or pinned >= bench.night:
        return
    found = history.night(config.name, pinned)
    if found is None:
        known = ", ".join(night.night for night in history.nights(config=config.name, last=5)) or "none yet"
        raise UserError(
            f"{config.path}: baseline: no night {pinned!r} of {config.name!r} in the history; newest: {known}"
        )
    if found.models and not found.judgments:
        raise UserError(
            f"{config.path}: baseline: the responses of {pinned!r} are no longer kept; pin a newer night"
        )


def _floor(rows: Sequence[EmotionResult], *, looks: int) -> Reading:
    from scipy.special import ndtri

    judged = sum(row.n for row in rows)
    part, prompts = sum(row.good for row in rows) / judged, judged / len(rows)
    tonight, uniform = (
        _wilson(part, prompts, float(ndtri(1 - ALPHA / (2 * number)))) for number in (1, looks)
    )
    return Reading(value=part, interval=tonight, uniform=uniform, spread=max(part * (1 - part), 0.01))


def _wilson(part: float, count: float, normal: float) -> Interval:
    """By hand, since libraries want whole counts; a prompt asked again on another night is not a new one."""
    middle = (part + normal**2 / (2 * count)) / (1 + normal**2 / count)
    spread = max(0.0, part * (1 - part)) / count + normal**2 / (4 * count**2)
    reach = normal / (1 + normal**2 / count) * math.sqrt(spread)
    return Interval(max(0.0, middle - reach), min(1.0, middle + reach))
