"""The command `stack`: weights for a panel of judges from their runs and people's ratings."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibration.agreement.held_out import expected_scores
from calibration.probabilities.stacking import choose_stack, panel_size
from data.errors import UserError
from data.files import disk_errors, replacing
from data.records import LABELS, Judgment, digest_json, to_plain
from data.storage import digest_file
from data.tables import read_judgments, read_ratings
from judge.panel import FORMAT


def fit_panel(runs: Sequence[Path], ratings: Path, out: Path, *, seed: int = 0) -> dict[str, Any]:
    """Fit stacking weights, keep them in `out` and tell how the panel and each judge do."""
    if out.exists():
        raise UserError(f"{out}: exists already; give another --out")
    every = list(read_ratings(ratings))
    plans, judgments = read_runs(runs)
    rated = [rating for rating in every if rating.id in judgments[0] and rating.dimension == "empathy"]
    if wrong := next((item for item in rated if item.rating not in (1, 2, 3)), None):
        raise UserError(f"the rating {wrong.rating:g} of {wrong.id!r} is not one of 1, 2 and 3")
    # A row a rating: (rows, judges, levels), nan where a judge gave none.
    tables = np.array([[_probabilities(judge[item.id]) for judge in judgments] for item in rated])
    tables = tables.reshape(len(rated), len(runs), len(LABELS))
    is_scored = np.isfinite(tables[:, :, 0])
    kept = is_scored.any(axis=1)
    if not kept.any():
        raise UserError("no rating belongs to a response these judges scored: the ids do not meet")
    tables, values = tables[kept], np.array([int(item.rating) for item in rated], dtype=np.intp)[kept]
    clusters = np.array([item.batch or item.rater for item in rated])[kept]
    rng = np.random.default_rng(seed)
    choice = choose_stack(tables, values, clusters, rng=rng)
    whole = is_scored[kept].all(axis=1)
    scores = [expected_scores(tables[whole, judge]) for judge in range(len(runs))]
    errors = np.column_stack(scores) - values[whole, None]
    row = {
        "format": FORMAT,
        "members": [{"judge": plan["judge"], "version": plan["version"]} for plan in plans],
        "rubric": plans[0]["rubric"],
        "labels": list(LABELS),
        **to_plain(choice),
        "panel": to_plain(panel_size(errors, clusters[whole], rng=rng)),
        "ratings": len(values),
        "batches": len(np.unique(clusters)),
        "unscored": (~is_scored).sum(axis=0).tolist(),  # ratings without a judge's probabilities, by judge
        "left_out": int((~kept).sum()),  # ratings of responses that no judge scored
        "ratings_file": digest_file(ratings),
        "seed": seed,
    }
    sealed = {**row, "sha256": digest_json(row)}
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as partial:
            partial.write_text(json.dumps(sealed, indent=1) + "\n", encoding="utf-8")
    return sealed


def read_runs(runs: Sequence[Path]) -> tuple[list[dict[str, str]], list[dict[str, Judgment]]]:
    """The plans of different judges' runs over the same responses, and their judgments by id."""
    if len(runs) < 2:
        raise UserError("a panel needs the runs of two judges at least")
    plans = [_read_plan(run) for run in runs]
    if len({plan["version"] for plan in plans}) < len(plans):
        raise UserError("two of these runs are of one and the same judge; name each judge's run once")
    if len({plan["rubric"] for plan in plans}) > 1:
        raise UserError("these runs are by different rubrics and cannot be combined")
    judgments = [{item.id: item for item in read_judgments(run / "judgments.jsonl")} for run in runs]
    contents = [{key: item.content for key, item in judged.items()} for judged in judgments]
    for run, content in zip(runs, contents, strict=True):
        if content != contents[0]:
            raise UserError(
                f"{run}: judged other responses than {runs[0]}; score the same file with each judge"
            )
    return plans, judgments


def _probabilities(judgment: Judgment) -> list[float]:
    given = judgment.probabilities
    return [given[label] for label in LABELS] if given else [float("nan")] * len(LABELS)


def _read_plan(run: Path) -> dict[str, str]:
    path = run / "plan.json"
    if not (path.is_file() and (run / "manifest.json").is_file()):
        raise UserError(f"{run}: no whole run here; make one with `score`")
    try:
        with disk_errors(path):
            plan: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(plan, dict):
            raise ValueError("an object was expected")
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON: {error}; score again into another folder") from error
    return plan
