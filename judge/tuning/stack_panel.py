"""The command `stack`: weights for a panel of judges from their runs and people's ratings."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.agreement.held_out import expected_scores
from calibration.estimate import Floats
from calibration.probabilities.stacking import choose_stack, panel_size
from data.errors import UserError
from data.files import disk_errors, replacing
from data.records import LABELS, Judgment, Rating, to_plain
from data.storage import digest_file
from data.tables import read_judgments, read_ratings
from judge.panel import FORMAT, digest_weights


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Panel:
    """What several judges said of the same rated responses; a row a rating, nan where a judge gave none."""

    members: tuple[Mapping[str, str], ...]
    rubric: str
    tables: Floats  # (rows, judges, levels)
    ratings: NDArray[np.intp]  # 1 to 3
    clusters: NDArray[np.str_]  # the rating batch, or the rater where none is given
    unscored: tuple[int, ...]  # ratings without a judge's probabilities, by judge
    left_out: int  # ratings of responses that no judge scored


def fit_panel(runs: Sequence[Path], ratings: Path, out: Path, *, seed: int = 0) -> dict[str, Any]:
    """Fit stacking weights, keep them in `out` and tell how the panel and each judge do."""
    if out.exists():
        raise UserError(f"{out}: exists already; give another --out")
    panel = read_panel(runs, list(read_ratings(ratings)))
    rng = np.random.default_rng(seed)
    choice = choose_stack(panel.tables, panel.ratings, panel.clusters, rng=rng)
    whole = np.isfinite(panel.tables[:, :, 0]).all(axis=1)
    scores = [expected_scores(panel.tables[whole, judge]) for judge in range(len(panel.members))]
    errors = np.column_stack(scores) - panel.ratings[whole, None]
    size = panel_size(errors, panel.clusters[whole], rng=rng)
    row = {
        "format": FORMAT,
        "members": [dict(member) for member in panel.members],
        "rubric": panel.rubric,
        "labels": list(LABELS),
        **to_plain(choice),
        "panel": to_plain(size),
        "ratings": len(panel.ratings),
        "batches": len(np.unique(panel.clusters)),
        "unscored": list(panel.unscored),
        "left_out": panel.left_out,
        "ratings_file": digest_file(ratings),
        "seed": seed,
    }
    sealed = {**row, "sha256": digest_weights(json.loads(json.dumps(row)))}
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as partial:
            partial.write_text(json.dumps(sealed, indent=1) + "\n", encoding="utf-8")
    return sealed


def read_panel(runs: Sequence[Path], ratings: Sequence[Rating]) -> Panel:
    """Runs of different judges over the same responses, joined with the ratings of these."""
    if len(runs) < 2:
        raise UserError("a panel needs the runs of two judges at least")
    plans = [_read_plan(run) for run in runs]
    members = [{"judge": plan["judge"], "version": plan["version"]} for plan in plans]
    if len({member["version"] for member in members}) < len(members):
        raise UserError("two of these runs are of one and the same judge; name each judge's run once")
    if len({plan["rubric"] for plan in plans}) > 1:
        raise UserError("these runs are by different rubrics and cannot be combined")
    judgments = [{item.id: item for item in read_judgments(run / "judgments.jsonl")} for run in runs]
    _check_same(judgments, runs)
    rated = [rating for rating in ratings if rating.id in judgments[0] and rating.dimension == "empathy"]
    if wrong := next((item for item in rated if item.rating not in (1, 2, 3)), None):
        raise UserError(f"the rating {wrong.rating:g} of {wrong.id!r} is not one of 1, 2 and 3")
    tables = np.array([[_probabilities(judge[item.id]) for judge in judgments] for item in rated])
    tables = tables.reshape(len(rated), len(runs), len(LABELS))
    there = np.isfinite(tables[:, :, 0])
    kept = there.any(axis=1)
    if not kept.any():
        raise UserError("no rating belongs to a response these judges scored: the ids do not meet")
    return Panel(
        members=tuple(members),
        rubric=plans[0]["rubric"],
        tables=tables[kept],
        ratings=np.array([int(item.rating) for item in rated], dtype=np.intp)[kept],
        clusters=np.array([item.batch or item.rater for item in rated])[kept],
        unscored=tuple(int(count) for count in (~there).sum(axis=0)),
        left_out=int((~kept).sum()),
    )


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


def _check_same(judgments: Sequence[Mapping[str, Judgment]], runs: Sequence[Path]) -> None:
    """Every run must have judged the same responses; which is which is known by id and content."""
    first = {key: item.content for key, item in judgments[0].items()}
    for judged, run in zip(judgments[1:], runs[1:], strict=True):
        if {key: item.content for key, item in judged.items()} != first:
            raise UserError(
                f"{run}: judged other responses than {runs[0]}; score the same file with each judge"
            )
