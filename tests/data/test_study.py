"""The published counts of the crowd study, read and summed."""

import csv

from empathy_judge.calibration.comparison.published_models import STUDY_COUNTS, count_labels
from empathy_judge.data.records import EMOTIONS


def test_every_model_has_every_emotion_and_the_same_number_of_ratings():
    with STUDY_COUNTS.open(encoding="utf-8", newline="") as stream:
        cells = {(row["emotion"], row["system"]) for row in csv.DictReader(stream)}
    models = count_labels()
    assert cells == {(emotion, model) for emotion in EMOTIONS for model in models}
    assert [sum(counts.values()) for counts in models.values()] == [2000] * 6
