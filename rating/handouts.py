"""The page to rate responses on, served or as one HTML file a rater, and sheets for spreadsheets."""

import json
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

from empathy_judge import reports, server
from empathy_judge.data.errors import UserError
from empathy_judge.data.files import LONGEST_REASON, disk_errors, replacing, write_texts
from empathy_judge.data.records import CONVERSATION, NOUNS
from empathy_judge.data.rubric import read_rubric
from empathy_judge.data.tables import write_text
from empathy_judge.rating.plan import FORMAT, RatingPlan, Texts, rating_seconds

ANSWERS: Final = ("rating", "reason")  # the columns that raters fill in
SERVED_FOOTER = (
    "This page connects only to its own server. Your ratings are stored there under a number, not your name."
)
FILE_FOOTER = "This file connects to no server. Your ratings stay in this browser until you send them back."


def page_items(plan: RatingPlan, texts: Texts, token: str) -> list[dict[str, Any]]:
    """Return what a rater's page shows, in order, each with the seconds that it takes."""
    keys = plan.raters[token].order
    return [{"key": key, "seconds": rating_seconds(texts[key]), **texts[key]} for key in keys]


def render_markdown(path: Path | None) -> str:
    """Return a file of Markdown as HTML; HTML within it is escaped, and links run no scripts."""
    from markdown_it import MarkdownIt

    try:
        text = path.read_text(encoding="utf-8") if path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a text that can be read: {error}") from error
    return str(MarkdownIt("commonmark", {"html": False}).render(text))


def notice_page(title: str, text: str, nonce: str, *, unit: str) -> str:
    """Return a page with a text in HTML."""
    page = (Path(__file__).parent / "templates" / "notice.html").read_text(encoding="utf-8")
    return Template(page).substitute(title=title, text=text, nonce=nonce, style=_parts(unit)["style"])


def rating_page(given: Mapping[str, Any], nonce: str, *, unit: str, instructions: str = "") -> str:
    """Return the whole page; `given` is the rater's token and name, and for a file all replies."""
    is_served = bool(given.get("server"))
    return Template(_parts(unit)["page"]).substitute(
        _parts(unit),
        nonce=nonce,
        instructions=instructions,
        connect="'self'" if is_served else "'none'",
        footer=SERVED_FOOTER if is_served else FILE_FOOTER,
        # The end of a script within a text would end this script.
        given=json.dumps({"unit": unit, "format": FORMAT, **given}).replace("<", "\\u003c"),
    )


@cache
def _parts(unit: str) -> dict[str, str]:
    ours = Path(__file__).parent / "templates"
    styles = [
        Path(*reports.__path__) / "templates" / "report.css",
        Path(*server.__path__) / "templates" / "try.css",
        ours / "rate.css",
    ]
    rubric = read_rubric(unit) if unit == CONVERSATION else read_rubric()
    buttons = [
        f'<button type="button" data-label="{label}">{label} <kbd aria-hidden="true">{number}</kbd></button>'
        for number, label in enumerate(rubric.labels, start=1)
    ]
    meaning = [f"<div><dt>{label}</dt><dd>{escape(says)}</dd></div>" for label, says in rubric.labels.items()]
    return {
        "page": (ours / "rate.html").read_text(encoding="utf-8"),
        "style": "\n".join(path.read_text(encoding="utf-8") for path in styles),
        "script": (ours / "rate.js").read_text(encoding="utf-8"),
        "title": escape(rubric.title),
        "question": escape(rubric.question.strip()),
        "meaning": "".join(meaning),
        "buttons": "".join(buttons),
        "longest": str(LONGEST_REASON),
        "noun": unit,
        "nouns": NOUNS[unit],
    }


def write_pages(plan: RatingPlan, texts: Texts, folder: Path) -> list[Path]:
    """Write one file per rater, which needs no network and no server."""
    written = []
    for token, rater in plan.raters.items():
        items = page_items(plan, texts, token)
        given = {"server": False, "token": token, "rater": rater.name, "items": items}
        # From the secret token, so that the same plan gives the same file.
        nonce = sha256(f"page {token}".encode()).hexdigest()
        written += write_texts({f"{rater.name}.html": rating_page(given, nonce, unit=plan.unit)}, folder)
    return written


def write_sheets(plan: RatingPlan, texts: Texts, out: Path) -> list[Path]:
    """Write one CSV for all raters, or, if `out` is no .csv, a folder with one for each."""
    sheets: dict[Path, list[dict[str, str]]] = defaultdict(list)
    for token, rater in plan.raters.items():
        path = out if out.suffix.lower() == ".csv" else out / f"{rater.name}.csv"
        sheets[path] += [sheet_row(plan, texts, token, at) for at in range(len(rater.order))]
    for path, rows in sheets.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        # With a byte order mark, by which spreadsheets recognize UTF-8.
        with (
            disk_errors(path),
            replacing(path) as partial,
            partial.open("w", encoding="utf-8-sig", errors="replace", newline="") as stream,
        ):
            write_text(stream, rows, suffix=".csv", line_end="\r\n")
    return list(sheets)


def sheet_row(plan: RatingPlan, texts: Texts, token: str, index: int) -> dict[str, str]:
    """Return one line of a sheet with all its columns."""
    rater = plan.raters[token]
    text = texts[rater.order[index]]
    turns = [
        f"{'Answer' if turn['answers'] else 'Message'}: {turn['text']}" for turn in text.get("context", ())
    ]
    return {
        "rater": rater.name,
        "number": str(index + 1),
        "task": f"{token}-{index}-{rater.order[index]}",
        "situation": text.get("situation", ""),
        "earlier": "\n".join(turns),
        "prompt": text["prompt"],
        "response": text["response"],
        **dict.fromkeys(ANSWERS, ""),
    }
