"""Slopes: where feelings stand by default and where a situation takes them, a model's beside people's."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from nightly.svg import drawing, element, ticks, words

LEFT, TOP, WIDTH, HEIGHT = 34, 14, 150, 190  # of the field, in pixels
ROOM = 92  # to its right, for the names
APART = 13  # pixels, at least, between two names


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """A line from the default to the evoked level; nothing is drawn of one that is undefined."""

    name: str
    look: Literal["after", "before"]  # the model's, or people's: as the curves of other figures
    default: float | None
    evoked: float | None


def draw_slopes(
    slopes: Sequence[Slope], *, name: str, title: str, description: str, domain: tuple[float, float]
) -> str:
    """One drawing; `domain` is the range of the scale, so that all drawings can be compared."""
    low, high = domain

    def place(value: float) -> float:
        return TOP + HEIGHT * (1 - (min(high, max(low, value)) - low) / ((high - low) or 1))

    parts = []
    for value in ticks(low, high, most=5):
        height = f"{place(value):.1f}"
        parts.append(element("line", x1=LEFT, x2=LEFT + WIDTH, y1=height, y2=height, class_="grid"))
        parts.append(
            words(f"{value:g}", x=LEFT - 8, y=f"{place(value) + 4:.1f}", class_="tick", text_anchor="end")
        )
    known = [
        (slope, place(slope.default), place(slope.evoked))
        for slope in slopes
        if slope.default is not None and slope.evoked is not None
    ]
    for slope, before, after in known:
        points = f"{LEFT},{before:.1f} {LEFT + WIDTH},{after:.1f}"
        parts.append(element("polyline", points=points, class_=f"curve {slope.look}"))
        for x, y in ((LEFT, before), (LEFT + WIDTH, after)):
            parts.append(element("circle", cx=x, cy=f"{y:.1f}", r=4, class_=f"dot {slope.look}"))
    for (slope, _, _), y in zip(known, _spread([after for _, _, after in known]), strict=True):
        parts.append(words(slope.name, x=LEFT + WIDTH + 10, y=f"{y + 4:.1f}", class_="tick"))
    for x, label, anchor in ((LEFT, "default", "start"), (LEFT + WIDTH, "evoked", "end")):
        parts.append(words(label, x=x, y=TOP + HEIGHT + 20, class_="axis", text_anchor=anchor))
    size = f"0 0 {LEFT + WIDTH + ROOM} {TOP + HEIGHT + 28}"
    return drawing(*parts, name=name, title=title, description=description, class_="square", viewBox=size)


def _spread(heights: Sequence[float]) -> list[float]:
    """The same places, moved apart as far as names need it.

    >>> _spread([50.0, 52.0, 90.0])
    [50.0, 63.0, 90.0]
    """
    found = list(heights)
    order = sorted(range(len(found)), key=lambda index: found[index])
    for before, after in pairwise(order):
        found[after] = max(found[after], found[before] + APART)
    return found
