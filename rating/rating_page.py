"""The page to rate replies on, as one HTML file: served to a rater, or whole for one who has no server."""

import json
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import reports
import server
from data.rubric import read_rubric
from rating.journal import LONGEST_REASON

SERVED_FOOTER = (
    "This page talks only to the server it came from. Your ratings are kept there under a number, not a name."
)
FILE_FOOTER = "This file talks to nobody. Your ratings stay in this browser until you hand them back."


def rating_page(given: Mapping[str, Any], nonce: str) -> str:
    """Make the whole page; `given` is the rater's token and name, and for a file all there is to rate."""
    if not re.fullmatch("[A-Za-z0-9+/_-]+={0,2}", nonce):
        raise ValueError("a nonce is Base64")
    is_served = bool(given.get("server"))
    return Template(_parts()["page"]).substitute(
        _parts(),
        nonce=nonce,
        connect="'self'" if is_served else "'none'",
        footer=SERVED_FOOTER if is_served else FILE_FOOTER,
        # A script's end within a text would end the script; ASCII, since no browser can mistake that.
        given=json.dumps(given).replace("<", "\\u003c"),
    )


@cache
def _parts() -> dict[str, str]:
    ours = Path(__file__).parent / "templates"
    styles = [
        Path(*reports.__path__) / "templates" / "report.css",
        Path(*server.__path__) / "templates" / "try.css",
        ours / "rate.css",
    ]
    rubric = read_rubric()
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
    }
