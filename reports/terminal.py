"""A page as a terminal shows it: sentences, then tables as wide as there is room."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.table import Table as Grid
from rich.text import Text

from data.text import printable
from reports.page import Page, Section
from reports.page import Table as Table_terminal

# The terminal to print to: in colour where a person looks on and did not ask for none, never too wide.

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


LONG = 10  # letters of a head that stays on one line
TERMINAL_LEAST = 8  # columns for the name of a row, however narrow the terminal
SAY_AFTER = 2.0  # seconds


def print_page(page: Page, console: Console | None = None) -> None:
    """The page's text and tables; its figures say the same."""
    screen = console or open_screen()
    _say(screen, page.title, "bold")
    _say(screen, page.subtitle, "dim")
    for sentence in page.verdict:
        _say(screen, sentence)
    for section in page.sections:
        _print_section(section, screen)
    if page.foot:
        _say(screen, page.foot, "dim")


def _print_section(section: Section, screen: Console) -> None:
    screen.print()
    _say(screen, section.title, "bold")
    for paragraph in section.text:
        _say(screen, paragraph, "dim")
    for point in section.points:
        _say(screen, f"- {point}")
    for number, table in enumerate(section.tables):
        if number:
            screen.print()
        _say(screen, table.caption, "dim")
        print_table(screen, _grid(table, screen.width))
    for note in section.notes:
        _say(screen, note, "dim")


def _say(screen: Console, text: str, style: str = "") -> None:
    screen.print(Text(printable(text)), style=style)


def _grid(table: Table_terminal, width: int) -> Grid:
    """Without lines; cells of two lines go on one where there is room, and names of rows fold where not."""
    lines = [list(table.head), *([cell.text for cell in cells] for cells in table.rows)]
    on_one = [[text.replace("\n", " ") for text in line] for line in lines]
    lines[0] = [_fold(name) for name in lines[0]]
    gaps = len(table.head) - 1
    for shown, gap in ((on_one, 2), (on_one, 1), (lines, 2), (lines, 1)):
        if _width(shown) + gap * gaps <= width:
            break
    grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for number, name in enumerate(shown[0]):
        is_name = number in table.words
        grid.add_column(
            Text("\n".join(printable(part) for part in name.split("\n"))),
            justify="left" if is_name else "right",
            no_wrap=not is_name,
            overflow="fold",
            min_width=TERMINAL_LEAST if number == 0 else None,
        )
    for line in shown[1:]:
        grid.add_row(*(Text("\n".join(printable(part) for part in text.split("\n"))) for text in line))
    return grid


def _fold(name: str) -> str:
    """A head in several lines: the name of a model is the longest there is, and breaks after hyphens.

    >>> _fold("llama-2-70b-chat").split("\\n")
    ['llama-2-', '70b-chat']
    """
    if len(name) <= LONG or "\n" in name:
        return name
    lines = [""]
    for part in re.split(r"(?<=-)", name):
        if lines[-1] and len(lines[-1] + part) > LONG:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _width(lines: list[list[str]]) -> int:
    columns = zip(*lines, strict=True)
    return sum(max(cell_len(part) for text in column for part in text.split("\n")) for column in columns)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Says on stderr that something is under way: turning on a terminal, else a line once it takes long."""
    if sys.stderr.isatty():
        with open_screen(stderr=True).status(f"{what} ..."):
            yield
        return
    timer = Timer(SAY_AFTER, print, (f"{what} ...",), {"file": sys.stderr, "flush": True})
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
