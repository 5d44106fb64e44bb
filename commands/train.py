"""The commands `train` and `optimize`: judges made from people's ratings."""

import json
from pathlib import Path
from typing import Any

import click

from commands.shared.next_step import say, say_next
from commands.shared.options import FILE, complete_judge, interruptible
from data.errors import Interrupted, UserError


@click.command()
@click.argument("exchanges", type=FILE, required=False)
@click.argument("ratings", type=FILE, required=False)
@click.option(
    "--unit",
    type=click.Choice(["reply", "conversation"]),
    default="reply",
    show_default=True,
    help="A judge of replies, or of whole conversations: the latter is fitted on --sets alone, without a "
    "GPU.",
)
@click.option(
    "--recipe",
    default="default",
    show_default=True,
    metavar="NAME|FILE.toml",
    help="How to train: a file of settings.",
)
@click.option(
    "--base", metavar="NAME|FOLDER", help="Another base than the recipe's: minilm, smollm2, a folder."
)
@click.option("--seed", type=click.IntRange(min=0), help="Another seed than the recipe's.")
@click.option("--out", type=FILE, required=True, help="The judge's folder, or the trial's.")
@click.option(
    "--protocol",
    "protocols",
    type=click.Choice(["sets-apart", "raters-apart", "model-apart", "systems-apart"]),
    multiple=True,
    help="Try the settings out instead of making a judge; several share their trainings.",
)
@click.option("--sets", type=FILE, help="A folder with the public rated sets that the recipe names.")
@click.option("--texts", type=FILE, multiple=True, help="Exchanges nobody rated, for a teacher to label.")
@click.option("--evidence", type=FILE, multiple=True, help="A trial's folder whose figures go on the card.")
@click.option("--about", type=FILE, help="A TOML file: summary, licence, data and limits for the card.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, or whichever is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def train(
    exchanges: Path | None,
    ratings: Path | None,
    unit: str,
    recipe: str,
    base: str | None,
    seed: int | None,
    out: Path,
    protocols: tuple[str, ...],
    sets: Path | None,
    texts: tuple[Path, ...],
    evidence: tuple[Path, ...],
    about: Path | None,
    device: str,
    as_json: bool,
) -> None:
    """Train a judge on replies that people rated.

    EXCHANGES are prompts with their replies, and RATINGS what people said of them, as `import` writes both.
    With --protocol nothing is shipped: the recipe is trained once for each held-out part and its predictions
    are compared with the ratings it did not see. Held out are one rated set at a time with every text that it
    shares (sets-apart), a fifth of the raters with their prompts (raters-apart), or one model (model-apart).
    Of several protocols each training leaves out a part of every one: fewer trainings, harder questions. The
    same command takes a broken training up again.

    --sets is a folder with one folder for each public set, as published: epitome, ieval, esconv, and so on. A
    recipe that names some under [sets] needs no EXCHANGES; sets with the weight 0 it is only asked about.
    With --unit conversation it is all that is needed: the rated conversations in it. Held out are one set at
    a time (sets-apart), or one bot at a time (systems-apart); without --protocol the judge is tried with both
    and made. What the judge of replies said is kept in --out, and asked for once.

    \b
    Examples:
      empathy-judge train exchanges.jsonl ratings.jsonl --sets public --protocol sets-apart --out trials/sets
      empathy-judge train exchanges.jsonl ratings.jsonl --sets public --evidence trials/sets --out my-judge
      empathy-judge train --unit conversation --sets public --out my-judge
    """
    if unit == "conversation":
        if len(protocols) > 1:
            raise UserError("--protocol: one at a time with --unit conversation")
        if evidence:
            raise UserError("--evidence: not with --unit conversation, which is tried each time it is made")
        return _train_conversations(sets, out, next(iter(protocols), None), as_json=as_json)
    from calibration.artifact import CALIBRATION_FILE
    from reports.progress import steps
    from reports.training_tables import print_trial
    from training.calibration_from_trials import calibrate_trained
    from training.make import Materials, make, try_out, write_card

    if (exchanges is None) != (ratings is None):
        raise UserError("RATINGS are missing: what people said of the replies")
    if "systems-apart" in protocols:
        raise UserError("--protocol systems-apart: only with --unit conversation; of replies: model-apart")
    materials = Materials.read(
        exchanges,
        ratings,
        recipe=recipe,
        instead={"base": base, "seed": seed},
        sets=sets,
        texts=texts,
        device=device,
    )
    kept = "the networks that were trained whole are kept, the one under way is not"
    with interruptible(kept), steps() as (on_split, on_step):
        results = (
            try_out(materials, protocols, out, on_split=on_split, on_step=on_step)
            if protocols
            else [make(materials, out, evidence=evidence, about=about, on_step=on_step)]
        )
    (result, *others) = results
    is_calibrated = not protocols and calibrate_trained(out, evidence)
    if as_json:
        click.echo(json.dumps(results if others else result, indent=2))
    elif protocols:
        for each in results:
            print_trial(each)
        options = {"--recipe": recipe, "--base": base, "--seed": seed, "--sets": sets}
        given = [word for pair in options.items() if pair[1] not in (None, "default") for word in pair]
        given += [word for path in texts for word in ("--texts", path)]
        folders = [out / each["protocol"] for each in results] if others else [out]
        given += [word for folder in folders for word in ("--evidence", folder)]
        files = [path for path in (exchanges, ratings) if path is not None]
        say_next("to make the judge", "train", *files, *given, "--out", "my-judge")
    else:
        say(write_card(result))
        if is_calibrated:
            say(f"calibrated by its trials: {out / CALIBRATION_FILE}")
        say_next(
            f'to judge with it, write kind = "{result["name"]}" and weights = "{out}" into my-judge.toml',
            "score",
            "RESPONSES.jsonl",
            "--judge",
            "my-judge.toml",
        )


def _train_conversations(sets: Path | None, out: Path, protocol: str | None, *, as_json: bool) -> None:
    """Fit or try the judge of whole conversations."""
    from reports.progress import steps
    from reports.training_tables import print_conversation_trial
    from training.fit_conversations import SETS_APART, SYSTEMS_APART, run_fit

    if sets is None:
        raise UserError("--unit conversation: needs --sets, the folder of the rated sets")
    if protocol not in (None, SETS_APART, SYSTEMS_APART):
        raise UserError(f"--protocol {protocol}: not for conversations; {SETS_APART} or {SYSTEMS_APART}")
    with interruptible("what was judged is kept"), steps() as (_, on_step):
        result = run_fit(sets, out, protocol=protocol, on_step=on_step)
    if as_json:
        click.echo(json.dumps(result, indent=2))
    elif protocol:
        print_conversation_trial(result)
        say_next("to make the judge", "train", "--unit", "conversation", "--sets", sets, "--out", out)
    else:
        say(f"{result['caveat']}")
        say_next(
            f'to judge with it, write kind = "conversation" and weights = "{out}" into my-judge.toml',
            *("score", "CONVERSATIONS.jsonl", "--judge", "my-judge.toml"),
        )


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
    help="What to tune for: agreement (weighted kappa), or how probable people's labels are to it.",
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
    """Tune a language model's prompt for judging to people's ratings.

    EXCHANGES are prompts with their replies, and RATINGS what people said of them. The result is kept only if
    it does better on ratings it was not made from. Name its file in the judge's TOML as program = "..." and
    score with that. It holds exchanges from the ratings as examples.

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
            on_step=lambda text: say(text, err=True),
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
        say_next(
            f'to judge with it, write program = "{out}" into {judge_name}',
            *("score", "RESPONSES.jsonl", "--judge", judge_name),
        )
