"""The charts of a report: intervals as dots on lines, reliability curves, and what agreement costs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from nightly.svg import Format, across, drawing, element, span, ticks, words

Look = Literal["judge", "people", "rival", "raw", "bound", "found"]

# Shape tells what colour tells, for those who see no colours and for black print.
SHAPES: dict[str, str] = {
    "judge": "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0z",
    "found": "M0-7 7 0 0 7-7 0z",
    "people": "M0-7 7 0 0 7-7 0z",
    "rival": "M-4-4h8v8h-8z",
    "raw": "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "bound": "M-5-5.5h10L0 5z",
}
ROOM = 38  # letters for a name and a figure in the narrowest chart; the table has the whole name
ROW, HEAD, FOOT = 44, 6, 30  # heights in pixels of a row, of what is above all rows, and of the axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A value on a line, with its interval if there is one; nothing is drawn of what is undefined."""

    look: Look
    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart: a name at its left, a figure at its right, marks below both.

    `band` is a stretch with a meaning of its own, said in the key; its ends may be infinite.
    """

    name: str
    figure: str
    marks: tuple[Mark, ...]
    band: tuple[float, float] | None = None


def interval_dots(
    lines: Sequence[Line],
    *,
    name: str,
    title: str,
    description: str,
    tick: Format,
    reference: float | None = None,
    domain: tuple[float, float] | None = None,
) -> str:
    """Values and intervals, a line each, on one axis; `reference` is ruled across every line."""
    domain = domain or _domain(lines, reference)
    bottom = HEAD + ROW * len(lines)
    grid = [
        element("line", x1=x, x2=x, y1=HEAD, y2=bottom + 4, class_="grid")
        + words(
            tick(value).replace("-", "\N{MINUS SIGN}"),
            x=x,
            y=bottom + 20,
            class_="tick",
            text_anchor="middle",
        )
        for value in ticks(*domain)
        for x in [across(value, domain)]
    ]
    rows = [_row(line, HEAD + ROW * number, domain, reference) for number, line in enumerate(lines)]
    return drawing(
        *grid,
        *rows,
        name=name,
        title=title,
        description=description,
        class_="strips",
        width="100%",
        height=bottom + FOOT,
    )


def _domain(lines: Sequence[Line], reference: float | None) -> tuple[float, float]:
    values = [end for line in lines for mark in line.marks for end in (mark.value, mark.low, mark.high)]
    bands = [end for line in lines if line.band is not None for end in line.band]
    return span([*values, *bands, reference], least=0.05)


def _row(line: Line, top: int, domain: tuple[float, float], reference: float | None) -> str:
    middle = top + 31
    parts = [
        words(shorten(line.name, ROOM - len(line.figure)), x="0%", y=top + 15, class_="name"),
        words(line.figure, x="100%", y=top + 15, class_="figure", text_anchor="end"),
        element("line", x1="0%", x2="100%", y1=middle, y2=middle, class_="track"),
    ]
    if line.band is not None:
        parts.append(_band(*line.band, middle, domain))
    if reference is not None:
        # Not from top to bottom: it would run through the names.
        x = across(reference, domain)
        parts.append(element("line", x1=x, x2=x, y1=middle - 10, y2=middle + 10, class_="reference"))
    # The first mark is what the line is about: drawn last, on top, and a little above the others.
    apart = 4 if len(line.marks) > 1 else 0
    parts += [
        _mark(mark, middle + (apart if number else -apart), domain)
        for number, mark in reversed(list(enumerate(line.marks)))
    ]
    return "".join(parts)


def shorten(name: str, room: int) -> str:
    """A name of at most so many letters (8 at least), its middle left out.

    >>> shorten("meta-llama/Llama-3.3-70B-Instruct", 20)
    'meta-llama…-Instruct'
    """
    room = max(8, room)
    end = (room - 1) // 2
    return name if len(name) <= room else f"{name[: room - 1 - end]}\N{HORIZONTAL ELLIPSIS}{name[-end:]}"


def _band(low: float, high: float, middle: int, domain: tuple[float, float]) -> str:
    start, end = (float(across(value, domain).rstrip("%")) for value in (low, high))
    return element(
        "rect", x=f"{start:.2f}%", y=middle - 8, width=f"{end - start:.2f}%", height=16, rx=3, class_="band"
    )


def _mark(mark: Mark, middle: int, domain: tuple[float, float]) -> str:
    whisker = ""
    if mark.low is not None and mark.high is not None:
        ends = (across(mark.low, domain), across(mark.high, domain))
        whisker = element("line", x1=ends[0], x2=ends[1], y1=middle, y2=middle, class_=f"whisker {mark.look}")
    if mark.value is None:
        return whisker
    return whisker + shape(mark.look, across(mark.value, domain), middle)


def shape(look: str, x: str, y: float) -> str:
    """A mark by itself, at a place that may be in per cent."""
    path = element("path", d=SHAPES[look], class_=f"mark {look}")
    return element("svg", path, x=x, y=y, overflow="visible", width=1, height=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points of what was said and how often it was so, with the interval of the latter and a count."""

    look: Literal["before", "after"]
    points: tuple[tuple[float, float, float | None, float | None, int], ...]


SIDE, LEFT, TOP = 232, 40, 10  # of the square in which probabilities are drawn


def reliability(curves: Sequence[Curve], *, name: str, title: str, description: str) -> str:
    """What the judge said against how often it was so; on the diagonal the two are the same."""

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + SIDE * x, TOP + SIDE * (1 - y)

    parts = []
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = place(value, value)
        parts += [
            element("line", x1=x, x2=x, y1=TOP, y2=TOP + SIDE, class_="grid"),
            element("line", x1=LEFT, x2=LEFT + SIDE, y1=y, y2=y, class_="grid"),
            words(f"{100 * value:.0f}", x=x, y=TOP + SIDE + 18, class_="tick", text_anchor="middle"),
            words(f"{100 * value:.0f}", x=LEFT - 8, y=y + 4, class_="tick", text_anchor="end"),
        ]
    (x1, y1), (x2, y2) = place(0, 0), place(1, 1)
    parts.append(element("line", x1=x1, x2=x2, y1=y1, y2=y2, class_="reference"))
    parts += [_curve(curve, place) for curve in curves]
    middle = TOP + SIDE / 2
    parts += [
        words("judge says, %", x=LEFT + SIDE / 2, y=TOP + SIDE + 36, class_="axis", text_anchor="middle"),
        words(
            "people say, %",
            x=12,
            y=middle,
            class_="axis",
            text_anchor="middle",
            transform=f"rotate(-90 12 {middle:g})",
        ),
    ]
    size = f"0 0 {LEFT + SIDE + 12} {TOP + SIDE + 44}"
    return drawing(*parts, name=name, title=title, description=description, class_="square", viewBox=size)


def _curve(curve: Curve, place: Callable[[float, float], tuple[float, float]]) -> str:
    spots = [(place(said, seen), low, high, count) for said, seen, low, high, count in curve.points]
    parts = []
    if curve.look == "after":
        for (x, _), low, high, _ in spots:
            if low is not None and high is not None:
                ends = place(0, low)[1], place(0, high)[1]
                parts.append(
                    element(
                        "line",
                        x1=f"{x:.1f}",
                        x2=f"{x:.1f}",
                        y1=f"{ends[0]:.1f}",
                        y2=f"{ends[1]:.1f}",
                        class_="whisker after",
                    )
                )
    path = " ".join(f"{x:.1f},{y:.1f}" for (x, y), *_ in spots)
    parts.append(element("polyline", points=path, class_=f"curve {curve.look}"))
    parts += [
        element(
            "circle",
            cx=f"{x:.1f}",
            cy=f"{y:.1f}",
            r=4 if curve.look == "after" else 3.5,
            class_=f"dot {curve.look}",
        )
        for (x, y), *_ in spots
    ]
    return "".join(parts)
