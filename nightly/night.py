"""One night from end to end: respond, score, correct, compare, gate, history, dashboard.

The history is the one thing a night leaves for good, and it is written once, in one transaction. All before
that lies in run folders that go on where they were left, and all after it is made from the history. So the
same command after any interruption ends in the same history, and a night that is there is asked for nothing.
Only a night on which a model failed is taken up again, in the place of the one that is there.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from calibration.artifact import CALIBRATION_FILE
from calibration.comparison.compare_runs import ComparisonRequest, compare_runs
from data.errors import OperationalError, UserError
from data.files import locked
from data.readers.conversations import speak_of
from data.records import CONVERSATION
from judge.base import WEIGHTS
from nightly.baseline import changes_of, check_baseline, floor_readings, read_earlier
from nightly.changes import change_details
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
from nightly.schema import ModelResult, NightRecord
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
    """Run a night, or take it up, or find it in the history; `again` judges it anew in its place."""
    with locked(config.runs / night, busy=BUSY), open_history(config.history) as history:
        there = history.night(config.name, night)
        if there is not None and not again and not there.details.get("failed"):
            # It stays as it is, so a config that has changed must not seem to have been used.
            if there.details.get("settings") != config.digest:
                raise UserError(
                    f"{config.path}: the night {night!r} of {config.name!r} is in the history under other "
                    "settings; leave it, or judge it anew with --again, or give this config another name"
                )
            is_new = False
        else:
            setup = set_up_night(config, night, clock=clock, show_progress=show_progress, again=again)
            record, pinned = make_record(history, setup)
            is_new = history.add_night(record, pinned=pinned, instead=there is not None)
        # As the history gives it back, so that a night says the same whenever it is asked for.
        kept = history.night(config.name, night)
        assert kept is not None
        if config.dashboard is not None:
            build_dashboard(history, config.dashboard)
    if config.junit is not None:
        write_junit(check_outcomes(kept.gates), config.junit, name=config.name)
    return FinishedNight(record=kept, is_new=is_new)


def make_record(history: History, setup: NightSetup) -> tuple[NightRecord, set[str]]:
    """Measure the night, and hold it against what the history knows; and the nights to be kept for that."""
    config, started = setup.config, setup.clock()
    check_baseline(history, setup)
    anchors, anchors_cost = measure_anchors(setup)
    earlier, bridge = read_earlier(history, setup, anchors)
    measured: dict[str, MeasuredModel] = {}
    failed: dict[str, str] = {}
    for entry in config.models:
        try:
            measured[entry.name] = measure(entry, setup)
        except OperationalError as error:  # a model that cannot be measured does not keep the others from it
            failed[entry.name] = str(error)
    judged = [item for model in measured.values() for item in model.judged]
    emotions = sum_emotions(judged)
    floors = floor_readings(history, setup, emotions, judged)
    checked = {name: CheckedModel(model=name, failure=failed.get(name)) for name in earlier}
    models: list[ModelResult] = []
    for name, model in measured.items():
        changes = changes_of(model, earlier[name], setup, anchors)
        result = model.result
        checked[name] = CheckedModel(
            model=name,
            changes=changes,
            shares=floors.get(name, {}),
            cost=result.cost,
            responses=result.n + sum(result.unscored.values()),
            reasons=result.unscored,
            stale=setup.stale,
        )
        past = earlier[name]
        details = change_details(changes, past.watches, past.averaged, models=len(earlier))
        models.append(replace(result, details={**details, **result.details}))
    say = speak_of(config.unit, earlier)
    gates = tuple(
        replace(gate, sentence=say(gate.sentence)) for gate in check_gates(config.gates, checked.values())
    )
    status = gravest(result.outcome for result in gates) or "pass"
    if failed and status != "regression":
        status = "failed"  # without a gate there is no result that could say so
    record = NightRecord(
        config=config.name,
        night=setup.night,
        started=started.isoformat(),
        finished=max(started, setup.clock()).isoformat(),  # a clock may be put back
        judge=setup.judge.name,
        judge_version=setup.judge.version,
        calibration=setup.correction.digest,
        status="pass" if status == "skipped" else status,  # such as a cost that nobody knows, every night
        details={
            "settings": config.digest,
            **({"unit": config.unit} if config.unit == CONVERSATION else {}),
            **({"dimension_note": note} if (note := setup.judge.rubric.note) else {}),
            "calibration": setup.correction.note,
            "stale": setup.stale,
            "bridge": bridge.details or None,
            "judge_moved": next((model.moved for model in checked.values() if model.moved), None),
            "anchors_cost": anchors_cost,
            "failed": failed,
            "study": compare_with_study(setup, list(measured.values())),
        },
        models=tuple(models),
        emotions=tuple(emotions),
        anchors=anchors,
        gates=gates,
        judgments=tuple(judged),
    )
    pinned: set[str] = set()
    for item in earlier.values():
        pinned |= {*item.averaged, *((setup.night,) if len(item.averaged) < config.baseline_nights else ())}
    return record, pinned | ({config.baseline} if config.baseline else set())


def compare_with_study(setup: NightSetup, measured: Sequence[MeasuredModel]) -> list[dict[str, str]]:
    """A sentence for each model and each model of the crowd study; none without a calibration."""
    calibration = setup.correction.calibration
    if not measured or not setup.config.study or calibration is None:
        return []
    shipped = (setup.judge.folder or Path()) / CALIBRATION_FILE
    request = ComparisonRequest(
        paths=tuple(item.folder for item in measured),
        baselines=setup.config.study,
        calibration=setup.config.calibration or str(shipped),
        weights=WEIGHTS,
    )
    # By the night's own date, so that one taken up again after midnight ends as it would have before.
    compared = compare_runs(request, today=date_of(setup.night, setup.clock))
    return [
        {
            "model": pair.one,
            "study": pair.other,
            "sentence": describe_pair(pair, compared.margin, compared.judge.unit),
            "refused": "" if pair.shares else pair.reason or "",
        }
        for pair in compared.pairs
    ]
