"""The pages that commands write, in a real browser: nothing fetched or cut off, no barrier found by axe."""

import json
from pathlib import Path
from typing import Any

import pytest
from calibrated import calibrate_world, make_world, single_rating
from command_line import run_checked
from repository import SAMPLES
from talks import messages

from empathy_judge.reports.calibration.calibration_page import write_report

PHONE, SMALL, DESK = 390, 320, 1180
OPEN_ALL = "document.querySelectorAll('details').forEach(item => { item.open = true })"
REPLIES = ("How awful. What happened then?", "Okay.", "You should try to sleep.", "That sounds so very hard.")
PAGES = ("calibrate", "calibrate, few ratings", "compare", "score")


def write_conversations(path: Path) -> None:
    heard = [f"It is night {turn} and I cannot sleep." for turn in range(8)]
    rows = (
        {
            "id": f"talk-{number}",
            "model": "bot",
            "situation": "A night.",
            "messages": messages([REPLIES[(number + turn) % 4] for turn in range(8)], heard),
        }
        for number in range(12)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write every page; the first with long names and texts that would break a page if they could."""
    folder = tmp_path_factory.mktemp("pages")
    beside = "-Instruct-Turbo-with-a-very-long-name<script>fetch('/x')</script>\u202e"
    hostile = calibrate_world(make_world(beside=beside, long="unbroken" * 60))
    write_conversations(folder / "talks.jsonl")
    compare = ["compare", str(SAMPLES / "responses.jsonl"), "--models", "demo-warm,demo-plain"]
    score = ["score", "talks.jsonl", "--judge", "length"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in (compare, score):
            run_checked(*words, "--html", f"{words[0]}.html")
    paths = (
        write_report(hostile, folder / "calibrate")[0],
        write_report(single_rating(), folder / "few")[0],
        folder / "compare.html",
        folder / "score.html",
    )
    return dict(zip(PAGES, paths, strict=True))


@pytest.fixture
def visit(open_tab: Any, pages: dict[str, Path]) -> Any:
    return lambda name, **options: open_tab(pages[name].as_uri(), **options)


@pytest.mark.parametrize(("width", "scheme"), [(DESK, "light"), (PHONE, "dark"), (SMALL, "dark")])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_readable_and_nothing_sticks_out(
    visit: Any, name: str, width: int, scheme: str, assert_readable: Any
) -> None:
    page = visit(name, width=width, scheme=scheme)
    page.evaluate(OPEN_ALL)
    assert_readable(page)
    beyond = page.evaluate(
        """[...document.querySelectorAll('p, h2, li, figure, .example, .scroll, svg.strips, svg text')]
        .filter(item => !item.closest('table, nav h2') && item.getBoundingClientRect().right > innerWidth + 1)
        .map(item => item.textContent.slice(0, 40))"""
    )
    assert beyond == []


def test_the_keyboard_reaches_links_and_folds_and_shows_where_it_is(visit: Any) -> None:
    page = visit("calibrate")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#verdict"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for fold in ("details.more", "#agreement details"):
        page.locator(f"{fold} > summary").first.focus()
        page.keyboard.press("Enter")
        assert page.evaluate(f"document.querySelector('{fold}').open")


@pytest.mark.parametrize("name", PAGES)
def test_print_shows_what_is_folded_on_screen(visit: Any, name: str) -> None:
    page = visit(name, scheme="dark")
    page.emulate_media(media="print")
    heights = page.evaluate(
        "[...document.querySelectorAll('details table')].map(item => item.getBoundingClientRect().height)"
    )
    assert all(height > 20 for height in heights)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf(format="A4").startswith(b"%PDF")
