"""A night's measuring: every model's responses, made or taken, and what the judge says of them.

    runs/<night>/<model>/answers-<digest>/   what the model answered, as `respond` keeps it
    runs/<night>/<model>/responses.jsonl     or a copy of a file's, whatever becomes of that later
    runs/<night>/<model>/judged-<digest>/    what the judge said of it, as `score` keeps it
    runs/<night>/anchors/judged-<digest>/

Each folder goes on where it was left, and one that is whole is asked for nothing more.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

from calibration.artifact import FILE, NONE, Found, find_calibration
from data.errors import OperationalError, StaleCalibration, UserError
from data.records import LABELS, UNNAMED_MODEL, Judgment
from data.runs import discard_run
from data.storage import digest_file
from data.tables import read_exchanges, read_judgments, write_rows
from data.text import slug
from judge.base import Judge, load_judge
from judge.explain import explain
from judge.llm.answer_prompts import Responder, plan_responses, respond_to, say_counts
from judge.llm.limits import Budget
from judge.panel import endpoints_of
from judge.score_file import OnProgress, ScoredRun, plan_run, score_responses
from nightly.config import ModelEntry, NightlyConfig
from nightly.schema import AnchorResult, JudgedResponse

Watching = Callable[[str, str], AbstractContextManager[OnProgress]]
Clock = Callable[[], datetime]
UNANSWERED: Final = "no response"  # among the reasons for unscored
NOTHING_ASKED: Final[Mapping[str, Any]] = {"cost": 0.0, "served": {}, "reasons": {}}


@contextmanager
def unwatched(doing: str, done: str) -> Iterator[OnProgress]:
    """Shows no progress."""
    yield lambda count, total: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a night is measured with; `stale` says why the calibration cannot be used, if one is wanted."""

    config: NightlyConfig
    night: str
    judge: Judge
    found: Found
    stale: str | None
    purse: Budget
    clock: Clock
    watching: Watching = unwatched
    again: bool = False

    @property
    def folder(self) -> Path:
        return self.config.runs / self.night

    @property
    def calibration(self) -> str | None:
        """Where the calibration lies, for those who read it themselves."""
        if self.found.calibration is None:
            return NONE
        return self.config.calibration or str(Path(getattr(self.judge, "folder", "")) / FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A model's night: what was judged, and what got no response; `cost` is None where it is not known."""

    model: str
    responses: str
    served: str | None
    missing: Mapping[str, int]
    run: ScoredRun
    judged: tuple[JudgedResponse, ...]
    cost: float | None
    seconds: float

    @property
    def summary(self) -> Mapping[str, Any]:
        """The model's row in its run's summary."""
        row: Mapping[str, Any] = self.run.summary["models"][0]
        return row

    @property
    def unscored(self) -> dict[str, int]:
        """Counts by reason; a prompt without a response is one of them."""
        return {**self.summary["reasons"], **{f"{UNANSWERED}: {key}": n for key, n in self.missing.items()}}


def set_up(
    config: NightlyConfig, night: str, *, clock: Clock, watching: Watching = unwatched, again: bool = False
) -> Bench:
    """The judge, its calibration as it stands on that night, and one purse for all who are asked."""
    judge = load_judge(config.judge)
    purse = Budget(config.max_cost)
    for endpoint in endpoints_of(judge):
        endpoint.budget = purse
    found, stale = _find(judge, config.calibration, date_of(night, clock))
    return Bench(
        config=config,
        night=night,
        judge=judge,
        found=found,
        stale=stale,
        purse=purse,
        clock=clock,
        watching=watching,
        again=again,
    )


def date_of(night: str, clock: Clock) -> date:
    """A night's own date, so that one taken up again after midnight ends as it would have before."""
    try:
        return date.fromisoformat(night[:10])
    except ValueError:
        return clock().date()


def _find(judge: Judge, wanted: str | None, today: date) -> tuple[Found, str | None]:
    """A night goes on without its calibration, and says so."""
    try:
        found = find_calibration(judge, wanted, today=today)
    except StaleCalibration as error:
        return Found(calibration=None, says=str(error)), str(error)
    is_missed = found.calibration is None and wanted != NONE
    return found, f'{found.says}; or do without: calibration = "none"' if is_missed else None


def measure(entry: ModelEntry, bench: Bench) -> Measured:
    """One model; an `OperationalError` is of this model alone, and the same night given again may mend it."""
    started = bench.clock()
    folder = bench.folder / slug(entry.name)
    if entry.endpoint is None:
        responses, about = _take(entry, bench, folder)
    else:
        responses, about = _ask(entry, bench, folder)
    run = _score(responses, bench, folder, entry.name)
    judged = tuple(_judged(entry.name, responses, run, bench))
    known = about["cost"]
    return Measured(
        model=entry.name,
        responses=digest_file(responses),
        served=", ".join(about["served"]) or None,
        missing=about["reasons"],
        run=run,
        judged=judged,
        cost=None if known is None else round(known + run.manifest["cost"], 6),
        seconds=max(0.0, (bench.clock() - started).total_seconds()),  # a clock may be put back
    )


def measure_anchors(bench: Bench) -> tuple[tuple[AnchorResult, ...], float]:
    """What the judge says tonight of what never changes, and what that cost."""
    if bench.config.anchors is None:
        return (), 0.0
    path = bench.config.anchors
    run = _score(path, bench, bench.folder / "anchors", "the anchors")
    digest = digest_file(path)[:16]
    found = tuple(
        AnchorResult(anchors=digest, item=item.id, score=item.score, **_said(item))
        for item in read_judgments(run.folder / "judgments.jsonl")
    )
    return found, float(run.manifest["cost"])


def _take(entry: ModelEntry, bench: Bench, folder: Path) -> tuple[Path, Mapping[str, Any]]:
    """A copy of the model's rows in a file of responses."""
    taken, source = folder / "responses.jsonl", entry.responses_of(bench.night)
    if taken.exists() and not bench.again:
        return taken, NOTHING_ASKED
    if not source.exists():  # made elsewhere every night, and tonight not yet
        raise OperationalError(f"{source}: no such file; give the same command again once it is there")
    every = list(read_exchanges(source))
    own = [replace(item, model=entry.name) for item in every if item.model in (entry.name, UNNAMED_MODEL)]
    if not own:
        known = ", ".join(sorted({item.model for item in every})[:5]) or "none"
        raise UserError(f"{source}: no response by {entry.name!r}; models there: {known}; use such a name")
    write_rows(taken, own)
    return taken, NOTHING_ASKED


def _ask(entry: ModelEntry, bench: Bench, folder: Path) -> tuple[Path, Mapping[str, Any]]:
    assert entry.endpoint is not None
    responder = Responder(entry.endpoint)
    responder.endpoint.budget = bench.purse
    most = bench.purse.most
    plan = plan_responses(bench.config.prompts, responder)
    with bench.watching(f"asking {entry.name}", "answered") as on_progress:
        responded = respond_to(
            bench.config.prompts,
            responder,
            plan,
            folder / f"answers-{plan.digest[:8]}",
            limit=bench.config.limit,
            max_cost=None if most is None else most - bench.purse.spent,
            on_progress=on_progress,
        )
    if not responded.manifest["counts"]["responses"]:
        discard_run(responded.folder)  # else the same night given again would not ask again
        raise OperationalError(f"no prompt was answered: {say_counts(responded.manifest['reasons'])}")
    return responded.responses, responded.manifest


def _score(responses: Path, bench: Bench, folder: Path, who: str) -> ScoredRun:
    plan = plan_run(responses, bench.judge, calibration=bench.found.digest)
    with bench.watching(f"judging {who}", "judged") as on_progress:
        run = score_responses(
            responses,
            bench.judge,
            plan,
            folder / f"judged-{plan.digest[:8]}",
            calibrated=bench.found,
            on_progress=on_progress,
        )
    if not run.summary["counts"]["judged"]:
        reasons = {reason: n for row in run.summary["models"] for reason, n in row["reasons"].items()}
        discard_run(run.folder)
        raise OperationalError(f"the judge scored no response of {who}: {say_counts(reasons)}")
    return run


def _judged(model: str, responses: Path, run: ScoredRun, bench: Bench) -> Iterator[JudgedResponse]:
    by_id = {item.id: item for item in read_judgments(run.folder / "judgments.jsonl")}
    scored = [item for item in by_id.values() if item.score is not None]
    # Marking takes several judgments a response: of a judge that is paid for each, none.
    is_free = not endpoints_of(bench.judge)
    worst = sorted(scored, key=lambda item: (item.score or 0.0, item.id))
    marked = {item.id for item in worst[: bench.config.explain if is_free else 0]}
    for exchange in read_exchanges(responses):
        item = by_id.get(exchange.id)
        if item is None:
            continue
        parts = explain(bench.judge, exchange, whole=item).parts if item.id in marked else ()
        yield JudgedResponse(
            model=model,
            id=item.id,
            prompt=exchange.prompt,
            response=exchange.response,
            emotion=exchange.emotion,
            situation=exchange.situation,
            label=item.label,
            score=item.score,
            **_said(item),
            rationale=item.rationale,
            unscored=item.unscored,
            highlights=[[part.text, part.effect] for part in parts] or None,
        )


def _said(item: Judgment) -> dict[str, float | None]:
    found = item.probabilities
    return {label.lower(): None if found is None else found[label] for label in LABELS}
