"""An alignment in the terminal: a table for each model, and beneath it what one must know to read it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from nightly.feelings import (
    label_of,
    rows_of,
    say_agreement,
    say_contradicted,
    say_default,
    say_missing,
    say_tests,
    show_change,
    show_level,
)
from nightly.highlight import printable
from nightly.screens import open_screen, print_table
from nightly.wording import Row, number

UNDEFINED = "\N{EN DASH}"


def print_alignment(result: Row, *, factors: bool, as_json: bool, report: Path | None) -> None:
    """The result as JSON, or a table for each model with its notes."""
    if as_json:
        print(json.dumps({**result, "report": str(report) if report else None}, indent=2, allow_nan=False))
        return
    console = open_screen()
    for found in result["models"]:
        console.print(Text(f"{printable(label_of(found))}, {found['scale']}", style="bold"))
        console.print(Text(say_default(found)))
        levels = ("overall", "emotion", "factor") if factors else ("overall", "emotion")
        table = _affect_table(found, levels) if found["scale"] == "PANAS" else _scale_table(found, levels)
        print_table(console, table)
        for line in _lines(found):
            console.print(Text(printable(line)), style="dim")
        console.print()
    if contradicted := say_contradicted(result):
        held = result["checked"] - len(result["contradicted"])
        console.print(Text(f"printed figures that the data contradict ({held:,} others hold):"))
        for line in contradicted:
            console.print(Text(printable(f"  {line}")), style="dim")
    for note in result["notes"]:
        console.print(Text(note), style="dim")
    if report:
        console.print(Text(printable(str(report))), style="dim", soft_wrap=True)


def _lines(found: Row) -> Iterator[str]:
    yield from say_agreement(found)
    yield from say_tests(found)
    yield from say_missing(found)
    for warning in found["warnings"]:
        yield f"beware: {warning}"


def _affect_table(found: Row, levels: tuple[str, ...]) -> Table:
    """Both affects side by side: evoked, the change from the default, and people's change."""
    table = _table("", "n")
    for affect in ("positive", "negative"):
        table.add_column(f"{affect}\nevoked (SD)", justify="right", no_wrap=True)
        table.add_column("\nchange", justify="right", no_wrap=True)
        table.add_column("\npeople", justify="right", no_wrap=True)
    for row in rows_of(found, *levels):
        cells = [_name(row), _count(row)]
        for affect in ("positive", "negative"):
            about = row["scales"][affect]
            people = number(about["people"]["change"], 1, sign=True) if about["people"] else UNDEFINED
            cells += [_show(show_level(about["evoked"])), _show(show_change(about)), people]
        table.add_row(*map(Text, cells))
    return table


def _scale_table(found: Row, levels: tuple[str, ...]) -> Table:
    """A line for each sub-scale."""
    table = _table("", "sub-scale", "n")
    for name in ("default (SD)", "evoked (SD)", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = rows_of(found, *levels)
    if len([row for row in rows if row["level"] == "emotion"]) == 1:
        rows = [row for row in rows if row["level"] != "emotion"]  # the same as overall
    for row in rows:
        for scale, about in row["scales"].items():
            levels_told = [_show(show_level(about[measure])) for measure in ("default", "evoked")]
            cells = [_name(row), scale, _count(row), *levels_told, _show(show_change(about))]
            table.add_row(*map(Text, cells))
    return table


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in names:
        table.add_column(name, justify="right" if name == "n" else "left", overflow="fold")
    return table


def _name(row: Row) -> str:
    return str(row["name"])


def _count(row: Row) -> str:
    return UNDEFINED if row["sheets"] is None else f"{row['sheets']:,}"


def _show(text: Any) -> str:
    return UNDEFINED if text == "undefined" else str(text)
