"""How often intervals hold where that is hard, from self-test.json beside this file.

    python cli.py calibrate --self-test --draws 200 --json > docs/filling/self-test.json

writes it, whenever an estimator has changed; `python docs/fill.py --write` then writes the page.
"""

import json
from pathlib import Path
from typing import Any, Final

from filling.reference_tables import table

FOUND: Final = Path(__file__).with_name("self-test.json")
MOST, WIDE = 0.97, 1.15  # an interval that holds more often may be so many times as wide as an oracle's


def coverage() -> str:
    """Worlds and estimators down; coverage and width across."""
    cells = json.loads(FOUND.read_text(encoding="utf-8"))["cells"]
    return table(
        ["world", "estimator", "draws", "holds", "times an oracle's width", ""],
        [_row(cell) for cell in cells],
    )


def _row(cell: dict[str, Any]) -> list[str]:
    held, wide = cell["coverage"], cell["against_oracle"]
    if held is None:
        return [cell["world"], cell["estimator"], str(cell["draws"]), "refused", "", ""]
    note = "wider than need be" if held > MOST and wide > WIDE else "holds too seldom" if held < 0.93 else ""
    return [cell["world"], cell["estimator"], str(cell["draws"]), f"{100 * held:.1f} %", f"{wide:.2f}", note]
