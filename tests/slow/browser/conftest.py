"""A real browser for the tests of pages; where there is none they skip, with the reason."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, without a sandbox, which containers do not allow; what is opened is ours."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed (Debian: chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=list(OPTIONS))
        yield browser
        browser.close()
