"""The page to try the judge: one HTML file that asks nobody but the server it came from."""

import re
from functools import cache
from html import escape
from pathlib import Path
from string import Template

from data.records import EMOTIONS

TEMPLATES = Path(__file__).parent.parent / "templates"
_NONCE = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")


def page_html(nonce: str) -> str:
    """The whole page; only script and style that bear the nonce run, so make a new one for every answer.

    >>> page_html("b2s=").count('nonce="b2s="')
    2
    """
    if not _NONCE.fullmatch(nonce):
        raise ValueError("a nonce is Base64")
    return _page().substitute(nonce=nonce)


@cache
def _page() -> Template:
    """Read once; the standard library fills it in, so that a server needs no other for four places."""
    style, script = _read("report.css", "try.css"), _read("try-result.js", "try.js")
    emotions = "".join(f"<option>{escape(emotion)}</option>" for emotion in EMOTIONS)
    filled = Template(_read("try.html")).safe_substitute(
        style=_kept(style), script=_kept(script), emotions=_kept(emotions)
    )
    return Template(filled)


def _kept(text: str) -> str:
    """The text as it is after another filling in: a dollar stays a dollar."""
    return text.replace("$", "$$")


def _read(*names: str) -> str:
    return "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in names)
