"""The picture of the docs and the README's demo table are what `make demo` gives."""

import re
import subprocess
import sys

import pytest
from repository import ROOT

NUMBER = re.compile(r"\d+\.\d+")


def test_the_picture_and_the_table_are_the_demos() -> None:
    code = "import sys; sys.path.insert(0, 'docs'); import fill; print('\\f' + fill.draw_demo(), end='')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    drawn, kept = done.stdout.partition("\f")[2], (ROOT / "docs/assets/shares.svg").read_text("utf-8")
    assert NUMBER.sub("", drawn) == NUMBER.sub("", kept)
    # On another processor states are rounded to 8 bits a little differently, in each of 20 layers.
    shown, expected = ([float(one) for one in NUMBER.findall(picture)] for picture in (drawn, kept))
    assert shown == pytest.approx(expected, abs=1)
    quoted = re.findall(
        r"^((?:demo|study)[-:]\S+) +(\d+) +(\d+) +(\d+)", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert len(quoted) == 6  # every row
    for model, *figures in quoted:
        (printed,) = re.findall(rf"^{model} +(\d+) +(\d+) +(\d+)", done.stdout, re.MULTILINE)
        assert [int(one) for one in printed] == pytest.approx([int(one) for one in figures], abs=1)
