"""The page of `compare --html` in a real browser: nothing asked for or cut off, no barrier found by axe."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from repository import SAMPLES

import cli


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = tmp_path_factory.mktemp("compared") / "page.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(page.parent)
        words = ["compare", str(SAMPLES / "responses.jsonl"), "--models", "demo-warm,demo-plain"]
        done = CliRunner().invoke(cli.main, [*words, "--html", page.name])
    assert done.exit_code == 0, done.output
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1180, 390])
def test_axe_finds_no_barrier_and_nothing_sticks_out(
    browser: Any, compared: Path, width: int, scheme: str
) -> None:
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    asked: list[str] = []
    said: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(compared.as_uri())
    found = axe.Axe().run(page).response["violations"]
    assert [(item["id"], item["nodes"][0]["html"][:200]) for item in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "demo-warm" in page.inner_text("h1, h2 + *, main")
    context.close()
    assert asked == [compared.as_uri()] and said == []
