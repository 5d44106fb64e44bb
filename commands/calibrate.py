"""The command that says how far to trust a judge, and fits the calibration that corrects it."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from commands.shared.options import FILE, reading_words, say, say_next, say_notes
from commands.shared.rating_options import ratings_options
from data.errors import UserError

if TYPE_CHECKING:
    from calibration.inputs import CalibrationInputs
    from data.rating_files.sheet import SheetOptions

INCONCLUSIVE = 3


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
    reading: "SheetOptions",
    judges: tuple[str, ...],
    raters: tuple[str, ...],
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
    """
    from calibration import fit
    from calibration.artifact import CALIBRATION_FILE, write_calibration
    from calibration.inputs import CalibrationOptions, read_inputs
    from calibration.shares.transport import LEAST_MODELS
    from data.files import disk_errors
    from data.judgments import judged_dimension
    from data.records import LABELS
    from data.runs import read_manifest
    from judge.base import DEFAULT
    from reports.calibration.calibration_page import plain_report, print_report, write_report
    from reports.calibration.verdict import refuse_part

    options = CalibrationOptions(
        scale=reading.scale or LABELS, dimension=dimension or judged_dimension(runs[:-1])
    )
    if len(runs) < 2:
        raise UserError("calibrate: give one or more runs and then the ratings: calibrate RUN... RATINGS")
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
    folder = out or _default_folder(report.judge.name, report.judge.source)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    refused = refuse_part(report)
    if not refused:
        write_calibration(folder / CALIBRATION_FILE, report.calibration)
    written = write_report(report, folder)
    if as_json:
        plain = plain_report(report)
        print(json.dumps(plain, indent=2, allow_nan=False))
    else:
        files = [*([] if refused else [folder / CALIBRATION_FILE]), *written]
        print_report(report, files, is_verbose=verbose, has_rivals=len(inputs.judges) > 1)
        if refused:
            say(f"{refused[0].upper()}{refused[1:]}")
        elif runs[0].is_dir() and len(report.calibration.models) >= LEAST_MODELS:
            judge = read_manifest(runs[0])["judge_option"]
            words = (*(() if judge == DEFAULT else ("--judge", judge)), "--calibration", str(files[0]))
            say(f"To correct other replies by these ratings: score with {shlex.join(words)}", err=True)
        if not refused and runs[0].is_dir() and len(report.models.rows) > 1:
            words = ("compare", *runs[:-1], "--ratings", runs[-1], *reading_words(ctx))
            say_next("to see which model people find better", *words)
        else:
            say_next(f"see where judge and people differ: open {folder / 'report.html'}")
    # Undefined, or known of so few that nobody can say how exactly.
    if refused or report.agreement.metrics[report.headline].interval is None:
        ctx.exit(INCONCLUSIVE)


def _default_folder(judge: str, source: str) -> Path:
    stem = Path(source).stem
    return Path("calibrations") / (stem if judge == stem else f"{stem}-{judge}".replace("/", "-"))


def agree_with_choices(inputs: "CalibrationInputs", *, out: Path | None, as_json: bool) -> bool:
    """Say how far the judges agree with choices, which calibrate nothing; return if it can be told."""
    from calibration.agreement import choices
    from data.files import disk_errors
    from reports.calibration.choices_page import choice_agreement_page, plain_choices
    from reports.markdown import write_page
    from reports.terminal import open_screen, print_lines, print_page

    found = [choices.agree_with_choices(judged, inputs.choices) for judged in inputs.judges]
    page = choice_agreement_page(found, notes=inputs.notes)
    plain = plain_choices(found, notes=inputs.notes)
    folder = out or _default_folder(inputs.judges[0].name, inputs.judges[0].source)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = write_page(page, plain, folder)
    if as_json:
        print(json.dumps(plain, indent=2, allow_nan=False))
    else:
        print_page(replace(page, foot=""))  # how the files were read is said already
        print_lines([f"written {path}" for path in written], open_screen())
        say_next("have people rate single replies with `rate plan`, then run `calibrate` again")
    return found[0].agreement.interval is not None
