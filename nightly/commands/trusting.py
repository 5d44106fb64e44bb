"""The commands that say how far to trust a judge, and which model is better."""

from datetime import date
from pathlib import Path

import click

from data.errors import UserError
from nightly.commands.lines import FILE, complete_judge


@click.command()
@click.argument("runs", type=FILE, nargs=-1, metavar="RUN... RATINGS")
@click.option("--exchanges", type=FILE, help="The texts, for length, emotions and examples in the report.")
@click.option("--scale", default="Bad,Okay,Good", show_default=True, help="The ratings' levels, worst first.")
@click.option("--dimension", default="empathy", show_default=True, help="Which dimension of the ratings.")
@click.option(
    "--judge", "judges", multiple=True, metavar="NAME", help="Of a table of several judges; may be repeated."
)
@click.option(
    "--rater", "raters", multiple=True, metavar="NAME", help="Count these raters only; may be repeated."
)
@click.option("--median", "is_median", is_flag=True, help="Hold the judge against the median rating.")
@click.option(
    "--rounding", "is_rounding", is_flag=True, help="Take ratings between two levels to the nearest."
)
@click.option(
    "--reliability",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.2817,
    show_default=True,
    help="Kappa of two people, where the ratings cannot tell it.",
)
@click.option(
    "--epsilon",
    type=click.FloatRange(0, 1),
    default=0.1,
    show_default=True,
    help="What asking a person costs, in the alternative-annotator test.",
)
@click.option(
    "--leave-out", multiple=True, metavar="MODEL", help="Draw the line without this model; may be repeated."
)
@click.option(
    "--probe",
    metavar="JUDGE",
    shell_complete=complete_judge,
    help="Also ask this judge about rewritten responses; needs --exchanges.",
)
@click.option(
    "--attack",
    metavar="JUDGE",
    shell_complete=complete_judge,
    help="Also try to game this judge; without RUN and RATINGS, only this.",
)
@click.option(
    "--out", type=FILE, help="Where calibration.json and report.* go.  [default: calibrations/<run>]"
)
@click.option(
    "--valid-days", type=click.IntRange(min=1), default=90, show_default=True, help="Until it expires."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all chance.")
@click.option(
    "--draws", type=click.IntRange(min=2), help="Of the bootstrap.  [default: 2000; self-test: 240]"
)
@click.option(
    "--trial",
    "trials",
    type=FILE,
    multiple=True,
    help="Calibrate a trained judge from the trials of its recipe; one of each protocol.",
)
@click.option("--self-test", is_flag=True, help="Check the intervals on data whose answer is known.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole report as JSON.")
@click.pass_context
def calibrate(
    ctx: click.Context,
    runs: tuple[Path, ...],
    exchanges: Path | None,
    scale: str,
    dimension: str,
    judges: tuple[str, ...],
    raters: tuple[str, ...],
    is_median: bool,
    is_rounding: bool,
    reliability: float,
    epsilon: float,
    leave_out: tuple[str, ...],
    probe: str | None,
    attack: str | None,
    out: Path | None,
    valid_days: int,
    seed: int,
    draws: int | None,
    trials: tuple[Path, ...],
    self_test: bool,
    as_json: bool,
) -> None:
    """Say how far to trust a judge, and fit the calibration that corrects it.

    RUN is a run's folder, or another tool's table with an id and a score, rating or label in each row; given
    several, the first is calibrated and all are compared. RATINGS, the last, is a table with id, rater and
    rating. Writes calibration.json, report.html, report.md and report.json.

    \b
    Examples:
      empathy-judge calibrate runs/mine ratings.jsonl --exchanges responses.jsonl
      empathy-judge calibrate theirs.csv ratings.csv --scale 1-5
      empathy-judge calibrate runs/a runs/b ratings.jsonl --out compared
      empathy-judge calibrate --self-test
    """
    from data.recorded import parse_scale
    from nightly.calibrating import DRAWS, Options
    from nightly.desk import SELF_TEST_DRAWS, attack_judge, calibrate_files, calibrate_trials, run_self_test

    if self_test:
        ctx.exit(run_self_test(seed=seed, draws=draws or SELF_TEST_DRAWS, as_json=as_json))
    if attack and not runs and not trials:
        ctx.exit(attack_judge(attack, seed=seed, as_json=as_json))
    options = Options(
        scale=parse_scale(scale),
        dimension=dimension,
        is_median=is_median,
        is_rounding=is_rounding,
        reliability=reliability,
        epsilon=epsilon,
        leave_out=leave_out,
        days=valid_days,
        seed=seed,
        draws=draws or DRAWS,
    )
    if trials:
        if len(judges) != 1 or runs:
            raise UserError(
                "--trial: name the trained judge with one --judge, and give no RUN and no RATINGS"
            )
        ctx.exit(calibrate_trials(trials, judge_name=judges[0], options=options, out=out, as_json=as_json))
    if len(runs) < 2:
        raise UserError("calibrate: give one or more runs and then the ratings: calibrate RUN... RATINGS")
    ctx.exit(
        calibrate_files(
            runs[:-1],
            runs[-1],
            options=options,
            exchanges=exchanges,
            judges=judges,
            raters=raters,
            probe=probe,
            attack=attack,
            out=out,
            as_json=as_json,
        )
    )


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
    from nightly.comparing import Question, compare_and_print

    question = Question(
        paths=runs,
        baselines=baselines,
        models=tuple(name.strip() for names in models for name in names.split(",") if name.strip()),
        ratings=ratings,
        exchanges=exchanges,
        calibration=calibration,
        margin=margin / 100,
    )
    compare_and_print(question, today=date.today(), out=out, as_markdown=markdown, as_json=as_json)
