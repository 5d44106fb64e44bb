"""The command `compare`: which model is better, by a judge or by people."""

import json
from datetime import date
from pathlib import Path

import click

from commands.shared.options import FILE


@click.command()
@click.argument("runs", metavar="RUN...", type=FILE, nargs=-1, required=True)
@click.option(
    "--baseline",
    "baselines",
    metavar="MODEL",
    multiple=True,
    help="Compare with this model only; study:human and the study's other models can stand here too."
    "  [default: for ratings human, for runs every two models]",
)
@click.option(
    "--models", metavar="NAMES", multiple=True, help="These models only, separated by commas; or all."
)
@click.option("--ratings", type=FILE, help="People's ratings of some of the runs' responses.")
@click.option("--exchanges", type=FILE, help="For ratings that do not name model and emotion: the responses.")
@click.option(
    "--calibration",
    metavar="FILE|none",
    help="Correct runs by this calibration, or by none.  [default: the one they were scored with]",
)
@click.option(
    "--margin",
    type=click.FloatRange(min=0, max=100, min_open=True),
    default=5.0,
    show_default=True,
    help="The least difference in points of Good worth telling.",
)
@click.option("--out", type=FILE, help="Write report.md and report.json into this folder too.")
@click.option("--markdown", is_flag=True, help="Print Markdown instead of tables.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def compare(
    runs: tuple[Path, ...],
    baselines: tuple[str, ...],
    models: tuple[str, ...],
    ratings: Path | None,
    exchanges: Path | None,
    calibration: str | None,
    margin: float,
    out: Path | None,
    markdown: bool,
    as_json: bool,
) -> None:
    """Compare models: judged ones with each other and with the study, or rated ones by people's ratings.

    RUN is a run's folder; give one with several models, or several of one judge. In place of runs, one table
    of ratings (.jsonl, .csv or .parquet) with rater, rating, model (or system) and emotion gives the crowd
    study's tables, and beside them tests that count raters and adjust for their number.

    \b
    Examples:
      empathy-judge compare runs/monday runs/tuesday
      empathy-judge compare runs/mine --baseline study:human --baseline study:gpt-4
      empathy-judge compare ratings.csv --baseline human --models gpt-4,gemini-1.0-pro
    """
    from calibration.comparison.compare_runs import ComparedRuns, Question
    from calibration.comparison.compare_runs import compare as compare_models
    from data.records import to_plain
    from judge.base import WEIGHTS
    from reports.comparison import compared_runs_row, runs_page
    from reports.markdown import as_markdown, write_texts
    from reports.study_tables import ratings_page
    from reports.terminal import print_page, working

    question = Question(
        paths=runs,
        baselines=baselines,
        models=tuple(name.strip() for names in models for name in names.split(",") if name.strip()),
        ratings=ratings,
        exchanges=exchanges,
        calibration=calibration,
        margin=margin / 100,
        weights=WEIGHTS,
    )
    with working("comparing"):
        compared = compare_models(question, today=date.today())
    if isinstance(compared, ComparedRuns):
        result = compared_runs_row(compared)
        page = runs_page(compared)
    else:
        result = {"kind": "ratings", "left_out": list(compared.left_out), **to_plain(compared.comparison)}
        page = ratings_page(compared.comparison, left_out=compared.left_out, source=compared.source)
    if as_json:
        print(json.dumps(result, indent=2, allow_nan=False))
    elif markdown:
        print(as_markdown(page))
    else:
        print_page(page)
    if out is not None:
        write_texts({"report.md": as_markdown(page), "report.json": json.dumps(result, indent=2) + "\n"}, out)
