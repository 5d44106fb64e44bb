"""A calibration as it is kept: made from a judged and rated run, or from the trials of a trained judge."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from calibration.artifact import Calibration, JudgeIdentity
from calibration.estimate import finite_or_none
from calibration.fit import fit, make_calibration
from calibration.pairing import Paired
from calibration.shares.ppi import RatedModel, one_hot
from calibration.shares.transport import left_out_levels
from data.errors import UserError
from data.records import LABELS

RATERS_APART, MODEL_APART = "raters-apart", "model-apart"
JUDGE = "judge"  # among the predictors of a trial


def calibration_from_trials(
    folders: Sequence[Path],
    judge: JudgeIdentity,
    *,
    created: date,
    days: int,
    seed: int = 0,
    leave_out: Sequence[str] = (),
) -> Calibration:
    """From held-out predictions: map and sets from raters apart, the line from models apart.

    A judge's own training ratings cannot calibrate it. With raters apart it meets new ratings of models it
    knows; with models apart, models it does not, and only there its level is what a new model's will be.
    """
    trials = dict(_read_trial(folder) for folder in folders)
    if set(trials) != {RATERS_APART, MODEL_APART}:
        raise UserError(
            f"--trial: give one trial of each protocol, {RATERS_APART} and {MODEL_APART}; "
            f"found: {', '.join(sorted(trials)) or 'none'}"
        )
    known = _pair(trials[RATERS_APART])
    models = _models(trials[MODEL_APART])
    fitted = fit(known, seed=seed)
    return make_calibration(
        judge=judge,
        paired=known,
        fitted=fitted,
        models=models,
        created=created,
        days=days,
        leave_out=leave_out,
        figures={"source": "held-out predictions: map and sets with raters apart, line with models apart"},
    )


def _read_trial(folder: Path) -> tuple[str, list[dict[str, Any]]]:
    try:
        protocol = str(json.loads((folder / "plan.json").read_text(encoding="utf-8"))["protocol"])
        rows = [
            json.loads(line)
            for path in sorted(folder.glob("*.jsonl"))
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder}: no finished trial here; make one with train --protocol") from error
    if not rows or not (folder / "evaluation.json").exists():
        raise UserError(f"{folder}: the trial is not finished; give its `train` command again")
    return protocol, rows


def _pair(rows: Iterable[Mapping[str, Any]]) -> Paired:
    """A trial's rows as paired ratings; who rated is not told, so a batch of one model is its rater."""
    kept = list(rows)
    if missing := [row["id"] for row in kept if JUDGE not in row["predictions"]]:
        raise UserError(f"trial: {missing[0]!r}: nothing predicted by {JUDGE!r}")
    said = np.array([row["predictions"][JUDGE] for row in kept], dtype=float)
    said /= said.sum(axis=1, keepdims=True)
    places = np.arange(1.0, len(LABELS) + 1)
    batch = np.array([str(row["batch"]) for row in kept])
    model = np.array([str(row["model"]) for row in kept])
    return Paired(
        id=np.array([str(row["id"]) for row in kept]),
        model=model,
        rater=np.array([f"{one}/{two}" for one, two in zip(batch, model, strict=True)]),
        batch=batch,
        prompt=np.array([str(row["id"]).removesuffix(f"/{row['model']}") for row in kept]),
        rating=np.array([LABELS.index(row["rating"]) + 1 for row in kept], dtype=np.int64),
        score=np.clip(said @ places, 1, len(LABELS)),
        label=1 + said.argmax(axis=1),
        probabilities=said,
    )


def _models(rows: Sequence[Mapping[str, Any]]) -> dict[str, RatedModel]:
    """Each model as predicted by the judge that never met it."""
    paired = _pair(rows)
    found = {}
    for name, own in paired.by_model().items():
        assert own.probabilities is not None
        found[name] = RatedModel(
            judged=own.probabilities,
            item=np.arange(len(own)),
            value=one_hot(own.rating, len(LABELS)),
            cluster=own.batch,
            prompt=own.prompt,
        )
    return found


def left_out_rows(calibration: Calibration) -> list[dict[str, Any]]:
    """Each calibrated model as the others' line has it, with the crowd's level: does the interval hold it?"""
    rows: dict[str, dict[str, Any]] = {}
    for name, line in zip(calibration.between, calibration.betweens(), strict=True):
        for model, crowd, noise, level in zip(
            line.models, line.crowd, line.noise, left_out_levels(line), strict=True
        ):
            inside = level.interval is not None and level.interval.low <= crowd <= level.interval.high
            rows.setdefault(model, {"model": model, "columns": {}})["columns"][name] = {
                **level.as_dict(),
                "crowd": crowd,
                "crowd_error": finite_or_none(noise**0.5),
                "covered": inside,
            }
    return list(rows.values())
