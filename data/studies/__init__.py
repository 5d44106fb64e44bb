"""Published figures of studies, as counts."""

import csv
from pathlib import Path
from typing import Final

from empathy_judge.data.records import LABELS

STUDY_COUNTS: Final = Path(__file__).parent / "empathy-study-counts.csv"


def count_labels() -> dict[str, dict[str, int]]:
    """Return how often people gave each label to every model of the study, in file order.

    >>> count_labels()["human"]
    {'Bad': 342, 'Okay': 672, 'Good': 986}
    """
    study: dict[str, dict[str, int]] = {}
    with STUDY_COUNTS.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):  # of one model and one emotion
            counts = study.setdefault(row["system"], dict.fromkeys(LABELS, 0))
            for label in LABELS:
                counts[label] += int(row[label.lower()])
    return study
