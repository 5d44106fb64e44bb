"""A protocol from ratings to figures: trains (judge), measures (calibration), prints."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from data.text import percent, show
from judge.classifier.trials import METRICS
from reports.terminal import open_screen, print_table


def print_trial(evaluation: Mapping[str, Any]) -> None:
    """Two tables: how single ratings are met, and each model's level."""
    console = open_screen()
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    for title in METRICS.values():
        table.add_column(title, justify="right", no_wrap=True)
    for name, found in evaluation["evaluations"].items():
        table.add_row(name, *(_short(found["per_response"][metric], glue="\n") for metric in METRICS))
    print_table(console, table)
    judge = evaluation["evaluations"]["judge"]
    levels = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("model", "crowd's Good", "judge's Good", "error in points"):
        levels.add_column(title, justify="left" if title == "model" else "right")
    for row in judge["models"]:
        error = percent(row["share_error"])
        levels.add_row(row["model"], f"{row['crowd']['Good']:.3f}", f"{row['judge']['Good']:.3f}", error)
    console.print()
    print_table(console, levels)
    console.print()
    for line in _say_levels(judge, evaluation):
        console.print(line, style="dim", soft_wrap=True)


def _say_levels(judge: Mapping[str, Any], evaluation: Mapping[str, Any]) -> list[str]:
    levels = judge["chosen_models"] or judge["all_models"]
    lines = [
        f"Good share over {len(levels['models'])} models without people's own replies, in points: off by "
        f"{percent(levels['mean_share_error'])} on average, {percent(levels['worst_share_error'])} at worst",
        f"  guessing the mean of all others {percent(levels['guess_error'])}, of the others among these "
        f"{percent(levels['guess_error_among'])}; {', '.join(_say_rivals(evaluation))}",
        f"  their order: tau {_short(levels['tau'])}",
    ]
    # With raters apart the judge has met these models: its spread says nothing of one it has not.
    is_apart = evaluation["protocol"] == "model-apart"
    if is_apart and levels["between_sd"] is not None and levels["worth_in_ratings"] is not None:
        lines.append(
            f"spread of the error between models {100 * levels['between_sd']:.1f} points: "
            f"the judge is worth about {levels['worth_in_ratings']:.0f} ratings of a model"
        )
    if evaluation["on_three_arms"]:
        lines.append(f"balanced accuracy on human, gpt-4, gpt-4-plain: {_short(evaluation['on_three_arms'])}")
    return lines


def _say_rivals(evaluation: Mapping[str, Any]) -> list[str]:
    rivals = {
        name: found for name, found in evaluation["evaluations"].items() if not name.startswith("judge")
    }
    return [
        f"{name} {percent((found['chosen_models'] or found['all_models'])['mean_share_error'])}"
        for name, found in rivals.items()
    ]


def _short(estimate: Mapping[str, float | None], *, glue: str = " ") -> str:
    """An interval's third digit would be noise, and six of them do not fit into 80 columns."""
    return show(estimate, interval_digits=2, zero=False, glue=glue)
