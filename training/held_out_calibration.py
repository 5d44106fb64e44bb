"""Calibration of a trained judge from predictions of data that its training did not read.

`python -m empathy_judge.training.held_out_calibration FOLDER` computes a judge's figures and calibration
again, without training, from the predictions beside its card.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from empathy_judge.calibration import artifact
from empathy_judge.calibration.fit import make_calibration
from empathy_judge.calibration.pairing import Paired, labels_from_probabilities
from empathy_judge.calibration.shares.model_table import fit_models
from empathy_judge.calibration.shares.ppi import RatedModel, one_hot
from empathy_judge.data.records import LABELS, Exchange
from empathy_judge.judge.base import CPU
from empathy_judge.judge.classifier.judge import ClassifierJudge
from empathy_judge.judge.classifier.large_judge import LargeJudge
from empathy_judge.judge.onnx_model import read_card
from empathy_judge.training import cross_validation
from empathy_judge.training.cross_validation import JUDGE, MODEL_APART, RATERS_APART, read_rows
from empathy_judge.training.held_out import RATINGS
from empathy_judge.training.model_card import describe_evidence, evaluation_lines, write_judge_card
from empathy_judge.training.training_data import TrainingData

DAYS = 1825  # a trained judge does not change


def open_trained(folder: Path, base: str = "") -> ClassifierJudge:
    """Return a judge as it is shipped: int8 on the CPU, or LoRA adapters on a base, on a GPU if possible."""
    if read_card(folder).get("name") == LargeJudge.name:
        return LargeJudge(weights=str(folder), base=base)
    return ClassifierJudge(weights=str(folder), device=CPU)


def predict_finished(
    judge: ClassifierJudge, on_step: Callable[[int, int], None] | None, exchanges: Sequence[Exchange]
) -> np.ndarray:
    """Return the probabilities of a judge as it is shipped: [exchanges, 3]."""
    rows = []
    with ThreadPoolExecutor(judge.concurrency) as pool:
        for row in pool.map(judge.predict, exchanges):
            rows.append(row)
            if on_step:
                on_step(len(rows), len(exchanges))
    return np.array(rows).reshape(-1, len(LABELS))


def calibrate_trained(
    judge: ClassifierJudge,
    rows: Sequence[Mapping[str, Any]],
    data: TrainingData | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> bool:
    """Save predictions of data that training did not read beside a judge's card, and calibrate by them.

    Return whether they suffice for a calibration.
    """
    if data and data.evaluated:
        split = cross_validation.split_evaluated(data)
        predict = partial(predict_finished, judge, on_step)
        rows = [*rows, *cross_validation.predict_split(split, predict)]
        write_judge_card(judge.folder, {**read_card(judge.folder), **describe_evidence(rows)})
    if rows:
        cross_validation.write_predictions(judge.folder, rows)
    return calibrate_again(judge)


def calibrate_again(judge: ClassifierJudge) -> bool:
    """Calibrate a judge by the predictions beside its card, if raters and models were left out."""
    by_protocol: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_rows(judge.folder):
        by_protocol[row["protocol"]].append(row)
    if not {RATERS_APART, MODEL_APART} <= set(by_protocol):
        return False
    calibration = held_out_calibration(by_protocol, artifact.identify(judge), created=date.today(), days=DAYS)
    artifact.write_calibration(judge.folder / artifact.CALIBRATION_FILE, calibration)
    return True


def held_out_calibration(
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    judge: artifact.JudgeIdentity,
    *,
    created: date,
    days: int,
) -> artifact.Calibration:
    """Fit levels to the predictions with models apart, and bind them to the ratings with raters apart.

    Only with models apart a judge's level is what a new model's level will be.
    """
    models = {  # each as predicted by a judge that was not trained on it
        name: RatedModel(
            judged=paired.probabilities,
            item=np.arange(len(paired)),
            value=one_hot(paired.rating, len(LABELS)),
            cluster=paired.batch,
            prompt=paired.prompt,
        )
        for name, paired in _pair(rows[MODEL_APART]).by_model().items()
        if paired.probabilities is not None
    }
    return make_calibration(
        judge,
        _pair(rows[RATERS_APART]),
        fit_models(models),
        created=created,
        days=days,
        source="held-out predictions with models apart",
    )


def _pair(rows: Sequence[Mapping[str, Any]]) -> Paired:
    """Pair ratings with predictions; raters are not recorded, so a batch of one model counts as one rater."""
    predicted = np.array([row["predictions"][JUDGE] for row in rows], dtype=float)
    predicted /= predicted.sum(axis=1, keepdims=True)
    return Paired(
        id=np.array([str(row["id"]) for row in rows]),
        model=np.array([str(row["model"]) for row in rows]),
        batch=np.array([str(row["batch"]) for row in rows]),
        rater=np.array([f"{row['batch']}/{row['model']}" for row in rows]),
        prompt=np.array([str(row["id"]).removesuffix(f"/{row['model']}") for row in rows]),
        rating=np.array([LABELS.index(row["rating"]) + 1 for row in rows], dtype=np.int64),
        score=np.clip(predicted @ RATINGS.astype(float), 1, len(LABELS)),
        label=labels_from_probabilities(predicted),
        probabilities=predicted,
    )


if __name__ == "__main__":
    trained = open_trained(Path(sys.argv[1]))
    calibrate_again(trained)
    print("\n".join(evaluation_lines(cross_validation.measure_rows(read_rows(trained.folder)))))
