"""A model's filled-in questionnaires as a folder, and results files as one: what `align report` goes on from.

    answers.jsonl  every sheet as it was answered, with the words of the answer
    sheets.jsonl   the marks alone
    manifest.json  who answered what under which settings, and how many marks are missing; written last

`data.runs` says how such a folder survives whatever interrupts it.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from data.errors import OperationalError, UserError
from data.runs import FinishedRun, OnProgress, Run, RunPlan, run_all
from data.tables import read_rows
from emotionbench.ask import Inquiry, Replayer, SelfReporter
from emotionbench.importer import import_results
from emotionbench.questionnaires import read_questionnaire
from emotionbench.sheets import SHEETS, Sheet, write_sheets
from emotionbench.situations import OURS, POSITIVE, choose_situations, read_situations
from judge.engine import ask_all
from judge.llm.answer_prompts import (
    count_served,
    make_model_config,
    read_model_config,
    say_counts,
    sum_usage,
)

ANSWERS = "answers"
FEWEST_DEFAULTS = 10  # sheets without a situation: every change is held against their mean


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignPlan(RunPlan):
    """What decides every sheet of a run."""

    model: str
    version: str
    scale: str
    questionnaire: str
    situations: str
    orders: int
    repeats: int
    defaults: int
    seed: int
    variant: str


def make_reporter(
    *,
    model_config: Path | None,
    scale: str,
    questionnaires: Path | None,
    situations: Path | None,
    emotions: tuple[str, ...],
    per_factor: int | None,
    orders: int,
    repeats: int,
    defaults: int | None,
    seed: int,
    positive: bool,
    stable: bool,
    replay: Path | None,
    **settings: Any,
) -> SelfReporter | Replayer:
    """Make whoever answers from the options of the command; `settings` are those of the model."""
    if positive and situations:
        raise UserError(
            "--positive: only ours are rewritten; leave --situations out, or name such ones there"
        )
    questionnaire = read_questionnaire(scale, copy=questionnaires)
    # A scale of one emotion is asked about its situations, as the benchmark did.
    wanted = emotions or ((questionnaire.emotion,) if questionnaire.emotion else ())
    inquiry = Inquiry(
        questionnaire=questionnaire,
        situations=choose_situations(
            read_situations(situations or (POSITIVE if positive else OURS)),
            emotions=wanted,
            per_factor=per_factor,
        ),
        orders=orders,
        repeats=repeats,
        defaults=defaults or max(orders, FEWEST_DEFAULTS),
        seed=seed,
        is_stable=stable,
        is_positive=positive,
    )
    if not questionnaire.texts:
        next(inquiry.blanks())  # refuses before a model is asked for
    if replay is not None:
        return Replayer(replay, inquiry, name=settings.get("name") or settings.get("model") or replay.stem)
    if model_config is None and settings.get("model") is None:
        raise UserError(
            "no model: name one with --model and --base-url, a file with --model-config, or --replay"
        )
    config = (
        read_model_config(model_config, **settings)
        if model_config
        else make_model_config(settings, place="options")
    )
    return SelfReporter(config, inquiry)


def plan_alignment(reporter: SelfReporter | Replayer) -> AlignPlan:
    """Make the plan that a run of this model over these situations is known by."""
    inquiry = reporter.inquiry
    texts = [[item.id, item.factor, item.text] for item in inquiry.situations]
    return AlignPlan(
        model=reporter.name,
        version=reporter.version,
        scale=inquiry.questionnaire.name,
        questionnaire=inquiry.questionnaire.digest,
        situations=sha256(json.dumps(texts).encode()).hexdigest()[:16],
        **{key: getattr(inquiry, key) for key in ("orders", "repeats", "defaults", "seed", "variant")},
    )


def run_alignment(
    reporter: SelfReporter | Replayer,
    plan: AlignPlan,
    folder: Path,
    *,
    max_cost: float | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> FinishedRun:
    """Have every sheet filled in that `folder` does not hold yet, and make the run whole."""
    if isinstance(reporter, SelfReporter):
        endpoint = reporter.endpoint
        endpoint.budget.most = None if max_cost is None else endpoint.budget.spent + max_cost

    def ask(run: Run, count_one: Callable[[], None]) -> int:
        return ask_all(reporter, reporter.fill_in, reporter.inquiry.blanks(), run, on_progress=count_one)

    def conclude(run: Run) -> tuple[dict[str, Any], None]:
        rows = [row for _, row in read_rows(run.judgments)]
        sheets = (
            Sheet(
                model=plan.model,
                scale=plan.scale,
                marks={int(item): mark for item, mark in row["marks"].items()},
                variant=plan.variant,
                **{key: row.get(key) for key in ("factor", "situation", "pair", "missing")},
            )
            for row in rows
        )
        write_sheets(folder / SHEETS, sheets)
        asked = None if isinstance(reporter, Replayer) else reporter
        missing = Counter(str(row["missing"]).partition(":")[0] for row in rows if "missing" in row)
        incomplete = sum("missing" in row and bool(row["marks"]) for row in rows)
        complete = len(rows) - missing.total()
        return {
            "asked_for": asked and asked.config.model,
            "base_url": asked and asked.endpoint.base_url,
            "decoding": asked and asked.decoding,
            "counts": {"sheets": len(rows), "complete": complete, "incomplete": incomplete},
            "missing": dict(sorted(missing.items())),
            **count_served(rows),
            **sum_usage(rows),
            "wall_seconds": run.seconds,
        }, None

    return run_all(
        folder,
        plan,
        total=reporter.inquiry.count,
        ask=ask,
        conclude=conclude,
        is_enough=lambda manifest: (folder / SHEETS).exists(),
        name=ANSWERS,
        on_progress=on_progress,
    )


def check_filled(run: FinishedRun) -> None:
    """Refuse a folder without a single mark: there is nothing to report."""
    counts = run.manifest["counts"]
    if not counts["complete"] and not counts["incomplete"]:
        raise OperationalError(
            f"{run.folder}: none of {counts['sheets']:,} sheets bears a mark: "
            f"{say_counts(run.manifest['missing'])}; these are not asked again in this folder: "
            "mend the cause and name another with --out"
        )


def import_files(paths: Sequence[Path], out: Path) -> dict[str, dict[str, int]]:
    """Write results files as one file of sheets, `out`; returns what each of them held."""
    results = {path: import_results(path) for path in paths}
    write_sheets(out, (sheet for result in results.values() for sheet in result.sheets))
    return {str(path): dict(result.counts) for path, result in results.items()}
