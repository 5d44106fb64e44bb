"""The command that says how far to trust a judge, and fits the calibration that corrects it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commands.shared.next_step import say, say_next
from commands.shared.options import (
    FILE,
    complete_judge,
    interruptible,
    ratings_options,
    reading_words,
    say_notes,
    sheet_options,
)
from data.errors import UserError

if TYPE_CHECKING:
    from calibration.inputs import CalibrationInputs
    from data.records import Exchange
    from judge.robustness.resistance import Resistance
    from reports.calibration.bias import ProbedJudge
    from reports.page import Page

INCONCLUSIVE, FAILED = 3, 1


@click.command()
@click.argument("runs", type=FILE, nargs=-1, metavar="RUN... RATINGS")
@click.option(
    "--exchanges",
    type=FILE,
    multiple=True,
    help="The texts, for length, emotions, examples, and ratings without ids; may be repeated.",
)
@ratings_options
@click.option("--dimension", help="Which dimension of the ratings.  [default: the one that was judged]")
@click.option(
    "--judge", "judges", multiple=True, metavar="NAME", help="Of a table of several judges; may be repeated."
)
@click.option(
    "--rater", "raters", multiple=True, metavar="NAME", help="Count these raters only; may be repeated."
)
@click.option(
    "--probe",
    metavar="JUDGE",
    shell_complete=complete_judge,
    help="Also show this judge rewritten replies, and see what changes; needs --exchanges.",
)
@click.option(
    "--attack",
    metavar="JUDGE",
    shell_complete=complete_judge,
    help="Also try to fool this judge; without RUN and RATINGS, only this.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=24),
    metavar="N",
    help="With --attack: about N judgments instead of 3,000, for a judge that costs money.",
)
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0),
    metavar="USD",
    help="With --attack: stop before more than this is spent; the same command goes on later.",
)
@click.option("--attack-all", is_flag=True, help="With --attack: all forms at once too; three times as long.")
@click.option(
    "--out", type=FILE, help="Where calibration.json and report.* go.  [default: calibrations/<run>]"
)
@click.option("--verbose", "-v", is_flag=True, help="Show tables of judges, models and biases too.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
@click.pass_context
def calibrate(
    ctx: click.Context,
    /,
    runs: tuple[Path, ...],
    exchanges: tuple[Path, ...],
    scale: str | None,
    cut: str | None,
    columns: tuple[str, ...],
    ai_raters: str | None,
    skip_invalid: bool,
    judges: tuple[str, ...],
    raters: tuple[str, ...],
    probe: str | None,
    attack: str | None,
    attack_all: bool,
    sample: int | None,
    max_cost: float | None,
    out: Path | None,
    verbose: bool,
    as_json: bool,
    dimension: str | None,
) -> None:
    """Hold a judge against people's ratings, and learn to correct it.

    What corrects it is its calibration. RUN is a run's folder, or another tool's table with an id and a
    score, rating or label in each row. Runs of one judge are pooled; of several judges the first is
    calibrated and all are compared. RATINGS, the last, is a table with id, rater and rating under any usual
    header: Bad, OK, Good, numbers, thumbs or stars, or choices between two replies. Writes calibration.json,
    report.html, report.md and report.json. Ratings by an AI are refused.

    \b
    Examples:
      empathy-judge calibrate runs/mine ratings.jsonl --exchanges responses.jsonl
      empathy-judge calibrate theirs.csv ratings.csv --scale 1-5
      empathy-judge calibrate runs/mine stars.csv --scale 1-5 --cut 3,5
      empathy-judge calibrate runs/a runs/b ratings.jsonl --out compared
      empathy-judge calibrate --attack prompted.toml --sample 300 --max-cost 1
    """
    from calibration import fit
    from calibration.artifact import CALIBRATION_FILE, write_calibration
    from calibration.inputs import CalibrationOptions, read_inputs
    from calibration.shares.transport import LEAST_MODELS
    from data.files import disk_errors
    from data.judgments import judged_dimension
    from data.records import LABELS
    from reports.calibration.calibration_page import plain_report, print_report, write_report
    from reports.calibration.verdict import refuse_part

    if not attack and (sample or max_cost is not None):
        raise UserError("--sample and --max-cost belong to --attack JUDGE")
    if sample and attack_all:
        raise UserError("--sample tries a part of the forms, and --attack-all every one; give one of them")
    try_out = partial(_attack, every=attack_all, sample=sample, max_cost=max_cost)
    if attack and not runs:
        ctx.exit(attack_judge(attack, try_out, out=out, as_json=as_json))
    reading = sheet_options(
        scale=scale, cut=cut, columns=columns, ai_raters=ai_raters, skip_invalid=skip_invalid
    )
    options = CalibrationOptions(
        scale=reading.scale or LABELS, dimension=dimension or judged_dimension(runs[:-1])
    )
    if len(runs) < 2:
        raise UserError("calibrate: give one or more runs and then the ratings: calibrate RUN... RATINGS")
    if probe and not exchanges:
        raise UserError("--probe: rewrites responses, and so needs their texts: add --exchanges FILE")
    inputs = read_inputs(
        runs[:-1],
        runs[-1],
        exchanges=exchanges,
        judges=judges,
        raters=raters,
        options=options,
        reading=reading,
    )
    say_notes(inputs.notes)
    if inputs.choices:
        ctx.exit(0 if agree_with_choices(inputs, out=out, as_json=as_json) else INCONCLUSIVE)
    report = fit.calibrate_inputs(inputs)
    probes = _probe(probe, list(inputs.exchanges.values())) if probe else None
    attacks = try_out(attack) if attack else None
    name = report.judge.name
    folder = out or _default_folder(name, report.judge.source)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    refused = refuse_part(report)
    if not refused:
        write_calibration(folder / CALIBRATION_FILE, report.calibration)
    written = write_report(report, folder, probes=probes, attacks=attacks)
    if as_json:
        plain = plain_report(report, probes=probes, attacks=attacks)
        print(json.dumps(plain, indent=2, allow_nan=False))
    else:
        files = [*([] if refused else [folder / CALIBRATION_FILE]), *written]
        print_report(report, files, is_verbose=verbose, has_rivals=len(inputs.judges) > 1)
        if refused:
            say(f"{refused[0].upper()}{refused[1:]}")
            say_next(f"see where judge and people part: open {folder / 'report.html'}")
        elif not runs[0].is_dir():  # another tool's table: we cannot ask that judge
            say_next(f"see where judge and people part: open {folder / 'report.html'}")
        elif len(report.calibration.models) < LEAST_MODELS:
            words = ("compare", *runs[:-1], "--ratings", runs[-1], *reading_words(ctx))
            say_next("to see which model people find better", *words)
        else:
            say_next(
                "to judge other replies, corrected by these ratings",
                *("score", "RESPONSES.jsonl", *([] if name == "classifier" else ["--judge", name])),
                *("--calibration", folder / CALIBRATION_FILE),
            )
    # Undefined, or known of so few that nobody can say how exactly.
    if refused or report.agreement.metrics[report.headline].interval is None:
        ctx.exit(INCONCLUSIVE)


def _default_folder(judge: str, source: str) -> Path:
    stem = Path(source).stem
    return Path("calibrations") / (stem if judge == stem else f"{stem}-{judge}".replace("/", "-"))


def agree_with_choices(inputs: "CalibrationInputs", *, out: Path | None, as_json: bool) -> bool:
    """Say how far the judges agree with choices, which calibrate nothing; return if it can be told."""
    from calibration.agreement import choices
    from reports.calibration.choices_page import choice_agreement_page, plain_choices

    found = [choices.agree_with_choices(judged, inputs.choices) for judged in inputs.judges]
    page = choice_agreement_page(found, notes=inputs.notes)
    plain = plain_choices(found, notes=inputs.notes)
    _show_agreement(page, plain, out or _folder_of(inputs), as_json=as_json)
    if not as_json:
        say_next("to calibrate, have people rate single replies", "rate", "plan", "RESPONSES.jsonl")
    return found[0].agreement.interval is not None


def _folder_of(inputs: "CalibrationInputs") -> Path:
    return _default_folder(inputs.judges[0].name, inputs.judges[0].source)


def _show_agreement(page: "Page", plain: Mapping[str, Any], folder: Path, *, as_json: bool) -> None:
    """Write a page and print it, or its figures as JSON."""
    from data.files import disk_errors
    from reports.html import write_page
    from reports.terminal import open_screen, print_lines, print_page

    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = write_page(page, plain, folder)
    if as_json:
        print(json.dumps(plain, indent=2, allow_nan=False))
        return
    print_page(replace(page, foot=""))  # how the files were read is said already
    print_lines([f"written {path}" for path in written], open_screen())


def _probe(name: str, exchanges: Sequence["Exchange"]) -> "ProbedJudge":
    from judge.base import load_judge
    from judge.robustness.probes import run_probes
    from reports.calibration.bias import ProbedJudge

    judge = load_judge(name)
    results = run_probes(judge, exchanges)
    return ProbedJudge(judge=judge.name, version=judge.version, results=tuple(results))


def attack_judge(
    name: str, try_out: Callable[[str], "Resistance"], *, out: Path | None, as_json: bool
) -> int:
    """Say how a judge stands up to attacks, without any ratings; return the exit code."""
    from data.files import disk_errors
    from data.records import to_plain
    from reports.calibration.attacks_page import attacks_page
    from reports.html import write_page
    from reports.terminal import open_screen, print_lines, print_page

    found = try_out(name)
    plain, written = to_plain(found), []
    if out:
        with disk_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        written = write_page(attacks_page(found), plain, out)
    if as_json:
        print(json.dumps(plain, indent=1, allow_nan=False))
    else:
        print_page(attacks_page(found, is_brief=True))
        print_lines([f"written {path}" for path in written], open_screen())
        say_next("to hold it against people too", "score", "RESPONSES.jsonl", "--judge", name)
    return {"met": 0, "not met": FAILED}.get(found.result, INCONCLUSIVE)


def _attack(name: str, *, every: bool, sample: int | None, max_cost: float | None) -> "Resistance":
    """Try the judge; what it costs to ask is kept, so that the same command goes on where it stopped."""
    from judge.base import load_judge
    from judge.llm.endpoint import endpoints_of, limit_cost, spent_by
    from judge.robustness.attack_run import attack_kept
    from judge.robustness.resistance import WHOLE, run_rounds
    from reports.progress import progress

    judge, whole = load_judge(name), WHOLE if every else 0
    limit_cost(judge, max_cost)
    is_kept = bool(endpoints_of(judge)) or sample is not None
    with (
        interruptible("what was judged is kept"),
        progress(
            f"attacking {judge.name}", "judged", is_kept=is_kept, spent=partial(spent_by, judge)
        ) as on_progress,
    ):
        if is_kept:
            return attack_kept(judge, sample=sample, whole=whole, on_progress=on_progress)
        return run_rounds(judge, whole=whole, on_progress=on_progress)
