"""The command `respond`: have a model answer prompts."""

import json
from pathlib import Path
from typing import Any

import click

from commands.shared.options import FILE, interruptible, model_options
from data.errors import OperationalError, UserError
from data.runs import FinishedRun
from judge.llm.answer_prompts import MOST_WORDS, RESPONSES, say_counts


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
@click.option("--seed", type=click.IntRange(min=0), help="[default: 0]")
@click.option("--out", type=FILE, help="The folder.  [default: responses/<file>-<model>-<digest>]")
@click.option("--limit", type=click.IntRange(min=1), help="Ask for no more than the first N prompts.")
@click.option("--max-cost", type=click.FloatRange(min=0), help="Spend no more than this now, in USD.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def respond(
    *,
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
    from data.runs import folder_name
    from data.storage import check_table
    from data.tables import SAMPLE_PROMPTS
    from judge.llm.answer_prompts import (
        Responder,
        make_model_config,
        plan_responses,
        read_model_config,
        respond_to,
    )
    from reports.progress import progress

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
    folder = out or plan.default_folder("responses", prompts.stem, folder_name(plan.model))
    with (
        interruptible("what was answered is kept", prompts=prompts, out=folder),
        progress("asking", "answered", spent=lambda: responder.endpoint.budget.spent) as on_progress,
    ):
        responded = respond_to(
            prompts, responder, plan, folder, limit=limit, max_cost=max_cost, on_progress=on_progress
        )
    print_responded(responded, as_json=as_json)
    check_answered(responded)


def check_answered(responded: FinishedRun) -> None:
    """Refuse a folder without a single response: there is nothing to score in it."""
    counts = responded.manifest["counts"]
    if not counts["responses"]:
        reasons = say_counts(responded.manifest["reasons"])
        raise OperationalError(
            f"{responded.folder}: none of {counts['prompts']:,} prompts was answered: {reasons}; "
            "these are not asked again in this folder: mend the cause and name another with --out"
        )


def print_responded(responded: FinishedRun, *, as_json: bool) -> None:
    """The manifest as JSON, or the few lines of it that a person wants to know."""
    from data.text import printable

    manifest = responded.manifest
    if as_json:
        print(json.dumps({**manifest, "run": str(responded.folder), "asked": responded.asked}, indent=2))
        return
    counts, words = manifest["counts"], manifest["words"]
    lines = [f"{counts['responses']:,} of {counts['prompts']:,} prompts answered by {manifest['model']}"]
    if counts["failed"]:
        lines.append(f"failed, and not among the responses: {say_counts(manifest['reasons'])}")
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
    lines.append(f"{responded.folder / RESPONSES}{'' if responded.asked else ' (nothing left to ask)'}")
    for line in lines:
        print(printable(line))
