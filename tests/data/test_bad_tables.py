"""Tables from any hand: what was written comes back, and what cannot be read is a bad row with its place."""

import json
import math
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.errors import UserError
from data.records import Exchange
from data.tables import BadRow, read_exchanges, read_ratings, read_rows, to_json, to_row, write_rows

IN_ONE_FOLDER = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)
TEXT = st.text(min_size=1, max_size=60).filter(lambda text: bool(text.strip()))
NAME = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)
EXCHANGE = st.builds(
    Exchange,
    id=NAME,
    prompt=TEXT,
    response=TEXT,
    model=NAME,
    situation=st.none() | TEXT,
    emotion=st.none() | TEXT,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ("id", "prompt", "response", "model", "dialogue", "rating", "rater", "extra", "batch", "")
)


def read_all(path: Path, reader: Any = read_exchanges) -> tuple[list[Any], list[BadRow]]:
    bad: list[BadRow] = []
    return list(reader(path, on_bad=bad.append)), bad


@given(
    st.lists(st.dictionaries(KEYS, JSON, max_size=6), max_size=6),
    st.sampled_from((read_exchanges, read_ratings)),
)
@IN_ONE_FOLDER
def test_any_json_object_is_a_record_or_a_bad_row_with_its_line(
    tmp_path: Path, rows: list[dict[str, Any]], reader: Any
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    try:
        found, bad = read_all(path, reader)
    except UserError as error:  # no row has the columns that replies need: one word for all of them
        assert reader is read_exchanges and str(path) in str(error)
        return
    assert len(found) + len(bad) == len(rows)
    assert all(1 <= row.line <= len(rows) and row.problem for row in bad)
    for record in found:
        json.loads(to_json(to_row(record)))


@given(st.binary(max_size=300), st.sampled_from((".jsonl", ".csv", ".parquet")))
@IN_ONE_FOLDER
def test_any_bytes_are_rows_or_refused(tmp_path: Path, data: bytes, suffix: str) -> None:
    path = tmp_path / f"any{suffix}"
    path.write_bytes(data)
    try:
        read_all(path)
    except UserError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize("value", [math.nan, math.inf, "nan", "Infinity", "1e999"])
def test_a_rating_is_a_finite_number(tmp_path: Path, value: object) -> None:
    path = tmp_path / "ratings.jsonl"
    path.write_text(json.dumps({"id": "1", "rater": "ann", "rating": value}) + "\n")
    found, bad = read_all(path, read_ratings)
    assert found == [] and len(bad) == 1 and bad[0].problem.startswith(("rating: ", "not JSON: "))


def test_a_cell_of_ten_thousand_brackets_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "deep.csv"
    path.write_text(f"prompt,response,dialogue\na,b,{'[' * 10_000}\n")
    found, bad = read_all(path)
    assert found == [] and bad[0].problem.startswith("dialogue: ")


def test_a_row_nested_as_deep_as_json_goes_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "deep.jsonl"
    with path.open("w") as out:
        for depth in (100, 400, 800, 900, 950, 2_000):
            out.write(f'{{"prompt": {"[" * depth}{"]" * depth}, "response": "b"}}\n')
    found, bad = read_all(path)
    assert found == [] and [row.line for row in bad] == [1, 2, 3, 4, 5, 6]
    for row in bad:
        assert str(row).startswith(f"deep.jsonl:{row.line}: ")


STRANGE = [
    pytest.param("timestamp", 2**62, id="a time after the end of the calendar"),
    pytest.param("date", 2**31 - 1, id="a day after the end of the calendar"),
    pytest.param("binary", b"\xff\xfe", id="bytes that are no text"),
]


@pytest.mark.parametrize(("kind", "value"), STRANGE)
def test_a_value_of_parquet_that_python_has_no_word_for(tmp_path: Path, kind: str, value: Any) -> None:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    if kind == "timestamp":
        column = arrow.array([value], arrow.int64()).view(arrow.timestamp("us"))
    elif kind == "date":
        column = arrow.array([value], arrow.int32()).view(arrow.date32())
    else:  # a column that says it is text, and is not: other writers check as little
        size = arrow.array([0, len(value)], arrow.int32()).buffers()[1]
        column = arrow.StringArray.from_buffers(1, size, arrow.py_buffer(value))
    table = arrow.table({"prompt": ["a"], "response": ["b"], "strange": column})
    path = tmp_path / "strange.parquet"
    parquet.write_table(table, path, version="2.6", store_schema=True)
    try:
        found, bad = read_all(path)
    except UserError as error:
        assert str(path) in str(error)
    else:
        assert len(found) + len(bad) == 1


def test_parquet_dates_and_bytes_are_kept_as_text(tmp_path: Path) -> None:
    path = tmp_path / "dated.parquet"
    row = {
        "prompt": "a",
        "response": "b",
        "day": date(2026, 11, 15),
        "at": datetime(2026, 11, 15, 8),
        "raw": b"\x00",
    }
    write_rows(path, [row])
    ((_, found),) = read_rows(path)
    assert json.loads(to_json(found))["day"] == "2026-11-15"
