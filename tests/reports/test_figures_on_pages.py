"""Every estimate of a command's report.json is on its page."""

import json
import re
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from repository import TESTS

from empathy_judge.commands import main as cli

sys.path.append(str(TESTS / "golden"))
from walk import make_ratings, make_replies, write_rows

COMPARE = ("--ratings", "ratings.jsonl", "--out", "compare", "--html", "compare/report.html")
LIKED = {"made-curt": -1.4, "made-dry": -0.7, "made-kind": 0.2, "made-long": 0.4, "made-warm": 0.9}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Reports of `calibrate` and `compare` on made replies and ratings."""
    folder = tmp_path_factory.mktemp("reports")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        replies = make_replies()
        write_rows("replies.jsonl", replies)
        write_rows("ratings.jsonl", make_ratings(replies, LIKED))
        for words in (
            ("score", "replies.jsonl", "--judge", "length", "--out", "run"),
            ("calibrate", "run", "ratings.jsonl", "--exchanges", "replies.jsonl", "--out", "calibrate"),
            ("compare", "run", "--models", "made-warm,made-dry", *COMPARE),
        ):
            result = CliRunner().invoke(cli.main, words)
            assert result.exit_code == 0, result.output
        yield folder


def estimates(value: Any, place: str = "") -> Iterator[tuple[str, float]]:
    """Yield the value of everything that has an interval, with its place."""
    if isinstance(value, dict):
        if {"value", "low", "high"} <= value.keys() and isinstance(value["value"], float):
            yield place, value["value"]
        for name, item in value.items():
            yield from estimates(item, f"{place}/{name}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from estimates(item, f"{place}/{number}")


def is_shown(value: float, figures: set[float]) -> bool:
    """Tell whether a page shows the value with two decimals, or as a percentage."""
    size = abs(value)
    rounded = {round(size, 2), round(size, 3), round(100 * size), round(100 * size, 1)}
    return bool(figures & (rounded | ({round(size)} if size >= 5 else set())))


@pytest.mark.parametrize(
    ("command", "sections"),
    [
        ("calibrate", ("agreement", "over_models", "ceiling", "models", "findings")),
        ("compare", ("models", "pairs")),
    ],
)
def test_every_estimate_of_the_report_is_on_the_page(
    folder: Path, command: str, sections: tuple[str, ...]
) -> None:
    report = json.loads((folder / command / "report.json").read_text(encoding="utf-8"))
    html, markdown = ((folder / command / f"report.{kind}").read_text("utf-8") for kind in ("html", "md"))
    page = unescape(re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.S)) + markdown
    figures = {float(text) for text in re.findall(r"\d*\.\d+|\d+", page.replace(",", ""))}
    found = [item for section in sections for item in estimates(report[section], section)]
    assert len(found) > 5
    missing = [item for item in found if not is_shown(item[1], figures)]
    # These follow from figures on the page; levels without a model's ratings are shown of Good only.
    other = re.compile("pairs/0/shares/Okay|over_models/models/[0-9]+/error|models/[0-9]/left_out/(Bad|Okay)")
    assert [item for item in missing if not other.fullmatch(item[0])] == []
