"""A report before it is HTML, Markdown or terminal text: sections of text, figures, tables and examples."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from empathy_judge.data.records import LABELS
from empathy_judge.data.text import AnyEstimate, bound_of, count, percent, percents

Item = TypeVar("Item")
Look = Literal["reply", "best", "worst"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure in a table; `tint` colors it, from -1 (the one end of the scale) to 1 (the other)."""

    text: str
    tint: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under a head; the first cell of a row names it. `words` are the columns that hold no figures.

    `dim` are the numbers of rows for reference only.
    """

    caption: str = ""
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: frozenset[int] = frozenset({0})
    dim: frozenset[int] = frozenset()
    is_folded: bool = False  # shown on demand: a figure above says the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A drawing (markup that is safe already) and the line beneath it."""

    svg: str
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One turn of a conversation; `mark` is shown next to the name, and `look` is the style of the reply."""

    who: str
    text: str
    mark: str = ""
    look: Look | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A response on which judge and people part, several `replies` to one prompt, or a `talk` with a drawing.

    The drawing in `figure` is markup that is safe already.
    """

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    prompt: str | None = None
    response: str | None = None
    replies: tuple[tuple[str, str], ...] = ()
    figure: str = ""
    talk: tuple[Said, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the report; `key` explains the marks of its figures.

    HTML only: `name` is the anchor, and `short` the entry in the contents (default: the name). Only the last
    sections of a page may be `is_folded`.
    """

    name: str = ""
    title: str
    short: str = ""
    is_folded: bool = False
    text: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    key: tuple[tuple[str, str], ...] = ()
    figures: tuple[Figure, ...] = ()
    examples: tuple[Example, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole report: `kind` is shown above its title, `answers` to questions below the verdict."""

    kind: str = "Calibration report"
    title: str
    subtitle: str
    verdict: tuple[str, ...]
    answers: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = ()
    foot: str = ""


def row(*cells: Any) -> tuple[Cell, ...]:
    """Make a row of a table from texts, counts and cells; None is undefined.

    >>> [cell.text for cell in row("gpt-4", 1200, None)]
    ['gpt-4', '1,200', 'undefined']
    """
    return tuple(cell if isinstance(cell, Cell) else Cell(_text(cell)) for cell in cells)


def table_of(items: Iterable[Item], columns: Mapping[str, Callable[[Item], Any]], **about: Any) -> Table:
    """Make a table with a row for each item; `columns` are functions of the item by head.

    >>> table = table_of([2, 3], {"number": str, "square": lambda number: number**2})
    >>> table.head, [cell.text for cell in table.rows[1]]
    (('number', 'square'), ['3', '9'])
    """
    rows = tuple(row(*(cell_of(item) for cell_of in columns.values())) for item in items)
    return Table(head=tuple(columns), rows=rows, **about)


def name_ends(estimates: Iterable[AnyEstimate]) -> str:
    """Return what the ends of these estimates are: intervals, bounds, or both."""
    kinds = {bool(bound_of(item)) for item in estimates}
    return "95% limits" if len(kinds) > 1 else "95% bound" if True in kinds else "95% CI"


def share_cells(shares: Mapping[str, AnyEstimate], *, glue: str = "\n") -> list[str]:
    """Return the share of each label with its interval; of a bound the one label that it is of."""
    if bound_of(shares.get(LABELS[-1])):
        return [*["\N{EN DASH}"] * (len(LABELS) - 1), percent(shares[LABELS[-1]])]
    return percents([shares.get(label) for label in LABELS], glue=glue)


def _text(value: Any) -> str:
    return count(value) if value is None or type(value) is int else str(value)
