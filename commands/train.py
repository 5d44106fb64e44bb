"""The commands `train`, `optimize` and `stack`: judges made from people's ratings."""

import json
from pathlib import Path
from typing import Any

import click

from commands.shared.options import FILE, complete_judge, interruptible
from data.errors import Interrupted


@click.command()
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
    from judge.classifier.make import Materials, make, try_out, write_card
    from reports.progress import steps
    from reports.training_tables import print_trial

    materials = Materials.read(
        exchanges,
        ratings,
        recipe=recipe,
        instead={"base": base, "seed": seed},
        texts=texts,
        device=device,
    )
    kept = "the networks that were trained whole are kept, the one under way is not"
    with interruptible(kept), steps() as (on_split, on_step):
        if protocol:
            result = try_out(materials, protocol, out, on_split=on_split, on_step=on_step)
        else:
            result = make(materials, out, evidence=evidence, about=about, on_step=on_step)
    if as_json:
        click.echo(json.dumps(result, indent=2))
    elif protocol:
        print_trial(result)
    else:
        click.echo(write_card(result))


@click.command()
@click.argument("exchanges", type=FILE)
@click.argument("ratings", type=FILE)
@click.option(
    "--judge",
    "judge_name",
    required=True,
    metavar="FILE.toml",
    shell_complete=complete_judge,
    help="The prompted judge to tune.",
)
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
    "held_out_part",
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
    as_json: bool,
    **settings: Any,
) -> None:
    """Tune a prompted judge's instructions and examples against people's ratings.

    The result is kept only if it does better on ratings it was not made from. Name its file in the judge's
    TOML as program = "..." and score with that. It holds exchanges from the ratings as examples.

    \b
    Example:
      empathy-judge optimize exchanges.jsonl ratings.jsonl --judge prompted.toml --out tuned.json --max-cost 5
    """
    from judge.tuning.optimize import tune
    from judge.tuning.tryout import Settings
    from reports.training_tables import print_tuned

    try:
        tuned = tune(
            exchanges,
            ratings,
            out,
            judge_name,
            Settings(**settings),
            on_step=lambda text: click.echo(text, err=True),
        )
    except KeyboardInterrupt as interrupt:
        raise Interrupted(
            "interrupted; nothing was kept. A search cannot be taken up again: end it with --max-calls "
            "or --max-cost, then its best so far is kept"
        ) from interrupt
    if as_json:
        click.echo(json.dumps(tuned, indent=2))
    else:
        print_tuned(tuned)


@click.command()
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
    from judge.tuning.stack_panel import fit_panel
    from reports.training_tables import print_stack

    stacked = fit_panel(runs, ratings, out, seed=seed)
    if as_json:
        click.echo(json.dumps({**stacked, "weights_file": str(out)}, indent=2))
    else:
        print_stack(stacked, out)
