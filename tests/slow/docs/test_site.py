"""The documentation site builds without a network or a broken link, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from repository import ROOT

pytest.importorskip("mkdocs_click", reason="the site is built with what the extra `docs` brings")
pytest.importorskip("material", reason="the site is built with what the extra `docs` brings")

LINK = re.compile(r'<a\b[^>]*?\shref="?([^"\s>]*)')
LOADED = re.compile(r'(<(?!a\b)[^>]*?\s(?:href|src)="?([^"\s>]*)[^>]*)')
PLACE = re.compile(r'rel="?(canonical|prev|next)')  # of pages, which a browser does not load
ELSEWHERE = {"", "github.com", "arxiv.org", "doi.org"}  # where pages may point; nothing is fetched from there


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
        text = path.read_text(encoding="utf-8")
        assert {urlsplit(link).hostname or "" for link in LINK.findall(text)} <= ELSEWHERE, path
        loads = [place for tag, place in LOADED.findall(text) if not PLACE.search(tag)]
        assert loads and not [place for place in loads if urlsplit(place).scheme or place[:2] == "//"], path
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text(encoding="utf-8")), path


def test_pages_are_filled_and_can_be_searched(site: Path) -> None:
    assert "design effect" in (site / "search" / "search_index.json").read_text(encoding="utf-8")
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?<!\$)\{\{ \w+ \}\}|Sentinel\.", text), path
    commands = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    assert all(f"<code>{name}</code>" in commands for name in ("score", "compare", "align report"))
