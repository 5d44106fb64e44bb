"""Where things lie: the checkout, its samples, and the public datasets beside it where somebody has them."""

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TESTS: Final = ROOT / "tests"
PACKAGE: Final = "empathy_judge"
# Rooms from the lowest to the highest; a room imports itself and those below its own step.
STEPS: Final = (
    ("data",),
    ("calibration",),
    ("judge",),
    ("training", "reports"),
    ("nightly", "emotionbench", "server"),
    ("rating",),
    ("commands",),
)
# The folders of the product; each is installed as a part of the one package.
FOLDERS: Final = (*(name for step in STEPS for name in step), PACKAGE)
# Every module of the product by the name under which it is imported.
MODULES: Final = {
    ".".join([PACKAGE, *path.relative_to(ROOT).with_suffix("").parts])
    .replace(f"{PACKAGE}.{PACKAGE}", PACKAGE)
    .removesuffix(".__init__"): path
    for room in FOLDERS
    for path in sorted((ROOT / room).rglob("*.py"))
}
SAMPLES: Final = ROOT / "data" / "samples"
SHARED: Final = Path(os.environ.get("EMPATHY_DATA", ROOT.parent / "shared" / "data"))


def dataset(name: str) -> Path:
    """Return a file or folder of a public dataset; they are never part of this repository."""
    import pytest  # scripts import this module, too

    if not (SHARED / name).exists():
        pytest.skip(f"public dataset not at hand: set EMPATHY_DATA to a folder with {name}")
    return SHARED / name
