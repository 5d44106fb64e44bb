"""The tutorial and the guides: every command in them runs, and prints the figures they show."""

import shutil
from pathlib import Path

import pytest
import tutorial

pytest.importorskip("sklearn", reason="calibrate needs what the extra `calibrate` brings")
pytest.importorskip("sqlalchemy", reason="nightly needs what the extra `nightly` brings")


@pytest.mark.skipif(not (shutil.which("bash") and shutil.which("make")), reason="the pages are for a shell")
@pytest.mark.parametrize("page", tutorial.pages(), ids=lambda page: page.stem)
def test_a_page_shows_the_figures_of_its_commands(page: Path) -> None:
    problems = tutorial.check(page)
    assert not problems, "refresh with: python tests/support/tutorial.py --write\n" + "\n".join(problems)


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        ("judged in 4.1 s", "judged in 11 s", True),
        ("59.3 [46.4, 72.0] other words", "59.4  [46.2, 72.1]", True),
        ("59.3 [46.4, 72.0]", "59.9 [46.4, 72.0]", False),
        ("192 judged", "193 judged", False),
        ("1", "1 2", False),
    ],
)
def test_figures_are_compared_but_for_rounding(shown: str, printed: str, is_same: bool) -> None:
    assert (tutorial.differ(shown, printed) is None) == is_same
