"""The published counts of the crowd study, read and summed."""

from pathlib import Path

import pytest

from data.errors import UserError
from data.records import EMOTIONS, POSITIVE_EMOTIONS
from data.study import StudyCell, count_labels, count_labels_by_model, read_study

HEADER = "emotion,sentiment,system,bad,okay,good\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "counts.csv"
    path.write_text(text, encoding="utf-8")
    return path


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


def test_a_cell_is_read_as_it_stands(tmp_path):
    path = write(tmp_path, "\ufeff" + HEADER + "proud,positive,m-1, 1 ,0,12\n")
    cell = StudyCell(emotion="proud", sentiment="positive", model="m-1", bad=1, okay=0, good=12)
    assert read_study(path) == (cell,)


def test_no_cells_count_nothing():
    assert count_labels([]) == {"Bad": 0, "Okay": 0, "Good": 0}
    assert count_labels_by_model([]) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("emotion,sentiment,system,bad,okay\n", "expected a column 'good'"),
        ("", "expected a column 'emotion'"),
        (HEADER + "proud,positive,m,1,two,3\n", "counts.csv:2: okay: expected a count, not 'two'"),
        (HEADER + "proud,positive,m,1,-2,3\n", "counts.csv:2: okay: expected a count"),
        (HEADER + "proud,positive,m,1,2\n", "counts.csv:2: good: expected a count"),
        (HEADER + "proud,positive,,1,2,3\n", "counts.csv:2: system: empty"),
        (HEADER + "proud,positive,m,1,2,3\n" * 2, "counts.csv:3: system: 'm' has a row for 'proud' already"),
    ],
)
def test_a_bad_file_is_named_with_its_place(tmp_path, text, words):
    with pytest.raises(UserError) as caught:
        read_study(write(tmp_path, text))
    assert words in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.csv: no such file"):
        read_study(tmp_path / "none.csv")
