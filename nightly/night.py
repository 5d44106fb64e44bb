"""One night from end to end: respond, score, correct, compare, gate, history, dashboard.

The history is the one thing a night leaves for good, and it is written once, in one transaction. All before
that lies in run folders that go on where they were left, and all after it is made from the history. So the
same command after any interruption ends in the same history, and a night that is there is asked for nothing.
Only a night on which a model failed is taken up again, in the place of the one that is there.
"""

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from data.errors import OperationalError, UserError
from data.files import disk_errors, replacing
from data.history import History, open_history
from data.nights import NightRecord
from nightly.announce import as_junit
from nightly.calibrated import NONE
from nightly.checking import check, stand
from nightly.comparing import Question, compare_runs
from nightly.config import NightlyConfig
from nightly.dashboard import build_dashboard
from nightly.gate import EXIT_CODES, Outcome, Result, overall
from nightly.keeping import FINE, keep_emotions, keep_gate, keep_model, read_results
from nightly.measuring import (
    Bench,
    Clock,
    Measured,
    Watching,
    date_of,
    measure,
    measure_anchors,
    set_up,
    unwatched,
)
from nightly.past import floor_readings, read_past


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A night as the history has it, and whether it was added just now."""

    record: NightRecord
    is_new: bool

    @property
    def exit_code(self) -> int:
        return EXIT_CODES.get(self.record.status, 5)  # type: ignore[call-overload,no-any-return]

    @property
    def results(self) -> list[Result]:
        """What every gate said of every model."""
        return read_results(self.record.gates, self.record.details.get("findings", ()))


def run_night(
    config: NightlyConfig, *, night: str, clock: Clock, watching: Watching = unwatched, again: bool = False
) -> Ran:
    """Run a night, or take it up, or find it in the history; `again` judges it anew in its place."""
    with _alone(config.runs / night), open_history(config.history) as history:
        there = history.night(config.name, night)
        if there is not None and not again and not there.details.get("failed"):
            _check_same(config, there)
            is_new = False
        else:
            bench = set_up(config, night, clock=clock, watching=watching, again=again)
            record, pinned = make_record(history, bench)
            is_new = history.add_night(record, pinned=pinned, instead=there is not None)
        # As the history gives it back, so that a night says the same whenever it is asked for.
        kept = history.night(config.name, night)
        assert kept is not None
        if config.dashboard is not None:
            build_dashboard(history, config.dashboard)
    ran = Ran(record=kept, is_new=is_new)
    if config.junit is not None:
        with disk_errors(config.junit):
            config.junit.parent.mkdir(parents=True, exist_ok=True)
            with replacing(config.junit) as partial:
                partial.write_text(as_junit(ran.results, name=config.name), encoding="utf-8")
    return ran


def make_record(history: History, bench: Bench) -> tuple[NightRecord, set[str]]:
    """Measure the night, and hold it against what the history knows; and the nights to be kept for that."""
    config, started = bench.config, bench.clock()
    past = read_past(history, bench)
    anchors, anchors_cost = measure_anchors(bench)
    measured, failed = measure_all(bench)
    judged = [item for model in measured for item in model.judged]
    emotions = keep_emotions(judged)
    floors = floor_readings(history, bench, emotions, models=len(config.models))
    stands = [
        stand(model, past[model.model], bench, anchors, floors.get(model.model, {})) for model in measured
    ]
    results = check(bench, stands, failed)
    study = compare_with_study(bench, measured)
    record = NightRecord(
        config=config.name,
        night=bench.night,
        started=started.isoformat(),
        finished=max(started, bench.clock()).isoformat(),  # a clock may be put back
        judge=bench.judge.name,
        judge_version=bench.judge.version,
        calibration=bench.found.digest,
        status=_status(results, failed),
        details={
            "settings": config.digest,
            "calibration": bench.found.says,
            "stale": bench.stale,
            "judge_moved": next((item.moved for item in stands if item.moved), None),
            "anchors_cost": anchors_cost,
            "failed": failed,
            "study": study,
            "findings": [item.as_dict() for item in results if item.outcome not in FINE],
        },
        models=tuple(keep_model(item.measured, item.details) for item in stands),
        emotions=tuple(emotions),
        anchors=anchors,
        gates=tuple(keep_gate(item) for item in results),
        judgments=tuple(judged),
    )
    first_nights = {bench.night if item.baseline is None else item.baseline.night for item in past.values()}
    return record, first_nights | ({config.baseline} if config.baseline else set())


def measure_all(bench: Bench) -> tuple[list[Measured], dict[str, str]]:
    """Every model, one after the other; one that cannot be measured does not keep the others from it."""
    measured, failed = [], {}
    for entry in bench.config.models:
        try:
            measured.append(measure(entry, bench))
        except OperationalError as error:
            failed[entry.name] = str(error)
    return measured, failed


def compare_with_study(bench: Bench, measured: Sequence[Measured]) -> list[dict[str, str]]:
    """A sentence for each model and each model of the crowd study; none without a calibration."""
    if not measured or not bench.config.study or bench.found.calibration is None:
        return []
    question = Question(
        paths=tuple(item.run.folder for item in measured),
        baselines=bench.config.study,
        calibration=bench.calibration if bench.calibration != NONE else None,
    )
    result, _ = compare_runs(question, today=date_of(bench.night, bench.clock))
    return [
        {"model": pair["one"], "study": pair["other"], "sentence": pair["sentence"]}
        for pair in result["pairs"]
    ]


def _status(results: Sequence[Result], failed: Mapping[str, str]) -> Outcome:
    found = overall(results)
    if failed and found != "regression":
        return "failed"  # without a gate there is no result that could say so
    return "pass" if found == "skipped" else found  # such as a cost that nobody knows, every night


def _check_same(config: NightlyConfig, there: NightRecord) -> None:
    """A night that is there stays as it is, so a config that has changed must not seem to have been used."""
    if there.details.get("settings") != config.digest:
        raise UserError(
            f"{config.path}: the night {there.night!r} of {config.name!r} is in the history under other "
            "settings; leave it, or judge it anew with --again, or give this config another name"
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time in a night; the system lets go of the lock, even after kill -9."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a", encoding="ascii")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OperationalError(
                f"{folder}: another process is at this night; wait until it is done"
            ) from None
        yield
