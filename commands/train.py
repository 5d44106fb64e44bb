"""The command `train`: judges made from human ratings."""

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from empathy_judge.commands.shared.options import FILE, interruptible, say, say_next, say_notes
from empathy_judge.data.errors import UserError

HEAD = "head"  # the recipe of an output layer
NOT_WITH_CARD = ("recipe", "base", "seed", "protocol", "part", "evidence", "about")


@click.command()
@click.argument("exchanges", type=FILE, required=False)
@click.argument("ratings", type=FILE, required=False)
@click.option(
    "--recipe",
    metavar="NAME|FILE.toml",
    help="Training settings: `default`, `open` (data that companies may use) and files train a network, on a "
    "GPU; `head` fits a new output layer on the features of the default judge, in minutes, on a CPU.  "
    "[default: head, or default with another option of a training]",
)
@click.option("--base", metavar="NAME|FOLDER", help="Replace the recipe's base: minilm, smollm2, a folder.")
@click.option("--seed", type=click.IntRange(min=0), help="Replace the recipe's seed.")
@click.option(
    "--from-card",
    type=FILE,
    metavar="CARD|FOLDER",
    help="Rebuild a judge from its card.json, with the data and settings that the card records.",
)
@click.option("--out", type=FILE, required=True, help="Folder of the judge, or of the trial.")
@click.option(
    "--protocol",
    type=click.Choice(["held-out"]),
    help="Evaluate the settings on held-out data instead of making a judge.",
)
@click.option(
    "--part", type=click.IntRange(min=0), help="Train only this part of a trial, to divide the work."
)
@click.option("--sets", type=FILE, help="Folder with the public rated sets that the recipe names.")
@click.option("--texts", type=FILE, multiple=True, help="Unrated exchanges for a teacher to label.")
@click.option(
    "--evidence", type=FILE, multiple=True, help="Folder of a trial whose figures are added to the card."
)
@click.option("--about", type=FILE, help="TOML file with the summary, license, data and limits for the card.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, or auto.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.pass_context
def train(
    context: click.Context,
    exchanges: Path | None,
    ratings: Path | None,
    recipe: str | None,
    base: str | None,
    seed: int | None,
    from_card: Path | None,
    out: Path,
    protocol: str | None,
    part: int | None,
    sets: Path | None,
    texts: tuple[Path, ...],
    evidence: tuple[Path, ...],
    about: Path | None,
    device: str,
    as_json: bool,
) -> None:
    """Train a judge on human ratings of replies.

    `train replies.jsonl ratings.jsonl --out my-judge` fits a judge to your own ratings on a CPU: 300 ratings
    take about a minute and 0.5 GB of memory. It prints how well the new judge and the default judge agree
    with ratings of prompts that were left out of the fit. Both files have any shape that `calibrate` reads.

    The rest is about networks. EXCHANGES are prompts with their replies, and RATINGS their human ratings, as
    `import` writes both. With --protocol held-out no judge is made: the recipe is trained three times, each
    time without a group of rated sets with every text they share, a fifth of the prompts with their raters,
    and a third of the models. Its predictions are compared with the ratings that were held out. Run the
    command again to resume.

    --sets is a folder with one folder for each public set, as published: epitome, ieval, esconv, and so on. A
    recipe that names some under [sets] needs no EXCHANGES. Sets with the weight 0 only evaluate the finished
    judge; with `study = 0`, so do EXCHANGES and RATINGS.

    \b
    Examples:
      empathy-judge train replies.jsonl ratings.jsonl --out my-judge
      empathy-judge train exchanges.jsonl ratings.jsonl --sets public --protocol held-out --out trial
      empathy-judge train exchanges.jsonl ratings.jsonl --sets public --evidence trial --out my-judge
      empathy-judge train exchanges.jsonl ratings.jsonl --from-card my-judge --out rebuilt
    """
    of_network = (base, seed, from_card, protocol, part, sets, about)
    is_network = bool(texts or evidence) or any(option is not None for option in of_network)
    recipe = recipe or ("default" if is_network else HEAD)
    if recipe == HEAD:
        if exchanges is None or ratings is None or is_network:
            raise UserError("--recipe head: takes EXCHANGES, RATINGS and --out, and no other option")
        return _fit_head(exchanges, ratings, out, as_json=as_json)
    from dataclasses import replace

    from empathy_judge.reports.progress import progress, steps
    from empathy_judge.training.environment import check_environment
    from empathy_judge.training.model_card import read_recorded, trial_lines, write_card
    from empathy_judge.training.recipe import lineage, read_recipe
    from empathy_judge.training.training_data import read_training_data

    card: dict[str, Any] = {}
    if from_card:
        for name in NOT_WITH_CARD:
            if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
                raise UserError(f"--{name}: not with --from-card, which takes it from the card")
        card, recipes = read_recorded(from_card)
        device = card["provenance"]["device"] if device == "auto" else device
    else:
        changes: dict[str, Any] = {"base": base, "seed": seed}
        changes = {key: value for key, value in changes.items() if value is not None}
        recipes = lineage(replace(read_recipe(recipe), **changes))
    # To rebuild a judge, its teachers are not needed.
    device = check_environment(device, recipes[:1] if card else recipes)
    data = read_training_data(exchanges, ratings, recipes, sets=sets, texts=texts)
    from empathy_judge.calibration.artifact import CALIBRATION_FILE
    from empathy_judge.judge.onnx_model import read_card
    from empathy_judge.training.calibration_from_trials import calibrate_trained
    from empathy_judge.training.make import card_text, make_judge, read_evidence, rebuild_judge
    from empathy_judge.training.trials import plan_training, run_trial

    kept = "trained networks are saved; the one in progress, and predictions of a finished judge, are not"
    with interruptible(kept), steps() as (on_split, on_step):
        if protocol:
            result = run_trial(
                data, recipes, out, part=part, device=device, on_split=on_split, on_step=on_step
            )
        elif from_card:
            original = from_card if from_card.is_dir() else from_card.parent
            result = rebuild_judge(card, original, data, recipes, out, device=device, progress=on_step)
        else:
            figures = read_evidence(evidence, plan_training(data, recipes))
            text = card_text(about, figures)
            result = make_judge(
                data, recipes, out, text=text, evidence=figures, device=device, progress=on_step
            )
    is_calibrated = False
    if not protocol:
        with interruptible(kept), progress("evaluating", "evaluated") as on_predicted:
            is_calibrated = calibrate_trained(out, evidence, None if from_card else data, on_predicted)
        result |= read_card(out)
    if protocol and not result:
        return say(f"part {part} is done; the figures follow when all parts are")
    if as_json:
        click.echo(json.dumps(result, indent=2))
    elif protocol:
        say("\n".join(trial_lines(result)))
        options = {"--recipe": recipe, "--base": base, "--seed": seed, "--sets": sets}
        given = [word for pair in options.items() if pair[1] not in (None, "default") for word in pair]
        given += [word for path in texts for word in ("--texts", path)]
        files = [path for path in (exchanges, ratings) if path is not None]
        say_next("to make the judge", "train", *files, *given, "--evidence", out, "--out", "my-judge")
    else:
        rebuilt = (
            f"P(Good) differs by {result['change']:.4f} on average from the judge of the card."
            if result.get("change")
            else "Every file is identical to the one on the card."
        )
        say(rebuilt if card else write_card(result))
        if is_calibrated:
            say(f"calibrated by ratings that its training did not read: {out / CALIBRATION_FILE}")
        _say_how_to_score(result["name"], out)


def _say_how_to_score(kind: str, folder: Path) -> None:
    from empathy_judge.data.files import write_texts

    name = f"{folder.resolve().name}.toml"
    write_texts({name: f"kind = {kind!r}\nweights = {str(folder.resolve())!r}\n"}, folder.parent)
    say_next(f"to score with it: score RESPONSES --judge {folder.parent / name}")


def _fit_head(exchanges: Path, ratings: Path, out: Path, *, as_json: bool) -> None:
    """Fit a judge to ratings, and show how it compares with the default."""
    from empathy_judge.data.rating_files.sheet import Replies, read_sheet
    from empathy_judge.data.tables import read_responses
    from empathy_judge.reports.calibration.calibration_page import plain_report, print_report, write_report
    from empathy_judge.reports.progress import progress
    from empathy_judge.training.fit_head import fit_judge

    source = read_responses([exchanges])
    replies = list(source)
    sheet = read_sheet(ratings, replies=Replies(exchanges=replies))
    say_notes([*source.notes(), *sheet.notes])
    say(f"reading {len(replies):,} replies, then fitting to {len(sheet.ratings):,} ratings", err=True)
    with interruptible("nothing is saved"), progress("reading", "read") as on_progress:
        report = fit_judge(replies, sheet.ratings, out, on_progress=on_progress)
    written = write_report(report, out)
    if as_json:
        click.echo(json.dumps(plain_report(report), indent=2, allow_nan=False))
    else:
        print_report(report, written)
    _say_how_to_score("classifier", out)
