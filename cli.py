"""The commands: parse, call, print. Whatever is heavy is imported inside the command that needs it."""

import errno
import json
import shlex
from datetime import date
from pathlib import Path
from typing import Any

import click

from data.errors import Interrupted, UserError

VERSION = "0.1.0"
FILE = click.Path(path_type=Path)
EXTRAS = {  # what each extra of pyproject.toml brings that a command may miss
    "calibrate": ("scipy", "sklearn", "krippendorff", "ppi_py", "jinja2"),
    "nightly": ("sqlalchemy", "plotly", "openpyxl", "psycopg"),
    "prompted": ("dspy", "optuna", "gepa"),
}


class Commands(click.Group):
    """The one place where errors become words and an exit code; bugs keep their traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            click.echo(f"error: {error}", err=True)
            raise click.exceptions.Exit(error.exit_code) from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader of our output has left; click ends quietly
            click.echo(f"error: {error}", err=True)
            raise click.exceptions.Exit(5) from error
        except ModuleNotFoundError as error:
            extra = next((extra for extra, names in EXTRAS.items() if error.name in names), None)
            if extra is None:
                raise
            install = f"pip install -c requirements.lock -e '.[{extra}]'"
            click.echo(f"error: {error.name} is not installed; it comes with: {install}", err=True)
            raise click.exceptions.Exit(UserError.exit_code) from error
        except KeyboardInterrupt as interrupt:
            click.echo("error: interrupted", err=True)
            raise click.exceptions.Exit(Interrupted.exit_code) from interrupt


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="empathy-judge")
def main() -> None:
    """Rate how empathetic replies are the way a crowd would.

    \b
    Example:
      empathy-judge score responses.jsonl
    """


@main.command()
@click.argument("responses", type=FILE)
@click.option(
    "--judge",
    "judge_name",
    default="classifier",
    show_default=True,
    metavar="NAME|FILE.toml",
    help="classifier, classifier-large, length, majority, or a file that sets the options of one of these or "
    "of a prompted, decision, panel or cascade judge.",
)
@click.option("--out", type=FILE, help="The run's folder.  [default: runs/<file>-<judge>-<digest>]")
@click.option("--limit", type=click.IntRange(min=1), help="Score no more than the first N responses.")
@click.option("--skip-invalid", is_flag=True, help="Set rows that cannot be read aside, and go on.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the intervals."
)
@click.option(
    "--calibration",
    metavar="FILE|none",
    help="Correct by this calibration, or by none.  [default: the one that came with the judge, if it fits]",
)
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0),
    metavar="USD",
    help="Stop before more than this is spent; the same command goes on later.",
)
@click.option("--batch", is_flag=True, help="Ask in batches: half the price, answers within a day.")
@click.option("--wait", is_flag=True, help="With --batch: wait for the answers.")
@click.option(
    "--explain", metavar="ID", multiple=True, help="Show what drove this response's score; may be repeated."
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON instead of the table.")
@click.pass_context
def score(
    ctx: click.Context,
    responses: Path,
    judge_name: str,
    out: Path | None,
    limit: int | None,
    skip_invalid: bool,
    seed: int,
    calibration: str | None,
    max_cost: float | None,
    batch: bool,
    wait: bool,
    explain: tuple[str, ...],
    as_json: bool,
) -> None:
    """Judge every response and print each model's Bad, Okay and Good shares.

    RESPONSES is a .jsonl, .csv or .parquet file with a prompt and a response in each row, and, if you have
    them, an id, model, situation, emotion and dialogue. The same command takes an interrupted run up again
    and judges nothing twice. With --batch it submits, and given again it collects; until all answers are
    there the exit code is 3.

    \b
    Examples:
      empathy-judge score responses.jsonl
      empathy-judge score responses.csv --judge length --out runs/length --json
      empathy-judge score responses.jsonl --explain 7
      empathy-judge score responses.jsonl --judge prompted.toml --max-cost 2.50
      empathy-judge score responses.jsonl --judge prompted.toml --batch
    """
    from functools import partial

    from data.tables import check_table
    from judge.base import load_judge
    from judge.batch import BatchUnderWay, score_batch
    from judge.members import limit_cost
    from judge.scoring import score_exchanges
    from nightly.calibrated import find_calibration
    from nightly.pipeline import default_folder, explain_responses, find_responses, plan_run, score_responses
    from nightly.printing import print_scored, progress

    check_table(responses)  # before a judge is loaded, which may take seconds
    to_explain = find_responses(responses, explain, limit=limit, skip_invalid=skip_invalid)
    judge = load_judge(judge_name)
    limit_cost(judge, max_cost)
    calibrated = find_calibration(judge, calibration, today=date.today())
    plan = plan_run(responses, judge, calibration=calibrated.digest)
    folder = out or default_folder(responses, plan)
    try:
        with progress() as on_progress:
            scored = score_responses(
                responses,
                judge,
                plan,
                folder,
                limit=limit,
                skip_invalid=skip_invalid,
                seed=seed,
                calibrated=calibrated,
                on_progress=on_progress,
                engine=partial(score_batch, wait=wait) if batch else score_exchanges,
            )
    except BatchUnderWay as pending:  # no error, and no result either
        click.echo(json.dumps({"batch": str(pending), "run": str(folder)}) if as_json else pending)
        ctx.exit(pending.exit_code)
    except KeyboardInterrupt as interrupt:
        again = command_line(ctx, out=folder)
        raise Interrupted(f"interrupted; what was judged is kept. To go on:\n  {again}") from interrupt
    explanations = explain_responses(to_explain, judge, folder)
    print_scored(scored, as_json=as_json, limit=limit, explanations=explanations)


@main.command("import")
@click.argument("source")
@click.argument("path", type=FILE)
@click.option("--out", type=FILE, default=Path("."), help="Where to write.  [default: this folder]")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def import_(source: str, path: Path, out: Path, as_json: bool) -> None:
    """Turn a public dataset, in its published shape, into exchanges.jsonl and ratings.jsonl.

    SOURCE is one of empathy-study, empathy-study-ratings, judging-empathy, empathetic-exchanges, ieval,
    epitome and mental-align.

    \b
    Example:
      empathy-judge import empathy-study dataset_and_ratings.csv --out study
    """
    from data.sources import import_source
    from data.tables import write_rows

    imported = import_source(source, path)
    tables = {
        "exchanges": imported.exchanges,
        "ratings": imported.ratings,
        "set_aside": [item._asdict() for item in imported.set_aside],
    }
    counts = {name: write_rows(out / f"{name}.jsonl", rows) for name, rows in tables.items()}
    if as_json:
        click.echo(json.dumps(counts))
    else:
        for name, count in counts.items():
            click.echo(f"{count:>9,}  {out / name}.jsonl")


@main.command()
@click.argument("exchanges", type=FILE)
@click.argument("ratings", type=FILE)
@click.option(
    "--recipe", default="default", show_default=True, metavar="NAME|FILE.toml", help="How to train."
)
@click.option(
    "--base", metavar="NAME|FOLDER", help="Another base than the recipe's: minilm, smollm2, a folder."
)
@click.option("--seed", type=click.IntRange(min=0), help="Another seed than the recipe's.")
@click.option("--out", type=FILE, required=True, help="The judge's folder, or the trial's.")
@click.option(
    "--protocol",
    type=click.Choice(["raters-apart", "model-apart"]),
    help="Put the recipe to the test instead of making a judge.",
)
@click.option("--texts", type=FILE, multiple=True, help="Exchanges nobody rated, for a teacher to label.")
@click.option(
    "--second-task",
    type=FILE,
    multiple=True,
    help="A folder with exchanges.jsonl and ratings.jsonl on a scale from 1 to 5, learnt beside ours.",
)
@click.option("--evidence", type=FILE, multiple=True, help="A trial's folder whose figures go on the card.")
@click.option("--about", type=FILE, help="A TOML file: summary, licence, data and limits for the card.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, or whichever is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def train(
    exchanges: Path,
    ratings: Path,
    recipe: str,
    base: str | None,
    seed: int | None,
    out: Path,
    protocol: str | None,
    texts: tuple[Path, ...],
    second_task: tuple[Path, ...],
    evidence: tuple[Path, ...],
    about: Path | None,
    device: str,
    as_json: bool,
) -> None:
    """Fine-tune a judge on rated exchanges, or measure how well such a judge would do.

    With --protocol nothing is shipped: the recipe is trained once for each held-out part and its predictions
    are compared with the ratings it did not see. The same command takes a broken training up again.

    \b
    Examples:
      empathy-judge train exchanges.jsonl ratings.jsonl --protocol model-apart --out trials/model-apart
      empathy-judge train exchanges.jsonl ratings.jsonl --evidence trials/model-apart --out my-judge
    """
    from nightly.workshop import Materials, make, try_out

    materials = Materials.read(
        exchanges,
        ratings,
        recipe=recipe,
        instead={"base": base, "seed": seed},
        texts=texts,
        second_tasks=second_task,
        device=device,
    )
    if protocol:
        try_out(materials, protocol, out, as_json=as_json)
    else:
        make(materials, out, evidence=evidence, about=about, as_json=as_json)


@main.command()
@click.argument("prompts", type=FILE, required=False)
@click.option(
    "--model-config", type=FILE, help="A TOML file: model, base_url, key_env, style, temperature ..."
)
@click.option("--model", help="The model to ask, as its server calls it.")
@click.option("--base-url", help="An OpenAI-compatible server, such as http://127.0.0.1:8000/v1.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the key; never the key itself.")
@click.option("--name", help="What the responses call the model.  [default: the model]")
@click.option(
    "--style",
    type=click.Choice(["empathy", "plain"]),
    help="Tell the model what empathy is, as the study did, or leave that out.  [default: empathy]",
)
@click.option("--temperature", type=click.FloatRange(min=0), help="[default: 0]")
@click.option("--max-tokens", type=click.IntRange(min=1), help="[default: 512]")
@click.option("--seed", type=click.IntRange(min=0), help="[default: 0]")
@click.option("--out", type=FILE, help="The folder.  [default: responses/<file>-<model>-<digest>]")
@click.option("--limit", type=click.IntRange(min=1), help="Ask for no more than the first N prompts.")
@click.option("--max-cost", type=click.FloatRange(min=0), help="Spend no more than this now, in USD.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
@click.pass_context
def respond(
    ctx: click.Context,
    /,
    prompts: Path | None,
    model_config: Path | None,
    out: Path | None,
    limit: int | None,
    max_cost: float | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Have a model answer prompts as the models of the crowd study did.

    PROMPTS is a .jsonl, .csv or .parquet file with a prompt in each row, and, if you have them, an id,
    situation, emotion and dialogue; without it the 160 sample prompts are taken. Options given here stand in
    place of the file's. The same command takes an interrupted run up again and asks for nothing twice.

    \b
    Examples:
      empathy-judge respond --base-url http://127.0.0.1:8000/v1 --model llama --out answers
      empathy-judge respond prompts.jsonl --model-config gpt.toml --style plain --max-cost 0.50
      empathy-judge score answers/responses.jsonl
    """
    from data.prompts import SAMPLE_PROMPTS
    from data.tables import check_table
    from judge.respond import Responder, make_model_config, read_model_config
    from nightly.printing import progress
    from nightly.responding import check_answered, default_folder, plan_responses, print_responded, respond_to

    prompts = prompts or SAMPLE_PROMPTS
    check_table(prompts)
    if model_config is None and settings["model"] is None:
        raise UserError("no model: name one with --model and --base-url, or a file with --model-config")
    config = (
        read_model_config(model_config, **settings)
        if model_config
        else make_model_config(settings, place="options")
    )
    responder = Responder(config)
    plan = plan_responses(prompts, responder)
    folder = out or default_folder(prompts, plan)
    try:
        with progress("asking", "answered") as on_progress:
            responded = respond_to(
                prompts, responder, plan, folder, limit=limit, max_cost=max_cost, on_progress=on_progress
            )
    except KeyboardInterrupt as interrupt:
        again = command_line(ctx, prompts=prompts, out=folder)
        raise Interrupted(f"interrupted; what was answered is kept. To go on:\n  {again}") from interrupt
    print_responded(responded, as_json=as_json)
    check_answered(responded)


@main.command()
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
    "--probe", metavar="JUDGE", help="Also ask this judge about rewritten responses; needs --exchanges."
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
    from nightly.desk import SELF_TEST_DRAWS, calibrate_files, calibrate_trials, run_self_test

    if self_test:
        ctx.exit(run_self_test(seed=seed, draws=draws or SELF_TEST_DRAWS, as_json=as_json))
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
            out=out,
            as_json=as_json,
        )
    )


@main.command()
@click.argument("exchanges", type=FILE)
@click.argument("ratings", type=FILE)
@click.option("--judge", "judge_name", required=True, metavar="FILE.toml", help="The prompted judge to tune.")
@click.option("--out", type=FILE, required=True, help="The tuned program's file, a .json.")
@click.option(
    "--method",
    type=click.Choice(["bootstrap", "mipro", "gepa"]),
    default="bootstrap",
    show_default=True,
    help="DSPy's optimizer: examples only, instructions and examples, or instructions by reflection.",
)
@click.option(
    "--metric",
    type=click.Choice(["qwk", "log_loss"]),
    default="qwk",
    show_default=True,
    help="What to tune for.",
)
@click.option(
    "--max-calls",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Stop after so many calls.",
)
@click.option("--max-cost", type=click.FloatRange(min=0), metavar="USD", help="Stop before more is spent.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the search.")
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.3,
    show_default=True,
    help="The part of the ratings that only measures.",
)
@click.option(
    "--demos", type=click.IntRange(min=0), default=4, show_default=True, help="Examples in the prompt."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def optimize(
    exchanges: Path,
    ratings: Path,
    judge_name: str,
    out: Path,
    method: Any,
    metric: Any,
    max_calls: int,
    max_cost: float | None,
    seed: int,
    held_out: float,
    demos: int,
    as_json: bool,
) -> None:
    """Tune a prompted judge's instructions and examples against people's ratings.

    The result is kept only if it does better on ratings it was not made from. Name its file in the judge's
    TOML as program = "..." and score with that. It holds exchanges from the ratings as examples.

    \b
    Example:
      empathy-judge optimize exchanges.jsonl ratings.jsonl --judge prompted.toml --out tuned.json --max-cost 5
    """
    from nightly.tuning import tune

    tune(
        exchanges,
        ratings,
        out,
        judge_name=judge_name,
        method=method,
        metric=metric,
        max_calls=max_calls,
        max_cost=max_cost,
        seed=seed,
        held_out_part=held_out,
        demos=demos,
        as_json=as_json,
    )


@main.command()
@click.argument("ratings", type=FILE)
@click.argument("runs", type=FILE, nargs=-1, required=True)
@click.option("--out", type=FILE, required=True, help="The weights' file, a .json.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the folds.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def stack(ratings: Path, runs: tuple[Path, ...], out: Path, seed: int, as_json: bool) -> None:
    """Fit a panel's weights on ratings, and say how many independent judges the panel is worth.

    RUNS are the folders of two or more judges' runs over the same responses. Name the weights in the panel's
    TOML: kind = "panel", judges = [...], combine = "stacked", weights = "...".

    \b
    Example:
      empathy-judge stack ratings.jsonl runs/classifier runs/prompted --out weights.json
    """
    from nightly.panels import fit_panel

    fit_panel(runs, ratings, out, seed=seed, as_json=as_json)


@main.command()
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


@main.command()
@click.argument("config", type=FILE)
@click.option("--night", metavar="NAME", help="The night's name.  [default: today's date]")
@click.option("--again", is_flag=True, help="Judge a night that is in the history anew, in its place.")
@click.option("--now", metavar="TIME", hidden=True, help="The time to write down, such as 2026-11-15T02:00.")
@click.option("--json", "as_json", is_flag=True, help="Print the night as JSON.")
@click.pass_context
def nightly(
    ctx: click.Context, config: Path, night: str | None, again: bool, now: str | None, as_json: bool
) -> None:
    """Run a night: models answer, the judge scores, gates are checked, history and dashboard go on.

    CONFIG is a TOML file that names models, judge and gates; nightly/config.py lists its keys. The same
    command takes an interrupted night up again, and a night that is in the history is asked for nothing. The
    exit code is 1 for a regression, 3 where it cannot be told, 4 for a calibration that cannot be used, and 5
    where a model or the judge could not be asked.

    \b
    Examples:
      empathy-judge nightly nightly.toml
      empathy-judge nightly nightly.toml --night 2026-11-15 --json
    """
    from datetime import datetime

    from nightly.config import check_name, read_config
    from nightly.morning import print_night
    from nightly.night import run_night
    from nightly.printing import progress

    fixed = datetime.fromisoformat(now) if now else None
    settings = read_config(config)
    ran = run_night(
        settings,
        night=check_name(night, "--night") if night else (fixed or datetime.now()).date().isoformat(),
        clock=lambda: fixed or datetime.now().astimezone(),
        watching=progress,
        again=again,
    )
    print_night(ran, settings, as_json=as_json)
    ctx.exit(ran.exit_code)


@main.group()
def history() -> None:
    """Look into the history of all nights."""


@history.command("export")
@click.option(
    "--history",
    "place",
    default="nights.sqlite",
    show_default=True,
    metavar="FILE|URL",
    help="A SQLite file, or postgresql+psycopg://... (the password best in PGPASSWORD).",
)
@click.option(
    "--kind",
    type=click.Choice(["results", "emotions", "anchors", "gates", "judgments"]),
    default="results",
    show_default=True,
    help="Which rows.",
)
@click.option("--config", metavar="DIGEST", help="Only the nights of this config.")
@click.option("--last", type=click.IntRange(min=1), help="Only the newest N nights.")
@click.option("--format", "format_", type=click.Choice(["jsonl", "csv"]), help="[default: as --out]")
@click.option("--out", type=FILE, help="Where to write.  [default: the output]")
def export(
    place: str, kind: str, config: str | None, last: int | None, format_: str | None, out: Path | None
) -> None:
    """Write the history as flat rows, one for each model and night.

    \b
    Examples:
      empathy-judge history export --out nights.csv
      empathy-judge history export --history postgresql+psycopg://me@db/nights --kind gates --last 30
    """
    from data.history import export_history

    count = export_history(place, out, kind=kind, format=format_, config=config, last=last)
    if out is not None:
        click.echo(f"{count:,} rows  {out}")


@main.group()
def align() -> None:
    """How a model's own reported feelings shift, held against people's (EmotionBench)."""


@align.command("run")
@click.option("--model-config", type=FILE, help="A TOML file: model, base_url, key_env, temperature ...")
@click.option("--model", help="The model to ask, as its server calls it.")
@click.option("--base-url", help="An OpenAI-compatible server, such as http://127.0.0.1:8000/v1.")
@click.option("--key-env", metavar="NAME", help="The variable that holds the key; never the key itself.")
@click.option("--name", help="What the sheets call the model.  [default: the model]")
@click.option("--temperature", type=click.FloatRange(min=0), help="[default: 0]")
@click.option("--max-tokens", type=click.IntRange(min=1), help="[default: 512]")
@click.option("--concurrency", type=click.IntRange(min=1), help="Calls at a time.  [default: 32]")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds.  [default: 60]")
@click.option(
    "--scale", default="PANAS", show_default=True, help="The questionnaire; all but PANAS need items."
)
@click.option(
    "--questionnaires", type=FILE, help="Your copy of the benchmark's questionnaires.json, for items."
)
@click.option(
    "--situations", type=FILE, help="The benchmark's situations.csv or .json.  [default: 108 of ours]"
)
@click.option(
    "--emotion", "emotions", multiple=True, help="Only situations of this emotion; may be repeated."
)
@click.option("--per-factor", type=click.IntRange(min=1), help="No more than the first N of each factor.")
@click.option(
    "--orders", type=click.IntRange(min=1), default=10, show_default=True, help="Orders of the items."
)
@click.option("--repeats", type=click.IntRange(min=1), default=1, show_default=True, help="Of every order.")
@click.option(
    "--defaults",
    type=click.IntRange(min=2),
    help="Sheets without a situation.  [default: as orders, 10 at least]",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the orders.")
@click.option("--positive", is_flag=True, help="Our situations rewritten so that they go well, one a factor.")
@click.option("--stable", is_flag=True, help="Tell the model not to let situations take hold of it.")
@click.option("--replay", type=FILE, help="Read the answers.jsonl of an earlier run instead of asking.")
@click.option("--out", type=FILE, help="The run's folder.  [default: alignments/<model>-<scale>-<digest>]")
@click.option("--max-cost", type=click.FloatRange(min=0), help="Spend no more than this now, in USD.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
@click.pass_context
def align_run(
    ctx: click.Context, /, out: Path | None, max_cost: float | None, as_json: bool, **options: Any
) -> None:
    """Have a model fill in a questionnaire by default and with each situation in mind.

    PANAS and 108 situations are built in; the other scales' items are read from your copy of the benchmark.
    The same command takes an interrupted run up again and asks for nothing twice.

    \b
    Examples:
      empathy-judge align run --base-url http://127.0.0.1:8000/v1 --model llama --orders 3 --per-factor 1
      empathy-judge align run --model gpt-4o --key-env OPENAI_API_KEY --max-cost 2
      empathy-judge align report alignments/llama-PANAS-1a2b3c4d
    """
    from nightly.aligning import (
        check_filled,
        default_folder,
        make_reporter,
        plan_alignment,
        print_run,
        run_alignment,
    )
    from nightly.printing import progress

    reporter = make_reporter(**options)
    plan = plan_alignment(reporter)
    folder = out or default_folder(plan)
    try:
        with progress("asking", "answered") as on_progress:
            run = run_alignment(reporter, plan, folder, max_cost=max_cost, on_progress=on_progress)
    except KeyboardInterrupt as interrupt:
        again = command_line(ctx, out=folder)
        raise Interrupted(f"interrupted; what was answered is kept. To go on:\n  {again}") from interrupt
    print_run(run, as_json=as_json)
    check_filled(run)


@align.command("import")
@click.argument("files", type=FILE, nargs=-1, required=True)
@click.option("--out", type=FILE, default=Path("sheets.jsonl"), show_default=True, help="The sheets' file.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def align_import(files: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Turn results files of EmotionBench into sheets; what they lack is counted.

    FILES are *-testing.csv files of models, the crowd's crowd.xlsx and the leaderboard's data.json.

    \b
    Example:
      empathy-judge align import crowd.xlsx gpt-4-PANAS-testing.csv --out sheets.jsonl
    """
    from nightly.aligning import import_files, print_imported

    print_imported(import_files(files, out), out, as_json=as_json)


@align.command("report")
@click.argument("sheets", type=FILE, nargs=-1, required=True)
@click.option("--out", type=FILE, help="Write report.html, report.md and report.json into this folder.")
@click.option("--factors", is_flag=True, help="Show all 36 factors in the table, not only emotions.")
@click.option(
    "--alpha",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.01,
    show_default=True,
    help="Of the tests.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of people's halves.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
def align_report(
    sheets: tuple[Path, ...], out: Path | None, factors: bool, alpha: float, seed: int, as_json: bool
) -> None:
    """Say how far feelings moved, whether as people's did, and which printed figures the data contradict.

    SHEETS are folders of align run and files of align import.

    \b
    Examples:
      empathy-judge align report sheets.jsonl --factors
      empathy-judge align report alignments/llama-PANAS-1a2b3c4d sheets.jsonl --out report
    """
    from nightly.aligned import align_files
    from nightly.alignpage import write_alignment
    from nightly.aligntable import print_alignment

    result = align_files(sheets, alpha=alpha, seed=seed)
    written = write_alignment(result, out) if out else []
    print_alignment(result, factors=factors, as_json=as_json, report=written[0] if written else None)


@main.command()
@click.argument("history", metavar="HISTORY")
@click.option("--out", type=FILE, default=Path("dashboard"), help="The site's folder.  [default: dashboard]")
@click.option("--nights", type=click.IntRange(min=1), help="Show only the newest N nights.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def dashboard(history: str, out: Path, nights: int | None, as_json: bool) -> None:
    """Make the pages that show all nights: trends, models, emotions, responses and the judge's health.

    HISTORY is the file that `nightly` writes, or the URL of a PostgreSQL database. The folder needs no
    server: open its index.html.

    \b
    Example:
      empathy-judge dashboard nights.sqlite --out site
    """
    from nightly.dashboard import build_and_print

    build_and_print(history, out, nights=nights, as_json=as_json)


def command_line(ctx: click.Context, **instead: Any) -> str:
    """The command as it would be typed to give it again."""
    words = ctx.command_path.replace("cli.py", "python cli.py", 1).split()
    for parameter in ctx.command.params:
        value = instead.get(parameter.name or "", ctx.params.get(parameter.name or ""))
        if isinstance(parameter, click.Argument):
            words.append(str(value))
        elif value is True:
            words.append(parameter.opts[0])
        elif isinstance(value, tuple):
            words += [word for item in value for word in (parameter.opts[0], str(item))]
        elif value not in (None, False, parameter.default):
            words += [parameter.opts[0], str(value)]
    return shlex.join(words)


if __name__ == "__main__":
    main()
