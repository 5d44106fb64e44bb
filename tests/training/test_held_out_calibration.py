"""A trained judge's calibration from the held-out predictions of its trials."""

from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from empathy_judge.calibration.artifact import JudgeIdentity
from empathy_judge.calibration.shares.transport import TargetModel, fit_line, transport
from empathy_judge.data.errors import UserError
from empathy_judge.data.records import LABELS
from empathy_judge.data.tables import write_rows
from empathy_judge.training.cross_validation import average_rows, read_rows
from empathy_judge.training.held_out_calibration import calibrate_trained, held_out_calibration

LEVELS = {"ada": (2, 6, 12), "bea": (4, 6, 10), "cyd": (6, 6, 8), "dot": (8, 6, 6)}  # of 20 ratings


def write_trial(folder: Path, protocol: str, shift: float) -> list[dict[str, Any]]:
    """Write and read a trial in which the judge repeats people's shares, but for a shift towards Good."""
    folder.mkdir()
    rows = []
    for model, counts in LEVELS.items():
        bad, okay, good = (count / 20 for count in counts)
        predicted = [bad - shift / 2, okay - shift / 2, good + shift]
        labels = [label for label, count in zip(LABELS, counts, strict=True) for _ in range(count)]
        same = {"protocol": protocol, "model": model, "predictions": {"judge": predicted}}
        rows += [
            {**same, "id": f"{batch}-{number}/{model}", "batch": batch, "rating": label}
            for batch in range(12)
            for number, label in enumerate(labels)
        ]
    write_rows(folder / "all.jsonl", rows)
    return list(read_rows(folder))


def test_a_trained_judge_is_calibrated_by_its_trials(tmp_path: Path) -> None:
    shifts = {"raters-apart": 0.0, "model-apart": 0.04}
    trials = {name: write_trial(tmp_path / name, name, shift) for name, shift in shifts.items()}
    judge = JudgeIdentity(name="length", version="1", rubric="r")
    calibration = held_out_calibration(trials, judge, created=date(2026, 1, 1), days=10)
    assert (calibration.judge, calibration.count, calibration.days) == ("length", 960, 10)
    assert list(calibration.calibrated_models) == list(LABELS), "columns keep the order of the labels"
    rated = calibration.calibrated_models["Good"]
    assert fit_line(rated).slope == pytest.approx(1, abs=0.3)
    for model, judge, crowd in zip(rated.models, rated.judge, rated.crowd, strict=True):
        level = transport(rated.without(model), TargetModel(judge=judge)).order
        assert level == pytest.approx(crowd, abs=0.03), "the shift of models apart is taken off"


def test_without_models_left_out_nothing_is_written(tmp_path: Path) -> None:
    rows = write_trial(tmp_path / "r", "raters-apart", 0.0)
    assert not calibrate_trained(SimpleNamespace(folder=tmp_path), rows)  # type: ignore[arg-type]
    assert not (tmp_path / "calibration.json").exists()


def test_rows_of_two_judges_are_averaged_by_their_log_probabilities(tmp_path: Path) -> None:
    shifts = {"one": 0.0, "other": 0.04}
    first, second = (write_trial(tmp_path / name, "model-apart", shift) for name, shift in shifts.items())
    for row, one, other in zip(average_rows(first, second), first, second, strict=True):
        mean = np.sqrt(np.multiply(*(each["predictions"]["judge"] for each in (one, other))))
        assert row == one | {"predictions": {"judge": pytest.approx(mean / mean.sum(), abs=1e-5)}}
    with pytest.raises(UserError, match="predict different replies"):
        average_rows(first, second[1:])
