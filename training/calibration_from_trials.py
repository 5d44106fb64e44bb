"""Calibration of a trained judge from predictions of data that its training did not read.

`python -m empathy_judge.training.calibration_from_trials FOLDER` computes a judge's figures and calibration
again, without training, from the predictions beside its card.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from empathy_judge.calibration.artifact import (
    CALIBRATION_FILE,
    Calibration,
    JudgeIdentity,
    identify,
    write_calibration,
)
from empathy_judge.calibration.fit import make_calibration
from empathy_judge.calibration.pairing import Paired, labels_from_probabilities
from empathy_judge.calibration.shares.model_table import fit_models
from empathy_judge.calibration.shares.ppi import RatedModel, one_hot
from empathy_judge.data.records import LABELS, Exchange
from empathy_judge.judge.base import CPU
from empathy_judge.judge.classifier.judge import ClassifierJudge
from empathy_judge.judge.onnx_model import read_card
from empathy_judge.training.model_card import state_caveat, write_judge_card
from empathy_judge.training.training_data import TrainingData
from empathy_judge.training.trials import (
    JUDGE,
    MODEL_APART,
    RATERS_APART,
    measure_trial,
    predict_split,
    read_rows,
    split_evaluated,
    write_predictions,
)

DAYS = 1825  # a trained judge does not change


class FinishedJudge:
    """A judge as it is shipped, int8 on the CPU, which predicts what its recipe only evaluates."""

    def __init__(self, folder: Path, on_step: Callable[[int, int], None] | None = None) -> None:
        self.judge, self.on_step = ClassifierJudge(weights=str(folder), device=CPU), on_step
        self.known: dict[str, list[float]] = {}  # equal replies are predicted once

    def predict(self, exchanges: Sequence[Exchange]) -> np.ndarray:
        """Return probabilities of Bad, Okay and Good: [exchanges, 3]."""
        new = {each.content_digest: each for each in exchanges if each.content_digest not in self.known}
        total = len(self.known) + len(new)
        with ThreadPoolExecutor(self.judge.concurrency) as pool:
            for digest, row in zip(new, pool.map(self.judge.predict, new.values()), strict=True):
                self.known[digest] = row
                if self.on_step:
                    self.on_step(len(self.known), total)
        return np.array([self.known[each.content_digest] for each in exchanges]).reshape(-1, len(LABELS))


def calibrate_trained(
    folder: Path,
    trials: Sequence[Path],
    data: TrainingData | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> bool:
    """Keep predictions of data that training did not read beside a judge's card, and calibrate by them.

    They are those of trials, and the judge's own where the recipe only evaluates some data. Return whether
    they suffice for a calibration.
    """
    rows = [row for trial in trials for row in read_rows(trial)]
    if data and data.evaluated:
        rows += predict_split(split_evaluated(data), FinishedJudge(folder, on_step))
        card = read_card(folder)
        card["evidence"] = {key: figures for key, figures in measure_trial(rows).items() if key != "protocol"}
        write_judge_card(folder, {**card, "caveat": state_caveat(card["evidence"])})
    if rows:
        write_predictions(folder, rows)
    return calibrate_again(folder)


def calibrate_again(folder: Path, kind: type[ClassifierJudge] = ClassifierJudge) -> bool:
    """Calibrate a judge by the predictions beside its card, if raters and models were left out."""
    by_protocol: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_rows(folder):
        by_protocol[row["protocol"]].append(row)
    if not {RATERS_APART, MODEL_APART} <= set(by_protocol):
        return False
    judge = identify(kind(weights=str(folder)))
    calibration = calibration_from_trials(by_protocol, judge, created=date.today(), days=DAYS)
    write_calibration(folder / CALIBRATION_FILE, calibration)
    return True


def calibration_from_trials(
    trials: Mapping[str, Sequence[Mapping[str, Any]]], judge: JudgeIdentity, *, created: date, days: int
) -> Calibration:
    """Fit levels to the predictions with models apart, and bind them to the ratings with raters apart.

    A judge's own training ratings cannot calibrate it. With raters apart it predicts new ratings of models
    that it was trained on; only with models apart its level is what a new model's level will be.
    """
    paired = _pair(trials[RATERS_APART])
    models = {  # each as predicted by a judge that was not trained on it
        name: RatedModel(
            judged=rows.probabilities,
            item=np.arange(len(rows)),
            value=one_hot(rows.rating, len(LABELS)),
            cluster=rows.batch,
            prompt=rows.prompt,
        )
        for name, rows in _pair(trials[MODEL_APART]).by_model().items()
        if rows.probabilities is not None
    }
    return make_calibration(
        judge,
        paired,
        fit_models(models),
        created=created,
        days=days,
        source="held-out predictions with models apart",
    )


def _pair(rows: Sequence[Mapping[str, Any]]) -> Paired:
    """Pair ratings with predictions; raters are not recorded, so a batch of one model counts as one rater."""
    predicted = np.array([row["predictions"][JUDGE] for row in rows], dtype=float)
    predicted /= predicted.sum(axis=1, keepdims=True)
    places = np.arange(1.0, len(LABELS) + 1)
    batch = np.array([str(row["batch"]) for row in rows])
    model = np.array([str(row["model"]) for row in rows])
    return Paired(
        id=np.array([str(row["id"]) for row in rows]),
        model=model,
        rater=np.array([f"{one}/{two}" for one, two in zip(batch, model, strict=True)]),
        batch=batch,
        prompt=np.array([str(row["id"]).removesuffix(f"/{row['model']}") for row in rows]),
        rating=np.array([LABELS.index(row["rating"]) + 1 for row in rows], dtype=np.int64),
        score=np.clip(predicted @ places, 1, len(LABELS)),
        label=labels_from_probabilities(predicted),
        probabilities=predicted,
    )


if __name__ == "__main__":
    from empathy_judge.training.model_card import trial_lines

    weights = Path(sys.argv[1])
    calibrate_again(weights)
    print("\n".join(trial_lines(measure_trial(read_rows(weights)))))
