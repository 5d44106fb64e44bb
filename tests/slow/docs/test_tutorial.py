"""The tutorial, the guides and the README: commands run, and print the figures that the pages show."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tutorial
from repository import ROOT

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


NUMBER = re.compile(r"\d+\.\d+")


def test_the_picture_and_the_table_are_the_demos() -> None:
    code = "import sys; sys.path.insert(0, 'docs'); import fill; print('\\f' + fill.draw_demo(), end='')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    drawn, kept = done.stdout.partition("\f")[2], (ROOT / "docs/assets/shares.svg").read_text("utf-8")
    assert NUMBER.sub("", drawn) == NUMBER.sub("", kept)
    # On another processor states are rounded to 8 bits a little differently, in each of 20 layers.
    shown, expected = ([float(one) for one in NUMBER.findall(picture)] for picture in (drawn, kept))
    assert shown == pytest.approx(expected, abs=1)
    row = re.compile(r"^(?:demo|study)[-:]\S+  .*", re.MULTILINE)
    quoted, printed = row.findall((ROOT / "README.md").read_text("utf-8")), row.findall(done.stdout)
    assert len(quoted) == 6  # every row
    for one, other in zip(quoted, printed, strict=True):
        assert not tutorial.differ(one, other), one
