"""Means of systems by a judge and by people, for every rated set with several systems.

They show how far a judge deviates from people from system to system, which is the prior of calibrated levels
and verdicts. No judge was trained on the ratings it is compared with: the study's models are left out one at
a time, and the other sets are scored by `classifier-small`, which was trained on the study's ratings alone.
The language models' scores of mental-align are recorded there. The file holds no texts.

    python -m training.system_means DATA_FOLDER

writes `training/system_means.json`.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from calibration.artifact import CALIBRATION_FILE, read_calibration
from calibration.cluster import contrast
from calibration.estimate import Floats
from data.importers import import_source
from data.records import LABELS
from judge.base import WEIGHTS, load_judge
from judge.onnx_model import CARD
from training.fit_conversations import evenly_spaced
from training.rated_sets import RATED_SETS, RatedItem, read_rated_set
from training.trials import JUDGE, MODEL_APART, STUDY

FILE: Final = Path(__file__).with_suffix(".json")
STUDY_JUDGES: Final = ("classifier", "classifier-small")
UNTRAINED_JUDGE: Final = "classifier-small"  # on the ratings of all sets but the study
RECORDED, RECORDED_SCALE, EXPERT = "mental-align", (1.0, 5.0), "human"
GOOD: Final = LABELS[-1]


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


def read_system_means(path: Path = FILE) -> list[SystemMean]:
    """Return the stored means."""
    return [SystemMean(**row) for row in json.loads(path.read_text(encoding="utf-8"))["systems"]]


def study_means(name: str) -> Iterator[SystemMean]:
    """Return the models of the study, each scored by a judge that was trained without it."""
    folder = WEIGHTS / name
    card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    spread = read_calibration(folder / CALIBRATION_FILE).calibrated_models[GOOD].prompt_variance or 0.0
    for model in card["evidence"][MODEL_APART]["evaluations"][JUDGE]["models"]:
        yield SystemMean(
            set=STUDY,
            judge=name,
            system=model["model"],
            judge_mean=model["judge"][GOOD],
            judge_sd=spread**0.5,
            human_mean=model["crowd"][GOOD],
            human_error=model["crowd_standard_error"],
            n=model["ratings"],
        )


def conversation_means(name: str, folder: Path) -> Iterator[SystemMean]:
    """Return the systems of a set of conversations; of each conversation up to three replies are scored."""
    items = read_rated_set(name, folder)
    judge = load_judge(UNTRAINED_JUDGE)
    replies = [item.exchanges[place] for item in items for place in evenly_spaced(len(item.exchanges))]
    with ThreadPoolExecutor(judge.concurrency) as pool:
        judgments = pool.map(judge.judge, {reply.content_digest: reply for reply in replies}.values())
        good = {item.content: item.probabilities[GOOD] for item in judgments if item.probabilities}
    by_system: defaultdict[str, list[tuple[RatedItem, float]]] = defaultdict(list)
    for item in items:
        chosen = [item.exchanges[place].content_digest for place in evenly_spaced(len(item.exchanges))]
        if scores := [good[digest] for digest in chosen if digest in good]:
            by_system[item.system].append((item, float(np.mean(scores))))
    low, high = RATED_SETS[name].scale
    for system, rows in sorted(by_system.items()):
        labels = [item.label for item, _ in rows]
        rated = [(item.rating - low) / (high - low) for item, _ in rows]
        human = rated if None in labels else [float(label == len(LABELS)) for label in labels]
        raters = [item.rater or item.cluster for item, _ in rows]
        yield _mean(name, UNTRAINED_JUDGE, system, [score for _, score in rows], human, raters)


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
            by_judge, by_human = (
                [(each[key] - low) / (high - low) for key in both] for each in (judged, human)
            )
            name = f"{RECORDED}/{attribute}"
            yield _mean(name, judge, system, by_judge, by_human, both, is_probability=False)


def _mean(
    name: str,
    judge: str,
    system: str,
    judged: list[float],
    human: list[float],
    clusters: list[str],
    *,
    is_probability: bool = True,
) -> SystemMean:
    values: Floats = np.array(human)
    numbers = np.unique(clusters, return_inverse=True)[1]
    return SystemMean(
        set=name,
        judge=judge,
        system=system,
        judge_mean=float(np.mean(judged)),
        judge_sd=float(np.std(judged, ddof=1)),
        human_mean=float(values.mean()),
        human_error=contrast(values, np.ones(len(values)), numbers).error,
        n=len(values),
        is_probability=is_probability,
    )


def main(folder: Path) -> None:
    """Write the means of every set."""
    means = [mean for judge in STUDY_JUDGES for mean in study_means(judge)]
    for name, facts in RATED_SETS.items():
        if facts.systems:
            means += conversation_means(name, folder)
    means += recorded_means(folder)
    rows = ",\n".join(json.dumps(_rounded(asdict(mean))) for mean in means)
    FILE.write_text(f'{{"systems": [\n{rows}\n]}}\n', encoding="utf-8")


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in row.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
