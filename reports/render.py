"""A page as HTML, as Markdown and as files; texts of people and models stay text, whatever they look like."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from empathy_judge.data.files import write_texts
from empathy_judge.reports.charts import element, shape, visible
from empathy_judge.reports.page import Example, Page, Section, Table

if TYPE_CHECKING:
    from jinja2 import Environment, Template

TEMPLATES = Path(__file__).parent / "templates"
STRONGEST_TINT = 0.55  # of the pure color; more would make the text unreadable
# All that could start an emphasis, a link, a table cell, an address or HTML.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&@$]|:(?=//)|(?<=www)\.)")
_START = re.compile(r"^(\s*(?:\d+(?=[.)](?:\s|$)))?)([-+=]|(?<=\d)[.)])", re.MULTILINE)


def write_page(page: Page, result: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write a page as report.html and report.md, and what it was made from as report.json."""
    files = {
        "report.html": as_page(page),
        "report.md": as_markdown(page),
        # Escaped to ASCII: nothing in it can turn the line around in an editor or a terminal.
        "report.json": json.dumps(result, indent=2, allow_nan=False) + "\n",
    }
    return write_texts(files, folder)


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


def plain(text: str) -> str:
    r"""Escape text so that Markdown shows it as it is, on one line.

    >>> plain("**Hi** <b>\n- see https://a.b | c")
    '\\*\\*Hi\\*\\* \\<b\\> - see https\\://a.b \\| c'
    >>> plain("1. one"), plain("- two"), plain("0.26 kept")
    ('1\\. one', '\\- two', '0.26 kept')
    """
    return _escape(" ".join(visible(text).split()))


def as_markdown(page: Page) -> str:
    """Write out the page's text, tables and examples; its figures are in the tables."""
    lines = [f"# {plain(page.title)}", "", plain(page.subtitle), "", "## Verdict", ""]
    for sentence in page.verdict:
        lines += [plain(sentence), ""]
    for question, answer in page.answers:
        lines += [f"**{plain(question)}** {plain(answer)}", ""]
    for section in page.sections:
        lines += _section(section)
    return "\n".join([*lines, plain(page.foot), ""])


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {plain(section.title)}", "")
    for paragraph in section.text:
        yield from (plain(paragraph), "")
    if section.points:
        yield from (*(f"- {plain(point)}" for point in section.points), "")
    for example in section.examples:
        yield from _example(example)
    for table in section.tables:
        yield from _table(table)
    for note in section.notes:
        yield from (plain(note), "")


def _example(example: Example) -> Iterator[str]:
    yield from (f"### {plain(example.title)}", "")
    yield from (*(f"- {plain(term)}: {plain(value)}" for term, value in example.facts), "")
    talk = ((f"{turn.who}{f' ({turn.mark})' if turn.mark else ''}", turn.text) for turn in example.talk)
    for name, text in (("Speaker", example.prompt), ("Answer", example.response), *example.replies, *talk):
        if text is not None:
            lines = visible(text).splitlines() or [""]
            yield from (f"{plain(name)}:", "", *(f"> {_escape(line.strip())}".rstrip() for line in lines), "")


def _table(table: Table) -> Iterator[str]:
    yield from (f"**{plain(table.caption)}**", "")
    yield f"| {' | '.join(plain(name) for name in table.head)} |"
    sides = ("---" if number in table.words else "---:" for number in range(len(table.head)))
    yield f"|{'|'.join(sides)}|"
    for cells in table.rows:
        yield f"| {' | '.join(plain(cell.text) for cell in cells)} |"
    yield ""


def _escape(text: str) -> str:
    return _START.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", text))
