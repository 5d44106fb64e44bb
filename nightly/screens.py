"""The terminal to print to: in colour where a person looks on and did not ask for none, never too wide."""

import os
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

LEAST: Final = 8  # columns that words may be folded into, and no fewer


def open_screen(*, stderr: bool = False) -> Console:
    """A console that heeds NO_COLOR and FORCE_COLOR; what it prints is the same text with and without colour.

    With NO_COLOR it is plain altogether: neither bold nor dim, which rich by itself would keep.
    """
    if os.environ.get("NO_COLOR"):
        return Console(highlight=False, stderr=stderr, color_system=None)
    return Console(highlight=False, stderr=stderr)


def print_table(console: Console, table: Table) -> None:
    """A table where it fits; else each row by itself with a line for each column, so that nothing is cut off.

    By hand, since rich takes away whole columns without a word where they do not fit.
    """
    gap = sum(table.padding[1::2])
    if sum(map(_least_width, table.columns)) + gap * (len(table.columns) - 1) <= console.width:
        console.print(table)
        return
    heads = [_on_one_line(column.header) for column in table.columns]
    wide = max(map(cell_len, heads[1:]), default=0)
    for name, *cells in zip(*(column.cells for column in table.columns), strict=True):
        console.print(Text(_on_one_line(name), style="bold"), overflow="fold")
        for head, cell in zip(heads[1:], cells, strict=True):
            text = _on_one_line(cell)
            if text:
                console.print(Text(f"  {head}{' ' * (wide - cell_len(head))}  {text}"), overflow="fold")


def _least_width(column: Column) -> int:
    lines = [line for item in (column.header, *column.cells) for line in _text(item).split("\n")]
    widest = max(map(cell_len, lines), default=0)
    return widest if column.no_wrap else min(widest, max(column.min_width or 0, LEAST))


def _on_one_line(item: object) -> str:
    return " ".join(_text(item).split())


def _text(item: object) -> str:
    return item.plain if isinstance(item, Text) else str(item)
