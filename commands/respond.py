"""The command `respond`: have a model answer prompts."""

import json
from pathlib import Path
from typing import Any

import click

from commands.shared.options import FILE, column_options, interruptible, model_options, say_next, say_notes
from data.errors import OperationalError, UserError
from data.runs import FinishedRun
from data.storage import Columns
from judge.llm.answer_prompts import MOST_WORDS, ModelConfig, say_counts


@click.command()
@click.argument("prompts", type=FILE, required=False)
@model_options(
    "responses",
    click.option(
        "--style",
        type=click.Choice(["empathy", "plain"]),
        help="Tell the model what empathy is, as the study did, or leave that out.  [default: empathy]",
    ),
    settings="style, temperature",
)
@column_options
@click.option(
    "--turns",
    type=click.IntRange(min=2),
    metavar="N",
    help="Hold conversations of so many turns each with scripted speakers, instead of asking once.",
)
@click.option("--seed", type=click.IntRange(min=0), help="[default: 0]")
@click.option("--out", type=FILE, help="The folder.  [default: responses/<file>-<model>-<digest>]")
@click.option("--limit", type=click.IntRange(min=1), help="Ask for no more than the first N prompts.")
@click.option("--max-cost", type=click.FloatRange(min=0), help="Spend no more than this now, in USD.")
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
    """Have a model answer prompts, so that its replies can be judged.

    It is asked as the models of the crowd study were. PROMPTS is a file with a prompt in each row, and, if
    you have them, an id, situation, emotion and dialogue, in any shape that `score` reads; replies in it are
    passed over. Without it the 160 sample prompts are taken. Options given here stand in place of the file's.
    The same command takes an interrupted run up again and asks for nothing twice.

    With --turns the model talks with speakers: 40 of our own who follow a script and react to its replies, or
    those of a .toml file of yours like data/samples/situations.toml.

    \b
    Examples:
      empathy-judge respond --base-url http://127.0.0.1:8000/v1 --model llama --out answers
      empathy-judge respond prompts.jsonl --model-config gpt.toml --style plain --max-cost 0.50
      empathy-judge score answers/responses.jsonl
      empathy-judge respond --turns 8 --model-config gpt.toml --out talks
    """
    if model_config is None and settings["model"] is None:
        raise UserError("no model: name one with --model and --base-url, or a file with --model-config")
    from judge.llm.answer_prompts import read_model_config

    config = read_model_config(model_config, settings)
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
        say_next(f"to judge the {what}", "score", responded.folder / f"{made}.jsonl")


def _answer_prompts(
    prompts: Path | None, columns: Columns, config: ModelConfig, out: Path | None, **bounds: Any
) -> FinishedRun:
    """Have every prompt answered once."""
    from data.runs import folder_name
    from data.storage import check_source, find_sources
    from data.tables import SAMPLE_PROMPTS
    from judge.llm.answer_prompts import Responder, plan_responses, respond_to
    from reports.progress import progress

    prompts = prompts or SAMPLE_PROMPTS
    source = find_sources([prompts], columns)
    check_source(source)
    responder = Responder(config)
    plan = plan_responses(source, responder)
    folder = out or plan.default_folder("responses", prompts.stem, folder_name(plan.model))
    with (
        interruptible("what was answered is kept", prompts=prompts, out=folder),
        progress("asking", "answered", spent=lambda: responder.endpoint.budget.spent) as on_progress,
    ):
        return respond_to(
            source, responder, plan, folder, on_progress=on_progress, on_read=say_notes, **bounds
        )


def _hold_conversations(
    file: Path | None, config: ModelConfig, out: Path | None, *, turns: int, **bounds: Any
) -> FinishedRun:
    """Hold conversations of the model with scripted speakers."""
    from data.runs import folder_name
    from judge.scripted_conversations import (
        OURS,
        Listener,
        hold_conversations,
        plan_conversations,
        read_script,
    )
    from reports.progress import progress

    file, listener = file or OURS, Listener(config)
    situations = read_script(file, turns=turns)
    plan = plan_conversations(situations, listener, turns=turns)
    folder = out or plan.default_folder("conversations", file.stem, folder_name(plan.model))
    with (
        interruptible("what was said is kept", prompts=file, out=folder),
        progress("talking", "said", spent=lambda: listener.endpoint.budget.spent) as on_progress,
    ):
        return hold_conversations(situations, listener, plan, folder, on_progress=on_progress, **bounds)


def check_answered(responded: FinishedRun) -> None:
    """Refuse a folder without a single response: there is nothing to score in it."""
    manifest, made = responded.manifest, _made_in(responded)
    if not manifest["counts"][made]:
        raise OperationalError(
            f"{responded.folder}: no {made}: {say_counts(manifest['reasons'])}; "
            "these are not asked again in this folder: fix the cause and name another with --out"
        )


def _made_in(responded: FinishedRun) -> str:
    """What the folder holds: its file's name, and that of its count."""
    return "conversations" if "turns" in responded.manifest else "responses"


def print_responded(responded: FinishedRun, *, as_json: bool) -> None:
    """The manifest as JSON, or the few lines of it that a person wants to know."""
    from data.text import printable

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
        lines.append(f"failed, and not among the {made}: {say_counts(manifest['reasons'])}")
    if words["mean"] is not None:
        lines.append(f"{words['mean']:.1f} words on average; {words['too_long']:,} above {MOST_WORDS}")
    if served := manifest["served"]:
        lines.append(f"served as {say_counts(served)}")
    if len(served) > 1:
        lines.append("More than one model answered: the server changed it, or chooses among several.")
    if manifest["left_out"]:
        lines.append(f"the server refused, and was not sent: {', '.join(manifest['left_out'])}")
    if manifest["cost"] is not None:
        lines.append(f"{manifest['cost']:.4f} USD")
    lines.append(f"{responded.folder / f'{made}.jsonl'}{'' if responded.asked else ' (nothing left to ask)'}")
    for line in lines:
        print(printable(line))
