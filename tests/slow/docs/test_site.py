"""The documentation's site: it builds without a network, every link in it leads somewhere, and none away."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from repository import ROOT

pytest.importorskip("mkdocs_click", reason="the site is built with what the extra `docs` brings")
pytest.importorskip("material", reason="the site is built with what the extra `docs` brings")

ELSEWHERE = {"github.com", "arxiv.org", "doi.org"}  # where pages may point; nothing is fetched from there


@dataclass
class Built:
    """The site's folder and its pages."""

    folder: Path
    pages: dict[Path, "Page"] = field(default_factory=dict)


class Page(HTMLParser):
    """What a page can be pointed at by, where it points, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.anchors |= {named[name] for name in ("id", "name") if named.get(name)}
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        elif tag == "link" and named.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(named.get("href", ""))
        elif "src" in named:
            self.loads.append(named["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    built = Built(folder=folder)
    for path in folder.rglob("*.html"):
        built.pages[path] = Page(path.read_text(encoding="utf-8"))
    return built


def test_every_link_leads_somewhere(site: Built) -> None:
    lost = []
    for path, page in site.pages.items():
        if path.name == "404.html":
            continue  # served from anywhere, so its links are from the top
        for link in [*page.links, *page.loads]:
            if urlsplit(link).scheme or link.startswith("//"):
                continue
            target, anchor = urldefrag(unquote(link))
            place = (path.parent / target).resolve() if target else path
            if place.is_dir():
                place /= "index.html"
            anchors = site.pages[place].anchors if place in site.pages else {anchor}
            if not place.is_file() or (anchor and anchor not in anchors):
                lost.append(f"{path.relative_to(site.folder)} -> {link}")
    assert not lost


def test_links_away_are_few_and_nothing_is_loaded_from_there(site: Built) -> None:
    away = {
        urlsplit(link).hostname
        for page in site.pages.values()
        for link in page.links
        if urlsplit(link).scheme not in ("", "mailto")
    }
    assert away <= ELSEWHERE
    for path, page in site.pages.items():
        assert not [link for link in page.loads if urlsplit(link).scheme or link.startswith("//")], path
    for path in site.folder.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", path.read_text(encoding="utf-8")), path


def test_pages_are_filled_and_can_be_searched(site: Built) -> None:
    index = (site.folder / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "design effect" in index
    for path, page in site.pages.items():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?<!\$)\{\{ \w+ \}\}|Sentinel\.", text), path
        assert page.anchors
    commands = (site.folder / "reference" / "cli.html").read_text(encoding="utf-8")
    assert all(f"<code>{name}</code>" in commands for name in ("score", "compare", "align report"))
