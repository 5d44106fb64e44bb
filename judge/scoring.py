"""Score a file of replies: judge every row into a run folder, and correct each model's shares."""

import math
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from datetime import date
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from empathy_judge.calibration import artifact
from empathy_judge.calibration.artifact import CalibrationChoice, find_calibration
from empathy_judge.calibration.estimate import CONFIDENCE, UNDEFINED, Estimate
from empathy_judge.calibration.prompt_fit import UNRESPONSIVE, PromptFit, fit_messages
from empathy_judge.calibration.shares.correction import NO_LEVEL, RefusedShares, correct_shares
from empathy_judge.calibration.shares.tally import Tally, model_shares, replies_digest
from empathy_judge.data import runs, storage, tables
from empathy_judge.data.crisis import READING_LIST, Flags
from empathy_judge.data.errors import UserError
from empathy_judge.data.rated_range import OutsideCount, say_outside
from empathy_judge.data.readers.file_formats import BadRow
from empathy_judge.data.readers.table_rows import stop_at_bad_row
from empathy_judge.data.records import CONVERSATION, LABELS, NOUNS, REPLY, Exchange, Judgment, to_plain
from empathy_judge.data.runs import OnProgress, Run
from empathy_judge.data.storage import Columns, Shards, Source
from empathy_judge.data.text import money
from empathy_judge.judge.base import DEFAULT, Judge, load_judge
from empathy_judge.judge.budget import Budget, say_calls
from empathy_judge.judge.embeddings import FitCollector
from empathy_judge.judge.engine import score_exchanges
from empathy_judge.judge.explanation import Explanation, explain

Watch = Callable[[Path, Judge], AbstractContextManager[OnProgress]]  # shows the progress of a file
CAVEAT = {
    REPLY: "Intervals cover the choice of prompts only, not the judge's own errors.",
    CONVERSATION: "Trust the order, not the numbers: the judge's level of conversations deviates from human"
    " ratings.",
}
OWN = f"The judge's own shares, not estimates of human ratings. {NO_LEVEL[0].upper()}{NO_LEVEL[1:]}."
CORRECTED = "Shares are corrected. Intervals include the judge's error on models without human ratings."
DRAWS = 2000
COST_SAMPLE = 200  # replies from which the cost of a run is estimated
GUESSES = 1000  # ids among which a mistyped one is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredModel:
    """A model's figures in a run: the judge's own shares, and what a calibration makes of them."""

    name: str
    judged: int
    unscored: Mapping[str, int]  # by reason
    shares: Mapping[str, Estimate]
    corrected: Mapping[str, Estimate] | RefusedShares | None  # None without a calibration
    fit: PromptFit | None = None  # None where it was not measured
    is_rated: bool = False  # whether people rated these very replies for the calibration

    @property
    def is_unresponsive(self) -> bool:
        """Whether its replies do not respond to their prompts."""
        return self.fit is not None and self.fit.state == UNRESPONSIVE

    @property
    def good(self) -> Estimate | RefusedShares:
        """The share of Good: corrected, or refused with a reason, where the run has a calibration."""
        if isinstance(self.corrected, RefusedShares):
            return self.corrected
        return (self.corrected or self.shares).get(LABELS[-1], UNDEFINED)

    @property
    def refused(self) -> str | None:
        """Why the calibration refused its level, if it did."""
        return self.corrected.reason if isinstance(self.corrected, RefusedShares) else None

    @property
    def is_own(self) -> bool:
        """Whether its shares are the own ones of a language model without a calibration."""
        return self.refused == NO_LEVEL

    @property
    def printed_shares(self) -> Mapping[str, Estimate]:
        """The shares to print: corrected where the run has a calibration, none where these are refused."""
        if self.is_own:
            return self.shares
        return {} if self.refused else self.corrected or self.shares  # type: ignore[return-value]

    def as_dict(self) -> dict[str, Any]:
        """Return it as `summary.json` has it."""
        corrected: dict[str, Any] = {}
        if self.corrected is not None:
            shares = None if isinstance(self.corrected, RefusedShares) else _plain_shares(self.corrected)
            corrected = {"corrected": shares, "refused": self.refused}
        return {
            "model": self.name,
            "judged": self.judged,
            "unscored": sum(self.unscored.values()),
            "reasons": dict(sorted(self.unscored.items())),
            "shares": _plain_shares(self.shares),
            **corrected,
            "rated": self.is_rated,
            "fit": self.fit and self.fit.as_dict(),
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """Read what `as_dict` returned."""
        refused, corrected = row.get("refused"), row.get("corrected")
        return cls(
            name=row["model"],
            judged=row["judged"],
            unscored=row["reasons"],
            shares=_read_shares(row["shares"]),
            corrected=RefusedShares(refused) if refused else _read_shares(corrected) if corrected else None,
            fit=PromptFit.from_dict(row["fit"]) if row["fit"] else None,
            is_rated=row["rated"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The summary of a run, as `summary.json` has it; models with the most Good replies come first."""

    unit: str
    judge: str
    is_language_model: bool = False  # whether the judge asks one
    version: str
    rubric: str
    calibration: str | None
    calibration_note: str
    seed: int
    counts: Mapping[str, int]  # replies judged, left unscored, and set aside as bad rows
    flagged: Mapping[str, Any]  # replies to people who may be in danger
    rated: Mapping[str, Any] | None
    outside: Mapping[str, Any]  # replies unlike the rated ones
    models: tuple[ScoredModel, ...]
    caveats: tuple[str, ...]
    report: tuple[str, ...]  # lines that the judge adds
    dimension: str
    dimension_note: str  # empty where the whole of empathy was judged

    @property
    def judged(self) -> int:
        """The number of replies judged."""
        return self.counts["judged"]

    def as_dict(self) -> dict[str, Any]:
        """Return it as `summary.json` has it."""
        plain = {item.name: to_plain(getattr(self, item.name)) for item in fields(self)}
        return {**plain, "confidence": CONFIDENCE, "draws": DRAWS}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """Read what `as_dict` returned."""
        values = {item.name: row[item.name] for item in fields(cls) if item.name in row}
        values |= {name: tuple(row[name]) for name in ("caveats", "report")}
        return cls(**values | {"models": tuple(map(ScoredModel.from_dict, row["models"]))})


def _rank(model: ScoredModel) -> tuple[float, str]:
    value = model.printed_shares.get(LABELS[-1], UNDEFINED).order
    return (2.0 if math.isnan(value) else -value, model.name)


def _plain_shares(shares: Mapping[str, Estimate]) -> dict[str, dict[str, Any]]:
    """Return shares for JSON, to six digits."""
    return {
        label: {key: round(end, 6) if isinstance(end, float) else end for key, end in share.as_dict().items()}
        for label, share in shares.items()
    }


def _read_shares(shares: Mapping[str, Mapping[str, Any]]) -> dict[str, Estimate]:
    return {label: Estimate.from_dict(share) for label, share in shares.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarizedRun(runs.FinishedRun):
    """A complete run of a judge, and its summary."""

    summary: RunSummary

    @property
    def models(self) -> tuple[ScoredModel, ...]:
        """The models, the one with the most Good replies by the judge's own count first."""
        return self.summary.models

    def judgments(self) -> Iterator[Judgment]:
        """Yield the judgments in the order of the input, mapped if the calibration has a map."""
        return read_mapped(self.folder)


def read_mapped(run: Path) -> Iterator[Judgment]:
    """Yield the judgments of a run, mapped if its calibration has a map."""
    return artifact.map_judgments(artifact.read_saved(run), tables.read_judgments(run / "judgments.jsonl"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringRequest:
    """What to score with which judge."""

    source: Source
    judge: Judge
    out: Path | None = None  # by default a folder in `runs/` that the same request finds again
    calibration: str | CalibrationChoice | None = None  # a file, "none", or None: the judge's own if it fits
    limit: int | None = None
    skip_invalid: bool = False
    seed: int = 0
    engine: Callable[..., None] = score_exchanges
    runs: Sequence[Path] = (Path("runs"), Path("nights"))  # where a server's judgments are reused from

    def exchanges(self, on_bad: Callable[[BadRow], None]) -> tables.Exchanges:
        """Read the exchanges; `on_bad` gets the rows to skip, if these may be skipped."""
        on_bad = on_bad if self.skip_invalid else stop_at_bad_row
        return tables.Exchanges(self.source, on_bad=on_bad, unit=self.judge.unit)

    def is_met_by(self, manifest: Mapping[str, Any]) -> bool:
        """Return whether a finished run has all that is requested."""
        is_same = (manifest["seed"], manifest["unit"]) == (self.seed, self.judge.unit)
        is_as_far = (self.limit or math.inf) <= (manifest["limit"] or math.inf)
        return is_same and is_as_far and (self.skip_invalid or not manifest["counts"]["set_aside"])


@dataclass(frozen=True, slots=True)
class ScoringPlan:
    """A request whose rows were all read: what is refused, is refused before the first judgment."""

    request: ScoringRequest
    calibration: CalibrationChoice
    total: int
    notes: Sequence[str]
    fits: FitCollector
    plan: runs.RunPlan
    folder: Path

    def read(self) -> Iterator[tuple[Exchange, str]]:
        """Yield every exchange to judge, with its identity."""
        exchanges = islice(self.request.exchanges(lambda bad: None), self.request.limit)
        return self.request.judge.identify(exchanges)

    def find_judgments(self) -> dict[str, Judgment]:
        """Return what runs have of the judgments to make, by identity; only this run if it is a fresh one."""
        others = () if runs.is_fresh(self.folder) else self.request.runs
        wanted = {identity for _, identity in self.read()}
        return runs.find_judgments(self.plan, (self.folder, *others), wanted)

    def left(self) -> Iterator[Exchange]:
        """Yield the exchanges to ask for."""
        manifest = self.folder / "manifest.json"
        if not manifest.exists() or not self.request.is_met_by(runs.read_object(manifest)):
            seen = set(self.find_judgments())
            for exchange, identity in self.read():
                if identity not in seen:
                    yield exchange
                seen.add(identity)

    def copy_judgments(self, run: Run) -> None:
        """Copy to a run of this plan what others have, and mark exchanges that occur twice."""
        found, seen = self.find_judgments(), set[str]()
        for position, (exchange, identity) in enumerate(self.read()):
            if identity != exchange.content_digest:
                run.identities[position] = identity
            if identity in found:
                run.reuse(position, exchange, found[identity])
            elif identity in seen:
                run.twins[position] = exchange, identity
            seen.add(identity)


def plan_scoring(request: ScoringRequest) -> ScoringPlan:
    """Read every row of a request; refuse bad rows, and a file with nothing to judge."""
    storage.check_source(request.source)
    judge, calibration = request.judge, request.calibration
    if not isinstance(calibration, CalibrationChoice):
        calibration = find_calibration(judge, calibration, today=date.today())
    bad: list[BadRow] = []
    exchanges = request.exchanges(lambda row: None if bad else bad.append(row))
    fits, total = FitCollector(judge.unit), 0
    for exchange in islice(exchanges, request.limit):
        fits.add(exchange)
        total += 1
    if not total:
        problem = f"no row can be read; the first: {bad[0]}" if bad else "the file has no rows"
        raise UserError(f"{request.source}: nothing to score: {problem}")
    plan = plan_run(request.source, judge, calibration=calibration.digest)
    folder = request.out or plan.default_folder("runs", storage.as_shards(request.source).stem, judge.name)
    return ScoringPlan(request, calibration, total, exchanges.notes(), fits, plan, folder)


def start_afresh(plans: Sequence[ScoringPlan]) -> None:
    """Discard the runs and start them without judgments of others, unless a part was started so already."""
    if not any(runs.is_fresh(plan.folder, unfinished=True) for plan in plans):
        for plan in plans:
            runs.start_afresh(plan.folder, plan.plan)


def describe_calls(plans: Sequence[ScoringPlan]) -> list[str]:
    """Describe what a judge's servers are asked for; tokens and cost are estimated from the first calls."""
    judge, total = plans[0].request.judge, sum(plan.total for plan in plans)
    if not judge.endpoints:
        return []
    groups = judge.group(chain.from_iterable(plan.left() for plan in plans))
    first = list(islice(groups, COST_SAMPLE))
    sizes = [len(group) for group in chain(first, groups)]
    asked, lines = sum(sizes), []
    if asked < total:
        number = f"{asked:,}" if asked else "none"
        lines = [f"{judge.name}: reused {total - asked:,} of {total:,} judgments; {number} asked"]
    if asked:
        calls = [call for group in first for call in judge.guess_calls(*group)]
        guess = say_calls(calls, len(sizes) / len(first))
        lines.append(f"{judge.name}: {asked:,} {NOUNS[judge.unit]}: {guess}")
    return lines


def score_file(
    request: ScoringRequest | ScoringPlan,
    *,
    on_progress: OnProgress = lambda done, total: None,
    on_read: Callable[[Sequence[str]], object] | None = None,
) -> SummarizedRun:
    """Judge every reply that the run does not hold yet, and finish the run."""
    planned = request if isinstance(request, ScoringPlan) else plan_scoring(request)
    request, folder, calibration = planned.request, planned.folder, planned.calibration
    judge = request.judge
    is_copied = request.out is None and not judge.endpoints
    if on_read:
        on_read([*planned.notes, *describe_calls([planned])])
    if request.engine is score_exchanges:
        judge.prepare(planned.total)

    def ask(run: Run) -> None:
        if judge.endpoints:
            planned.copy_judgments(run)
        request.engine(judge, request.exchanges(run.set_aside), run, limit=request.limit)
        run.copy_to_twins()

    def conclude(run: Run) -> dict[str, Any]:
        summary, cost = summarize(
            partial(tables.read_judgments, run.judgments),
            judge,
            calibration,
            seed=request.seed,
            set_aside=run.set_aside_count,
            fits=planned.fits.result(),
        )
        if summary.flagged["count"]:
            _write_reading_list(request, run.judgments)
        if calibration.calibration:  # for `compare`
            artifact.write_calibration(folder / artifact.CALIBRATION_FILE, calibration.calibration)
        plain = summary.as_dict()
        shared = ("unit", "is_language_model", "dimension", "dimension_note", "seed", "counts", "outside")
        return {name: plain[name] for name in shared} | {
            "judge_option": judge.spec or judge.name,
            "is_joint": judge.is_joint,
            "limit": request.limit,
            "runtime": f"onnxruntime {version('onnxruntime')}, Python {platform.python_version()}",
            "machine": f"{platform.machine()} {platform.system()}",
            "cost": cost,
            "summary": plain,
        }

    run = runs.run_all(
        folder,
        planned.plan,
        total=planned.total,
        ask=ask,
        conclude=conclude,
        is_enough=request.is_met_by,
        known=runs.find_known(folder, planned.plan) if is_copied else None,
        on_progress=on_progress,
    )
    read = RunSummary.from_dict(runs.read_object(folder / "summary.json"))
    summary = replace(read, calibration_note=calibration.note)  # that in the file may be of another day
    return SummarizedRun(folder=folder, manifest=run.manifest, asked=run.asked, summary=summary)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredFiles:
    """The runs, those of files among them; `labels` are the files' names, `sources` their replies."""

    runs: tuple[Path, ...]
    labels: Mapping[Path, str]
    sources: tuple[Source, ...]


def score_files(
    paths: Sequence[Path],
    *,
    judges: Sequence[str] = (),
    columns: Columns = Columns(),  # noqa: B008 (frozen)
    calibration: str | None = None,
    skip_invalid: bool = False,
    budget: Budget | None = None,
    fresh: bool = False,
    allow_joint: bool = False,
    check: Callable[[Mapping[Path, Shards]], object] = bool,
    watch: Watch,
    on_read: Callable[[Sequence[str]], object],
) -> ScoredFiles:
    """Score the files among `paths` with every judge, from one budget; return their runs in place of them.

    Without `judges` it is the judge of the runs among `paths`. `check` gets the files before any is scored.
    """
    files = [path for path in paths if not path.is_dir()]
    names = dict(zip(files, storage.unique_names([str(path) for path in files]), strict=True))
    sources: dict[Path, Shards] = {
        path: replace(storage.find_sources([path], columns), models=(names[path],)) for path in files
    }
    check(sources)
    manifests = [runs.read_manifest(path) for path in paths if path.is_dir()]
    units = {tables.notice_unit(source) for source in sources.values()}
    units |= {manifest["unit"] for manifest in manifests}
    if len(units) > 1:
        raise UserError(
            "some files have whole conversations and some have single replies; score them with the same "
            "--unit first, then compare the runs"
        )
    default = manifests[0]["judge_option"] if manifests else DEFAULT
    (unit,) = units
    loaded = [
        load_judge(name, unit=unit, allow_joint=allow_joint) for name in dict.fromkeys(judges or [default])
    ]
    planned: dict[tuple[Judge, Path], ScoringPlan] = {}
    for judge in loaded:
        merged = {files[0]: storage.find_sources(files, columns)} if judge.is_joint and files[1:] else sources
        for path, source in merged.items():
            request = ScoringRequest(
                source=source, judge=judge, calibration=calibration, skip_invalid=skip_invalid
            )
            planned[judge, path] = plan_scoring(request)
    if len({plan.folder for plan in planned.values()}) < len(planned) or len(names) < len(files):
        raise UserError(
            "the same replies or the same judge are passed twice; pass each file and each judge once"
        )
    budget = budget or Budget()
    for judge in loaded:
        judge.use_budget(budget)
    if fresh:
        start_afresh([*planned.values()])
    on_read(list(dict.fromkeys(note for plan in planned.values() for note in plan.notes)))
    for judge in loaded if files else ():
        on_read(describe_calls([plan for (each, _), plan in planned.items() if each is judge]))
    for (judge, path), plan in planned.items():
        with watch(path, judge) as on_progress:
            score_file(plan, on_progress=on_progress)
    if budget.spent:
        on_read([f"spent on language models: {money(budget.spent)}"])
    scored = {
        path: [planned[judge, path].folder for judge in loaded if (judge, path) in planned] for path in files
    }
    return ScoredFiles(
        runs=tuple(run for path in paths for run in scored.get(path, [path])),
        labels={folder: names[path] for path, folders in scored.items() for folder in folders},
        sources=tuple(sources.values()),
    )


def _write_reading_list(request: ScoringRequest, judgments: Path) -> None:
    """Write the flagged replies beside the judgments, as a file of replies that also names the danger."""
    flags = {item.id: item.flag for item in tables.read_judgments(judgments) if item.flag}
    flagged = (item for item in request.exchanges(lambda bad: None) if item.id in flags)
    rows = ({**tables.to_row(item), "danger": flags[item.id]} for item in flagged)
    tables.write_rows(judgments.with_name(READING_LIST), rows)


def plan_run(source: Source, judge: Judge, *, calibration: str | None = None) -> runs.RunPlan:
    """Return what identifies a run of this judge over this source, with the calibration of this digest."""
    return runs.RunPlan(
        judge=judge.name,
        version=judge.version,
        rubric=judge.rubric.digest,
        input=storage.digest_source(source),
        calibration=calibration,
    )


def find_responses(request: ScoringRequest, ids: Iterable[str]) -> list[Exchange]:
    """Return the replies with these ids, in the order given; refuse an unknown id, and name similar ones."""
    wanted = dict.fromkeys(ids)
    chosen: dict[str, Exchange] = {}
    seen: list[str] = []
    for exchange in islice(request.exchanges(lambda bad: None), request.limit) if wanted else ():
        if exchange.id in wanted:
            chosen[exchange.id] = exchange
        seen += [exchange.id] if len(seen) < GUESSES else []
    for identity in wanted.keys() - chosen.keys():
        some = get_close_matches(identity, seen, n=3) or seen[:3]
        among = f" among the first {request.limit:,}" if request.limit else ""
        raise UserError(
            f"--explain: no reply has the id {identity!r}{among}; known ids are, for example, "
            f"{', '.join(map(repr, some))}"
        )
    return [chosen[identity] for identity in wanted]


def explain_responses(exchanges: Sequence[Exchange], judge: Judge, run: SummarizedRun) -> list[Explanation]:
    """Explain the judge's own score of each reply; the run has the judgments of the whole replies."""
    ids = {exchange.id for exchange in exchanges}
    own = tables.read_judgments(run.folder / "judgments.jsonl") if ids else ()
    whole = {item.id: item for item in own if item.id in ids}
    return [explain(judge, exchange, whole=whole[exchange.id]) for exchange in exchanges]


def summarize(
    read: Callable[[], Iterable[Judgment]],
    judge: Judge,
    calibrated: CalibrationChoice,
    *,
    seed: int,
    set_aside: int = 0,
    fits: Mapping[str, PromptFit | None] = MappingProxyType({}),
) -> tuple[RunSummary, float]:
    """Return the summary of the judgments that `read` gives, as often as it is called; and their cost."""
    tally, flags, cost = Tally(), Flags(), 0.0
    outside_count = OutsideCount(judge.rated, calibrated.covers)
    for judgment in artifact.map_judgments(calibrated.calibration, read()):
        tally.add(judgment)
        flags.add(judgment)
        outside_count.add(judgment.features if judgment.unscored is None else None)
        cost += 0.0 if judgment.reused else (judgment.usage or {}).get("cost", 0.0)
    unit, outside, calibration = judge.unit, outside_count.as_dict(), calibrated.calibration
    corrected = correct_shares(tally, calibration) if calibration else {}
    scored = []
    for item in model_shares(tally, rng=np.random.default_rng(seed), draws=DRAWS):
        fit, level, shares = fits.get(item.model), corrected.get(item.model), item.shares
        if unit == CONVERSATION:
            shares = {label: Estimate(share.value, None) for label, share in shares.items()}
        if judge.is_language_model and calibration is None and shares:
            level = RefusedShares(NO_LEVEL)
        if fit is not None and fit.state == UNRESPONSIVE:  # such replies have no level
            level = RefusedShares(fit_messages(fit)[0])
        replies = replies_digest(tally.replies.get(item.model, 0))
        scored.append(
            ScoredModel(
                name=item.model,
                judged=item.scored,
                unscored=item.unscored,
                shares=shares,
                corrected=level,
                fit=fit,
                is_rated=bool(calibration and calibration.rated_shares(replies) is not None),
            )
        )
    caveats = [
        judge.rubric.note,
        CORRECTED if calibration else OWN if judge.is_language_model else CAVEAT[unit],
        judge.caveat,
    ]
    caveats += say_outside(outside, unit, with_situations=True)
    summary = RunSummary(
        unit=unit,
        judge=judge.name,
        is_language_model=judge.is_language_model,
        version=judge.version,
        rubric=judge.rubric.digest,
        calibration=calibrated.digest,
        calibration_note=calibrated.note,
        seed=seed,
        counts={
            "judged": sum(item.judged for item in scored),
            "unscored": sum(sum(item.unscored.values()) for item in scored),
            "set_aside": set_aside,
        },
        flagged=flags.as_dict(),
        rated=to_plain(judge.rated),
        outside=outside,
        models=tuple(sorted(scored, key=_rank)),
        caveats=tuple(filter(None, caveats)),
        report=tuple(judge.report(read())),
        dimension=judge.rubric.dimension,
        dimension_note=judge.rubric.note if judge.rubric.is_part else "",
    )
    return summary, round(cost, 6)
