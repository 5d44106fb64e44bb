"""The measurement of a night: every model's responses and their judgments.

    runs/<night>/<model>/answers-<digest>/   the model's replies, as `respond` stores them
    runs/<night>/<model>/responses.jsonl     or a copy of those in a file
    runs/<night>/<model>/cut-short.jsonl     and those with finish_reason "length", which are not judged
    runs/<night>/<model>/judged-<digest>/    their judgments, as `score` stores them
    runs/<night>/anchors/judged-<digest>/    and of the anchors, by a judge behind an endpoint
    runs/anchors/judged-<digest>/            or by a local judge, once for all nights

Each folder is resumed, and a complete one is not run again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

from empathy_judge.calibration.artifact import NONE, CalibrationChoice, find_calibration
from empathy_judge.calibration.prompt_fit import fit_messages
from empathy_judge.data.crisis import LEFT_OUT, say_flags
from empathy_judge.data.errors import OperationalError, StaleCalibration, UserError
from empathy_judge.data.rated_range import say_outside
from empathy_judge.data.readers.conversations import write_talk
from empathy_judge.data.records import CONVERSATION, LABELS, UNNAMED_MODEL, Judgment
from empathy_judge.data.runs import discard_run
from empathy_judge.data.storage import digest_file
from empathy_judge.data.tables import Exchanges, read_exchanges, write_rows
from empathy_judge.data.text import slug
from empathy_judge.judge.base import Judge, load_judge
from empathy_judge.judge.budget import Budget
from empathy_judge.judge.explanation import explain
from empathy_judge.judge.llm.answers import OUT_OF_TOKENS
from empathy_judge.judge.llm.responder import RESPONSES, Responder, respond_to, say_counts
from empathy_judge.judge.scoring import ScoringRequest, SummarizedRun, plan_run, score_file
from empathy_judge.nightly.config import NIGHT, SAMPLE_ANCHORS, ModelEntry, NightlyConfig
from empathy_judge.nightly.gates import NOT_CALIBRATED
from empathy_judge.nightly.schema import AnchorResult, JudgedResponse, ModelResult
from empathy_judge.reports.progress import progress

Clock = Callable[[], datetime]
Announce = Callable[[Sequence[str]], object]
LLM_ANCHORS: Final = 48  # of the samples: a shift of 10 points is nearly always found, one of 5 suspected
CUT_SHORT: Final = f"cut short: {OUT_OF_TOKENS}"


@dataclass(frozen=True, slots=True)
class NightSetup:
    """The judge, calibration and budget of a night; `stale` is why a wanted calibration cannot be used.

    `started` is when it was first measured, which orders the nights.
    """

    config: NightlyConfig
    night: str
    started: str
    judge: Judge
    correction: CalibrationChoice
    stale: str | None
    budget: Budget
    clock: Clock
    again: bool
    announce: Announce
    reused: Sequence[Path]  # the folders of runs whose judgments by a server are reused

    @property
    def judge_key(self) -> tuple[str, str]:
        """The judge's name and version."""
        return self.judge.name, self.judge.version

    @property
    def order(self) -> tuple[str, str]:
        """The night's place among the nights."""
        return self.started, self.night

    @property
    def folder(self) -> Path:
        """The folder of the night's runs."""
        return self.config.runs / self.night


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModel:
    """A model's night, its single responses, and the folder they were judged in."""

    result: ModelResult
    judged: tuple[JudgedResponse, ...]
    folder: Path


def set_up_night(
    config: NightlyConfig, night: str, *, started: str, clock: Clock, again: bool, announce: Announce
) -> NightSetup:
    """Load the judge and its calibration as of that night, with one budget for all endpoints."""
    judge = load_judge(config.judge, unit=config.unit)
    budget = Budget(config.max_cost)
    judge.use_budget(budget)
    stale = None
    try:
        correction = find_calibration(judge, config.calibration, today=date_of(night, clock))
        if correction.calibration is None and config.calibration != NONE:
            stale = f'{NOT_CALIBRATED}: run `calibrate`, or set calibration = "none" in the config'
    except StaleCalibration as error:  # the night runs without it and reports it
        stale = str(error)
        correction = CalibrationChoice(calibration=None, note=stale)
    reused = (config.runs, config.path.parent / "runs")
    return NightSetup(
        config, night, started, judge, correction, stale, budget, clock, again, announce, reused
    )


def date_of(night: str, clock: Clock) -> date:
    """Return the date that a night is named by, or today's."""
    try:
        return date.fromisoformat(night[:10])
    except ValueError:
        return clock().date()


def measure(entry: ModelEntry, setup: NightSetup) -> MeasuredModel:
    """Measure one model; an `OperationalError` affects it alone; running the night again may fix it."""
    started, folder = setup.clock(), setup.folder / slug(entry.name)
    responses, about = (_ask if entry.endpoint else _take)(entry, setup, folder)
    run = score_responses(responses, setup, folder, entry.name)
    judged = tuple(_judged(entry.name, responses, run, setup))
    scored, cost = run.models[0], about["cost"]
    fit_notes = [] if setup.config.unit == CONVERSATION else fit_messages(scored.fit)
    missing = {f"no response: {reason}": count for reason, count in about["reasons"].items()}
    result = ModelResult(
        model=entry.name,
        served=", ".join(about["served"]) or None,
        responses=digest_file(responses),
        n=scored.judged,
        unscored={**scored.unscored, **missing},
        raw={} if scored.is_unresponsive else scored.shares,
        corrected=scored.corrected if isinstance(scored.corrected, Mapping) else {},
        cost=None if cost is None else round(cost + run.manifest["cost"], 6),
        seconds=max(0.0, (setup.clock() - started).total_seconds()),  # a clock may be put back
        refused=None if scored.is_own else scored.refused,
        fit=scored.fit,
        notes=(
            *(f"{line[0].upper()}{line[1:]}." for line in fit_notes if line != scored.refused),
            *say_outside(run.summary.outside),
            *(f"{line}." for line in say_flags(run.summary.flagged, LEFT_OUT)),
        ),
    )
    return MeasuredModel(result=result, judged=judged, folder=run.folder)


def measure_anchors(setup: NightSetup) -> tuple[tuple[AnchorResult, ...], float]:
    """Return the judgments of the anchors and their cost; a local judge scores them once for all nights.

    A server is asked every night, but for fewer of the samples: its judge may have changed.
    """
    path, folder, limit = setup.config.anchors, setup.config.runs, None
    if path is None:
        return (), 0.0
    if setup.judge.endpoints:
        setup, folder = replace(setup, reused=()), setup.folder
        limit = LLM_ANCHORS if path == SAMPLE_ANCHORS else None
        count = sum(1 for _ in islice(read_exchanges(path), limit))
        setup.announce([f"{count:,} anchors are asked every night, to detect drift of the judge"])
    run = score_responses(path, setup, folder / "anchors", "the anchors", limit=limit)
    digest = digest_file(path)[:16]
    results = tuple(
        AnchorResult(anchors=digest, item=item.id, score=item.score, **chances(item))
        for item in run.judgments()
    )
    return results, float(run.manifest["cost"])


def _take(entry: ModelEntry, setup: NightSetup, folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """Copy the model's rows of a file of responses; those that a server cut short are set aside."""
    taken, aside = folder / "responses.jsonl", folder / "cut-short.jsonl"
    source = Path(entry.responses.replace(NIGHT, setup.night))
    if not taken.exists() or setup.again:
        if not source.exists():  # made elsewhere every night, and tonight not yet
            raise OperationalError(f"{source}: no such file; run the command again once it exists")
        every = list(Exchanges(source, unit=setup.config.unit))
        own = (item for item in every if item.model in (entry.name, UNNAMED_MODEL))
        rows = [replace(item, model=entry.name) for item in own]
        if not rows:
            names = ", ".join(sorted({item.model for item in every})[:5]) or "none"
            raise UserError(f"{source}: no reply by {entry.name!r}; models in it: {names}")
        cut_short = [item for item in rows if item.extra.get("finish_reason") == "length"]
        if len(cut_short) == len(rows):
            raise OperationalError(f"{source}: every reply is {CUT_SHORT}")
        write_rows(aside, cut_short)
        write_rows(taken, (item for item in rows if item.extra.get("finish_reason") != "length"))
    cut = sum(1 for _ in read_exchanges(aside)) if aside.exists() else 0
    return taken, {"cost": 0.0, "served": {}, "reasons": {CUT_SHORT: cut} if cut else {}}


def _ask(entry: ModelEntry, setup: NightSetup, folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """Have the model answer the prompts; earlier answers are reused."""
    assert entry.endpoint is not None
    config, responder = setup.config, Responder(entry.endpoint)
    responder.endpoint.budget = setup.budget
    plan = responder.plan(config.prompts)
    with progress(f"asking {entry.name}", "answered") as on_progress:
        done = respond_to(
            config.prompts,
            responder,
            plan,
            folder / f"answers-{plan.digest[:8]}",
            limit=config.limit,
            on_progress=on_progress,
        )
    if not done.manifest["counts"]["responses"]:
        discard_run(done.folder)  # otherwise the same command would not ask again
        raise OperationalError(f"no prompt was answered: {say_counts(done.manifest['reasons'])}")
    return done.folder / RESPONSES, done.manifest


def score_responses(
    responses: Path, setup: NightSetup, folder: Path, who: str, *, limit: int | None = None
) -> SummarizedRun:
    """Score a file with tonight's judge; a complete run is read from its folder."""

    def announce(notes: Sequence[str]) -> None:
        setup.announce([f"{who}: {note}" for note in notes])

    plan = plan_run(responses, setup.judge, calibration=setup.correction.digest)
    with progress(f"scoring {who}", "scored") as on_progress:
        request = ScoringRequest(
            source=responses,
            judge=setup.judge,
            out=folder / f"judged-{plan.digest[:8]}",
            calibration=setup.correction,
            limit=limit,
            runs=setup.reused,
        )
        run = score_file(request, on_progress=on_progress, on_read=announce)
    if not run.summary.judged:
        reasons = {reason: n for model in run.models for reason, n in model.unscored.items()}
        if count := run.summary.flagged["count"]:
            reasons["answers somebody who may be in danger"] = count
        discard_run(run.folder)
        raise OperationalError(f"the judge scored no reply of {who}: {say_counts(reasons)}")
    return run


def _judged(model: str, responses: Path, run: SummarizedRun, setup: NightSetup) -> Iterator[JudgedResponse]:
    by_id = {item.id: item for item in run.judgments()}
    scored = [item for item in by_id.values() if item.score is not None and item.flag is None]
    worst = sorted(scored, key=lambda item: (item.score or 0.0, item.id))
    is_whole = setup.config.unit == CONVERSATION
    # An explanation takes several judgments, so none is asked of a judge behind an endpoint.
    count = 0 if setup.judge.endpoints or is_whole else setup.config.explain
    marked = {item.id for item in worst[:count]}
    for exchange in read_exchanges(responses):
        item = by_id.get(exchange.id)
        if item is None or item.flag is not None:  # those are for people to read
            continue
        parts = explain(setup.judge, exchange).parts if item.id in marked else ()
        prompt, response = write_talk(exchange) if is_whole else (exchange.prompt, exchange.response)
        yield JudgedResponse(
            model=model,
            id=item.id,
            prompt=prompt,
            response=response,
            emotion=exchange.emotion,
            situation=exchange.situation,
            label=item.label,
            score=item.score,
            **chances(item),
            rationale=item.rationale,
            unscored=item.unscored,
            highlights=[[part.text, part.effect, part.swapped] for part in parts] or None,
        )


def chances(item: Judgment) -> dict[str, Any]:
    """Return each label's probability by its name in the history."""
    known = item.probabilities
    return {label.lower(): None if known is None else known[label] for label in LABELS}
