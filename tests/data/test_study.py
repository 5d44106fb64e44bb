"""The published counts of the crowd study, read and summed."""

from calibration.comparison.published_models import count_labels, count_labels_by_model, read_study
from data.records import EMOTIONS, POSITIVE_EMOTIONS


def test_the_published_totals_stand():
    good = {model: counts["Good"] for model, counts in count_labels_by_model(read_study()).items()}
    assert good == {
        "human": 986,
        "gpt-4": 1295,
        "llama-2-70b-chat": 1219,
        "gemini-1.0-pro": 1081,
        "mixtral-8x7b-instruct": 1192,
        "gpt-4-plain": 1268,
    }


def test_every_model_has_every_emotion_and_the_same_number_of_ratings():
    cells = read_study()
    models = {cell.model for cell in cells}
    assert {(cell.emotion, cell.model) for cell in cells} == {(e, m) for e in EMOTIONS for m in models}
    for counts in count_labels_by_model(cells).values():
        assert sum(counts.values()) == 2000
    assert sum(count_labels(cells).values()) == 12_000


def test_sentiments_are_those_of_the_records():
    assert {cell.emotion for cell in read_study() if cell.sentiment == "positive"} == POSITIVE_EMOTIONS
