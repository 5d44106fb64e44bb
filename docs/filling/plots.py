"""The drawings of the explanation pages; colours come from the site's style sheet, docs/assets/plots.css."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from data.text import percent
from filling.figures import (
    GOOD,
    Z,
    calibrated_half_width,
    calibration,
    chance_of_perfect_order,
    evaluation,
    half_width,
    interval_at,
    line_of_good,
    study_shares,
)
from reports.charts import Line, Mark, dot_plot, drawing, element, shape, ticks, words

Point = tuple[float, float]
ENDS: Final = {"value": "share", "low": "low", "high": "high"}  # of a mark, and in a summary
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 560, 300, 52, 12, 16, 46  # of a chart with two axes
RATINGS: Final = (*range(10, 100, 5), *range(100, 601, 20))


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What the two axes show, and from where to where."""

    across: tuple[float, float]
    up: tuple[float, float]
    across_name: str
    up_name: str

    def place(self, x: float, y: float) -> Point:
        """A point of the chart, in the drawing."""
        (left, right), (low, high) = self.across, self.up
        return (
            LEFT + (WIDTH - LEFT - RIGHT) * (x - left) / (right - left),
            HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (min(max(y, low), high) - low) / (high - low),
        )

    def drawn(self) -> list[str]:
        """Grid, ticks and names."""
        parts = []
        for value in ticks(*self.across):
            (x, low), (_, high) = self.place(value, self.up[0]), self.place(value, self.up[1])
            parts.append(element("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=low, y2=high, class_="grid"))
            parts.append(words(f"{value:g}", x=f"{x:.1f}", y=low + 18, class_="tick", text_anchor="middle"))
        for value in ticks(*self.up):
            (left, y), (right, _) = self.place(self.across[0], value), self.place(self.across[1], value)
            parts.append(element("line", x1=left, x2=right, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="grid"))
            parts.append(words(f"{value:g}", x=left - 8, y=f"{y + 4:.1f}", class_="tick", text_anchor="end"))
        middle = (TOP + HEIGHT - BOTTOM) / 2
        along = (LEFT + WIDTH - RIGHT) / 2
        parts.append(words(self.across_name, x=along, y=HEIGHT - 6, class_="axis", text_anchor="middle"))
        turned = f"rotate(-90 14 {middle:g})"
        parts.append(
            words(self.up_name, x=14, y=middle, class_="axis", text_anchor="middle", transform=turned)
        )
        return parts

    def curve(self, points: Sequence[Point], look: str) -> str:
        """A line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.place(*point) for point in points))
        return element("polyline", points=path, class_=f"curve {look}")

    def key(self, names: Mapping[str, str]) -> str:
        """What each look of a line means, at the upper right."""
        parts = []
        for number, (look, name) in enumerate(names.items()):
            x, y = WIDTH - RIGHT - 220, TOP + 20 + 20 * number
            parts.append(element("line", x1=x, x2=x + 26, y1=y, y2=y, class_=f"curve {look}"))
            parts.append(words(name, x=x + 34, y=y + 4, class_=f"name {look}"))
        return "".join(parts)

    def area(self, points: Sequence[Point], look: str) -> str:
        """What points go around."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.place(*point) for point in points))
        return element("polygon", points=path, class_=look)


def _chart(axes: Axes, *parts: str, name: str, title: str, description: str) -> str:
    size = f"0 0 {WIDTH} {HEIGHT}"
    inside = (*axes.drawn(), *parts)
    return drawing(*inside, name=name, title=title, description=description, class_="chart", viewBox=size)


def known_and_unknown() -> str:
    """People's share of Good, the judge's of models it was trained on, and of models it was not."""
    known = {item["model"]: item for item in evaluation("raters-apart")["models"]}
    lines = []
    for item in evaluation("model-apart")["models"]:
        crowd, error = 100 * item["crowd"][GOOD], 100 * item["crowd_standard_error"]
        met, unmet = 100 * known[item["model"]]["judge"][GOOD], 100 * item["judge"][GOOD]
        marks = (
            Mark(look="people", value=crowd, low=crowd - Z * error, high=crowd + Z * error),
            Mark(look="judge", value=met),
            Mark(look="raw", value=unmet),
        )
        figure = f"{crowd:.0f}, {met:.0f}, {unmet:.0f}"
        lines.append(Line(name=item["model"], figure=figure, marks=marks))
    return dot_plot(
        "",
        lines,
        name="known",
        title="Good shares by people and by the judge",
        description="For each model: people's share with its interval, the judge's where it was trained on "
        "other replies of that model, and where it was trained without that model.",
        tick=lambda value: f"{value:g}",
    ).svg


PICTURE_WIDTH, PICTURE_EDGE, PICTURE_HEAD = 720, 24, 44  # pixels; the head holds the title
# A picture in a README sees neither the page's style sheet nor its colours: it brings a ground of its own.
PICTURE_STYLE = """
svg { --ink: #1c2026; --soft: #555c68; --rule: #dfdcd3; --faint: #eeece6; --judge: #1f5f9e; --paper: #fbfaf7 }
@media (prefers-color-scheme: dark) {
svg { --ink: #e9e6df; --soft: #a8adb6; --rule: #454d59; --faint: #2b313a; --judge: #78b7ee; --paper: #14171c }
}
text { font: 15px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--ink); }
.tick { fill: var(--soft); font-size: 13px; }
.title { font-size: 16px; font-weight: 600; }
.ground { fill: var(--paper); stroke: var(--rule); }
.grid { stroke: var(--faint); }
.track { stroke: var(--rule); }
.band { fill: var(--soft); fill-opacity: .18; }
.whisker { stroke: var(--judge); stroke-width: 4; stroke-linecap: round; stroke-opacity: .55; }
.mark { fill: var(--judge); stroke: var(--paper); stroke-width: 1.5; }
"""


def demo_picture(summary: Mapping[str, Any]) -> str:
    """Draw the demo's models for the README: their shares of Good, and which level is refused."""
    lines, told = [], []
    for model in summary["models"]:
        share = (model["corrected"] or {}).get(GOOD)
        mark = Mark(look="judge", **{key: share and 100 * share[name] for key, name in ENDS.items()})
        figure = percent(share) if share else "refused: unlike the rated"
        band = None if share else (0.0, 100.0)  # it may lie anywhere
        lines.append(Line(name=model["model"], figure=figure, marks=(mark,), band=band))
        told.append(f"{model['model']} {figure}")
    title = "Share of Good ratings to expect, in per cent, with 95 % intervals"
    dots = dot_plot(
        "",
        lines,
        name="shares",
        title=title,
        description="; ".join(told),
        tick=lambda value: f"{value:g}",
        domain=(0, 100),
    ).svg
    size = re.search(r'height="(\d+)"', dots)
    assert size is not None
    height, inner = PICTURE_HEAD + int(size[1]) + PICTURE_EDGE // 2, PICTURE_WIDTH - 2 * PICTURE_EDGE
    place = f'x="{PICTURE_EDGE}" y="{PICTURE_HEAD}" width="{inner}"'
    ground = element("rect", x=0.5, y=0.5, width=PICTURE_WIDTH - 1, height=height - 1, rx=8, class_="ground")
    return element(
        "svg",
        element("style", PICTURE_STYLE),
        ground,
        words(title, x=PICTURE_EDGE, y=32, class_="title"),
        dots.replace('width="100%"', place, 1),
        xmlns="http://www.w3.org/2000/svg",
        width=PICTURE_WIDTH,
        height=height,
        viewBox=f"0 0 {PICTURE_WIDTH} {height}",
    )


def perfect_orders() -> str:
    """How often a judge orders the study's language models without a mistake, by how far its level errs."""
    shares = [share for model, share in study_shares().items() if model != "human"]
    points = [(s / 2, 100 * chance_of_perfect_order(shares, s / 200)) for s in range(0, 21)]
    axes = Axes(
        across=(0, 10),
        up=(0, 100),
        across_name="spread of the judge's error from model to model, points of Good",
        up_name="perfect order, %",
    )
    return _chart(
        axes,
        axes.curve(points, "after"),
        name="orders",
        title="How often a judge puts the study's language models into perfect order",
        description="; ".join(f"spread {x:g}: {y:.0f} %" for x, y in points[::4]),
    )


def widths() -> str:
    """The interval of a model's share by how many of its replies people rated, with a judge and without."""
    effect = calibration().design_effect or 1.0
    spread = evaluation("model-apart")["chosen_models"]["between_sd"]
    alone = [(n, 100 * half_width(n, design_effect=effect)) for n in RATINGS]
    ideal = [(n, 100 * half_width(n, design_effect=effect, spread=spread)) for n in (0, *RATINGS)]
    shipped = [(n, 100 * calibrated_half_width(n)) for n in (0, *RATINGS)]
    axes = Axes(
        across=(0, 600), up=(0, 20), across_name="ratings of the model", up_name="interval, points either way"
    )
    return _chart(
        axes,
        axes.curve([point for point in alone if point[1] <= axes.up[1]], "before"),
        axes.curve(shipped, "after"),
        axes.curve(ideal, "ideal"),
        axes.key(
            {
                "before": "ratings alone",
                "after": "with the judge, as calibrated",
                "ideal": "were its spread known",
            }
        ),
        name="widths",
        title="How exactly a model's share of Good is known",
        description=f"With 0, 100 and 600 ratings, in points either way: ratings alone unknown, "
        f"{_at(alone, 100)}, {_at(alone, 600)}; with the judge as calibrated {_at(shipped, 0)}, "
        f"{_at(shipped, 100)}, {_at(shipped, 600)}; were the judge's spread known {_at(ideal, 0)}, "
        f"{_at(ideal, 100)}, {_at(ideal, 600)}.",
    )


def _at(points: Sequence[Point], ratings: int) -> str:
    return f"{dict(points)[ratings]:.1f}"


def line_through_models() -> str:
    """The calibrated models, the line through them, and what it says of a new model."""
    between = line_of_good()
    low, high = between.range
    steps = [low + (high - low) * step / 40 for step in range(41)]
    found = [(100 * mean, level) for mean in steps if (level := interval_at(mean))]
    axes = Axes(
        across=(100 * low - 8, 100 * high + 8),
        up=(20, 90),
        across_name="the judge's share of Good, %",
        up_name="people's, %",
    )
    edge = [(x, 100 * item[1]) for x, item in found] + [(x, 100 * item[2]) for x, item in reversed(found)]
    refused = [
        axes.area([(start, 20), (end, 20), (end, 90), (start, 90)], "refused")
        for start, end in ((axes.across[0], 100 * low), (100 * high, axes.across[1]))
    ]
    marks = []
    for name, judge, crowd in zip(between.models, between.judge, between.crowd, strict=True):
        x, y = axes.place(100 * judge, 100 * crowd)
        marks.append(shape("people", f"{x:.1f}", y) + element("title", name))
    return _chart(
        axes,
        *refused,
        axes.area(edge, "band"),
        axes.curve([(x, 100 * item[0]) for x, item in found], "after"),
        *marks,
        name="line",
        title="A line through rated models, and the interval of a new one",
        description="Each diamond is a rated model: "
        + "; ".join(
            f"{name}, judge {100 * judge:.0f}, people {100 * crowd:.0f}"
            for name, judge, crowd in zip(between.models, between.judge, between.crowd, strict=True)
        )
        + f". Below {100 * low:.0f} and above {100 * high:.0f} the level is refused.",
    )


PLOTS: Final = {
    "plot_known_and_unknown": known_and_unknown,
    "plot_perfect_orders": perfect_orders,
    "plot_widths": widths,
    "plot_line_through_models": line_through_models,
}
