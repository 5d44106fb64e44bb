"""A page as Markdown, and as files; what people and models wrote stays text, whatever it looks like."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from empathy_judge.data.files import write_texts
from empathy_judge.reports.charts import visible
from empathy_judge.reports.html import as_page
from empathy_judge.reports.page import Example, Page, Section, Table

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
    for term, figure, detail in page.facts:
        lines.append(f"- {plain(term)}: **{plain(figure)}** {plain(detail)}".rstrip())
    if page.facts:
        lines.append("")
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
