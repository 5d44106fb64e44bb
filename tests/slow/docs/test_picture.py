"""The README's picture is what `make demo` gives."""

import subprocess
import sys

from repository import ROOT


def test_the_picture_is_the_demos() -> None:
    code = "import sys; sys.path.insert(0, 'docs'); import fill; print('\\f' + fill.draw_demo(), end='')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.partition("\f")[2] == (ROOT / "docs/assets/shares.svg").read_text(encoding="utf-8")
