"""The charts of reports as inline SVG: dots with intervals, lines over nights or replies, and reliability.

By hand: matplotlib is heavy, its drawings are large, and they neither take their colours from the page, light
or dark, nor can be read out. Here colour is a class name that the page's style sheet knows. Where x is in per
cent of the width a drawing is as wide as there is room while its text keeps its size: readable on a phone.
"""

import math
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from types import MappingProxyType
from typing import Literal

from calibration.estimate import Estimate
from data.text import MINUS, AnyEstimate, ends_of
from reports.page import Figure

KEPT = frozenset("\n\t\u200c\u200d")  # joiners are inside emoji and words of many scripts, and turn nothing
INSET = 2.5  # per cent of the width left free at both ends, so that no mark is cut off

Format = Callable[[float], str]


def visible(text: str) -> str:
    r"""Show what is hidden in a text: control and direction characters stand as their code.

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
    """Make a tag; `inside` is markup. An inner underscore of a name is a hyphen, a trailing one nothing.

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
    """Write text at a place of a drawing."""
    return element("text", escape(visible(text)), **attributes)


def drawing(*inside: str, name: str, title: str, description: str, **attributes: object) -> str:
    """Make a drawing with a title and a description for those who hear it; `name` is unique on its page."""
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
    """Choose round numbers from `low` to `high`, at most so many.

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
    """Find the range of the values that are defined, with room on both sides, at least `least` wide.

    >>> span([None, 0.0, 1.0])
    (-0.04, 1.04)
    >>> span([])
    (0.0, 1.0)
    """
    defined = [value for value in values if value is not None and math.isfinite(value)]
    if not defined:
        return 0.0, 1.0
    low, high = min(defined), max(defined)
    room = max(0.04 * (high - low), (least - (high - low)) / 2) or 0.5
    return low - room, high + room


def across(value: float, domain: tuple[float, float]) -> str:
    """Tell where a value stands, in per cent of the width; what lies outside stands at the edge.

    >>> across(0.5, (0, 1)), across(7, (0, 1))
    ('50.00%', '97.50%')
    """
    low, high = domain
    part = min(1.0, max(0.0, (value - low) / (high - low)))
    return f"{INSET + (100 - 2 * INSET) * part:.2f}%"


Look = Literal["judge", "people", "rival", "raw", "bound", "found"]

# Shape tells what colour tells, for those who see no colours and for black print.
SHAPES: dict[str, str] = {
    "judge": "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0z",
    "found": "M0-7 7 0 0 7-7 0z",
    "people": "M0-7 7 0 0 7-7 0z",
    "rival": "M-4-4h8v8h-8z",
    "raw": "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
    "bound": "M-5-5.5h10L0 5z",
    "best": "M0-7 7 0 0 7-7 0z",
    "worst": "M-5-5.5h10L0 5z",
}
LINE_LETTERS = 38  # for a name and a figure in the narrowest chart; the table has the whole name
LINE_HEIGHT, ABOVE_LINES, BELOW_LINES = 44, 6, 30  # in pixels; below the lines is the axis


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
    """Draw values and intervals, a line each, on one axis; `reference` is ruled across every line.

    Unless it is described otherwise, its lines are read out.
    """
    if description is None:
        description = "; ".join(f"{line.name} {line.figure}{unit}" for line in lines)
    if domain is None:
        values = [end for line in lines for mark in line.marks for end in (mark.value, mark.low, mark.high)]
        bands = [end for line in lines if line.band is not None for end in line.band]
        domain = span([*values, *bands, reference], least=0.05)
    bottom = ABOVE_LINES + LINE_HEIGHT * len(lines)
    parts = []
    for value in ticks(*domain):
        x, text = across(value, domain), tick(value).replace("-", MINUS)
        parts.append(element("line", x1=x, x2=x, y1=ABOVE_LINES, y2=bottom + 4, class_="grid"))
        parts.append(words(text, x=x, y=bottom + 20, class_="tick", text_anchor="middle"))
    for number, line in enumerate(lines):
        parts.append(_row(line, ABOVE_LINES + LINE_HEIGHT * number, domain, reference))
    svg = drawing(
        *parts,
        name=name,
        title=title,
        description=description,
        class_="strips",
        width="100%",
        height=bottom + BELOW_LINES,
    )
    return Figure(caption=caption, svg=svg)


def percent_tick(value: float) -> str:
    """Write a share at an axis in per cent."""
    return f"{100 * value:.3g}"


def signed_tick(value: float) -> str:
    """Write a difference at an axis with its sign."""
    return f"{value:+.4g}" if value else "0"


def _row(line: Line, top: int, domain: tuple[float, float], reference: float | None) -> str:
    middle = top + 31
    parts = [
        words(shorten(line.name, LINE_LETTERS - len(line.figure)), x="0%", y=top + 15, class_="name"),
        words(line.figure, x="100%", y=top + 15, class_="figure", text_anchor="end"),
        element("line", x1="0%", x2="100%", y1=middle, y2=middle, class_="track"),
    ]
    if line.band is not None:
        start, end = (float(across(value, domain).rstrip("%")) for value in line.band)
        size = {"x": f"{start:.2f}%", "y": middle - 8, "width": f"{end - start:.2f}%", "height": 16}
        parts.append(element("rect", **size, rx=3, class_="band"))
    if reference is not None:
        # Not from top to bottom: it would run through the names.
        x = across(reference, domain)
        parts.append(element("line", x1=x, x2=x, y1=middle - 10, y2=middle + 10, class_="reference"))
    # The first mark is what the line is about: drawn last, on top, and the others below it, away from names.
    offset = 8 if len(line.marks) > 1 else 0
    parts += [
        _mark(mark, middle + (offset if number else 0), domain)
        for number, mark in reversed(list(enumerate(line.marks)))
    ]
    return "".join(parts)


def shorten(name: str, room: int) -> str:
    """Cut a name to at most so many letters (8 at least), its middle left out.

    >>> shorten("meta-llama/Llama-3.3-70B-Instruct", 20)
    'meta-llama…-Instruct'
    """
    room = max(8, room)
    end = (room - 1) // 2
    return name if len(name) <= room else f"{name[: room - 1 - end]}\N{HORIZONTAL ELLIPSIS}{name[-end:]}"


def _mark(mark: Mark, middle: int, domain: tuple[float, float]) -> str:
    whisker = ""
    if mark.low is not None and mark.high is not None:
        low, high = across(mark.low, domain), across(mark.high, domain)
        whisker = element("line", x1=low, x2=high, y1=middle, y2=middle, class_=f"whisker {mark.look}")
    if mark.value is None:
        return whisker
    return whisker + shape(mark.look, across(mark.value, domain), middle)


def shape(look: str, x: str, y: float, more: str = "") -> str:
    """Draw a mark by itself, at a place that may be in per cent; `more` are further classes."""
    path = element("path", d=SHAPES[look], class_=f"mark {look} {more}".strip())
    return element("svg", path, x=x, y=y, overflow="visible", width=1, height=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """The rectangle in which values are drawn, and the room around it for ticks and names, in pixels."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int

    @property
    def end(self) -> int:
        """The right edge."""
        return self.left + self.width

    @property
    def floor(self) -> int:
        """The lower edge."""
        return self.top + self.height

    def y(self, value: float, domain: tuple[float, float] = (0.0, 1.0)) -> float:
        """Where a value stands between the lower edge and the upper one."""
        low, high = domain
        return self.floor - self.height * (value - low) / ((high - low) or 1)

    def level(self, y: float, text: str) -> str:
        """A line from left to right, with its tick."""
        line = element("line", x1=self.left, x2=self.end, y1=_px(y), y2=_px(y), class_="grid")
        return line + words(text, x=self.left - 8, y=_px(y + 4), class_="tick", text_anchor="end")

    def upright(self, x: float, text: str) -> str:
        """A line from top to bottom, with its tick."""
        line = element("line", x1=_px(x), x2=_px(x), y1=self.top, y2=self.floor, class_="grid")
        return line + words(text, x=_px(x), y=self.floor + 17, class_="tick", text_anchor="middle")


RELIABILITY = Field(left=40, width=232, right=12, top=10, height=232, bottom=44)


def _px(place: float) -> str:
    return f"{place:.1f}"


def _whisker(x: float, low: float, high: float, look: str) -> str:
    return element("line", x1=_px(x), x2=_px(x), y1=_px(low), y2=_px(high), class_=f"whisker {look}")


def reliability(
    curves: Mapping[Literal["before", "after"], Sequence[tuple[float, Estimate]]],
    *,
    name: str,
    title: str,
    description: str,
) -> str:
    """Draw the observed frequency over the predicted probability; on the diagonal the two are the same."""
    field = RELIABILITY
    parts = []
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        text = f"{100 * value:.0f}"
        parts += [field.upright(field.left + field.width * value, text), field.level(field.y(value), text)]
    parts.append(
        element("line", x1=field.left, x2=field.end, y1=field.floor, y2=field.top, class_="reference")
    )
    for look, curve in curves.items():
        spots = [
            (field.left + field.width * predicted, field.y(observed.value)) for predicted, observed in curve
        ]
        for (x, _), (_, observed) in zip(spots, curve, strict=True):
            if look == "after" and (ends := observed.interval) is not None:
                parts.append(_whisker(x, field.y(ends.low), field.y(ends.high), look))
        path = " ".join(f"{_px(x)},{_px(y)}" for x, y in spots)
        parts.append(element("polyline", points=path, class_=f"curve {look}"))
        for x, y in spots:
            size = 4 if look == "after" else 3.5
            parts.append(element("circle", cx=_px(x), cy=_px(y), r=size, class_=f"dot {look}"))
    across_middle, middle = field.left + field.width / 2, field.top + field.height / 2
    parts += [
        words("judge says, %", x=across_middle, y=field.floor + 36, class_="axis", text_anchor="middle"),
        words(
            "people say, %",
            x=12,
            y=middle,
            class_="axis",
            text_anchor="middle",
            transform=f"rotate(-90 12 {middle:g})",
        ),
    ]
    box = f"0 0 {field.end + field.right} {field.floor + field.bottom}"
    return drawing(*parts, name=name, title=title, description=description, class_="square", viewBox=box)


LINES = Field(left=0, width=0, right=0, top=18, height=132, bottom=26)  # as wide as there is room
LINES_INSET = 8.0  # per cent at the left, where the ticks stand
MOST_DOTS = 60  # beyond so many points a line has no dots
NAMED_RULES, RULE_LETTERS = 3, 34  # rules that are named above the chart, and letters of a name


def line_chart(
    caption: str,
    labels: Sequence[str],
    values: Sequence[Estimate],
    *,
    name: str,
    title: str,
    tick: Format,
    show: Callable[[Estimate], str],
    look: Literal["judge", "people", "rival"] = "judge",
    behind: Sequence[float] = (),
    notes: Mapping[int, str] = MappingProxyType({}),
    flagged: Collection[int] = (),
    best: int | None = None,
    rules: Mapping[int, str] = MappingProxyType({}),
    reference: float | None = None,
    domain: tuple[float, float] | None = None,
) -> Figure:
    """Draw estimates in order as a line with an interval band, each with a tooltip.

    `behind` is a second, dashed line. `notes` extend the tooltips of some places, `flagged` places have a
    triangle, the `best` a diamond, and `rules` are vertical lines with a name. A value of nan leaves a gap.
    """
    known = {at: value for at, value in enumerate(values) if math.isfinite(value.value)}
    ends = [end for item in known.values() for end in ends_of(item)]
    domain = domain or span([*ends, *behind, reference], least=1e-9)
    scale = LineScale(count=len(labels), domain=domain)
    paths = [
        element("polygon", points=scale.path([*low, *reversed(high)]), class_=f"area {look}")
        for run in _runs([at for at, item in known.items() if item.interval is not None])
        for low, high in [tuple([(at, ends_of(known[at])[end] or 0.0) for at in run] for end in (1, 2))]
    ]
    for look_of, line in (("before", behind), (look, [value.value for value in values])):
        for run in _runs([at for at, value in enumerate(line) if math.isfinite(value)]):
            points = scale.path([(at, line[at]) for at in run])
            paths.append(element("polyline", points=points, class_=f"curve {look_of}"))
    height = LINES.floor + LINES.bottom
    # A polyline knows no per cent, so lines stand in a drawing of their own that is stretched.
    stretched = {"viewBox": f"0 0 100 {height}", "preserveAspectRatio": "none", "class_": "stretched"}
    parts = [
        *_line_axes(scale, labels, tick, rules, reference),
        element("svg", *paths, **stretched, width="100%", height=height),
    ]
    for at, item in known.items():
        if at in flagged:
            parts.append(shape("worst", scale.x(at), round(scale.y(item.value) - 8, 1), "flagged"))
        elif at == best:
            parts.append(shape("best", scale.x(at), round(scale.y(item.value), 1)))
        elif len(labels) <= MOST_DOTS:
            place = {"cx": scale.x(at), "cy": _px(scale.y(item.value))}
            parts.append(element("circle", **place, r=3, class_=f"dot {look}"))
    for at, label in enumerate(labels):
        text = f"{label}: {show(known[at]) if at in known else 'no value'}{notes.get(at, '')}"
        area = {"x": scale.x(at, -0.5), "width": f"{scale.step:.3f}%", "height": LINES.floor}
        parts.append(element("rect", element("title", escape(visible(text))), **area, y=0, class_="hit"))
    newest = f"; newest {show(values[-1])}" if values and len(values) - 1 in known else ""
    description = f"{len(known):,} of {len(labels):,} points{newest}"
    frame = {"width": "100%", "height": height, "class_": "strips lines"}
    svg = drawing(*parts, name=name, title=title, description=description, **frame)
    return Figure(caption=caption, svg=svg)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineScale:
    """The places of a line chart: so many columns across, values of the domain upwards."""

    count: int
    domain: tuple[float, float]

    @property
    def step(self) -> float:
        """The width of a column in per cent."""
        return (100 - LINES_INSET - INSET) / max(1, self.count)

    def column(self, at: float) -> float:
        """Return the middle of a column in per cent of the width."""
        return LINES_INSET + self.step * (at + 0.5)

    def x(self, at: int, offset: float = 0.0) -> str:
        """Return the place of a column as an attribute, moved by a part of its width."""
        return f"{self.column(at + offset):.2f}%"

    def y(self, value: float) -> float:
        """Return the height of a value in pixels."""
        return LINES.y(value, self.domain)

    def path(self, points: Sequence[tuple[int, float]]) -> str:
        """Return the points of a polyline in a stretched drawing."""
        return " ".join(f"{self.column(at):.2f},{_px(self.y(value))}" for at, value in points)


def _line_axes(
    scale: LineScale, labels: Sequence[str], tick: Format, rules: Mapping[int, str], reference: float | None
) -> list[str]:
    parts = []
    for value in ticks(*scale.domain, most=5):
        level, look = _px(scale.y(value)), "reference" if value == reference else "grid"
        parts.append(element("line", x1="0%", x2="100%", y1=level, y2=level, class_=look))
        text = tick(value).replace("-", MINUS)
        parts.append(words(text, x="0%", y=_px(scale.y(value) - 4), class_="tick"))
    for number, (at, text) in enumerate(sorted(rules.items(), reverse=True)):
        x = scale.x(at, -0.5)
        parts.append(element("line", x1=x, x2=x, y1=LINES.top, y2=LINES.floor, class_="reference"))
        if number < NAMED_RULES:
            side = "end" if scale.column(at) > 50 else "start"
            text = shorten(text, RULE_LETTERS)
            parts.append(words(text, x=x, y=LINES.top - 6, class_="tick", text_anchor=side))
    for at in sorted({0, len(labels) // 2, len(labels) - 1} if labels else ()):
        side = "start" if at == 0 else "end" if at == len(labels) - 1 else "middle"
        where = {"x": scale.x(at), "y": LINES.floor + 20, "text_anchor": side}
        parts.append(words(shorten(labels[at], 12), **where, class_="tick"))
    return parts


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Group places that follow each other without a gap.

    >>> _runs([0, 1, 4])
    [[0, 1], [4]]
    """
    runs: list[list[int]] = []
    for at in places:
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs
