"""The published counts of the crowd study, read and summed."""

from calibration.comparison.published_models import count_labels, count_labels_by_model, read_study
from data.records import EMOTIONS


def test_every_model_has_every_emotion_and_the_same_number_of_ratings():
    cells = read_study()
    models = {cell.model for cell in cells}
    assert {(cell.emotion, cell.model) for cell in cells} == {(e, m) for e in EMOTIONS for m in models}
    for counts in count_labels_by_model(cells).values():
        assert sum(counts.values()) == 2000
    assert sum(count_labels(cells).values()) == 12_000
