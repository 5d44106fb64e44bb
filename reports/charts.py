"""What agreement costs: runs by money or seconds per 1,000 responses, and which of them nobody beats."""

import math
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Literal

from data.text import AnyEstimate, ends_of
from reports.page import Figure

# Inline SVG by hand: marks, axes and the text on them.
#
# No plotting library: matplotlib is heavy, its drawings are large, and neither take their colours from
# the page
# (light or dark) nor can be read out. Here colour is a class name that the page's style sheet knows.
# Where x is
# in per cent of the width a drawing is as wide as there is room while its text keeps its size: readable on a
# phone.

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


# The charts of a report: intervals as dots on lines, reliability curves, and what agreement costs.

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


def mark(look: Look, estimate: AnyEstimate) -> Mark:
    """Mark an estimate with its interval."""
    value, low, high = ends_of(estimate)
    return Mark(look=look, value=value if value is None or math.isfinite(value) else None, low=low, high=high)


def dot_plot(
    caption: str,
    lines: Sequence[Line],
    *,
    name: str,
    title: str,
    tick: Format,
    unit: str = "",
    description: str | None = None,
    reference: float | None = None,
    domain: tuple[float, float] | None = None,
) -> Figure:
    """Draw values and intervals as a figure; unless described otherwise, its lines are read out."""
    said = (
        description
        if description is not None
        else "; ".join(f"{line.name} {line.figure}{unit}" for line in lines)
    )
    svg = interval_dots(
        lines, name=name, title=title, description=said, tick=tick, reference=reference, domain=domain
    )
    return Figure(caption=caption, svg=svg)


def percent_tick(value: float) -> str:
    """Write a share at an axis in per cent."""
    return f"{100 * value:.3g}"


def signed_tick(value: float) -> str:
    """Write a difference at an axis with its sign."""
    return f"{value:+.2g}" if value else "0"


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


WIDTH, HEIGHT, FRONTIER_LEFT, RIGHT, FRONTIER_TOP, FRONTIER_FOOT = 400, 310, 44, 14, 24, 46
APART = 15  # pixels from one line of text to the next
FRONTIER_ROOM = 24  # letters of a name
LETTER = 7.2  # a letter's width in the widest of the usual fonts, so that a name is never wider than thought

Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A judge, a baseline or people: its cost (None where unknown), its agreement and that one's interval."""

    name: str
    look: Look
    cost: float | None
    value: float | None
    low: float | None = None
    high: float | None = None


def unbeaten(spots: Sequence[Spot]) -> list[Spot]:
    """Those that no other beats in agreement at the same or less cost, the cheapest first.

    >>> cheap = Spot(name="a", look="rival", cost=0, value=0.2)
    >>> dear = Spot(name="b", look="judge", cost=1, value=0.1)
    >>> [spot.name for spot in unbeaten([dear, cheap])]
    ['a']
    """
    best, kept = -math.inf, []
    known = [
        (spot.cost, spot.value, spot) for spot in spots if spot.cost is not None and spot.value is not None
    ]
    for _, value, spot in sorted(known, key=lambda item: (item[0], -item[1])):
        if value > best:
            best = value
            kept.append(spot)
    return kept


def frontier(
    spots: Sequence[Spot],
    *,
    name: str,
    title: str,
    description: str,
    axis: str,
    tick: Format,
    value_axis: str,
) -> str:
    """Agreement upwards, cost to the right by powers of ten; what costs nothing stands at the left edge.

    Where the cost of people is unknown, what they reach is a line from left to right.
    """
    shown = [spot for spot in spots if spot.cost is not None and spot.value is not None]
    levels = [
        spot for spot in spots if spot.look == "people" and spot.cost is None and spot.value is not None
    ]
    place_x, marks = _cost_axis([spot.cost for spot in shown if spot.cost is not None])
    domain = span(
        [end for spot in [*shown, *levels] for end in (spot.value, spot.low, spot.high)], least=0.05
    )

    def place_y(value: float) -> float:
        return FRONTIER_TOP + (HEIGHT - FRONTIER_TOP - FRONTIER_FOOT) * (
            1 - (value - domain[0]) / (domain[1] - domain[0])
        )

    parts = _grid(ticks(*domain), place_y, {tick(cost): place_x(cost) for cost in marks})
    for spot in levels:
        y = _px(place_y(spot.value or 0.0))
        parts.append(element("line", x1=FRONTIER_LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="reference"))
    parts.append(_stairs([(place_x(s.cost or 0.0), place_y(s.value or 0.0)) for s in unbeaten(shown)]))
    parts += _names(shown, levels, place_x, place_y)
    parts += [_spot(spot, place_x(spot.cost or 0.0), place_y) for spot in shown]
    parts.append(words(axis, x=WIDTH - RIGHT, y=HEIGHT - 8, class_="axis", text_anchor="end"))
    parts.append(words(value_axis, x=0, y=FRONTIER_TOP - 4, class_="axis"))
    size = f"0 0 {WIDTH} {HEIGHT}"
    return drawing(*parts, name=name, title=title, description=description, class_="frontier", viewBox=size)


def _px(place: float) -> str:
    return f"{place:.1f}"


def _grid(
    values: Sequence[float], place_y: Callable[[float], float], costs: Mapping[str, float]
) -> list[str]:
    parts, bottom = [], HEIGHT - FRONTIER_FOOT
    for value in values:
        y = _px(place_y(value))
        parts.append(element("line", x1=FRONTIER_LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        below = _px(place_y(value) + 4)
        parts.append(
            words(
                f"{value:.2g}".replace("-", "\N{MINUS SIGN}"),
                x=FRONTIER_LEFT - 8,
                y=below,
                class_="tick",
                text_anchor="end",
            )
        )
    for text, place in costs.items():
        parts.append(element("line", x1=_px(place), x2=_px(place), y1=FRONTIER_TOP, y2=bottom, class_="grid"))
        parts.append(words(text, x=_px(place), y=bottom + 17, class_="tick", text_anchor="middle"))
    return parts


def _cost_axis(costs: Sequence[float]) -> tuple[Callable[[float], float], list[float]]:
    """Where a cost stands, and the costs to mark: 0 first if there is one, then powers of ten."""
    paid = [cost for cost in costs if cost > 0] or [1.0]
    first, last = math.floor(math.log10(min(paid))), math.ceil(math.log10(max(paid)))
    last = max(last, first + 1)
    is_free = any(cost <= 0 for cost in costs)
    start, end = FRONTIER_LEFT + (56 if is_free else 12), WIDTH - RIGHT - 12

    def place(cost: float) -> float:
        if cost <= 0:
            return FRONTIER_LEFT + 12
        return start + (end - start) * (math.log10(cost) - first) / (last - first)

    every = max(1, math.ceil((last - first) / 5))
    return place, [*([0.0] if is_free else []), *(10.0**power for power in range(first, last + 1, every))]


def _stairs(corners: Sequence[tuple[float, float]]) -> str:
    """The frontier: what is the best to be had for at most this cost."""
    if not corners:
        return ""
    path = f"M{corners[0][0]:.1f} {corners[0][1]:.1f}"
    path += "".join(f"H{x:.1f}V{y:.1f}" for x, y in corners[1:])
    return element("path", d=f"{path}H{WIDTH - RIGHT}", class_="stairs")


def _spot(spot: Spot, x: float, place_y: Callable[[float], float]) -> str:
    whisker = ""
    if spot.low is not None and spot.high is not None:
        ends = [f"{place_y(end):.1f}" for end in (spot.low, spot.high)]
        whisker = element(
            "line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=ends[0], y2=ends[1], class_=f"whisker {spot.look}"
        )
    where = f"translate({x:.1f} {place_y(spot.value or 0.0):.1f})"
    return whisker + element("path", d=SHAPES[spot.look], class_=f"mark {spot.look}", transform=where)


def _names(
    shown: Sequence[Spot],
    levels: Sequence[Spot],
    place_x: Callable[[float], float],
    place_y: Callable[[float], float],
) -> list[str]:
    """Names beside their marks and lines; one that would cover others wherever it stood is left out."""
    places = [(place_x(spot.cost or 0.0), place_y(spot.value or 0.0), spot.name) for spot in shown]
    # Whiskers may be covered, names have a halo; marks and the axis' name above may not.
    marks = [(x - 7, y - 7, x + 7, y + 7) for x, y, _ in places] + [
        (0.0, 0.0, float(WIDTH), float(FRONTIER_TOP))
    ]
    lines = [
        _Wanted(spot.name, None, tuple(_along(place_y(spot.value or 0.0), _wide(spot.name))))
        for spot in levels
    ]
    spots = [_Wanted(name, (x, y), tuple(_around(x, y, _wide(name)))) for x, y, name in places]
    # Who comes first takes the best place: of a few orders, the one that serves all best.
    orders = [
        sorted(spots, key=lambda spot: sign * (spot.mark or (0.0, 0.0))[axis])
        for axis in (1, 0)
        for sign in (1, -1)
    ]
    return min((_settle([*order, *lines], marks) for order in orders), key=lambda tried: tried[0])[1]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A name, the mark it belongs to (None for a line), and its possible places, the best first."""

    name: str
    mark: tuple[float, float] | None
    boxes: tuple[Box, ...]


def _settle(wanted: Sequence[_Wanted], marks: Sequence[Box]) -> tuple[int, list[str]]:
    """Each name at its first free place; with it how far down their lists all had to go."""
    covered, effort, parts = list(marks), 0, []
    for item in wanted:
        free = [place for place, box in enumerate(item.boxes) if not any(_meet(box, it) for it in covered)]
        effort += free[0] if free else 100
        if free:
            box = item.boxes[free[0]]
            covered.append(box)
            parts.append(_leader(item.mark, box) if item.mark and free[0] > 1 else "")
            parts.append(_name(item, box))
    return effort, parts


def _name(item: _Wanted, box: Box) -> str:
    """Set towards its mark: text is as a rule narrower than the place kept for it."""
    side = {"x": _px(box[0]), "text_anchor": "start"}
    if item.mark is not None and box[0] < item.mark[0]:
        is_left = box[2] < item.mark[0]
        side = (
            {"x": _px(box[2]), "text_anchor": "end"}
            if is_left
            else {"x": _px(item.mark[0]), "text_anchor": "middle"}
        )
    return words(shorten(item.name, FRONTIER_ROOM), y=_px(box[3] - 4), class_="name", **side)


def _leader(mark: tuple[float, float], box: Box) -> str:
    """A thin line from a mark to its name, where that does not stand right beside it."""
    x, y = min(max(mark[0], box[0]), box[2]), min(max(mark[1], box[1] + 2), box[3] - 2)
    return element("line", x1=_px(mark[0]), y1=_px(mark[1]), x2=_px(x), y2=_px(y), class_="leader")


def _wide(name: str) -> float:
    return LETTER * len(shorten(name, FRONTIER_ROOM)) + 6


def _along(y: float, wide: float) -> Iterator[Box]:
    """Places for the name of a line from left to right: above it or below, from its right end to its left."""
    for left in (WIDTH - RIGHT - wide, (FRONTIER_LEFT + WIDTH - wide) / 2, FRONTIER_LEFT + 2.0):
        for top in (y - 18, y + 2):
            yield left, top, left + wide, top + 16


def _around(x: float, y: float, wide: float) -> Iterator[Box]:
    """Places for a name of that width around a mark: right and left of it, then above and below."""
    for down in (0, -APART, APART, -2 * APART, 2 * APART, -3 * APART, 3 * APART):
        for left in (x + 10, x - 10 - wide, *([x - wide / 2] if down else [])):
            top = y - 8 + down
            if (
                left >= FRONTIER_LEFT
                and left + wide <= WIDTH
                and top >= 0
                and top + 16 <= HEIGHT - FRONTIER_FOOT
            ):
                yield left, top, left + wide, top + 16


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


# Slopes: where feelings stand by default and where a situation takes them, a model's beside people's.

SLOPES_LEFT, SLOPES_TOP, SLOPES_WIDTH, SLOPES_HEIGHT = 34, 14, 150, 190  # of the field, in pixels
SLOPES_ROOM = 92  # to its right, for the names
SLOPES_APART = 13  # pixels, at least, between two names


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
        return SLOPES_TOP + SLOPES_HEIGHT * (1 - (min(high, max(low, value)) - low) / ((high - low) or 1))

    parts = []
    for value in ticks(low, high, most=5):
        height = f"{place(value):.1f}"
        parts.append(
            element(
                "line", x1=SLOPES_LEFT, x2=SLOPES_LEFT + SLOPES_WIDTH, y1=height, y2=height, class_="grid"
            )
        )
        parts.append(
            words(
                f"{value:g}", x=SLOPES_LEFT - 8, y=f"{place(value) + 4:.1f}", class_="tick", text_anchor="end"
            )
        )
    known = [
        (slope, place(slope.default), place(slope.evoked))
        for slope in slopes
        if slope.default is not None and slope.evoked is not None
    ]
    for slope, before, after in known:
        points = f"{SLOPES_LEFT},{before:.1f} {SLOPES_LEFT + SLOPES_WIDTH},{after:.1f}"
        parts.append(element("polyline", points=points, class_=f"curve {slope.look}"))
        for x, y in ((SLOPES_LEFT, before), (SLOPES_LEFT + SLOPES_WIDTH, after)):
            parts.append(element("circle", cx=x, cy=f"{y:.1f}", r=4, class_=f"dot {slope.look}"))
    for (slope, _, _), y in zip(known, _spread([after for _, _, after in known]), strict=True):
        parts.append(words(slope.name, x=SLOPES_LEFT + SLOPES_WIDTH + 10, y=f"{y + 4:.1f}", class_="tick"))
    for x, label, anchor in (
        (SLOPES_LEFT, "default", "start"),
        (SLOPES_LEFT + SLOPES_WIDTH, "evoked", "end"),
    ):
        parts.append(words(label, x=x, y=SLOPES_TOP + SLOPES_HEIGHT + 20, class_="axis", text_anchor=anchor))
    size = f"0 0 {SLOPES_LEFT + SLOPES_WIDTH + SLOPES_ROOM} {SLOPES_TOP + SLOPES_HEIGHT + 28}"
    return drawing(*parts, name=name, title=title, description=description, class_="square", viewBox=size)


def _spread(heights: Sequence[float]) -> list[float]:
    """The same places, moved apart as far as names need it.

    >>> _spread([50.0, 52.0, 90.0])
    [50.0, 63.0, 90.0]
    """
    found = list(heights)
    order = sorted(range(len(found)), key=lambda index: found[index])
    for before, after in pairwise(order):
        found[after] = max(found[after], found[before] + SLOPES_APART)
    return found
