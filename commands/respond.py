"""The command `respond`: have a model answer prompts."""

import json
from pathlib import Path
from typing import Any

import click

from empathy_judge.commands.shared.options import (
    FILE,
    column_options,
    interruptible,
    max_cost_option,
    model_options,
    say_next,
    say_notes,
)
from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.runs import FinishedRun, folder_name
from empathy_judge.data.storage import Columns, check_source, find_sources
from empathy_judge.data.tables import SAMPLE_PROMPTS
from empathy_judge.data.text import printable
from empathy_judge.judge.llm import answer_prompts
from empathy_judge.judge.llm.answer_prompts import MOST_WORDS, ModelConfig, say_counts


@click.command()
@click.argument("prompts", type=FILE, required=False)
@model_options(
    "responses",
    click.option(
        "--style",
        type=click.Choice(["empathy", "plain"]),
        help="Include the study's definition of empathy in the instructions, or not.  [default: empathy]",
    ),
    settings="style, temperature",
)
@column_options
@click.option(
    "--turns",
    type=click.IntRange(min=2),
    metavar="N",
    help="Generate conversations of N turns with scripted speakers instead of single replies.",
)
@click.option("--seed", type=click.IntRange(min=0), help="[default: 0]")
@click.option("--out", type=FILE, help="Output folder.  [default: responses/<file>-<model>-<digest>]")
@click.option("--limit", type=click.IntRange(min=1), help="Use only the first N prompts.")
@max_cost_option
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def respond(
    *,
    prompts: Path | None,
    reply_columns: Columns,
    model_config: Path | None,
    turns: int | None,
    out: Path | None,
    limit: int | None,
    max_cost: float | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Generate a model's replies to prompts, for scoring.

    The prompts are sent as in the published study. PROMPTS is a file with a prompt in each row, and, if
    you have them, an id, situation, emotion and dialogue, in any shape that `score` reads; replies in it are
    ignored. Without PROMPTS, the 160 sample prompts are used. Options override --model-config. Run the
    command again to resume an interrupted run.

    With --turns, the model talks with scripted speakers that react to its replies: 40 that are included, or
    those of your own .toml file in the format of data/samples/situations.toml.

    \b
    Examples:
      empathy-judge respond --base-url http://127.0.0.1:8000/v1 --model llama --out answers
      empathy-judge respond prompts.jsonl --model-config gpt.toml --style plain --max-cost 0.50
      empathy-judge score answers/responses.jsonl
      empathy-judge respond --turns 8 --model-config gpt.toml --out talks
    """
    if model_config is None and settings["model"] is None:
        raise UserError("no model: set --model and --base-url, or --model-config FILE")
    config = answer_prompts.read_model_config(model_config, settings)
    bounds = {"limit": limit, "max_cost": max_cost}
    if turns:
        responded = _hold_conversations(prompts, config, out, turns=turns, **bounds)
    else:
        responded = _answer_prompts(prompts, reply_columns, config, out, **bounds)
    print_responded(responded, as_json=as_json)
    check_answered(responded)
    if not as_json:
        made = _made_in(responded)
        what = "replies" if made == "responses" else made
        say_next(f"to score the {what}", "score", responded.folder / f"{made}.jsonl")


def _answer_prompts(
    prompts: Path | None, columns: Columns, config: ModelConfig, out: Path | None, **bounds: Any
) -> FinishedRun:
    """Have every prompt answered once."""
    from empathy_judge.reports.progress import progress

    prompts = prompts or SAMPLE_PROMPTS
    source = find_sources([prompts], columns)
    check_source(source)
    responder = answer_prompts.Responder(config)
    plan = answer_prompts.plan_responses(source, responder)
    folder = out or plan.default_folder("responses", prompts.stem, folder_name(plan["model"]))
    with (
        interruptible("finished replies are saved", prompts=prompts, out=folder),
        progress("asking", "answered", spent=lambda: responder.endpoint.budget.spent) as on_progress,
    ):
        return answer_prompts.respond_to(
            source, responder, plan, folder, on_progress=on_progress, on_read=say_notes, **bounds
        )


def _hold_conversations(
    file: Path | None, config: ModelConfig, out: Path | None, *, turns: int, **bounds: Any
) -> FinishedRun:
    """Hold conversations of the model with scripted speakers."""
    from empathy_judge.judge import scripted_conversations as scripted
    from empathy_judge.reports.progress import progress

    file, listener = file or scripted.OURS, scripted.Listener(config)
    situations = scripted.read_script(file, turns=turns)
    plan = scripted.plan_conversations(situations, listener, turns=turns)
    folder = out or plan.default_folder("conversations", file.stem, folder_name(plan["model"]))
    with (
        interruptible("finished turns are saved", prompts=file, out=folder),
        progress("talking", "said", spent=lambda: listener.endpoint.budget.spent) as on_progress,
    ):
        return scripted.hold_conversations(
            situations, listener, plan, folder, on_progress=on_progress, **bounds
        )


def check_answered(responded: FinishedRun) -> None:
    """Refuse a folder without a single response: there is nothing to score in it."""
    manifest, made = responded.manifest, _made_in(responded)
    if not manifest["counts"][made]:
        raise OperationalError(
            f"{responded.folder}: no {made}: {say_counts(manifest['reasons'])}. Failed prompts are not sent "
            "again in this folder: fix the cause and set another --out"
        )


def _made_in(responded: FinishedRun) -> str:
    """What the folder holds: its file's name, and that of its count."""
    return "conversations" if "turns" in responded.manifest else "responses"


def print_responded(responded: FinishedRun, *, as_json: bool) -> None:
    """The manifest as JSON, or the few lines of it that a person wants to know."""
    manifest, made = responded.manifest, _made_in(responded)
    if as_json:
        print(json.dumps({**manifest, "run": str(responded.folder), "asked": responded.asked}, indent=2))
        return
    counts, words = manifest["counts"], manifest["words"]
    if made == "responses":
        lines = [f"{counts['responses']:,} of {counts['prompts']:,} prompts answered by {manifest['model']}"]
    else:
        held = f"{counts['conversations']:,} of {counts['situations']:,} conversations of {manifest['turns']}"
        lines = [f"{held} turns held by {manifest['model']}"]
    if counts["failed"]:
        lines.append(f"failed, not among the {made}: {say_counts(manifest['reasons'])}")
    if words["mean"] is not None:
        lines.append(f"{words['mean']:.1f} words on average; {words['too_long']:,} above {MOST_WORDS}")
    if served := manifest["served"]:
        lines.append(f"served as {say_counts(served)}")
    if len(served) > 1:
        lines.append("Warning: the server used more than one model.")
    if manifest["left_out"]:
        lines.append(f"rejected by the server and left out: {', '.join(manifest['left_out'])}")
    if manifest["cost"] is not None:
        lines.append(f"{manifest['cost']:.4f} USD")
    lines.append(
        f"{responded.folder / f'{made}.jsonl'}{'' if responded.asked else ' (complete; nothing was sent)'}"
    )
    for line in lines:
        print(printable(line))
