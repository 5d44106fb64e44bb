"""One night from end to end: respond, score, correct, compare, gate, history, dashboard.

The history is written once, in one transaction. Everything before that is in run folders that resume, and
everything after it is made from the history. So the same command after any interruption ends in the same
history, and a night that is stored is not asked for again, unless a model failed on it.
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from calibration.artifact import CALIBRATION_FILE
from calibration.comparison.compare_runs import ComparisonRequest, compare_runs
from data.errors import OperationalError, UserError
from data.files import locked
from data.text import listed
from judge.base import WEIGHTS
from nightly.baseline import changes_of, check_baseline, describe_new_judge, floor_figures, read_earlier
from nightly.changes import change_result
from nightly.config import NightlyConfig
from nightly.dashboard.build import build_dashboard
from nightly.emotions import sum_emotions
from nightly.gates import CheckedModel, check_gates, gravest
from nightly.history import History, open_history
from nightly.measure import (
    Clock,
    MeasuredModel,
    NightSetup,
    ShowProgress,
    date_of,
    measure,
    measure_anchors,
    no_progress,
    set_up_night,
)
from nightly.output import FinishedNight, check_outcomes
from nightly.schema import ChangeResult, NightRecord
from reports.comparison.pair_sentences import describe_pair
from reports.outputs import write_junit

BUSY: Final = "another process is at this night; wait until it is done"


def run_night(
    config: NightlyConfig,
    *,
    night: str,
    clock: Clock,
    show_progress: ShowProgress = no_progress,
    again: bool = False,
) -> FinishedNight:
    """Run or resume a night, or read it from the history; `again` judges it again and replaces it."""
    with locked(config.runs / night, busy=BUSY), open_history(config.history) as history:
        there = history.night(config.name, night)
        if there is not None and not again and not there.failed:
            # It stays as it is, so a config that has changed must not seem to have been used.
            if there.settings != config.digest:
                raise UserError(
                    f"{config.path}: the night {night!r} of {config.name!r} is in the history under other "
                    "settings; judge it again with --again, or give this config another name"
                )
            is_new = False
        else:
            setup = set_up_night(config, night, clock=clock, show_progress=show_progress, again=again)
            record, pinned = make_record(history, setup)
            is_new = history.add_night(record, pinned=pinned, instead=there is not None)
        # As the history returns it, so that a night prints the same whenever it is asked for.
        kept = history.night(config.name, night)
        assert kept is not None
        if config.dashboard is not None:
            build_dashboard(history, config.dashboard)
    if config.junit is not None:
        write_junit(check_outcomes(kept.gates), config.junit, name=config.name)
    return FinishedNight(record=kept, is_new=is_new)


def make_record(history: History, setup: NightSetup) -> tuple[NightRecord, set[str]]:
    """Measure the night and compare it with the history; also return the nights whose responses to keep."""
    config, started = setup.config, setup.clock()
    check_baseline(history, setup)
    anchors, anchors_cost = measure_anchors(setup)
    earlier = read_earlier(history, setup)
    measured: dict[str, MeasuredModel] = {}
    failed: dict[str, str] = {}
    for entry in config.models:
        try:
            measured[entry.name] = measure(entry, setup)
        except OperationalError as error:  # the others are measured all the same
            failed[entry.name] = str(error)
    judged = [item for model in measured.values() for item in model.judged]
    emotions = sum_emotions(judged)
    floors = floor_figures(history, setup, emotions, judged)
    checked = {name: CheckedModel(model=name, unit=config.unit, failure=failed.get(name)) for name in earlier}
    changes: list[ChangeResult] = []
    for name, model in measured.items():
        found = changes_of(model, earlier[name], setup, anchors)
        result = model.result
        checked[name] = CheckedModel(
            model=name,
            unit=config.unit,
            changes=found,
            shares=floors.get(name, {}),
            cost=result.cost,
            responses=result.n + sum(result.unscored.values()),
            reasons=result.unscored,
            stale=setup.stale,
        )
        changes += [
            change_result(name, against, earlier[name].nights_of(against), change)
            for against, change in found.items()
        ]
    gates = check_gates(config.gates, checked.values())
    status = gravest(result.outcome for result in gates) or "pass"
    if failed and status != "regression":
        status = "failed"  # without a gate no result would show it
    record = NightRecord(
        config=config.name,
        night=setup.night,
        started=started.isoformat(),
        finished=max(started, setup.clock()).isoformat(),  # a clock may be put back
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
        judge_moved=next((model.moved for model in checked.values() if model.moved), None),
        anchors_cost=anchors_cost,
        failed=failed,
        study=compare_with_study(setup, list(measured.values())),
        models=tuple(model.result for model in measured.values()),
        changes=tuple(changes),
        emotions=tuple(emotions),
        anchors=anchors,
        gates=gates,
        judgments=tuple(judged),
    )
    pinned: set[str] = set()
    for item in earlier.values():
        pinned |= {*item.averaged, *((setup.night,) if len(item.averaged) < config.baseline_nights else ())}
    return record, pinned | ({config.baseline} if config.baseline else set())


def compare_with_study(setup: NightSetup, measured: Sequence[MeasuredModel]) -> tuple[str, ...]:
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
    compared = compare_runs(question, today=date_of(setup.night, setup.clock))
    refused: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    sentences = []
    for pair in compared.pairs:
        if pair.shares:
            sentences.append(describe_pair(pair, compared.margin, setup.config.unit))
        else:
            refused[pair.other, pair.reason or "unknown"].append(pair.one)
    return (
        *sentences,
        *(
            f"{listed(sorted(models))} cannot be compared with {other}: {reason}."
            for (other, reason), models in refused.items()
        ),
    )
