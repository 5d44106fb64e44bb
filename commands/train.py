"""The command `train`: judges made from human ratings."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from empathy_judge.commands.shared.options import FILE, command_line, interruptible, say, say_next, say_notes
from empathy_judge.data.errors import UserError

HEAD = "head"  # the recipe of an output layer
# The options that act in each use of the command; any other is refused.
WITH_HEAD = {"exchanges", "ratings", "recipe", "out", "as_json"}
WITH_CARD = {"exchanges", "ratings", "from_card", "out", "sets", "texts", "device", "as_json"}
WITH_CROSS_VALIDATION = {*WITH_HEAD, "cross_validate", "base", "seed", "sets", "texts", "device"}
KEPT = "trained networks are saved; the one in progress, and predictions of a finished judge, are not"


@click.command()
@click.argument("exchanges", type=FILE, required=False)
@click.argument("ratings", type=FILE, required=False)
@click.option(
    "--recipe",
    metavar="NAME|FILE.toml",
    help="Training settings: `default`, `open` (data that companies may use), `teacher-large` (LoRA adapters "
    "on a large base) and files train a network, on a GPU; `head` fits a new output layer on the features of "
    "the default judge, in minutes, on a CPU.  [default: head, or default with an option of a network]",
)
@click.option("--base", metavar="NAME|FOLDER", help="Replace the recipe's base: minilm, smollm2, a folder.")
@click.option("--seed", type=click.IntRange(min=0), help="Replace the recipe's seed.")
@click.option(
    "--from-card",
    type=FILE,
    metavar="CARD|FOLDER",
    help="Rebuild a judge from its card.json, with the data and settings that the card records.",
)
@click.option("--out", type=FILE, required=True, help="Folder of the judge, or of the cross-validation.")
@click.option(
    "--cross-validate", is_flag=True, help="Evaluate the settings on held-out data instead of making a judge."
)
@click.option("--sets", type=FILE, help="Folder with the public rated sets that the recipe names.")
@click.option("--texts", type=FILE, multiple=True, help="Unrated exchanges for a teacher to label.")
@click.option("--cv-results", type=FILE, help="Folder of a cross-validation, whose figures the card gets.")
@click.option("--card-text", type=FILE, help="TOML file with the card's summary, license, data and limits.")
@click.option(
    "--average-with-default",
    is_flag=True,
    help="Average the LoRA adapters with the default judge, as `classifier-large` does.",
)
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
    cross_validate: bool,
    sets: Path | None,
    texts: tuple[Path, ...],
    cv_results: Path | None,
    card_text: Path | None,
    average_with_default: bool,
    device: str,
    as_json: bool,
) -> None:
    """Train a judge on human ratings of replies.

    `train replies.jsonl ratings.jsonl --out my-judge` fits a judge to your own ratings on a CPU: 300 ratings
    take about a minute and 0.5 GB of memory. It prints how well the new judge and the default judge agree
    with ratings of prompts that were left out of the fit. Both files have any shape that `calibrate` reads.

    The rest is about networks. EXCHANGES are prompts with their replies, and RATINGS their human ratings, as
    `import` writes both. With --cross-validate no judge is made: the recipe is trained three times, each
    time without a group of rated sets with every text they share, a fifth of the prompts with their raters,
    and a third of the models. Its predictions are compared with the ratings that were held out. Run the
    command again to resume.

    --sets is a folder with one folder for each public set, as published: epitome, ieval, esconv, and so on. A
    recipe that names some under [sets] needs no EXCHANGES. Sets with the weight 0 only evaluate the finished
    judge; with `study = 0`, so do EXCHANGES and RATINGS.

    \b
    Examples:
      empathy-judge train replies.jsonl ratings.jsonl --out my-judge
      empathy-judge train exchanges.jsonl ratings.jsonl --sets public --cross-validate --out cv
      empathy-judge train exchanges.jsonl ratings.jsonl --sets public --cv-results cv --out my-judge
      empathy-judge train exchanges.jsonl ratings.jsonl --from-card my-judge --out rebuilt
    """
    given = {
        str(each.name): each.opts[0]
        for each in context.command.params
        if context.get_parameter_source(str(each.name)) is not ParameterSource.DEFAULT
    }

    def allow(names: set[str], use: str) -> None:
        if refused := [option for name, option in given.items() if name not in names]:
            raise UserError(f"{', '.join(refused)}: not with {use}")

    is_head = recipe == HEAD or (recipe is None and set(given) <= WITH_HEAD)
    if from_card:
        allow(WITH_CARD, "--from-card, which takes it from the card")
    elif is_head:
        allow(WITH_HEAD, "--recipe head, which takes EXCHANGES, RATINGS, --out and --json")
        return _fit_head(exchanges, ratings, out, as_json=as_json)
    elif cross_validate:
        allow(WITH_CROSS_VALIDATION, "--cross-validate, which makes no judge")
    from dataclasses import replace

    from empathy_judge.reports.progress import progress, training_steps
    from empathy_judge.training.model_card import evaluation_lines, read_recorded, write_card
    from empathy_judge.training.recipe import check_environment, lineage, read_recipe
    from empathy_judge.training.training_data import read_training_data

    card: dict[str, Any] = {}
    rows: Sequence[Mapping[str, Any]] = []
    if from_card:
        card, recipes = read_recorded(from_card)
        device = card["provenance"]["device"] if device == "auto" else device
    else:
        changes: dict[str, Any] = {"base": base, "seed": seed}
        changes = {key: value for key, value in changes.items() if value is not None}
        recipes = lineage(replace(read_recipe(recipe or "default"), **changes))
    if average_with_default and not recipes[0].rank:
        raise UserError("--average-with-default: only for LoRA adapters, of a recipe with a rank")
    # To rebuild a judge, its teachers are not needed.
    device = check_environment(device, recipes[:1] if card else recipes)
    data = read_training_data(exchanges, ratings, recipes, sets=sets, texts=texts)
    from empathy_judge.calibration.artifact import CALIBRATION_FILE
    from empathy_judge.judge.onnx_model import read_card
    from empathy_judge.training import cross_validation, make
    from empathy_judge.training.held_out_calibration import calibrate_trained, open_trained

    on_split, on_step = training_steps()
    with interruptible(KEPT):
        if cross_validate:
            result = cross_validation.cross_validate(
                data, recipes, out, device=device, on_split=on_split, on_step=on_step
            )
        elif from_card:
            folder = from_card if from_card.is_dir() else from_card.parent
            rows = list(cross_validation.read_rows(folder))
            result = make.rebuild_judge(
                card, folder, data, recipes, out, rows=rows, device=device, progress=on_step
            )
        else:
            rows = make.read_cv_results(cv_results, data, recipes, is_averaged=average_with_default)
            about: dict[str, Any] = {"text": make.card_text(card_text), "is_averaged": average_with_default}
            result = make.make_judge(data, recipes, out, rows=rows, device=device, progress=on_step, **about)
    if cross_validate:
        if as_json:
            return click.echo(json.dumps(result, indent=2))
        say("\n".join(evaluation_lines(result)))
        again = command_line(context, cross_validate=False, cv_results=out, out="my-judge")
        return say_next(f"to make the judge: {again}")
    with interruptible(KEPT), progress("evaluating", "evaluated") as on_predicted:
        judge = open_trained(out, make.own_base(recipes[0]))
        is_calibrated = calibrate_trained(judge, rows, None if card else data, on_predicted)
    if as_json:
        return click.echo(json.dumps(result | read_card(out), indent=2))
    if not card:
        say(write_card(read_card(out)))
    elif result["files"] == card["files"]:
        say("Every file is identical to the one on the card.")
    else:
        say(f"P(Good) differs by {result['change']:.4f} on average from the judge of the card.")
    if is_calibrated:
        say(f"calibrated by ratings that its training did not read: {out / CALIBRATION_FILE}")
    _say_how_to_score(judge.name, out, make.own_base(recipes[0]))


def _say_how_to_score(kind: str, folder: Path, base: str = "") -> None:
    from empathy_judge.data.files import write_texts

    options = {"kind": kind, "weights": str(folder.resolve()), **({"base": base} if base else {})}
    name = f"{folder.resolve().name}.toml"
    write_texts({name: "".join(f"{key} = {value!r}\n" for key, value in options.items())}, folder.parent)
    say_next(f"to score with it: score RESPONSES --judge {folder.parent / name}")


def _fit_head(exchanges: Path | None, ratings: Path | None, out: Path, *, as_json: bool) -> None:
    """Fit a judge to ratings, and show how it compares with the default."""
    if exchanges is None or ratings is None:
        raise UserError("EXCHANGES and RATINGS are missing: replies, and their human ratings")
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
