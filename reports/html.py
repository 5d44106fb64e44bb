"""A calibration's report as files: a page to look at, the same as Markdown, and the figures as JSON."""

import json
import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.files import disk_errors, replacing
from reports.calibration.calibration_page import make_page
from reports.charts import element, shape, visible
from reports.markdown import as_markdown
from reports.page import Page

if TYPE_CHECKING:
    from jinja2 import Template


TEMPLATES = Path(__file__).parent / "templates"
STRONGEST_TINT = 0.55  # of the pure colour; more, and the text upon it could not be read


def write_report(result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write report.html, report.md and report.json from a calibration's result; needs nothing else.

    What the result does not hold is left out; what is null or not a number is shown as undefined.
    """
    plain = _without_nan(result)
    return write_page(make_page(plain), plain, folder)


def write_page(page: Page, result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write a page as report.html and report.md, and what it was made from as report.json."""
    files = {
        "report.html": as_page(page),
        "report.md": as_markdown(page),
        # Escaped to ASCII: nothing in it can turn the line around in an editor or a terminal.
        "report.json": json.dumps(result, indent=2, allow_nan=False) + "\n",
    }
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with replacing(folder / name) as partial:
                partial.write_text(text, encoding="utf-8")
    return [folder / name for name in files]


def as_page(page: Page) -> str:
    """One HTML file that asks for nothing else and runs no script."""
    return str(_template().render(page=page, key_mark=_key_mark, tint=_tint)) + "\n"


@cache
def _template() -> "Template":
    """Read and compiled once: that takes longer than filling it."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        # Before it is escaped, whatever nobody could see in a text is made visible.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    # A number and its sign of per cent stay on one line.
    environment.filters["tidy"] = lambda text: re.sub(r"(?<=\d) (?=%|points)", "\N{NO-BREAK SPACE}", text)
    return environment.get_template("report.html.j2")


def _key_mark(look: str) -> str:
    inside = element("rect", x=0, y=3, width=24, height=12, rx=3, class_="band") if look == "band" else ""
    if look == "reference":
        inside = element("line", x1=0, x2=24, y1=9, y2=9, class_="reference")
    elif look in ("before", "after"):
        inside = element("line", x1=0, x2=24, y1=9, y2=9, class_=f"curve {look}")
    elif not inside:
        inside = element("line", x1=1, x2=23, y1=9, y2=9, class_=f"whisker {look}") + shape(look, "12", 9)
    return element("svg", inside, width=24, height=18, aria_hidden="true")


def _tint(value: float) -> str:
    return f"{STRONGEST_TINT * min(1.0, abs(value)):.2f}"


def _without_nan(value: Any) -> Any:
    """The same as plain JSON: what is not finite is null, and every key is text."""
    if isinstance(value, Mapping):
        return {str(key): _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
