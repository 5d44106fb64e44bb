"""Looking through a file with several processes says what reading it row by row says, or nothing."""

import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import pytest

from data.readers.parallel_survey import _hash_ids, survey_plain
from data.readers.strict_json import LONGEST_LINE
from data.storage import find_sources
from data.tables import survey_exchanges

ROWS = [
    {"id": f"r{number}", "prompt": "My dog died. 🐕", "response": f"I am sorry. {number}", "model": "a"}
    for number in range(200)
]


def as_lines(rows: list[object]) -> bytes:
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows).encode()


def write(path: Path, rows: list[object], *, start: str = "", end: str = "\n") -> Path:
    path.write_bytes(start.encode() + as_lines(rows) + end.encode())
    return path


def hash_ids(content: bytes) -> Sequence[int] | None:
    return _hash_ids(BytesIO(content), 0, len(content))


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        [
            *ROWS,
            "",
            "  ",
            {**ROWS[0], "id": 7, "emotion": "sad", "mood": {"of": "mine"}, "response": "x" * 90_000},
        ],
    ],
)
def test_plain_files_are_surveyed_alike(tmp_path: Path, rows: list[object]) -> None:
    path = write(tmp_path / "a.jsonl", rows, start="\ufeff", end="")
    source = find_sources([path])
    assert survey_plain(source, processes=4, large=0) == survey_exchanges(source)


def test_two_rows_of_one_id_are_left_to_the_reading_row_by_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*ROWS, {**ROWS[17], "model": "b"}])
    assert survey_plain(find_sources([path]), processes=4, large=0) is None


def test_so_is_whatever_is_not_plain() -> None:
    lacking = {key: value for key, value in ROWS[0].items() if key != "id"}
    others: dict[str, list[object]] = {
        "no id": [*ROWS, lacking],
        "no response": [*ROWS, {**ROWS[0], "id": "new", "response": " "}],
        "not JSON": [*ROWS[:150], "{", *ROWS[150:]],
        "not a number": [*ROWS, json.dumps({**ROWS[0], "mood": 1})[:-2] + "NaN}"],
        "a list": [*ROWS, "[1]"],
        "other columns": [{"id": "0", "question": "How?", "answer": "So."}, *ROWS],
        "too long a text": [*ROWS, {**ROWS[0], "response": "x" * 100_001}],
        "too long a line": [*ROWS, "x" * LONGEST_LINE, ROWS[0]],
    }
    found = {name: hash_ids(as_lines(rows)) for name, rows in others.items()}
    assert {name for name, ids in found.items() if ids is not None} == set()
    assert len(hash_ids(as_lines([*ROWS])) or ()) == len(ROWS)


def test_it_is_for_large_files_many_cores_and_one_table(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*ROWS])
    write(tmp_path / "b.jsonl", [*ROWS])
    table = tmp_path / "c.csv"
    table.write_text("id,prompt,response,model\n1,Hello.,Hi.,a\n", encoding="utf-8")
    assert survey_plain(find_sources([path]), processes=4) is None
    assert survey_plain(find_sources([path]), processes=2, large=0) is None
    for several in ([tmp_path / "*.jsonl"], [table]):
        assert survey_plain(find_sources(several), processes=4, large=0) is None
