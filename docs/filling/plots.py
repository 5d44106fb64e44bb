"""The README's picture of the demo."""

import re
from collections.abc import Mapping
from typing import Any, Final

from empathy_judge.calibration.comparison.published_models import published
from empathy_judge.data.text import percent
from empathy_judge.reports.charts import Line, Look, Mark, dot_plot, element, words

GOOD: Final = "Good"
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
    """Return the demo's models as SVG: their Good shares, and those of two models of the study."""
    shares = {model["model"]: model["corrected"][GOOD] for model in summary["models"]}
    shares |= {name: published(name).shares[GOOD].as_dict() for name in ("study:human", "study:gpt-4")}
    lines = []
    for name, share in shares.items():
        look: Look = "people" if name.startswith("study:") else "judge"
        lines.append(Line(name=name, figure=percent(share), marks=(Mark(look, share),)))
    title = "Estimated share of Good ratings, %, with 95% CI; study: human ratings"
    dots = dot_plot(
        "",
        lines,
        name="shares",
        title=title,
        tick=lambda value: f"{100 * value:g}",
        domain=(0, 1),
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
