"""One night from end to end: respond, score, correct, compare, gate, history, dashboard.

The history is written once, in one transaction. All earlier steps resume from run folders, and all later ones
are made from the history. So the same command after any interruption ends in the same history, and a stored
night is not run again, unless a model failed on it.

A new judge or version starts a new baseline; `nightly --again` scores an earlier night with it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Final

from empathy_judge.calibration.artifact import CALIBRATION_FILE
from empathy_judge.calibration.comparison.compare_runs import ComparisonRequest, compare_runs
from empathy_judge.calibration.monitoring.confidence_sequence import NightSums
from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.files import locked
from empathy_judge.data.records import LABELS
from empathy_judge.data.text import listed
from empathy_judge.judge.base import WEIGHTS
from empathy_judge.nightly import measure, schema
from empathy_judge.nightly.changes import SIDES, ModelChange, change_since, judge_shift, pair
from empathy_judge.nightly.config import NightlyConfig
from empathy_judge.nightly.dashboard.build import build_dashboard
from empathy_judge.nightly.gates import CheckedModel, check_gates, gravest
from empathy_judge.nightly.history import History, open_history
from empathy_judge.nightly.output import FinishedNight, check_outcomes
from empathy_judge.reports.comparison.pair_sentences import describe_pair
from empathy_judge.reports.outputs import write_junit

BUSY: Final = "another process is running this night; wait until it is done"


def run_night(
    config: NightlyConfig,
    *,
    night: str,
    clock: measure.Clock,
    again: bool = False,
    announce: measure.Announce = lambda notes: None,
) -> FinishedNight:
    """Run or resume a night, or read it from the history; `again` scores it again and replaces it."""
    with locked(config.runs / night, busy=BUSY), open_history(config.history) as history:
        there = history.night(config.name, night)
        if there is not None and not again and not there.failed:
            if there.settings != config.digest:
                raise UserError(
                    f"{config.path}: the night {night!r} of {config.name!r} is in the history with other "
                    "settings; run it again with --again, or give this config another name"
                )
            is_new = False
        else:
            started = there.started if there is not None else clock().isoformat()
            setup = measure.set_up_night(
                config, night, started=started, clock=clock, again=again, announce=announce
            )
            record, pinned = make_record(history, setup)
            is_new = history.add_night(record, pinned=pinned, instead=there is not None)
        stored = history.night(config.name, night)  # a night prints the same whenever it is asked for
        assert stored is not None
        if config.dashboard is not None:
            build_dashboard(history, config.dashboard)
    if config.outputs.junit is not None:
        write_junit(check_outcomes(stored.gates), config.outputs.junit, name=config.name)
    return FinishedNight(record=stored, is_new=is_new)


def make_record(history: History, setup: measure.NightSetup) -> tuple[schema.NightRecord, set[str]]:
    """Measure the night and compare it with the history; also return the nights whose responses to keep."""
    config = setup.config
    check_baseline(history, setup)
    anchors, anchors_cost = measure.measure_anchors(setup)
    earlier = read_earlier(history, setup)
    past = [then.record for item in earlier.values() for then in item.past.values()]
    shifts = [judge_shift(anchors, before=then, min_drift=config.min_judge_drift) for then in past]
    if any(shift.moved or shift.suspected for shift in shifts):
        setup = replace(setup, reused=())  # saved judgments are of the judge before it changed
    measured: dict[str, measure.MeasuredModel] = {}
    failed: dict[str, str] = {}
    for entry in config.models:
        try:
            measured[entry.name] = measure.measure(entry, setup)
        except OperationalError as error:
            failed[entry.name] = str(error)
    judged = [item for model in measured.values() for item in model.judged]
    unresponsive = {name for name, model in measured.items() if model.result.is_unresponsive}
    emotions = sum_emotions(item for item in judged if item.model not in unresponsive)
    changes = {
        name: changes_of(model, earlier[name], setup, anchors)
        for name, model in measured.items()
        if name not in unresponsive
    }
    checked = [
        CheckedModel(
            result=measured[name].result if name in measured else schema.ModelResult(model=name, n=0),
            unit=config.unit,
            changes=changes.get(name, {}),
            stale=setup.stale,
            failure=failed.get(name),
        )
        for name in earlier
    ]
    gates = check_gates(config.gates, checked)
    outcomes = [item.outcome for item in gates]
    outcomes += ["failed"] if failed else []
    outcomes += ["regression"] if unresponsive else []
    status = gravest(outcomes) or "pass"
    record = schema.NightRecord(
        config=config.name,
        night=setup.night,
        started=setup.started,
        finished=max(setup.started, setup.clock().isoformat()),  # a clock may be put back
        judge=setup.judge.name,
        judge_version=setup.judge.version,
        calibration=setup.correction.digest,
        status="pass" if status == "skipped" else status,  # such as a cost that is never known
        settings=config.digest,
        unit=config.unit,
        calibration_note=setup.correction.note,
        rubric_note=setup.judge.rubric.note,
        judge_note=describe_new_judge(history, setup),
        stale=setup.stale,
        judge_moved=next((model.moved for model in checked if model.moved), None),
        anchors_cost=anchors_cost,
        failed=failed,
        study=compare_with_study(setup, list(measured.values())),
        models=tuple(model.result for model in measured.values()),
        changes=tuple(change.record for model in changes.values() for change in model.values()),
        emotions=tuple(emotions),
        anchors=anchors,
        gates=gates,
        judgments=tuple(judged),
    )
    pinned = {config.baseline} if config.baseline else set()
    for item in earlier.values():
        averaged = item.past["baseline"].nights if "baseline" in item.past else ()
        pinned |= {*averaged, *((setup.night,) if len(averaged) < config.baseline_nights else ())}
    return record, pinned


def sum_emotions(judged: Iterable[schema.JudgedResponse]) -> Iterable[schema.EmotionResult]:
    """Sum the probabilities by model and emotion; responses without an emotion are in none."""
    groups: defaultdict[tuple[str, str], list[schema.JudgedResponse]] = defaultdict(list)
    for item in judged:
        if item.emotion is not None and item.good is not None:
            groups[item.model, item.emotion].append(item)
    for (model, emotion), items in sorted(groups.items()):
        names = [label.lower() for label in LABELS]
        sums = {name: round(sum(getattr(item, name) for item in items), 6) for name in names}
        yield schema.EmotionResult(model=model, emotion=emotion, n=len(items), **sums)


def compare_with_study(
    setup: measure.NightSetup, measured: Sequence[measure.MeasuredModel]
) -> tuple[str, ...]:
    """Return sentences that compare models with those of the crowd study; none without a calibration."""
    calibration = setup.correction.calibration
    if not measured or not setup.config.study or calibration is None:
        return ()
    shipped = (setup.judge.folder or Path()) / CALIBRATION_FILE
    question = ComparisonRequest(
        paths=tuple(item.folder for item in measured),
        baselines=setup.config.study,
        calibration=setup.config.calibration or str(shipped),
        weights=WEIGHTS,
    )
    # By the night's own date, so that one resumed after midnight ends as it would have before.
    compared = compare_runs(question, today=measure.date_of(setup.night, setup.clock))
    refused: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    sentences = []
    for models_pair in compared.pairs:
        if models_pair.shares:
            sentences.append(describe_pair(models_pair, compared.margin, setup.config.unit))
        else:
            refused[models_pair.other, models_pair.reason or "unknown"].append(models_pair.one)
    for (other, reason), models in refused.items():
        sentences.append(f"{listed(sorted(models))} cannot be compared with {other}: {reason}.")
    return tuple(sentences)


@dataclass(frozen=True, slots=True)
class PastNight:
    """What a change is measured against: responses of these `nights`, and their share of `unscored` ones."""

    record: schema.NightRecord
    nights: tuple[str, ...]
    unscored: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierNights:
    """A model before tonight; `sums` are of its nights since the baseline, less those of a moved judge."""

    past: Mapping[schema.Against, PastNight]
    sums: Mapping[schema.Label, Sequence[NightSums]]


def check_baseline(history: History, setup: measure.NightSetup) -> None:
    """Refuse a pinned night that is missing, deleted or of another judge: gates would silently be skipped."""
    config, pinned = setup.config, setup.config.baseline
    if pinned is None:
        return
    place = f"{config.path}: baseline"
    night = history.night(config.name, pinned)
    if pinned == setup.night or (night is not None and night.order > setup.order):
        return
    if night is None:
        newest = [night.night for night in history.nights(config=config.name, last=5)]
        raise UserError(
            f"{place}: no night {pinned!r} of {config.name!r} in the history; "
            f"newest: {', '.join(newest) or 'none yet'}"
        )
    if night.judge_key != setup.judge_key:
        raise UserError(
            f"{place}: {pinned!r} was scored by {' '.join(night.judge_key)}, and the judge is now "
            f"{' '.join(setup.judge_key)}; score it again with `nightly {config.path} --night {pinned} "
            "--again`, or set another night"
        )
    if night.models and not night.judgments:
        raise UserError(f"{place}: the replies of {pinned!r} are no longer stored; set a newer night")


def describe_new_judge(history: History, setup: measure.NightSetup) -> str | None:
    """Return a sentence where the judge is another than on the night before."""
    before = [night for night in history.nights(config=setup.config.name) if night.order < setup.order]
    if not before or before[-1].judge_key == setup.judge_key:
        return None
    return (
        f"The judge is now {' '.join(setup.judge_key)}, after {' '.join(before[-1].judge_key)} on "
        f"{before[-1].night}: earlier nights are not compared. `nightly --again --night NAME` scores one of "
        "them again."
    )


def read_earlier(history: History, setup: measure.NightSetup) -> dict[str, EarlierNights]:
    """Return each model's last night, baseline and sums, of nights by tonight's judge."""
    config, series = setup.config, history.all_series(config=setup.config.name)
    places = {night.night: night.order for night in history.nights(config=config.name)}
    first = places.get(config.baseline, setup.order) if config.baseline else ("", "")

    @cache
    def read(night: str) -> schema.NightRecord:
        record = history.night(config.name, night)
        assert record is not None
        return record

    earlier = {}
    for entry in config.models:
        before = [
            point
            for point in series.get(entry.name, ())
            if point.night.order < setup.order
            and point.night.judge_key == setup.judge_key
            and not point.result.is_unresponsive
        ]
        counted = [point for point in before if point.night.order >= first]
        pinned = [read(point.night.night) for point in counted[: config.baseline_nights]]
        unmoved = [
            night
            for night in pinned
            if not judge_shift(night.anchors, before=pinned[0], min_drift=config.min_judge_drift).moved
        ]
        unscored = {point.night.night: point.result.unscored_share or 0.0 for point in before}
        past: dict[schema.Against, PastNight] = {}
        sums = []
        if unmoved:
            names = tuple(night.night for night in unmoved)
            responses = tuple(chain.from_iterable(night.judgments for night in unmoved))
            record = replace(unmoved[0], judgments=responses)
            past["baseline"] = baseline = PastNight(record, names, fmean(map(unscored.__getitem__, names)))
            sums = [_sums(point, baseline, setup, read) for point in counted[config.baseline_nights :]]
        if before:
            last = before[-1].night.night
            past["last night"] = PastNight(read(last), (last,), unscored[last])
        by_label = {label: [night[label] for night in sums if night] for label, _, _ in SIDES}
        earlier[entry.name] = EarlierNights(past=past, sums=by_label)
    return earlier


def changes_of(
    measured: measure.MeasuredModel,
    earlier: EarlierNights,
    setup: measure.NightSetup,
    anchors: Sequence[schema.AnchorResult],
) -> dict[str, ModelChange]:
    """Return a model's changes since its baseline and since its last night, if it has them."""
    model, changes = measured.result.model, dict[str, ModelChange]()
    for against, then in earlier.past.items():
        change = change_since(
            model,
            against,
            then.nights,
            pair(measured.judged, [item for item in then.record.judgments if item.model == model]),
            judge_shift(anchors, before=then.record, min_drift=setup.config.min_judge_drift),
            earlier=earlier.sums,
            models=len(setup.config.models),
            unscored=then.unscored,
        )
        if change is not None:
            changes[against] = change
    return changes


def _sums(
    point: schema.ModelNight,
    baseline: PastNight,
    setup: measure.NightSetup,
    read: Callable[[str], schema.NightRecord],
) -> Mapping[schema.Label, NightSums] | None:
    """Return a night's sums against the baseline; None where the judge had moved or nothing is stored."""
    stored = point.change
    if stored is not None and stored.nights == baseline.nights:
        sums = stored.night_sums
        return None if stored.judge_moved else {label: NightSums(*sums[label]) for label, _, _ in SIDES}
    # Another baseline then: count again, as far as the judgments are stored.
    then = read(point.night.night)
    if judge_shift(then.anchors, before=baseline.record, min_drift=setup.config.min_judge_drift).moved:
        return None
    of_model = [
        [item for item in record.judgments if item.model == point.result.model]
        for record in (then, baseline.record)
    ]
    return pair(*of_model).sums if all(of_model) else None
