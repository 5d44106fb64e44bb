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
from rich.table import Table as Grid
from rich.text import Text

from empathy_judge.data.text import AnyEstimate, bound_of, ends_of, printable, printable_lines
from empathy_judge.reports.page import Page, Table

NARROWEST: Final = 8  # columns that the name of a row may be folded into, and no fewer
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
    """Draw a share from 0 to 1 with its interval as text, open where it is a bound; empty without either.

    >>> bar({"value": 0.5, "low": 0.25, "high": 0.75}, 9), bar(0.0, 4, encoding="ascii"), bar(None, 2)
    ('··├─●─┤··', 'o...', '')
    >>> bar({"value": None, "low": 0.0, "high": 0.5, "bound": "at most"}, 5)
    '──┤··'
    """
    (value, low, high), bound = ends_of(share), bound_of(share)
    is_known = value is not None and isfinite(value)
    if not is_known and not bound:
        return ""
    left, line, right, dot, empty = "├─┤●·" if encoding.lower().startswith("utf") else "|-|o."
    left, right = (line if bound == "at most" else left), (line if bound == "at least" else right)
    cells = [empty] * width
    if low is not None and high is not None:
        start, stop = (round(end * (width - 1)) for end in (low, high))
        cells[start : stop + 1] = [left, *[line] * (stop - start - 1), right][: stop - start + 1]
    if value is not None and is_known:
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
    """Print tables with their captions, an empty line between two.

    Of a table that does not fit, each row gets a line for each column: rich would silently remove columns.
    """
    for number, table in enumerate(tables):
        if number:
            screen.print()
        if table.caption:
            print_text(screen, table.caption, "dim")
        lines, gap = _lay_out(table, screen.width)
        widths = _widths(lines)
        widths[0] = max(widths[0], NARROWEST)
        least = _widths([[text.replace(" ", "\n") for text in line] for line in lines])
        least = [least[at] if at in table.words else width for at, width in enumerate(widths)]
        least[0] = NARROWEST
        slack = screen.width - gap * (len(least) - 1) - sum(least)
        if slack >= 0:
            for at in sorted(table.words):
                widths[at] = min(widths[at], least[at] + slack)
                slack -= widths[at] - least[at]
            screen.print(_grid(table, lines, gap, widths))
        else:
            _print_rows(lines, screen)


def print_lines(lines: Sequence[str], screen: Console) -> None:
    """Print lines below a table; a long one, such as a path, is not broken, so that it can be copied."""
    for line in lines:
        screen.print(Text(printable(line)), style="dim", soft_wrap=True)


def _lay_out(table: Table, width: int) -> tuple[list[list[str]], int]:
    """Return all texts of a table, the head first, and the gap between its columns.

    Cells of two lines are joined where there is room, and names of rows fold where not.
    """
    texts = [list(table.head), *([cell.text for cell in cells] for cells in table.rows)]
    head, *rows = ([printable_lines(text) for text in line] for line in texts)
    on_one = [[_rejoin(text).replace("\n", " ") for text in line] for line in (head, *rows)]
    lines = [[_fold(name) for name in head], *rows]
    for shown, gap in ((on_one, 2), (on_one, 1), (lines, 2), (lines, 1)):
        widths = _widths(shown)
        short = max(0, NARROWEST - widths[0])  # of what the names get at least
        if sum(widths) + short + gap * (len(widths) - 1) <= width:
            break
    return shown, gap


def _grid(table: Table, lines: Sequence[Sequence[str]], gap: int, widths: Sequence[int]) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for number, name in enumerate(lines[0]):
        is_name = number in table.words
        grid.add_column(
            Text(name),
            justify="left" if is_name else "right",
            no_wrap=not is_name,
            overflow="fold",
            width=widths[number],
        )
    for number, line in enumerate(lines[1:]):
        grid.add_row(*map(Text, line), style="dim" if number in table.dim else None)
    return grid


def _print_rows(lines: Sequence[Sequence[str]], screen: Console) -> None:
    (_, *heads), *rows = ([" ".join(_rejoin(text).split()) for text in line] for line in lines)
    wide = max(map(cell_len, heads), default=0)
    for name, *cells in rows:
        screen.print(Text(name, style="bold"), overflow="fold")
        for head, text in zip(heads, cells, strict=True):
            if text:
                screen.print(Text(f"  {head}{' ' * (wide - cell_len(head))}  {text}"), overflow="fold")


def _rejoin(text: str) -> str:
    """Join a name that was broken at its slash."""
    return text.replace("/\n", "/")


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


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    columns = zip(*lines, strict=True)
    return [max(cell_len(part) for text in column for part in text.split("\n")) for column in columns]


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on stderr that something is under way: a spinner on a terminal, else a line once it takes long."""
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
