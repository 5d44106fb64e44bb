"""An explanation in color: on a terminal, or as marks in a page."""

from collections.abc import Sequence
from html import escape

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from empathy_judge.data.text import number, printable
from empathy_judge.judge.explanation import Explanation, Part

STRONGEST = 0.5  # points of score that give the full color; the same for all replies, so that they compare
GREEN, RED = (46, 158, 91), (214, 69, 65)
NOTE = (
    "Beside each part: the score (1 to 3) minus the score without it. Removing a part also shortens the "
    "reply, which affects the score: compare the parts with each other."
)
DOUBTFUL = "?"
DOUBT = (
    f"{DOUBTFUL} means: a neutral sentence in its place has a different effect, so the content of the "
    "part may not be the cause."
)


def print_explanations(explanations: Sequence[Explanation], console: Console) -> None:
    """Print every part of a reply with its effect; the color only repeats the number."""
    for explanation in explanations:
        console.print()
        score = f"score {explanation.score:.2f}" if explanation.score is not None else None
        headline = f"{explanation.id} by {explanation.model}: {score or f'unscored, {explanation.unscored}'}"
        console.print(Text(printable(headline)), style="bold", overflow="fold")
        console.print(_table(explanation.parts))
    console.print(NOTE, style="dim")
    if any(part.is_doubtful for explanation in explanations for part in explanation.parts):
        console.print(DOUBT, style="dim")


def _table(parts: Sequence[Part]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for part in parts:
        text = printable(" ".join(part.text.split()))
        table.add_row(_figure(part), Text(text, style=_style(part)))
    return table


def as_html(explanation: Explanation) -> str:
    """Make a paragraph in which each part is a mark; transparent colors suit light and dark pages."""
    marks = []
    for part in explanation.parts:
        red, green, blue = _color(part)
        background = f"rgba({red}, {green}, {blue}, {0.6 * _strength(part):.2f})"
        # Half a character has no place in UTF-8.
        text = escape(part.text.encode("utf-8", "replace").decode("utf-8"))
        title = f' title="{escape(DOUBT)}"' if part.is_doubtful else ""
        marks.append(
            f'<mark style="background: {background}; color: inherit"{title}>{text}'
            f"<sup>{_figure(part)}</sup></mark>"
        )
    return f'<p class="explanation" style="white-space: pre-wrap">{"".join(marks)}</p>'


def _figure(part: Part) -> str:
    figure = number(part.effect, sign=True)
    return f"{DOUBTFUL} {figure}" if part.is_doubtful else figure


def _strength(part: Part) -> float:
    """Return how strongly to color a part, from 0 to 1; one whose effect does not hold, not at all."""
    return 0.0 if part.is_doubtful else min(1.0, abs(part.effect or 0.0) / STRONGEST)


def _color(part: Part) -> tuple[int, int, int]:
    return GREEN if (part.effect or 0.0) > 0 else RED


def _style(part: Part) -> Style:
    """Black on a tint that grows from white: readable whatever the terminal's own colors are."""
    share = _strength(part)
    if part.effect is None or not round(part.effect, 2) or part.is_doubtful:
        return Style.null()
    tint = (round(255 - (255 - level) * (0.25 + 0.75 * share)) for level in _color(part))
    return Style.parse(f"black on rgb({','.join(map(str, tint))})")
