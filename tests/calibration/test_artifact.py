"""calibration.json: the same after reading, refused once touched, and said when it does not fit."""

import json
from dataclasses import replace
from datetime import date

import pytest

from empathy_judge.calibration import artifact
from empathy_judge.calibration.artifact import Calibration, read_calibration, write_calibration
from empathy_judge.calibration.shares.transport import CalibratedModels
from empathy_judge.data.errors import UserError
from empathy_judge.data.records import LABELS

GOOD = CalibratedModels(
    models=("a", "b", "c"), judge=(0.5, 0.6, 0.7), crowd=(0.4, 0.52, 0.6), noise=(0.001,) * 3
)
MADE = Calibration(
    judge="default",
    version="1.2",
    rubric="ab12",
    ratings="cd34",
    created=date(2025, 3, 1),
    days=90,
    count=300,
    design_effect=1.6,
    calibrated_models={"Good": GOOD},
    source="größer",
)


def test_it_is_the_same_after_writing_and_reading(tmp_path) -> None:
    path = tmp_path / "calibration.json"
    write_calibration(path, MADE)
    assert read_calibration(path) == MADE
    assert json.loads(path.read_text(encoding="utf-8"))["digest"] == MADE.digest
    assert [item.name for item in tmp_path.iterdir()] == ["calibration.json"]


def test_tampering_is_refused(tmp_path) -> None:
    path = tmp_path / "calibration.json"
    write_calibration(path, MADE)
    text = path.read_text(encoding="utf-8")
    for old, new in [('"days": 90', '"days": 900'), ("0.52", "0.62")]:
        path.write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(UserError, match="changed since it was written"):
            read_calibration(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "run `calibrate` again"),
        (b"", "damaged"),
        (b'{"format": 2, "digest"', "damaged"),
        (b"\xff\xfe", "damaged"),
        (b'{"format": 1, "digest": NaN}', "damaged"),
        (b"[]", "not a calibration"),
        (b'{"judge": "x"}', "not a calibration"),
        (b'{"format": 1, "digest": ""}', f"this version reads {artifact.FORMAT}; run `calibrate` again"),
    ],
)
def test_a_damaged_file_is_refused_with_its_name(tmp_path, content: bytes | None, says: str) -> None:
    path = tmp_path / "calibration.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=says) as caught:
        read_calibration(path)
    assert str(path) in str(caught.value)


def test_a_field_of_the_wrong_kind_is_named(tmp_path) -> None:
    path = tmp_path / "calibration.json"
    write_calibration(path, replace(MADE, days="soon"))
    with pytest.raises(UserError, match="days"):
        read_calibration(path)


@pytest.mark.parametrize(
    ("change", "today", "columns", "says"),
    [
        ({}, date(2025, 3, 1), LABELS, None),
        ({}, date(2025, 5, 29), LABELS, None),
        ({}, date(2025, 5, 30), LABELS, "expired on 2025-05-30"),
        ({}, date(2024, 2, 27), LABELS, None),  # a night dated before it was made
        ({}, date(2025, 3, 1), ["mean"], "the levels mean, not"),
        ({"name": "length"}, date(2025, 3, 2), LABELS, "it is for the judge"),
        ({"version": "2"}, date(2025, 3, 2), LABELS, "is for judge version"),
        ({"rubric": "x"}, date(2025, 3, 2), LABELS, "another rubric"),
    ],
)
def test_it_says_when_it_does_not_fit(change, today: date, columns, says: str | None) -> None:
    judge = replace(artifact.JudgeIdentity(name="default", version="1.2", rubric="ab12"), **change)
    made = replace(MADE, calibrated_models=dict.fromkeys(columns, GOOD))
    reason = artifact.misfit(made, judge, today=today)
    assert reason is None if says is None else says in reason
