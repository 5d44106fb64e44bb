"""An explanation in colour: on a terminal, or as marks in a page."""

from collections.abc import Iterable
from html import escape

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from data.text import number, printable
from judge.explanation import Explanation, Part

STRONGEST = 0.5  # points of score that give the full colour; the same for all replies, so that they compare
GREEN, RED = (46, 158, 91), (214, 69, 65)
NOTE = (
    "Beside each part: the score (1 to 3) less the score without it. Without a part a reply is also shorter,"
    " which counts too: compare the parts with each other."
)


def print_explanations(explanations: Iterable[Explanation], console: Console) -> None:
    """Print every part of a reply with its effect; the colour only repeats what the number says."""
    for explanation in explanations:
        console.print()
        score = f"score {explanation.score:.2f}" if explanation.score is not None else None
        headline = f"{explanation.id} by {explanation.model}: {score or f'unscored, {explanation.unscored}'}"
        console.print(Text(printable(headline)), style="bold", overflow="fold")
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(justify="right", no_wrap=True)
        table.add_column(overflow="fold")
        for part in explanation.parts:
            text = printable(" ".join(part.text.split()))
            table.add_row(number(part.effect, sign=True), Text(text, style=_style(part)))
        console.print(table)
    console.print(NOTE, style="dim")


def as_html(explanation: Explanation) -> str:
    """Make a paragraph in which each part is a mark; see-through colours suit light and dark pages."""
    marks = []
    for part in explanation.parts:
        red, green, blue = _colour(part)
        background = f"rgba({red}, {green}, {blue}, {0.6 * _strength(part.effect):.2f})"
        # Half a character has no place in UTF-8.
        text = escape(part.text.encode("utf-8", "replace").decode("utf-8"))
        marks.append(
            f'<mark style="background: {background}; color: inherit">{text}'
            f"<sup>{number(part.effect, sign=True)}</sup></mark>"
        )
    return f'<p class="explanation" style="white-space: pre-wrap">{"".join(marks)}</p>'


def _strength(effect: float | None) -> float:
    """Tell how strongly to colour an effect, from 0 to 1.

    >>> _strength(-0.25), _strength(2.0), _strength(None)
    (0.5, 1.0, 0.0)
    """
    return min(1.0, abs(effect or 0.0) / STRONGEST)


def _colour(part: Part) -> tuple[int, int, int]:
    return GREEN if (part.effect or 0.0) > 0 else RED


def _style(part: Part) -> Style:
    """Black on a tint that grows from white: readable whatever the terminal's own colours are."""
    share = _strength(part.effect)
    if part.effect is None or not round(part.effect, 2):
        return Style.null()
    tint = (round(255 - (255 - level) * (0.25 + 0.75 * share)) for level in _colour(part))
    return Style.parse(f"black on rgb({','.join(map(str, tint))})")
