"""How the stop rule does in worlds whose truth is known, from stop-rule.json beside this file.

    PYTHONPATH=. python tests/support/crossed_worlds.py > docs/filling/stop-rule.json

writes it, whenever the rule has changed; `python docs/fill.py --write` then writes the page.
"""

import json
from pathlib import Path
from typing import Any, Final

from filling.reference_tables import table

FOUND: Final = Path(__file__).with_name("stop-rule.json")


def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FOUND.read_text(encoding="utf-8"))
    return found


def stop_rule() -> str:
    """Plans down, two truths across; of all kinds of people the worst for errors, the usual for the rest."""
    rows = _read()["rows"]
    lines = []
    for plan in dict.fromkeys(row["plan"] for row in rows):
        of_plan = [row for row in rows if row["plan"] == plan]
        usual = next(row for row in of_plan if row["people"] == "as most" and row["gap"])
        lines.append(
            [
                plan,
                f"{100 * max(row['wrong'] for row in of_plan):.1f} %",
                f"{100 * min(row['covered'] for row in of_plan):.1f} %",
                f"±{100 * _width(of_plan):.0f}",
                f"{100 * usual['settled']:.0f} %",
                f"{usual['ratings']:.0f}",
            ]
        )
    return table(
        ["plan", "errs, at most", "covers, at least", "interval at the end", "20 points are found", "after"],
        lines,
    )


def _width(rows: list[dict[str, Any]]) -> float:
    """Half the interval once all is rated, where there is no difference and people are as most."""
    return next(float(row["half_width"]) for row in rows if row["people"] == "as most" and not row["gap"])


def crossing() -> str:
    """How far raters differ in severity, and what part of separate raters' ratings crossed ones need."""
    return table(
        [
            "design effect of separate raters, ten ratings each",
            "crossed raters need, in parts of their ratings",
        ],
        [[f"{row['design_effect']:.1f}", f"{row['part']:.2f}"] for row in _read()["saved"]],
    )
