"""A calibration at work in `score`: found, checked against the judge, and applied; with numpy alone."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from calibration.artifact import Calibration, fits, read_calibration
from calibration.clustering import sum_variance
from calibration.conformal import prediction_sets, thresholds_from_dict
from calibration.correction import on_simplex
from calibration.intervals import Floats
from calibration.mapping import map_from_dict
from calibration.shares import Tally
from calibration.transport import Between, Target, between_of, refusal, transport
from data.errors import StaleCalibration, UserError
from data.records import LABELS, Judgment
from data.runs import Run
from judge.base import Judge

FILE = "calibration.json"
NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The calibration to apply, or None; `says` is what the person is told about it."""

    calibration: Calibration | None
    says: str

    @property
    def digest(self) -> str | None:
        """What a run is known by."""
        return self.calibration.digest if self.calibration else None


def find_calibration(judge: Judge, wanted: str | None, *, today: date) -> Found:
    """The calibration named, or the one that lies beside the judge's weights, if it fits.

    One that was asked for by name and does not fit is an error; that none is shipped, or none fits, is not.
    """
    about = {"judge": judge.name, "version": judge.version, "rubric": judge.rubric.digest}
    if wanted is not None:
        return take_named(wanted, about, today=today)
    folder = getattr(judge, "folder", None)
    if folder is None or not (Path(folder) / FILE).exists():
        return Found(calibration=None, says="no calibration fits: none came with this judge; see `calibrate`")
    try:
        calibration = read_calibration(Path(folder) / FILE)
        reason = why_not(calibration, about, today=today)
    except UserError as error:
        reason = str(error)
    if reason:
        return Found(calibration=None, says=f"no calibration fits: {reason}")
    return fitting(calibration)


def take_named(wanted: str, about: Mapping[str, Any], *, today: date) -> Found:
    """The calibration asked for by its file or folder, or by `none`; refused where it does not fit."""
    if wanted == NONE:
        return Found(calibration=None, says="no calibration, as asked: the shares are the judge's own")
    path = Path(wanted) / FILE if Path(wanted).is_dir() else Path(wanted)
    calibration = read_calibration(path)
    if reason := why_not(calibration, about, today=today):
        raise StaleCalibration(f"{path}: does not fit: {reason}; make it anew with `calibrate`")
    return fitting(calibration)


def why_not(calibration: Calibration, about: Mapping[str, Any], *, today: date) -> str | None:
    """Why a calibration does not fit a judge known by its name, version and rubric; None where it does."""
    reason = fits(calibration, today=today, **about)
    if reason is None and tuple(calibration.between) != LABELS:
        return (
            f"it is for a level of {', '.join(calibration.between) or 'nothing'}, not of Bad, Okay and Good"
        )
    return reason


def fitting(calibration: Calibration) -> Found:
    """A calibration that fits, and what is said of it."""
    models = len(calibration.betweens()[-1].models)
    return Found(
        calibration=calibration,
        says=(
            f"calibration {calibration.digest[:12]} fits: {calibration.count:,} ratings, a line through "
            f"{models} models, until {calibration.expires}"
        ),
    )


class SettingSets:
    """A run that notes with every judgment which labels a crowd may well have given.

    At the run, since judgments come to it whatever engine asked for them.
    """

    def __init__(self, run: Run, calibration: Calibration) -> None:
        self._run = run
        self._map = map_from_dict(calibration.mapping)
        self._thresholds = thresholds_from_dict(calibration.conformal)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def keep(self, position: int, judgment: Judgment) -> None:
        """Keep the judgment with its set."""
        self._run.keep(position, self.settle(judgment))

    def settle(self, judgment: Judgment) -> Judgment:
        """The judgment with its set; what the judge said stays as it was."""
        if judgment.probabilities is None:
            return judgment
        said = np.array([[judgment.probabilities[label] for label in LABELS]])
        (labels,) = prediction_sets(self._map.apply(said), self._thresholds)
        return replace(judgment, set=labels)


def setting_sets(run: Run, found: Found | None) -> Run | SettingSets:
    """The run, with sets where a calibration was found."""
    return SettingSets(run, found.calibration) if found and found.calibration else run


def correct_shares(tally: Tally, calibration: Calibration) -> dict[str, dict[str, Any]]:
    """Every model's shares by the calibrated line, with transport intervals, or why they are refused."""
    lines = {label: between_of(dict(calibration.between[label])) for label in LABELS}
    return {model: _correct(model, clusters, lines) for model, clusters in tally.sums.items()}


def _correct(model: str, clusters: Mapping[int, list[float]], lines: Mapping[str, Between]) -> dict[str, Any]:
    means, noises = _judged(np.array(list(clusters.values())).reshape(-1, len(LABELS) + 1))
    targets = {
        label: Target(judge=mean, judge_noise=noise)
        for label, mean, noise in zip(LABELS, means, noises, strict=True)
    }
    # What was rated under this name then need not be what is judged now.
    others = {label: line.without(model) for label, line in lines.items()}
    for label in LABELS:
        if reason := refusal(others[label], targets[label]):
            return {"corrected": None, "refused": f"{label}: {reason}"}
    found = on_simplex([transport(others[label], targets[label]) for label in LABELS])
    corrected = {
        label: {
            "share": round(item.value, 6),
            "low": round(item.interval.low, 6) if item.interval else None,
            "high": round(item.interval.high, 6) if item.interval else None,
        }
        for label, item in zip(LABELS, found, strict=True)
    }
    return {"corrected": corrected, "refused": None}


def _judged(sums: Floats) -> tuple[list[float], list[float]]:
    """The judge's mean of every label and its sampling variance, over clusters of one prompt's responses."""
    counts = sums[:, -1].sum()
    if not counts:
        return [math.nan] * len(LABELS), [0.0] * len(LABELS)
    means = sums[:, :-1].sum(axis=0) / counts
    pulls = (sums[:, :-1] - sums[:, -1:] * means) / counts
    return means.tolist(), sum_variance(pulls).tolist()
