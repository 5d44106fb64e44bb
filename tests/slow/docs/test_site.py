"""The documentation's site: it builds without a network, every link in it leads somewhere, and none away."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
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
    commands = site.pages[site.folder / "reference" / "cli.html"].anchors
    assert {f"empathy-judge-{name}" for name in ("score", "compare", "align-report")} <= commands


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address(site: Built) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site.folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_in_a_browser_search_finds_and_nothing_is_asked_for_elsewhere(address: str) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="a browser is driven by playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium here")
    asked: list[str] = []
    problems: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: problems.append(str(error)))
        for name in ("tutorial", "explanation/worth", "reference/cli"):
            page.goto(f"{address}/{name}.html")
        page.goto(f"{address}/index.html?q=design+effect")  # typed before the page is ready, it would be lost
        page.locator(".md-search-result__link").first.wait_for(timeout=60_000)
        found = page.locator(".md-search-result__link").evaluate_all("links => links.map(link => link.href)")
        assert any("explanation/worth" in link for link in found), found
        browser.close()
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    assert problems == []
