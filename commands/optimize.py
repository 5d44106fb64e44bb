"""The command `optimize`: better instructions for an LLM judge, found with human ratings."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from empathy_judge.commands.shared.options import FILE, complete_judge, say, say_next
from empathy_judge.data.errors import Interrupted


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
    "--max-calls",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Limit on the number of calls.",
)
@click.option("--max-cost", type=click.FloatRange(min=0), metavar="USD", help="Spending limit in USD.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
@click.option(
    "--held-out",
    "held_out_part",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.3,
    show_default=True,
    help="Share of the ratings held out for evaluation.",
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
    """Optimize an LLM judge's instructions on human ratings (GEPA).

    EXCHANGES are prompts with their replies, RATINGS their human ratings. The result replaces the judge's own
    instructions only if it agrees better with held-out ratings. Name its file in the judge's TOML as
    program = "..." to score with it. It may quote exchanges from the ratings.

    \b
    Example:
      empathy-judge optimize exchanges.jsonl ratings.jsonl --judge prompted.toml --out tuned.json --max-cost 5
    """
    from empathy_judge.judge.llm.optimize_prompt import OptimizeSettings, optimize_file

    try:
        record = optimize_file(
            exchanges,
            ratings,
            out,
            judge_name,
            OptimizeSettings(**settings),
            on_step=lambda text: say(text, err=True),
        )
    except KeyboardInterrupt as interrupt:
        raise Interrupted(
            "interrupted; nothing was saved. A search cannot be resumed: limit it with --max-calls "
            "or --max-cost, which save the best candidate"
        ) from interrupt
    if as_json:
        click.echo(json.dumps(record, indent=2))
    else:
        print_optimized(record)
        say_next(f'write program = "{out}" into {judge_name}, and score with --judge {judge_name}')


def print_optimized(record: Mapping[str, Any]) -> None:
    """Print the figures before and after an optimization, and how to read them."""
    from empathy_judge.data.records import LABELS
    from empathy_judge.data.text import show
    from empathy_judge.reports.page import Table, row
    from empathy_judge.reports.terminal import open_screen, print_lines, print_tables

    held_out, replies = record["held_out"], record["replies"]
    unscored, sides = held_out["unscored"], ("before", "after", "difference")
    table = Table(
        head=("held out", *sides),
        rows=(
            row("agreement", *(show(held_out["qwk"][side], digits=3) for side in sides)),
            row("unscored", unscored["before"], unscored["after"], ""),
        ),
    )
    apart = "prompts and rating batches" if record["batches_apart"] else "prompts, not rating batches,"
    stopped = f"; stopped early: {record['stopped']}" if record["stopped"] else ""
    screen = open_screen()
    print_tables([table], screen)
    print_lines(
        [
            f"{held_out['compared']:,} of {held_out['ratings']:,} held-out ratings compared, with {apart} "
            f"apart from the others; labels are {', '.join(LABELS)}",
            f"trained on {replies['to learn from']:,} replies, selected on {replies['to choose by']:,} others"
            f" from {record['candidates']:,} candidates",
            "agreement: weighted kappa, 0 is chance and 1 perfect",
            f"{record['calls']:,} calls, {record['cost']:.4f} USD{stopped}",
            f"program {record['program']}",
        ],
        screen,
    )
