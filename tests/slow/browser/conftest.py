"""A real browser for the tests of pages; where there is none they skip, with the reason."""

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

OFF = ("gpu", "background-networking", "component-update", "sync")
OPTIONS = ["--no-sandbox", "--no-first-run", *(f"--disable-{part}" for part in OFF)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, without a sandbox, which containers do not allow; what is opened is ours."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed (Debian: chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def open_tab(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open pages; at the end nothing but their own folder or server was asked, and nothing was logged."""
    contexts, asked, logged, ours = [], [], [], ["data:", "blob:"]

    def open_tab(url: str, *, width: int = 1180, scheme: str = "light", **options: Any) -> Any:
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce", **options)
        context.set_default_timeout(20_000)
        contexts.append(context)
        ours.append(url.rpartition("/")[0])
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: logged.append(message.text))
        page.on("pageerror", lambda error: logged.append(str(error)))
        page.goto(url)
        return page

    yield open_tab
    for context in contexts:
        context.close()
    assert [url for url in asked if not url.startswith(tuple(ours))] == []
    # The browser itself notes an answer that is not a 200.
    assert [text for text in logged if not text.startswith("Failed to load resource")] == []


@pytest.fixture
def assert_readable() -> Callable[..., None]:
    """Assert that axe finds no barrier, nothing sticks out sideways, and the page heeds the color scheme."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")

    def assert_readable(page: Any, **options: Any) -> None:
        found = axe.Axe().run(page, **options).response["violations"]
        assert [(item["id"], [node["html"][:200] for node in item["nodes"]][:3]) for item in found] == []
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        paper = "rgb(20, 23, 28)" if is_dark else "rgb(251, 250, 247)"
        assert ground in (paper, "rgba(0, 0, 0, 0)")  # the latter is the browser's own

    return assert_readable
