"""The dashboard as a person uses it: opened from disk in a real browser, with the mouse or without one."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from histories import EVIL, MODELS, NASTY_MODEL, write_history

from empathy_judge.nightly.dashboard.build import build_dashboard
from empathy_judge.nightly.history import open_history

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dashboard")
    with open_history(write_history(folder / "history.db", nights=100, responses=8)) as history:
        build_dashboard(history, folder / "site")
    return folder / "site"


@pytest.fixture
def open_page(open_tab: Open, site: Path) -> Open:
    return lambda name="index.html", **options: open_tab((site / name).as_uri(), **options)


def names(page: Any) -> list[str]:
    return page.locator("#model-table tbody tr:not([hidden]) th").all_inner_texts()


def find_page(site: Path, start: str) -> str:
    return sorted(path.name for path in site.glob(f"{start}*.html"))[-1]


def test_models_are_sorted_with_undefined_last_and_filtered(open_page: Open) -> None:
    page = open_page()
    assert names(page)[0] == "bea-large", "the one in trouble first"
    assert sorted(names(page)) == sorted(MODELS)
    page.get_by_role("button", name="Good").click()
    assert names(page)[0] == "cyd", "the best first"
    assert page.locator("th[aria-sort]").all_inner_texts() == ["Good"]
    page.get_by_role("button", name="Good").click()
    assert names(page)[0] == "ada-small"
    for _ in range(2):
        page.get_by_role("button", name="Cost").click()
        assert names(page)[-1] == "cyd"
    page.get_by_label("Filter").fill("<B>CO")
    assert names(page) == [NASTY_MODEL]
    assert page.locator("[data-count=model-table]").inner_text() == "1 of 4"
    page.get_by_label("Filter").fill("")
    page.get_by_label("Outcome").select_option("regression")
    assert names(page) == ["bea-large"]
    page.get_by_label("Filter").fill("nobody")
    assert names(page) == []


def test_a_script_in_a_response_is_shown_as_text(open_page: Open, site: Path) -> None:
    page = open_page(find_page(site, "responses-ada"))
    page.get_by_label("Filter").fill("<script>document")
    page.locator("details.response:not([hidden])").last.locator("summary").click()
    page.evaluate("document.querySelectorAll('details').forEach(item => item.open = true)")
    told = page.locator("details.response:not([hidden]) blockquote:visible").all_inner_texts()
    assert EVIL in told
    assert page.title() != "taken"
    assert page.locator("script").count() == 1, "our own"


def test_all_of_it_with_the_keyboard_alone(open_page: Open) -> None:
    page = open_page()

    def tab_to(wanted: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("wanted => document.activeElement.matches(wanted)", wanted):
                return
        raise AssertionError(f"Tab never came to {wanted}")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    tab_to("#model-filter")
    page.keyboard.type("a")
    tab_to("[data-sort=good]")
    page.keyboard.press("Space")
    order = names(page)
    tab_to("#model-table tbody tr")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.name") == order[1]
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    while page.evaluate("document.activeElement.dataset.name") != "bea-large":
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("model-bea"))
    tab_to(".verdict a")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("responses-bea"))
    tab_to("details.response summary")
    page.keyboard.press("Enter")
    assert page.locator("details.response").first.get_attribute("open") is not None
    assert page.locator("details.response").first.get_by_text("timed out").is_visible()


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("index", "dark"), ("judge", "light"), ("model-bea", "dark"), ("responses-bea", "light")],
)
def test_on_a_phone_light_or_dark_it_can_be_read(
    open_page: Open, site: Path, name: str, scheme: str, assert_readable: Open
) -> None:
    page = open_page(find_page(site, name), width=360, scheme=scheme, has_touch=True)
    # A chart is one image with a name; its many marks take long. With `preload` it would ask for our style.
    assert_readable(page, context={"exclude": [["svg.lines > *"]]}, options={"preload": False})
