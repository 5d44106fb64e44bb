"""The command `respond`: have a model answer prompts."""

from pathlib import Path
from typing import Any

import click

from empathy_judge.commands.shared import options
from empathy_judge.commands.shared.options import FILE, say_next, say_notes
from empathy_judge.data.errors import OperationalError, UserError
from empathy_judge.data.storage import Columns, check_source, find_sources


@click.command()
@click.argument("prompts", type=FILE, required=False)
@options.model_options("responses")
@click.option(
    "--style",
    type=click.Choice(["empathy", "plain"]),
    help="Include the study's definition of empathy in the instructions, or not.  [default: empathy]",
)
@options.column_options
@click.option("--seed", type=click.IntRange(min=0), help="[default: 0]")
@click.option("--out", type=FILE, help="Output folder.  [default: responses/<file>-<model>-<digest>]")
@click.option("--limit", type=click.IntRange(min=1), help="Use only the first N prompts.")
@options.max_cost_option
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def respond(
    *,
    prompts: Path | None,
    reply_columns: Columns,
    model_config: Path | None,
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

    \b
    Examples:
      empathy-judge respond --base-url http://127.0.0.1:8000/v1 --model llama --out answers
      empathy-judge respond prompts.jsonl --model-config gpt.toml --style plain --max-cost 0.50
      empathy-judge score answers/responses.jsonl
    """
    from empathy_judge.data.runs import folder_name
    from empathy_judge.data.tables import SAMPLE_PROMPTS
    from empathy_judge.judge.budget import Budget
    from empathy_judge.judge.llm import responder as models
    from empathy_judge.judge.llm.responder import say_counts

    if model_config is None and settings["model"] is None:
        raise UserError("no model: set --model and --base-url, or --model-config FILE")
    config = models.read_model_config(model_config, settings)
    source = find_sources([prompts or SAMPLE_PROMPTS], reply_columns)
    check_source(source)
    responder = models.Responder(config)
    plan = responder.plan(source)
    folder = out or plan.default_folder("responses", source.stem, folder_name(plan["model"]))
    budget = responder.endpoint.budget = Budget(max_cost)
    with options.watching(
        "asking", "answered", lambda: budget.spent, prompts=prompts or SAMPLE_PROMPTS, out=folder
    ) as on_progress:
        responded = models.respond_to(
            source,
            responder,
            plan,
            folder,
            limit=limit,
            on_progress=on_progress,
            on_read=say_notes,
        )
    manifest, counts, words = responded.manifest, responded.manifest["counts"], responded.manifest["words"]
    lines = [f"{counts['responses']:,} of {counts['prompts']:,} prompts answered by {manifest['model']}"]
    if counts["failed"]:
        lines.append(f"failed, not among the responses: {say_counts(manifest['reasons'])}")
    if words["mean"] is not None:
        lines.append(f"{words['mean']:.1f} words on average; {words['too_long']:,} above {models.MOST_WORDS}")
    if served := manifest["served"]:
        lines.append(f"served as {say_counts(served)}")
    if len(served) > 1:
        lines.append("Warning: the server used more than one model.")
    options.print_asked(responded, lines, as_json=as_json, file="responses.jsonl")
    if not counts["responses"]:
        raise OperationalError(
            f"{folder}: no responses: {say_counts(manifest['reasons'])}. Failed prompts are not sent again "
            "in this folder: fix the cause and set another --out"
        )
    if not as_json:
        say_next("to score the replies", "score", folder / "responses.jsonl")
