"""Pages and tables on a terminal: full width, in color if it is interactive."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from threading import Timer
from typing import Final, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column
from rich.table import Table as Grid
from rich.text import Text

from data.text import AnyEstimate, ends_of, printable, printable_lines
from reports.page import Page, Table

NARROWEST: Final = 8  # columns that words, such as the name of a row, may be folded into, and no fewer
LONG_HEAD: Final = 10  # letters of a head that stays on one line
SAY_AFTER: Final = 2.0  # seconds


class Screen(Console):
    """A console that leaves a closed pipe to `cli.py`; rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise  # the error that rich is handling


def open_screen(*, stderr: bool = False) -> Console:
    """Open a console that heeds NO_COLOR and FORCE_COLOR; its text is the same with and without color.

    With NO_COLOR it is plain altogether: neither bold nor dim, which rich by itself would keep.
    """
    color_system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Screen(highlight=False, stderr=stderr, color_system=color_system)


def print_page(page: Page, console: Console | None = None) -> None:
    """Print the page's text and tables; its figures say the same."""
    screen = console or open_screen()
    print_text(screen, page.title, "bold")
    print_text(screen, page.subtitle, "dim")
    for sentence in page.verdict:
        print_text(screen, sentence)
    for section in page.sections:
        screen.print()
        print_text(screen, section.title, "bold")
        for paragraph in section.text:
            print_text(screen, paragraph, "dim")
        for point in section.points:
            print_text(screen, f"- {point}")
        print_tables(section.tables, screen)
        for note in section.notes:
            print_text(screen, note, "dim")
    if page.foot:
        print_text(screen, page.foot, "dim")


def print_text(screen: Console, text: str, style: str = "") -> None:
    """Print a text, folded at the screen's edge."""
    screen.print(Text(printable(text)), style=style)


def bar(share: AnyEstimate, width: int, *, encoding: str = "utf-8") -> str:
    """Draw a share from 0 to 1 with its interval as text; empty where there is none.

    >>> bar({"value": 0.5, "low": 0.25, "high": 0.75}, 9), bar(0.0, 4, encoding="ascii"), bar(None, 2)
    ('··├─●─┤··', 'o...', '')
    """
    value, low, high = ends_of(share)
    if value is None or not isfinite(value):
        return ""
    left, line, right, dot, empty = "├─┤●·" if encoding.lower().startswith("utf") else "|-|o."
    cells = [empty] * width
    if low is not None and high is not None:
        start, stop = (round(end * (width - 1)) for end in (low, high))
        cells[start : stop + 1] = [left, *[line] * (stop - start - 1), right][: stop - start + 1]
    cells[round(value * (width - 1))] = dot
    return "".join(cells)


def axis(width: int) -> str:
    """Write 0, 50 and 100 above bars of this width.

    >>> axis(17)
    '0      50     100'
    """
    left = (width - 1) // 2 - 2
    return f"0{' ' * left}50{'100':>{width - left - 3}}"


def print_tables(tables: Sequence[Table], screen: Console) -> None:
    """Print tables with their captions, an empty line between two."""
    for number, table in enumerate(tables):
        if number:
            screen.print()
        if table.caption:
            print_text(screen, table.caption, "dim")
        print_table(screen, _grid(table, screen.width))


def print_lines(lines: Sequence[str], screen: Console) -> None:
    """Print lines below a table; a long one, such as a path, is not broken, so that it can be copied."""
    for line in lines:
        screen.print(Text(printable(line)), style="dim", soft_wrap=True)


def print_table(console: Console, grid: Grid) -> None:
    """Print a table where it fits; else each row with a line for each column, so that nothing is cut off.

    Not left to rich, which silently removes columns that do not fit.
    """
    gap = sum(grid.padding[1::2])
    if sum(map(_least_width, grid.columns)) + gap * (len(grid.columns) - 1) <= console.width:
        console.print(grid)
        return
    heads = [_on_one_line(column.header) for column in grid.columns]
    wide = max(map(cell_len, heads[1:]), default=0)
    for name, *cells in zip(*(column.cells for column in grid.columns), strict=True):
        console.print(Text(_on_one_line(name), style="bold"), overflow="fold")
        for head, cell in zip(heads[1:], cells, strict=True):
            text = _on_one_line(cell)
            if text:
                console.print(Text(f"  {head}{' ' * (wide - cell_len(head))}  {text}"), overflow="fold")


def _least_width(column: Column) -> int:
    lines = [line for item in (column.header, *column.cells) for line in _plain(item).split("\n")]
    widest = max(map(cell_len, lines), default=0)
    return widest if column.no_wrap else min(widest, max(column.min_width or 0, NARROWEST))


def _on_one_line(item: object) -> str:
    return " ".join(_rejoin(_plain(item)).split())


def _rejoin(text: str) -> str:
    """A name that was broken at its slash in one piece again."""
    return text.replace("/\n", "/")


def _plain(item: object) -> str:
    return item.plain if isinstance(item, Text) else str(item)


def _grid(table: Table, width: int) -> Grid:
    """Lay a table out: cells of two lines go on one where there is room, and names of rows fold where not."""
    lines = [list(table.head), *([cell.text for cell in cells] for cells in table.rows)]
    on_one = [[_rejoin(text).replace("\n", " ") for text in line] for line in lines]
    lines[0] = [_fold(name) for name in lines[0]]
    gaps = len(table.head) - 1
    for shown, gap in ((on_one, 2), (on_one, 1), (lines, 2), (lines, 1)):
        short = max(0, NARROWEST - _width([line[:1] for line in shown]))  # of what the names get at least
        if _width(shown) + short + gap * gaps <= width:
            break
    grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for number, name in enumerate(shown[0]):
        is_name = number in table.words
        grid.add_column(
            _cell(name),
            justify="left" if is_name else "right",
            no_wrap=not is_name,
            overflow="fold",
            min_width=NARROWEST if number == 0 else None,
        )
    for number, line in enumerate(shown[1:]):
        grid.add_row(*map(_cell, line), style="dim" if number in table.dim else None)
    return grid


def _cell(text: str) -> Text:
    return Text(printable_lines(text))


def _fold(name: str) -> str:
    """Break a head after hyphens into several lines: the longest there is names a model.

    >>> _fold("llama-2-70b-chat").split("\\n")
    ['llama-2-', '70b-chat']
    """
    if len(name) <= LONG_HEAD or "\n" in name:
        return name
    lines = [""]
    for part in re.split(r"(?<=-)", name):
        if lines[-1] and len(lines[-1] + part) > LONG_HEAD:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _width(lines: list[list[str]]) -> int:
    columns = zip(*lines, strict=True)
    return sum(max(cell_len(part) for text in column for part in text.split("\n")) for column in columns)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say on stderr that something is under way: turning on a terminal, else a line once it takes long."""
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
