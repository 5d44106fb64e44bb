"""The files of a trial: its plan, the predictions of each split, and its evaluation."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from data.errors import UserError
from data.files import replacing

PLAN, EVALUATION = "plan.json", "evaluation.json"
SETS_APART, RATERS_APART, MODEL_APART = "sets-apart", "raters-apart", "model-apart"
JUDGE = "judge"  # among the predictions of a row


def check_plan(folder: Path, plan: Mapping[str, Any], *, kind: str) -> None:
    """Write the plan into a new folder; refuse a folder that has another plan."""
    path = folder / PLAN
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")
        return
    try:
        existing = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path}: damaged, not JSON ({error}); delete the folder and try again") from error
    if set(existing) != set(plan):
        raise UserError(f"{folder}: contains something other than a {kind}; give another --out")
    if differing := [key for key, value in plan.items() if existing[key] != value]:
        raise UserError(
            f"{folder}: contains a {kind} with another {', '.join(differing)}; give another --out"
        )


def read_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the predictions of all finished splits."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines)
