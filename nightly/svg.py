"""Inline SVG by hand: marks, axes and the text on them.

No plotting library: matplotlib is heavy, its drawings are large, and neither take their colours from the page
(light or dark) nor can be read out. Here colour is a class name that the page's style sheet knows. Where x is
in per cent of the width a drawing is as wide as there is room while its text keeps its size: readable on a
phone.
"""

import math
import unicodedata
from collections.abc import Callable, Sequence
from html import escape

JOINERS = frozenset("\u200c\u200d")  # inside emoji and words of many scripts; they turn nothing around
KEPT = frozenset("\n\t") | JOINERS
INSET = 2.5  # per cent of the width left free at both ends, so that no mark is cut off

Format = Callable[[float], str]


def visible(text: str) -> str:
    r"""Text in which nothing is hidden: control and direction characters stand as their code.

    >>> visible("fine\u202egnp.exe\x1b[2J")
    'fine[U+202E]gnp.exe[U+001B][2J'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter
        if letter in KEPT or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co", "Cn")
        # Half a character and a letter of no known meaning are shown as their code too.
        else f"[U+{ord(letter):04X}]"
        for letter in text
    )


def element(tag: str, *inside: str, **attributes: object) -> str:
    """A tag; `inside` is markup already. A trailing or inner underscore of a name is a hyphen or nothing.

    >>> element("line", x1="5%", stroke_width=2, class_="rule")
    '<line x1="5%" stroke-width="2" class="rule"></line>'
    """
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(visible(str(value)))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{named}>{''.join(inside)}</{tag}>"


def words(text: str, **attributes: object) -> str:
    """Text at a place of a drawing."""
    return element("text", escape(visible(text)), **attributes)


def drawing(*inside: str, name: str, title: str, description: str, **attributes: object) -> str:
    """A whole drawing, with a title and a description for those who hear it; `name` is unique on its page."""
    return element(
        "svg",
        element("title", escape(visible(title)), id=f"{name}-title"),
        element("desc", escape(visible(description)), id=f"{name}-desc"),
        *inside,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        **attributes,
    )


def ticks(low: float, high: float, *, most: int = 6) -> list[float]:
    """Round numbers from `low` to `high`, at most so many.

    >>> ticks(0.03, 0.47)
    [0.1, 0.2, 0.3, 0.4]
    >>> ticks(1, 1)
    [1.0]
    """
    if not high > low:
        return [float(low)]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * part for part in (1, 2, 2.5, 5, 10, 20) if (high - low) / (power * part) <= most - 1)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 12) + 0.0 for number in range(first, last + 1)]


def span(values: Sequence[float | None], *, least: float = 0.0) -> tuple[float, float]:
    """The range of the values that are defined, with some room on both sides, at least `least` wide.

    >>> span([None, 0.0, 1.0])
    (-0.04, 1.04)
    >>> span([])
    (0.0, 1.0)
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return 0.0, 1.0
    low, high = min(known), max(known)
    room = max(0.04 * (high - low), (least - (high - low)) / 2) or 0.5
    return low - room, high + room


def across(value: float, domain: tuple[float, float]) -> str:
    """Where a value stands, in per cent of the width; what lies outside stands at the edge.

    >>> across(0.5, (0, 1)), across(7, (0, 1))
    ('50.00%', '97.50%')
    """
    low, high = domain
    part = min(1.0, max(0.0, (value - low) / (high - low)))
    return f"{INSET + (100 - 2 * INSET) * part:.2f}%"
