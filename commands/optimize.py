"""The command `optimize`: better instructions for an LLM judge, found with human ratings."""

import json
from pathlib import Path
from typing import Any

import click

from empathy_judge.commands.shared.options import FILE, complete_judge, say, say_next


@click.command()
@click.argument("exchanges", type=FILE)
@click.argument("ratings", type=FILE)
@click.option(
    "--judge",
    "judge_name",
    required=True,
    metavar="FILE.toml",
    shell_complete=complete_judge,
    help="Prompted judge to optimize.",
)
@click.option("--out", type=FILE, required=True, help="Output file of the optimized prompt, a .json.")
@click.option(
    "--reflect",
    metavar="MODEL",
    help="Model that rewrites the instructions, as openai:MODEL or URL#MODEL; by default the judge's own.",
)
@click.option(
    "--max-calls",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Limit on the number of calls.",
)
@click.option("--max-cost", type=click.FloatRange(min=0), metavar="USD", help="Spending limit in USD.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def optimize(
    exchanges: Path, ratings: Path, judge_name: str, out: Path, as_json: bool, **settings: Any
) -> None:
    """Optimize an LLM judge's instructions on human ratings (GEPA).

    EXCHANGES are prompts with their replies, RATINGS their human ratings; reasons in a column `reason` are
    used. Rated examples are tried, too. The result replaces the judge's own prompt only if its error is
    smaller on ratings that it was not made from; 30% are held out to measure it. Name its file in the
    judge's TOML as program = "..." to score with it. It may quote exchanges from the ratings. A search cannot
    be resumed after Ctrl-C; with --max-calls or --max-cost, the best candidate is saved.

    \b
    Example:
      empathy-judge optimize exchanges.jsonl ratings.jsonl --judge prompted.toml --out tuned.json --max-cost 5
    """
    from empathy_judge.data.text import show
    from empathy_judge.judge.llm.optimize_prompt import optimize_file

    record = optimize_file(
        exchanges, ratings, out, judge_name, on_step=lambda text: say(text, err=True), **settings
    )
    if as_json:
        click.echo(json.dumps(record, indent=2))
        return
    held_out, replies, unscored = record["held_out"], record["replies"], record["held_out"]["unscored"]
    before, after, change = (
        show(held_out["error"][side], digits=3) for side in ("before", "after", "difference")
    )
    apart = "prompts and rating batches" if record["batches_apart"] else "prompts, not rating batches,"
    stopped = f"; stopped early: {record['stopped']}" if record["stopped"] else ""
    for line in (
        f"error (ranked probability score, 0 is best): {before} before, {after} after, difference {change}",
        f"unscored: {unscored['before']} before, {unscored['after']} after",
        f"on {held_out['ratings']:,} held-out ratings, with {apart} apart from the others",
        f"trained on {replies['to learn from']:,} replies, selected on {replies['to choose by']:,} others "
        f"from {record['candidates']:,} candidates",
        f"{record['calls']:,} calls, {record['cost']:.4f} USD{stopped}",
        f"program {record['program']}",
    ):
        say(line)
    say_next(f'write program = "{out}" into {judge_name}, and score with --judge {judge_name}')
