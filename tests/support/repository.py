"""Where things lie: the checkout, its samples, and the public datasets beside it where somebody has them."""

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TESTS: Final = ROOT / "tests"
SAMPLES: Final = ROOT / "data" / "samples"
SHARED: Final = Path(os.environ.get("EMPATHY_DATA", ROOT.parent / "shared" / "data"))


def dataset(name: str) -> Path:
    """Return a file or folder of a public dataset; they are never part of this repository."""
    import pytest  # scripts import this module, too

    if not (SHARED / name).exists():
        pytest.skip(f"public dataset not at hand: set EMPATHY_DATA to a folder with {name}")
    return SHARED / name
