"""A calibration as it is kept: made from a judged and rated run, or from the trials of a trained judge."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from calibration.artifact import Calibration
from calibration.correction import calibrate_between
from calibration.intervals import finite_or_none
from calibration.pairing import Paired
from calibration.powered import Rated, one_hot
from calibration.transport import fit_line, left_out_levels
from data.errors import UserError
from data.records import LABELS
from judge.base import Judge
from nightly.fitting import Fitted, fit
from nightly.lines import columns_of, design_effect_of

RATERS_APART, MODEL_APART = "raters-apart", "model-apart"
JUDGE = "judge"  # among the predictors of a trial


def make_calibration(
    *,
    judge: Mapping[str, str],
    paired: Paired,
    fitted: Fitted,
    models: Mapping[str, Rated],
    created: date,
    days: int,
    leave_out: Sequence[str] = (),
    figures: Mapping[str, Any] | None = None,
) -> Calibration:
    """What was fitted, bound to `judge` (name, version, rubric) and to the ratings it was fitted on."""
    names = columns_of(paired.scale)
    lines = dict(zip(names, calibrate_between(in_line(models, leave_out)), strict=False))
    return Calibration(
        judge=judge["name"],
        version=judge["version"],
        rubric=judge["rubric"],
        ratings=digest_ratings(paired),
        created=created,
        days=days,
        count=len(paired),
        design_effect=design_effect_of(models),
        mapping=fitted.choice.map.as_dict(),
        conformal=fitted.thresholds.as_dict(),
        between={name: line.as_dict() for name, line in lines.items()},
        lines={name: fit_line(line).as_dict() for name, line in lines.items()},
        ranges={name: line.range for name, line in lines.items() if line.models},
        figures=figures or {},
    )


def in_line(models: Mapping[str, Rated], leave_out: Sequence[str]) -> dict[str, Rated]:
    """The models the line is drawn through: all rated ones, people's replies too, unless left out by name.

    A new model is a language model, yet the study's differ by so little that a line through them alone holds
    for a range of two points of Good; people's replies, which the judge misses by no more than it misses a
    language model, are what tells how it follows a lower level.
    """
    if unknown := sorted(set(leave_out) - set(models)):
        raise UserError(f"--leave-out: no model {unknown[0]!r}; known: {', '.join(sorted(models))}")
    return {name: rated for name, rated in models.items() if name not in leave_out}


def digest_ratings(paired: Paired) -> str:
    """Known by who rated what and how, in whatever order."""
    columns = (paired.id.tolist(), paired.rater.tolist(), paired.rating.tolist())
    rows = sorted(json.dumps(row) for row in zip(*columns, strict=True))
    return sha256("\n".join(rows).encode("utf-8", "surrogatepass")).hexdigest()


def calibration_from_trials(
    folders: Sequence[Path],
    judge: Judge,
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
        judge={"name": judge.name, "version": judge.version, "rubric": judge.rubric.digest},
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


def _models(rows: Sequence[Mapping[str, Any]]) -> dict[str, Rated]:
    """Each model as predicted by the judge that never met it."""
    paired = _pair(rows)
    found = {}
    for name, own in paired.by_model().items():
        assert own.probabilities is not None
        found[name] = Rated(
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
