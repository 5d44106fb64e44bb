"""The command `calibrate`: compare judges with human ratings, and fit the calibration of one."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from empathy_judge.commands.shared import options
from empathy_judge.commands.shared.options import FILE, say, say_next, say_notes
from empathy_judge.commands.shared.rating_options import ratings_options
from empathy_judge.data.errors import UserError

if TYPE_CHECKING:
    from empathy_judge.calibration.fit import CalibrationReport
    from empathy_judge.data.judgments import Judged
    from empathy_judge.data.rating_files.sheet import SheetOptions
    from empathy_judge.judge.scoring import Watch

INCONCLUSIVE = 3


@click.command()
@click.argument("paths", type=FILE, nargs=-1, metavar="RESPONSES|RUN... RATINGS")
@ratings_options
@click.option("--dimension", help="Dimension of the ratings to use.  [default: the judge's]")
@click.option(
    "--judge",
    "judges",
    multiple=True,
    metavar="JUDGE",
    shell_complete=options.complete_judge,
    help="Judge of RESPONSES, as in `score`, or one of the judges of a table; may be repeated."
    "  [default: classifier, or all judges of the table]",
)
@options.max_cost_option
@options.fresh_option
@click.option(
    "--repeat",
    type=click.IntRange(min=2),
    metavar="N",
    help="Ask the first judge N times about a sample of RESPONSES, and print how many labels change.",
)
@click.option("--out", type=FILE, help="Output folder.  [default: calibrations/<run>]")
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
@click.pass_context
def calibrate(
    ctx: click.Context,
    /,
    paths: tuple[Path, ...],
    as_json: bool,
    **fitting: Any,
) -> None:
    """Compare judges with human ratings, and calibrate the first.

    RESPONSES are files of replies, as for `score`; each judge scores what it has not scored yet. RUN is the
    folder of a run, or another tool's table with an id and a score, rating or label in each row. Runs of one
    judge are pooled. RATINGS, the last, is a table with id, rater and rating under any usual header: Bad,
    Okay, Good, numbers, thumbs or stars. Writes calibration.json, report.html, report.md and report.json.
    Ratings by an AI are refused.

    \b
    Examples:
      empathy-judge calibrate responses.jsonl ratings.jsonl
      empathy-judge calibrate --judge classifier --judge openai:gpt-4o-mini responses.jsonl ratings.jsonl
      empathy-judge calibrate runs/mine ratings.jsonl --exchanges responses.jsonl
      empathy-judge calibrate theirs.csv ratings.csv --scale 1-5
      empathy-judge calibrate runs/mine stars.csv --scale 1-5 --cut 3,5
    """
    from empathy_judge.calibration.shares.transport import LEAST_MODELS
    from empathy_judge.data.runs import read_manifest
    from empathy_judge.judge.base import DEFAULT
    from empathy_judge.reports.calibration.calibration_page import plain_report, print_report
    from empathy_judge.reports.calibration.verdict import choose_judge, refuse_part

    if len(paths) < 2:
        raise UserError(
            "calibrate: pass replies or runs, then the ratings: calibrate RESPONSES|RUN... RATINGS"
        )
    *judged, ratings = paths
    fitted = fit_judges(judged, ratings, **fitting)
    report, runs, written = fitted.report, fitted.runs, fitted.written
    files, folder, refused = fitted.files, written[0].parent, refuse_part(report)
    if as_json:
        print(json.dumps({**plain_report(report), "folder": str(folder)}, indent=2, allow_nan=False))
    else:
        print_report(report, written)
        chosen = choose_judge(report) or report.runs[0]
        is_other = chosen is not report.runs[0]
        if refused:
            say(f"{refused[0].upper()}{refused[1:]}")
        elif not is_other and runs[0].is_dir() and len(report.calibration.models) >= LEAST_MODELS:
            option = read_manifest(runs[0])["judge_option"]
            words = (*(() if option == DEFAULT else ("--judge", option)), "--calibration", str(written[0]))
            say(
                f"To correct scores of other replies with these ratings, add to `score`: {shlex.join(words)}",
                err=True,
            )
        texts = [
            *options.reading_words(ctx),
            *(str(word) for path in files for word in ("--exchanges", path)),
        ]
        if is_other:
            judge = fitted.judges[report.runs.index(chosen)]
            own = [path for path in runs if path.name in judge.source.split("+")]
            name = () if own[0].is_dir() else ("--judge", judge.name)
            say_next(f"to calibrate {chosen.name}", "calibrate", *own, ratings, *name, *texts)
        elif not refused and len(fitted.judges) == 1 and runs[0].is_dir() and len(report.models.rows) > 1:
            say_next("to see which model people find better", "compare", *runs, "--ratings", ratings, *texts)
        else:
            say_next(f"to see where the judge and people differ: open {folder / 'report.html'}")
    # Undefined, or with too few ratings for an interval.
    if refused or report.agreement.metrics[report.headline].interval is None:
        ctx.exit(INCONCLUSIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedJudges:
    """The report of a calibration, with its judges, their runs, the scored files and what was written."""

    report: "CalibrationReport"
    judges: "Sequence[Judged]"
    runs: Sequence[Path]
    files: Sequence[Path]
    written: Sequence[Path]


def fit_judges(
    judged: Sequence[Path],
    ratings: Path,
    *,
    reading: "SheetOptions",
    judges: Sequence[str] = (),
    exchanges: Sequence[Path] = (),
    dimension: str | None = None,
    max_cost: float | None = None,
    fresh: bool = False,
    repeat: int | None = None,
    out: Path | None = None,
    watch: "Watch" = options.watch_scoring,
) -> FittedJudges:
    """Score the files of replies, compare the judges with the ratings, and write report and calibration."""
    from empathy_judge.calibration import fit
    from empathy_judge.calibration.artifact import CALIBRATION_FILE, read_calibration, write_calibration
    from empathy_judge.data.judgments import is_judgment_table, judged_dimension
    from empathy_judge.data.rating_files.rated_inputs import read_rated_judges
    from empathy_judge.data.rating_files.sheet import read_sheet
    from empathy_judge.data.records import LABELS
    from empathy_judge.judge.base import DEFAULT, WEIGHTS
    from empathy_judge.judge.budget import Budget
    from empathy_judge.judge.repeats import repeat_judgments
    from empathy_judge.judge.scoring import score_files
    from empathy_judge.reports.calibration.calibration_page import default_folder, write_report
    from empathy_judge.reports.calibration.verdict import refuse_part

    scale, repeats, budget = reading.scale or LABELS, None, Budget(max_cost)
    files = [path for path in judged if not path.is_dir() and not is_judgment_table(path, judges, scale)]
    runs = [path for path in judged if path not in files]
    if files and (judges or not runs):  # beside runs, files are the texts, unless judges are named
        # Read before any call: a wrong scale is found in a second.
        read_sheet(ratings, replace(reading, dimension=dimension or reading.dimension))
        if repeat:
            name = judges[0] if judges else DEFAULT
            repeats = repeat_judgments(files, name, repeat, budget=budget, on_read=say_notes)
        scored = score_files(
            files,
            judges=judges,
            budget=budget,
            fresh=fresh,
            skip_invalid=reading.skip_invalid,
            watch=watch,
            on_read=say_notes,
        )
        runs = [*scored.runs, *runs]
    elif repeat:
        raise UserError("--repeat: pass the files of replies instead of runs")
    if judges and not files and all(path.is_dir() for path in runs):
        raise UserError("--judge: not with runs, which are scored already; pass the files of replies instead")
    reading = replace(reading, dimension=dimension or judged_dimension(runs))
    inputs = read_rated_judges(
        runs,
        ratings,
        exchanges=(*exchanges, *files),
        judges=() if files else judges,
        reading=reading,
    )
    say_notes(inputs.notes)
    shipped = WEIGHTS / inputs.judges[0].name / CALIBRATION_FILE
    report = fit.calibrate(
        inputs.judges,
        inputs.people,
        exchanges=inputs.exchanges,
        options=fit.CalibrationOptions(scale=inputs.scale, dimension=reading.dimension),
        notes=inputs.notes,
        shipped=read_calibration(shipped) if shipped.exists() else None,
        repeats=repeats,
    )
    folder = out or default_folder(report)
    written = write_report(report, folder)
    if not refuse_part(report):
        write_calibration(folder / CALIBRATION_FILE, report.calibration)
        written = [folder / CALIBRATION_FILE, *written]
    return FittedJudges(report=report, judges=inputs.judges, runs=runs, files=files, written=written)
