"""The charts of reports as inline SVG: dots with intervals, and lines over nights or replies.

Not matplotlib: its drawings are large, do not take their colors from the page (light or dark), and are not
accessible to screen readers. Here colors are class names of the style sheet, and x is in percent of the
width, so that charts fill the width and text keeps its size.
"""

import math
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from types import MappingProxyType
from typing import Literal, NamedTuple

from empathy_judge.calibration.estimate import Estimate
from empathy_judge.data.text import MINUS, AnyEstimate, bound_of, ends_of
from empathy_judge.reports.page import Figure

KEPT = frozenset("\n\t\u200c\u200d")  # joiners are inside emoji and words of many scripts, and turn nothing
INSET = 2.5  # percent of the width left free at both ends, so that no mark is cut off

Format = Callable[[float], str]


def visible(text: str) -> str:
    r"""Show what is hidden in a text: control and direction characters are replaced by their code.

    >>> visible("fine\u202egnp.exe\x1b[2J")
    'fine[U+202E]gnp.exe[U+001B][2J'
    """
    if text.isascii() and text.isprintable():
        return text
    # Half a character and a letter of no known meaning are shown as their code too.
    hidden = {letter for letter in {*text} - KEPT if unicodedata.category(letter)[0] == "C"}
    return text.translate({ord(letter): f"[U+{ord(letter):04X}]" for letter in hidden})


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
    """Make a drawing with a title and a description for screen readers; `name` is unique on its page."""
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
    steps = (power * part for part in (1, 2, 2.5, 5, 10, 20))
    step = next(step for step in steps if (high - low) / step <= most - 1)
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
    """Return the position of a value in percent of the width; values outside are at the edge."""
    low, high = domain
    part = min(1.0, max(0.0, (value - low) / (high - low)))
    return f"{INSET + (100 - 2 * INSET) * part:.2f}%"


Look = Literal["judge", "people", "rival", "raw", "found"]

# Shapes repeat the information of colors, for color blindness and black print.
SHAPES: dict[str, str] = {
    "judge": "M-5.5 0a5.5 5.5 0 1 0 11 0a5.5 5.5 0 1 0-11 0z",
    "rival": "M-4-4h8v8h-8z",
    "worst": "M-5-5.5h10L0 5z",
    **dict.fromkeys(("found", "people", "best"), "M0-7 7 0 0 7-7 0z"),
    **dict.fromkeys(("raw", "before"), "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z"),
}
LINE_LETTERS = 38  # for a name and a figure in the narrowest chart; the table has the whole name
LINE_HEIGHT, ABOVE_LINES, BELOW_LINES = 44, 6, 30  # in pixels; below the lines is the axis


class Mark(NamedTuple):
    """A value on a line, with its interval if there is one; nothing is drawn of what is undefined."""

    look: Look
    estimate: AnyEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart: a name at its left, a figure at its right, marks below both.

    `band` is an interval that the key explains; its ends may be infinite.
    """

    name: str
    figure: str
    marks: tuple[Mark, ...]
    band: tuple[float, float] | None = None


def dot_plot(
    caption: str,
    lines: Sequence[Line],
    *,
    name: str,
    title: str,
    tick: Format,
    unit: str = "",
    reference: float | None = None,
    domain: tuple[float, float] | None = None,
) -> Figure:
    """Draw values and intervals, a line each, on one axis; `reference` is ruled across every line."""
    description = "; ".join(f"{line.name} {line.figure}{unit}" for line in lines)
    if domain is None:
        values = [end for line in lines for mark in line.marks for end in _known_ends(mark.estimate)]
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
    frame = {"class_": "strips", "width": "100%", "height": bottom + BELOW_LINES}
    svg = drawing(*parts, name=name, title=title, description=description, **frame)
    return Figure(caption=caption, svg=svg)


def _known_ends(estimate: AnyEstimate) -> tuple[float | None, ...]:
    """Return value and ends, without the open end of a bound, which is drawn to the edge."""
    ends, bound = ends_of(estimate), bound_of(estimate)
    return {"at least": ends[1:2], "at most": ends[2:]}.get(bound, ends)


def percent_tick(value: float) -> str:
    """Write a share at an axis in percent."""
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
    whisker, (value, low, high) = "", ends_of(mark.estimate)
    if low is not None and high is not None:
        ends = {"x1": across(low, domain), "x2": across(high, domain)}
        whisker = element("line", **ends, y1=middle, y2=middle, class_=f"whisker {mark.look}")
    if value is None or not math.isfinite(value):
        return whisker
    return whisker + shape(mark.look, across(value, domain), middle)


def shape(look: str, x: str, y: float, more: str = "") -> str:
    """Draw a mark by itself, at a place that may be in percent; `more` are further classes."""
    path = element("path", d=SHAPES[look], class_=f"mark {look} {more}".strip())
    return element("svg", path, x=x, y=y, overflow="visible", width=1, height=1)


def _px(place: float) -> str:
    return f"{place:.1f}"


LINES_TOP, LINES_FLOOR, LINES_HEIGHT = 18, 150, 176  # of a line chart, in pixels; below the floor is the axis
LINES_INSET = 8.0  # percent at the left, for the ticks
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
    look: str = "judge",
    reference: float | None = None,
    behind: Sequence[float] = (),
    notes: Mapping[int, str] = MappingProxyType({}),
    flagged: Collection[int] = (),
    best: int | None = None,
    rules: Mapping[int, str] = MappingProxyType({}),
    domain: tuple[float, float] | None = None,
) -> Figure:
    """Draw estimates in order as a line with an interval band, each with a tooltip.

    `behind` is a second, dashed line, and a tick at the `reference` is ruled in another color. `notes` extend
    the tooltips of some places, `flagged` places have a triangle, the `best` a diamond, and `rules` are
    vertical lines with a name. A value of nan leaves a gap.
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
    for kind, line in (("before", behind), (look, [value.value for value in values])):
        for run in _runs([at for at, value in enumerate(line) if math.isfinite(value)]):
            points = scale.path([(at, line[at]) for at in run])
            paths.append(element("polyline", points=points, class_=f"curve {kind}"))
    # Polylines do not support percent, so lines are in their own stretched drawing.
    stretched = {"viewBox": f"0 0 100 {LINES_HEIGHT}", "preserveAspectRatio": "none", "class_": "stretched"}
    parts = [
        *_line_axes(scale, labels, tick, rules, reference),
        element("svg", *paths, **stretched, width="100%", height=LINES_HEIGHT),
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
        area = {"x": scale.x(at, -0.5), "width": f"{scale.step:.3f}%", "height": LINES_FLOOR}
        parts.append(element("rect", element("title", escape(visible(text))), **area, y=0, class_="hit"))
    newest = f"; newest {show(values[-1])}" if values and len(values) - 1 in known else ""
    description = f"{len(known):,} of {len(labels):,} points{newest}"
    frame = {"width": "100%", "height": LINES_HEIGHT, "class_": "strips lines"}
    svg = drawing(*parts, name=name, title=title, description=description, **frame)
    return Figure(caption=caption, svg=svg)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineScale:
    """The places of a line chart: so many columns across, values of the domain upwards."""

    count: int
    domain: tuple[float, float]

    @property
    def step(self) -> float:
        """The width of a column in percent."""
        return (100 - LINES_INSET - INSET) / max(1, self.count)

    def column(self, at: float) -> float:
        """Return the middle of a column in percent of the width."""
        return LINES_INSET + self.step * (at + 0.5)

    def x(self, at: int, offset: float = 0.0) -> str:
        """Return the place of a column as an attribute, moved by a part of its width."""
        return f"{self.column(at + offset):.2f}%"

    def y(self, value: float) -> float:
        """Return the height of a value in pixels."""
        low, high = self.domain
        return LINES_FLOOR - (LINES_FLOOR - LINES_TOP) * (value - low) / ((high - low) or 1)

    def path(self, points: Sequence[tuple[int, float]]) -> str:
        """Return the points of a polyline in a stretched drawing."""
        return " ".join(f"{self.column(at):.2f},{_px(self.y(value))}" for at, value in points)


def _line_axes(
    scale: LineScale, labels: Sequence[str], tick: Format, rules: Mapping[int, str], reference: float | None
) -> list[str]:
    parts = []
    for value in ticks(*scale.domain, most=5):
        level, kind = _px(scale.y(value)), "reference" if value == reference else "grid"
        parts.append(element("line", x1="0%", x2="100%", y1=level, y2=level, class_=kind))
        text = tick(value).replace("-", MINUS)
        parts.append(words(text, x="0%", y=_px(scale.y(value) - 4), class_="tick"))
    for number, (at, text) in enumerate(sorted(rules.items(), reverse=True)):
        x = scale.x(at, -0.5)
        parts.append(element("line", x1=x, x2=x, y1=LINES_TOP, y2=LINES_FLOOR, class_="reference"))
        if number < NAMED_RULES:
            side = "end" if scale.column(at) > 50 else "start"
            text = shorten(text, RULE_LETTERS)
            parts.append(words(text, x=x, y=LINES_TOP - 6, class_="tick", text_anchor=side))
    for at in sorted({0, len(labels) // 2, len(labels) - 1} if labels else ()):
        side = "start" if at == 0 else "end" if at == len(labels) - 1 else "middle"
        where = {"x": scale.x(at), "y": LINES_FLOOR + 20, "text_anchor": side}
        parts.append(words(shorten(labels[at], 12), **where, class_="tick"))
    return parts


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Group places that follow each other without a gap."""
    numbered = groupby(enumerate(places), key=lambda pair: pair[1] - pair[0])
    return [[at for _, at in run] for _, run in numbered]
