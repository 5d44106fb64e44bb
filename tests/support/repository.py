"""Where things lie: the checkout, its samples, and the public datasets beside it where somebody has them."""

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TESTS: Final = ROOT / "tests"
SAMPLES: Final = ROOT / "data" / "samples"
SHARED: Final = Path(os.environ.get("EMPATHY_DATA", ROOT.parent / "shared" / "data"))
