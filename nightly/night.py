"""One night from end to end: respond, score, correct, compare, gate, history, dashboard.

The history is the one thing a night leaves for good, and it is written once, in one transaction. All before
that lies in run folders that go on where they were left, and all after it is made from the history. So the
same command after any interruption ends in the same history, and a night that is there is asked for nothing.
Only a night on which a model failed is taken up again, in the place of the one that is there.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from calibration.artifact import NONE
from calibration.comparison.compare_runs import Question, compare_runs
from calibration.estimate import finite_or_none
from data.errors import OperationalError, UserError
from data.files import disk_errors, locked, replacing
from data.records import LABELS
from judge.base import WEIGHTS
from nightly.baseline import Past, floor_readings, read_past
from nightly.changes import Change, change_since, is_rough, judge_shift, pair, sums_of, watched
from nightly.config import NightlyConfig
from nightly.dashboard.build import build_dashboard
from nightly.gates import CHANGES, Against, Night, Outcome, Reading, Result, check_gates, overall
from nightly.history import History, open_history
from nightly.measure import (
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
from nightly.output import Ran, as_junit
from nightly.schema import (
    AnchorResult,
    EmotionResult,
    GateResult,
    JudgedResponse,
    ModelResult,
    NightRecord,
    ShareResult,
)
from reports.comparison import say_pair

BUSY: Final = "another process is at this night; wait until it is done"

# Where every model stands tonight, and what the gates make of it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """Where a model stands tonight: its changes since earlier nights, and all that gates look at."""

    measured: Measured
    changes: tuple[Change, ...]
    night: Night
    details: Mapping[str, Any]

    @property
    def moved(self) -> str | None:
        """How the judge moved, if it did since the baseline or else since last night."""
        return next((change.shift.moved for change in self.changes if change.shift.moved), None)

    def change_of(self, result: Result) -> Change | None:
        """The change a gate looked at; of a floor, which looks at none, the longest there is."""
        own = [item for item in self.changes if result.gate.against in (None, item.against)]
        return own[0] if own else None


def stand(
    measured: Measured,
    past: Past,
    bench: Bench,
    anchors: Sequence[AnchorResult],
    floors: Mapping[str, Reading],
) -> Stand:
    """A model tonight against its last night and its baseline."""
    changes = _changes(measured, past, bench, anchors)
    unscored = sum(measured.unscored.values())
    night = Night(
        model=measured.model,
        good={name: item.readings["good"] for name, item in changes.items()},
        bad={name: item.readings["bad"] for name, item in changes.items()},
        good_emotions={name: item.emotions["good"] for name, item in changes.items()},
        bad_emotions={name: item.emotions["bad"] for name, item in changes.items()},
        shares=floors,
        cost=measured.cost,
        responses=measured.summary["judged"] + unscored,
        unscored=unscored,
        stale=bench.stale,
    )
    details: dict[str, Any] = {"changes": {name: item.as_dict() for name, item in changes.items()}}
    if change := changes.get("baseline"):
        details["watch"] = watched(change, past.watches, models=len(bench.config.models))
        details["since_baseline"] = {
            "night": change.night,
            "judge_moved": change.shift.moved is not None,
            "sums": sums_of(change.paired),
        }
    return Stand(measured=measured, changes=tuple(changes.values()), night=night, details=details)


def check(bench: Bench, stands: Sequence[Stand], failed: Mapping[str, str]) -> list[Result]:
    """Every gate. Where the judge moved, only a regression that is left without its part is believed."""
    results: list[Result] = []
    by_model = {item.measured.model: item for item in stands}
    for entry in bench.config.models:
        if entry.name in failed:
            results += check_gates(bench.config.gates, [Night(model=entry.name, failure=failed[entry.name])])
            continue
        own = by_model[entry.name]
        found = tuple(
            _doubt(item, own.change_of(item)) for item in check_gates(bench.config.gates, [own.night])
        )
        if own.moved and not bench.stale:
            stale = check_gates(bench.config.gates, [replace(own.night, stale=_way_out(own.moved))])
            found = tuple(
                plain if _is_believed(plain, own.change_of(plain)) else other
                for plain, other in zip(found, stale, strict=True)
            )
        results += found
    return results


def _changes(
    measured: Measured, past: Past, bench: Bench, anchors: Sequence[AnchorResult]
) -> dict[Against, Change]:
    """Since the baseline and since last night, as far as there are such nights."""
    pasts: tuple[tuple[Against, NightRecord | None], ...] = (
        ("baseline", past.baseline),
        ("last night", past.last),
    )
    found: dict[Against, Change] = {}
    for against, then in pasts:
        if then is None:
            continue
        now = (bench.judge.name, bench.judge.version)
        change = change_since(
            against,
            pair(measured.judged, [item for item in then.judgments if item.model == measured.model]),
            judge_shift(anchors, then.anchors, now=now, before=then, matters=bench.config.matters),
            watches=past.watches,
            models=len(bench.config.models),
            level=measured.summary["shares"]["Good"]["share"],
        )
        if change is not None:
            found[against] = change
    return found


def _is_believed(result: Result, change: Change | None) -> bool:
    """Since a night when the judge was the same, all; else a change that is the model's by the anchors."""
    if change is None or not change.shift.moved:
        return True
    return result.outcome == "regression" and result.gate.kind in CHANGES and not is_rough(change)


def _doubt(result: Result, change: Change | None) -> Result:
    """A pass that a judge's move may have made is none."""
    suspected = change.shift.suspected if change else None
    if suspected is None or result.outcome != "pass" or result.gate.kind not in (*CHANGES, "floor"):
        return result
    said = f"{result.sentence.removesuffix('.').replace(': pass:', ': inconclusive:', 1)}; but {suspected}."
    return replace(result, outcome="inconclusive", sentence=said)


def _way_out(moved: str) -> str:
    return f"{moved}; calibrate it anew, and pin a night it judged as the baseline"


# A night's findings as the records that the history keeps.

FINE: Final = ("pass", "skipped")


def keep_model(measured: Measured, details: Mapping[str, Any]) -> ModelResult:
    """A model's shares, as judged and as corrected, and what came of it."""
    row = measured.summary
    corrected = row.get("corrected") or {}
    refused = {"refused": row["refused"]} if row.get("refused") else {}
    found = measured.run.summary.get("flagged")
    flagged = {"flagged": found} if found and found["count"] else {}
    return ModelResult(
        model=measured.model,
        served=measured.served,
        responses=measured.responses,
        n=row["judged"],
        unscored=measured.unscored,
        raw={label: ShareResult(**row["shares"][label], how="judge") for label in row["shares"]},
        corrected={label: ShareResult(**corrected[label], how="line") for label in corrected},
        cost=measured.cost,
        seconds=measured.seconds,
        details={**details, **refused, **flagged},
    )


def keep_emotions(judged: Iterable[JudgedResponse]) -> list[EmotionResult]:
    """Sums by model and emotion; responses without an emotion are in none."""
    found: defaultdict[tuple[str, str], list[JudgedResponse]] = defaultdict(list)
    for item in judged:
        if item.emotion is not None and item.good is not None:
            found[item.model, item.emotion].append(item)
    return [
        EmotionResult(
            model=model,
            emotion=emotion,
            n=len(items),
            **{name: round(sum(getattr(item, name) for item in items), 6) for name in map(str.lower, LABELS)},
        )
        for (model, emotion), items in sorted(found.items())
    ]


def keep_gate(result: Result) -> GateResult:
    """What a gate said; `subject` is what it is held against, or its emotion."""
    gate = result.gate
    return GateResult(
        gate=gate.kind,
        model=result.model,
        subject=gate.against or gate.emotion or "",
        outcome=result.outcome,
        value=finite_or_none(result.value),
        limit=gate.limit,
        sentence=result.sentence,
    )


def run_night(
    config: NightlyConfig, *, night: str, clock: Clock, watching: Watching = unwatched, again: bool = False
) -> Ran:
    """Run a night, or take it up, or find it in the history; `again` judges it anew in its place."""
    with locked(config.runs / night, busy=BUSY), open_history(config.history) as history:
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
        weights=WEIGHTS,
    )
    compared = compare_runs(question, today=date_of(bench.night, bench.clock))
    return [
        {"model": pair.one, "study": pair.other, "sentence": say_pair(pair, compared.margin)}
        for pair in compared.pairs
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
