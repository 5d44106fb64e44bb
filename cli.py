"""The commands: parse, call, print. Whatever is heavy is imported inside the command that needs it."""

import errno
import json
import shlex
from pathlib import Path
from typing import Any

import click

from data.errors import Interrupted, UserError

VERSION = "0.1.0"
FILE = click.Path(path_type=Path)


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
    help="classifier, classifier-large, length, majority, or a file that sets a judge's options.",
)
@click.option("--out", type=FILE, help="The run's folder.  [default: runs/<file>-<judge>-<digest>]")
@click.option("--limit", type=click.IntRange(min=1), help="Score no more than the first N responses.")
@click.option("--skip-invalid", is_flag=True, help="Set rows that cannot be read aside, and go on.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the intervals."
)
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
    explain: tuple[str, ...],
    as_json: bool,
) -> None:
    """Judge every response and print each model's Bad, Okay and Good shares.

    RESPONSES is a .jsonl, .csv or .parquet file with a prompt and a response in each row, and, if you have
    them, an id, model, situation, emotion and dialogue. The same command takes an interrupted run up again
    and judges nothing twice.

    \b
    Examples:
      empathy-judge score responses.jsonl
      empathy-judge score responses.csv --judge length --out runs/length --json
      empathy-judge score responses.jsonl --explain 7
    """
    from data.tables import check_table
    from judge.base import load_judge
    from nightly.pipeline import default_folder, explain_responses, find_responses, plan_run, score_responses
    from nightly.printing import print_scored, progress

    check_table(responses)  # before a judge is loaded, which may take seconds
    to_explain = find_responses(responses, explain, limit=limit, skip_invalid=skip_invalid)
    judge = load_judge(judge_name)
    plan = plan_run(responses, judge)
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
                on_progress=on_progress,
            )
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
