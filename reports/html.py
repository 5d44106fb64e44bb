"""A page as one HTML file."""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from empathy_judge.reports.charts import element, shape, visible
from empathy_judge.reports.page import Page

if TYPE_CHECKING:
    from jinja2 import Environment, Template


TEMPLATES = Path(__file__).parent / "templates"
STRONGEST_TINT = 0.55  # of the pure color; more would make the text unreadable


def as_page(page: Page) -> str:
    """Make one HTML file that asks for nothing else and runs no script."""
    return str(_template().render(page=page)) + "\n"


def make_environment(*folders: Path) -> "Environment":
    """Return the templates in these folders, and those of reports; all text is escaped and made visible."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        # Markup is text too, and has `__html__`; a name out of an array is of a class of its own.
        finalize=lambda value: (
            visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
        ),
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _template() -> "Template":
    """Read and compile the template once: that takes longer than filling it."""
    environment = make_environment()
    # A number and its percent sign stay on one line.
    environment.filters["tidy"] = lambda text: re.sub(r"(?<=\d) (?=%|points)", "\N{NO-BREAK SPACE}", text)
    environment.globals["key_mark"] = _key_mark
    environment.filters["tint"] = lambda value: f"{STRONGEST_TINT * min(1.0, abs(value)):.2f}"
    return environment.get_template("report.html.j2")


def _key_mark(look: str) -> str:
    if look == "band":
        inside = element("rect", x=0, y=3, width=24, height=12, rx=3, class_="band")
    elif look == "reference":
        inside = element("line", x1=0, x2=24, y1=9, y2=9, class_="reference")
    else:
        inside = element("line", x1=1, x2=23, y1=9, y2=9, class_=f"whisker {look}") + shape(look, "12", 9)
    return element("svg", inside, width=24, height=18, aria_hidden="true")
