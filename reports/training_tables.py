"""The figures that `optimize` prints: a tuned judge on ratings it was not tuned on."""

from collections.abc import Mapping
from typing import Any

from empathy_judge.data.records import LABELS
from empathy_judge.data.text import show
from empathy_judge.reports.page import Table, row
from empathy_judge.reports.terminal import open_screen, print_lines, print_tables


def print_tuned(tuned: Mapping[str, Any]) -> None:
    """Print a tuned judge's figures before and after, and what one must know to read them."""
    held_out, replies = tuned["held_out"], tuned["replies"]
    unscored, sides = held_out["unscored"], ("before", "after", "difference")
    table = Table(
        head=("held out", *sides),
        rows=(
            row("agreement", *(show(held_out["qwk"][side], digits=3) for side in sides)),
            row("unscored", unscored["before"], unscored["after"], ""),
        ),
    )
    apart = "prompts and rating batches" if tuned["batches_apart"] else "prompts, not rating batches,"
    stopped = f"; stopped early: {tuned['stopped']}" if tuned["stopped"] else ""
    screen = open_screen()
    print_tables([table], screen)
    print_lines(
        [
            f"{held_out['compared']:,} of {held_out['ratings']:,} held-out ratings compared, with {apart} "
            f"apart from those tuned on; labels are {', '.join(LABELS)}",
            f"trained on {replies['to learn from']:,} replies, selected on {replies['to choose by']:,} others"
            f" from {tuned['candidates']:,} candidates",
            "agreement: weighted kappa, 0 is chance and 1 perfect",
            f"{tuned['calls']:,} calls, {tuned['cost']:.4f} USD{stopped}",
            f"program {tuned['program']}",
        ],
        screen,
    )
