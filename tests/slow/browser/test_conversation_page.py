"""The page of `score --html` in a real browser: nothing asked for or cut off, no barrier, also on paper."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import cli
from judge.speakers.scripted_speaker import OURS, next_words, read_situations

REPLIES = ("How awful. What happened then?", "Okay.", "You should try to sleep.", "That sounds so very hard.")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talks")
    rows = []
    for number, item in enumerate(read_situations(OURS)[:12]):
        said: list[str] = []
        for turn in range(8):
            said.append(next_words(item, said[1::2], is_last=turn == 7))
            said.append(REPLIES[(number + turn) % 4])
        roles = ("user", "assistant")
        messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(said)]
        about = {"situation": item.situation, "emotion": item.emotion, "speaker": "scripted"}
        rows.append({"id": item.id, "model": "bot", **about, "messages": messages})
    path = folder / "talks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    page = folder / "page.html"
    words = ["score", str(path), "--judge", "length", "--out", str(folder / "run"), "--html", str(page)]
    done = CliRunner().invoke(cli.main, words)
    assert done.exit_code == 0, done.output
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1180, 390])
def test_axe_finds_no_barrier_and_nothing_sticks_out(
    browser: Any, page_file: Path, width: int, scheme: str
) -> None:
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    asked: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(page_file.as_uri())
    found = axe.Axe().run(page).response["violations"]
    assert [(item["id"], item["nodes"][0]["html"][:200]) for item in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".talk").count() == 12
    assert page.locator(".talk .best").count() == page.locator(".talk .worst").count() == 12
    context.close()
    assert asked == [page_file.as_uri()]


def test_on_paper_all_turns_are_there(browser: Any, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    page.emulate_media(media="print")
    assert page.locator(".talk blockquote").last.is_visible()
    assert len(page.pdf()) > 20_000
    page.close()
