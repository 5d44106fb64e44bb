"""The report in a real browser: nothing asked for, nothing cut off, and no barrier found by axe."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from calibrated import calibrate_world, make_world, one_rater, probed, single_rating, three_raters

from reports import write_report

PHONE, SMALL, DESK = 390, 320, 1180
OPEN_ALL = "document.querySelectorAll('details').forEach(item => { item.open = true })"
LOOKS = pytest.mark.parametrize(("width", "scheme"), [(DESK, "light"), (PHONE, "dark")])


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With long names and texts that would break the page if they could."""
    beside = "-Instruct-Turbo-with-a-very-long-name<script>fetch('/x')</script>\u202e"
    result = calibrate_world(make_world(beside=beside, long="unbroken" * 60))
    return write_report(result, tmp_path_factory.mktemp("report"), probes=probed())[0]


@pytest.fixture
def visit(browser: Any, report: Path) -> Iterator[Any]:
    """Opens a report; afterwards nothing may have been asked for or complained of."""
    contexts, asked, said = [], [], []

    def visit(*, width: int = DESK, scheme: str = "light", path: Path = report) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(path.as_uri())
        return page

    yield visit
    for context in contexts:
        context.close()
    assert said == []
    assert {url.rpartition("/")[2] for url in asked} == {"report.html"}


@LOOKS
def test_it_opens_alone_and_can_be_looked_at(visit: Any, tmp_path: Path, width: int, scheme: str) -> None:
    page = visit(width=width, scheme=scheme)
    picture = tmp_path / f"{scheme}-{width}.png"
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 50_000
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(251, 250, 247)", "dark": "rgb(20, 23, 28)"}[scheme]


@pytest.mark.parametrize("width", [SMALL, PHONE, DESK])
def test_nothing_sticks_out_sideways(visit: Any, width: int) -> None:
    page = visit(width=width)
    page.evaluate(OPEN_ALL)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = page.evaluate(
        """[...document.querySelectorAll('p, h2, li, figure, .example, .scroll, svg.strips, svg text')]
        .filter(item => !item.closest('table, nav h2') && item.getBoundingClientRect().right > innerWidth + 1)
        .map(item => item.textContent.slice(0, 40))"""
    )
    assert beyond == []


def test_names_and_figures_of_a_chart_do_not_touch(visit: Any) -> None:
    page = visit(width=PHONE)
    touching = page.evaluate(
        """[...document.querySelectorAll('svg.strips .name')].filter(name =>
        name.getBoundingClientRect().right > name.nextElementSibling.getBoundingClientRect().left)
        .map(name => name.textContent)"""
    )
    assert touching == []


@LOOKS
def test_axe_finds_no_barrier(visit: Any, tmp_path: Path, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    # One person rated each response or several did; few emotions, since axe looks at every cell.
    full = one_rater() if scheme == "light" else three_raters()
    emotions = full.by_emotion
    assert emotions is not None
    few = replace(
        full,
        by_emotion=replace(emotions, emotions=emotions.emotions[:5]),
        findings=full.findings[:8],
    )
    for name, shown in {"full": few, "hollow": single_rating()}.items():
        page = visit(width=width, scheme=scheme, path=write_report(shown, tmp_path / name)[0])
        page.evaluate(OPEN_ALL)
        found = axe.Axe().run(page).response["violations"]
        assert [(item["id"], [node["html"][:200] for node in item["nodes"]][:3]) for item in found] == []


def test_the_keyboard_reaches_links_folds_and_tables_and_shows_where_it_is(visit: Any) -> None:
    page = visit()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    box = page.evaluate("document.activeElement.getBoundingClientRect().left")
    assert box >= 0
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#verdict"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.locator("#agreement summary").first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('#agreement details').open")


def test_print_shows_what_is_folded_on_screen(visit: Any, tmp_path: Path) -> None:
    page = visit(scheme="dark")
    page.emulate_media(media="print")
    heights = page.evaluate(
        "[...document.querySelectorAll('details table')].map(item => item.getBoundingClientRect().height)"
    )
    assert len(heights) >= 7 and min(heights) > 20
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.pdf(path=tmp_path / "report.pdf", format="A4")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
