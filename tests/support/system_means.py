"""Means of systems by a judge and by people, for every rated set with several systems.

They show how far a judge deviates from people from system to system, which is the prior of calibrated levels
and verdicts. No judge was trained on the ratings it is compared with: the default's are from its trials,
those of external sets from the shipped judge, and the language models' are recorded in mental-align.

`PYTHONPATH=. python tests/support/system_means.py DATA_FOLDER` writes `tests/data/system_means.json`.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from repository import ROOT

from empathy_judge.calibration.artifact import CALIBRATION_FILE, read_calibration
from empathy_judge.calibration.cluster import contrast
from empathy_judge.data.importers import import_source
from empathy_judge.data.records import LABELS
from empathy_judge.judge.base import WEIGHTS
from empathy_judge.judge.onnx_model import CARD
from empathy_judge.training.cross_validation import JUDGE, MODEL_APART, SETS_APART, read_rows
from empathy_judge.training.rated_sets import EXTERNAL_SETS, RATED_SETS, RatedItem, read_rated_set

FILE: Final = Path(__file__).parents[1] / "data" / "system_means.json"
RECORDED, RECORDED_SCALE, EXPERT = "mental-align", (1.0, 5.0), "human"
GOOD: Final = LABELS[-1]
COMPARED: Final = ("ieval", "dstc9")  # rated sets with several systems


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemMean:
    """The mean of one system by a judge and by people, both on 0 to 1, over `n` ratings.

    Both are Good shares where the judge gives probabilities and people gave Bad, Okay or Good. `judge_sd` is
    the standard deviation of the judge's values within the system; `human_error` is the standard error of the
    human mean, clustered by rater where one person rated several items.
    """

    set: str
    judge: str
    system: str
    judge_mean: float
    judge_sd: float
    human_mean: float
    human_error: float
    n: int
    is_probability: bool = True


def read_system_means() -> list[SystemMean]:
    """Return the stored means."""
    return [SystemMean(**row) for row in json.loads(FILE.read_text(encoding="utf-8"))["systems"]]


def left_out_means(name: str) -> Iterator[SystemMean]:
    """Return the systems of all sets, each scored by a judge that was trained without it."""
    folder = WEIGHTS / name
    card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    spread = read_calibration(folder / CALIBRATION_FILE).calibrated_models[GOOD].prompt_variance or 0.0
    for model in card["evidence"][MODEL_APART]["evaluations"][JUDGE]["models"]:
        yield SystemMean(
            set="study",
            judge=name,
            system=model["model"],
            judge_mean=model["judge"],
            judge_sd=spread**0.5,
            human_mean=model["people"],
            human_error=model["people_standard_error"],
            n=model["ratings"],
        )
    groups: defaultdict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in read_rows(folder):
        if row["protocol"] == SETS_APART and row["set"] in COMPARED:
            groups[row["set"], row["system"]].append(row)
    for (each, system), rows in sorted(groups.items()):
        low, high = RATED_SETS[each].scale
        human = [
            (row["rating"] - low) / (high - low)
            if row["label"] is None
            else float(row["label"] == len(LABELS))
            for row in rows
        ]
        judged, clusters = ([row[key] for row in rows] for key in ("probabilities", "cluster"))
        figures = _figures([each[-1] for each in judged], human, clusters)
        yield SystemMean(set=each, judge=name, system=system, **figures)


def external_means(name: str, folder: Path) -> Iterator[SystemMean]:
    """Return the systems of the external sets, scored by the shipped judge as the docs record it."""
    recorded = json.loads((ROOT / "docs" / "figures" / "external_sets.json").read_text(encoding="utf-8"))
    for each, facts in EXTERNAL_SETS.items():
        predictions = recorded[name]["predictions"][each]
        groups = defaultdict[str, list[tuple[RatedItem, float]]](list)
        for item in read_rated_set(each, folder):
            if good := predictions.get(item.exchanges[-1].id):
                groups[item.system].append((item, good[-1]))
        low, high = facts.scale
        for system, rows in sorted(groups.items()):
            human = [(item.rating - low) / (high - low) for item, _ in rows]
            figures = _figures([good for _, good in rows], human, [item.cluster for item, _ in rows])
            yield SystemMean(set=each, judge=name, system=system, **figures)


def recorded_means(folder: Path) -> Iterator[SystemMean]:
    """Return the systems of mental-align by every recorded language model and attribute."""
    scores: defaultdict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for item in import_source(RECORDED, folder / RECORDED).ratings:
        scores[item.dimension, item.rater, item.extra["model"]][item.id] = item.rating
    low, high = RECORDED_SCALE
    for (attribute, judge, system), judged in sorted(scores.items()):
        human = scores[attribute, EXPERT, system]
        both = [identity for identity in judged if identity in human]
        if judge != EXPERT:
            values = ([(each[key] - low) / (high - low) for key in both] for each in (judged, human))
            about = {"set": f"{RECORDED}/{attribute}", "judge": judge, "system": system}
            yield SystemMean(**about, is_probability=False, **_figures(*values, both))


def _figures(judged: list[float], human: list[float], clusters: list[str]) -> dict[str, Any]:
    numbers = np.unique(clusters, return_inverse=True)[1]
    return {
        "judge_mean": float(np.mean(judged)),
        "judge_sd": float(np.std(judged, ddof=1)),
        "human_mean": float(np.mean(human)),
        "human_error": contrast(np.array(human), np.ones(len(human)), numbers).error,
        "n": len(human),
    }


def main(folder: Path) -> None:
    """Write the means of every set."""
    means = [
        *left_out_means("classifier"),
        *external_means("classifier", folder),
        *recorded_means(folder),
    ]
    rounded = (
        {key: round(value, 6) if isinstance(value, float) else value for key, value in asdict(mean).items()}
        for mean in means
    )
    rows = ",\n".join(map(json.dumps, rounded))
    FILE.write_text(f'{{"systems": [\n{rows}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
