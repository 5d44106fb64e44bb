"""What agreement costs: runs by money or seconds per 1,000 responses, and which of them nobody beats."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nightly.plots import SHAPES, Look, shorten
from nightly.svg import Format, drawing, element, span, ticks, words

WIDTH, HEIGHT, LEFT, RIGHT, TOP, FOOT = 400, 310, 44, 14, 24, 46
APART = 15  # pixels from one line of text to the next
ROOM = 24  # letters of a name
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
        return TOP + (HEIGHT - TOP - FOOT) * (1 - (value - domain[0]) / (domain[1] - domain[0]))

    parts = _grid(ticks(*domain), place_y, {tick(cost): place_x(cost) for cost in marks})
    for spot in levels:
        y = _px(place_y(spot.value or 0.0))
        parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="reference"))
    parts.append(_stairs([(place_x(s.cost or 0.0), place_y(s.value or 0.0)) for s in unbeaten(shown)]))
    parts += _names(shown, levels, place_x, place_y)
    parts += [_spot(spot, place_x(spot.cost or 0.0), place_y) for spot in shown]
    parts.append(words(axis, x=WIDTH - RIGHT, y=HEIGHT - 8, class_="axis", text_anchor="end"))
    parts.append(words(value_axis, x=0, y=TOP - 4, class_="axis"))
    size = f"0 0 {WIDTH} {HEIGHT}"
    return drawing(*parts, name=name, title=title, description=description, class_="frontier", viewBox=size)


def _px(place: float) -> str:
    return f"{place:.1f}"


def _grid(
    values: Sequence[float], place_y: Callable[[float], float], costs: Mapping[str, float]
) -> list[str]:
    parts, bottom = [], HEIGHT - FOOT
    for value in values:
        y = _px(place_y(value))
        parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        below = _px(place_y(value) + 4)
        parts.append(
            words(
                f"{value:.2g}".replace("-", "\N{MINUS SIGN}"),
                x=LEFT - 8,
                y=below,
                class_="tick",
                text_anchor="end",
            )
        )
    for text, place in costs.items():
        parts.append(element("line", x1=_px(place), x2=_px(place), y1=TOP, y2=bottom, class_="grid"))
        parts.append(words(text, x=_px(place), y=bottom + 17, class_="tick", text_anchor="middle"))
    return parts


def _cost_axis(costs: Sequence[float]) -> tuple[Callable[[float], float], list[float]]:
    """Where a cost stands, and the costs to mark: 0 first if there is one, then powers of ten."""
    paid = [cost for cost in costs if cost > 0] or [1.0]
    first, last = math.floor(math.log10(min(paid))), math.ceil(math.log10(max(paid)))
    last = max(last, first + 1)
    is_free = any(cost <= 0 for cost in costs)
    start, end = LEFT + (56 if is_free else 12), WIDTH - RIGHT - 12

    def place(cost: float) -> float:
        if cost <= 0:
            return LEFT + 12
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
    marks = [(x - 7, y - 7, x + 7, y + 7) for x, y, _ in places] + [(0.0, 0.0, float(WIDTH), float(TOP))]
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
    return words(shorten(item.name, ROOM), y=_px(box[3] - 4), class_="name", **side)


def _leader(mark: tuple[float, float], box: Box) -> str:
    """A thin line from a mark to its name, where that does not stand right beside it."""
    x, y = min(max(mark[0], box[0]), box[2]), min(max(mark[1], box[1] + 2), box[3] - 2)
    return element("line", x1=_px(mark[0]), y1=_px(mark[1]), x2=_px(x), y2=_px(y), class_="leader")


def _wide(name: str) -> float:
    return LETTER * len(shorten(name, ROOM)) + 6


def _along(y: float, wide: float) -> Iterator[Box]:
    """Places for the name of a line from left to right: above it or below, from its right end to its left."""
    for left in (WIDTH - RIGHT - wide, (LEFT + WIDTH - wide) / 2, LEFT + 2.0):
        for top in (y - 18, y + 2):
            yield left, top, left + wide, top + 16


def _around(x: float, y: float, wide: float) -> Iterator[Box]:
    """Places for a name of that width around a mark: right and left of it, then above and below."""
    for down in (0, -APART, APART, -2 * APART, 2 * APART, -3 * APART, 3 * APART):
        for left in (x + 10, x - 10 - wide, *([x - wide / 2] if down else [])):
            top = y - 8 + down
            if left >= LEFT and left + wide <= WIDTH and top >= 0 and top + 16 <= HEIGHT - FOOT:
                yield left, top, left + wide, top + 16


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
