"""The documentation site builds without a network or a broken link, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from repository import ROOT

pytest.importorskip("mkdocs_click", reason="the site is built with what the extra `docs` brings")
pytest.importorskip("material", reason="the site is built with what the extra `docs` brings")

ELSEWHERE = {"", "github.com", "arxiv.org", "doi.org"}  # where pages may point; nothing is fetched from there


class Page(HTMLParser):
    """Where a page points, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.links.append(named.get("href", ""))
        elif tag == "link" and named.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(named.get("href", ""))
        else:
            self.loads.append(named.get("src", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; mkdocs refuses a link or an anchor that leads nowhere."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_links_away_are_few_and_nothing_is_loaded_from_there(site: Path) -> None:
    for path in site.rglob("*.html"):
        page = Page(path.read_text(encoding="utf-8"))
        assert {urlsplit(link).hostname or "" for link in page.links} <= ELSEWHERE, path
        assert not [link for link in page.loads if urlsplit(link).scheme or link.startswith("//")], path
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text(encoding="utf-8")), path


def test_pages_are_filled_and_can_be_searched(site: Path) -> None:
    assert "design effect" in (site / "search" / "search_index.json").read_text(encoding="utf-8")
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?<!\$)\{\{ \w+ \}\}|Sentinel\.", text), path
    commands = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    assert all(f"<code>{name}</code>" in commands for name in ("score", "compare", "align report"))
