"""Tables in and out: what is read, what is refused, and in which words."""

import csv
import json
import re
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.file_formats import BadRow
from empathy_judge.data.records import Exchange, Turn
from empathy_judge.data.tables import read_exchanges, read_ratings, to_json, to_row, write_rows

TALK = [{"speaker": "Ann", "text": "hello"}]
ROWS = [
    {"id": "a", "model": "m", "prompt": "I lost my job.", "response": "I'm so sorry.", "mood": "low"},
    {"id": "b", "prompt": "I won, «hurrah»!", "response": "Lovely,\nwell done!", "dialogue": TALK},
]


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding, "surrogatepass"))
    return path


def collect(path: Path, reader: Any = read_exchanges) -> tuple[list[Any], list[BadRow]]:
    bad: list[BadRow] = []
    return list(reader(path, on_bad=bad.append)), bad


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_what_is_written_is_read_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows{suffix}"
    assert write_rows(path, ROWS) == 2
    first, second = read_exchanges(path)
    assert (first.id, first.model, first.prompt, first.extra["mood"]) == ("a", "m", "I lost my job.", "low")
    assert (second.response, second.dialogue) == ("Lovely,\nwell done!", (Turn(speaker="Ann", text="hello"),))
    assert [item.name for item in tmp_path.iterdir()] == [path.name], "nothing half-written is left behind"


def test_no_cell_of_a_csv_is_a_formula_and_every_text_comes_back(tmp_path: Path) -> None:
    texts = ['=HYPERLINK("http://x")', "- I hear you", "@you", "+1, so true", "'@home", "\t=1+1", "\uff1d1"]
    texts.append("-5")
    rows = [{"id": str(n), "prompt": "p", "response": text, "=A1": text} for n, text in enumerate(texts)]
    write_rows(tmp_path / "r.csv", rows)
    with (tmp_path / "r.csv").open(encoding="utf-8", newline="") as stream:
        cells = {cell for row in csv.reader(stream) for cell in row} - {"-5"}
    assert not [cell for cell in cells if cell.lstrip()[:1] in {*"=+-@\t\r\n\uff1d"}]
    read = list(read_exchanges(tmp_path / "r.csv"))
    assert [item.response for item in read] == texts
    assert [item.extra["=A1"] for item in read] == texts


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ('1, "x": 2', "the key 'x' occurs twice in one object"),
        ('{"y": 1, "y": 1}', "the key 'y' occurs twice in one object"),
        ("NaN", "NaN is not a number"),
        ("[-Infinity]", "-Infinity is not a number"),
        ("1e999", "a number is too large"),
    ],
)
def test_json_of_a_file_is_read_strictly(tmp_path: Path, value: str, says: str) -> None:
    row = f'{{"prompt": "p", "response": "r", "x": {value}}}'
    read, bad = collect(write(tmp_path / "r.jsonl", f'{{"prompt": "p", "response": "r"}}\n{row}\n'))
    assert len(read) == 1
    assert [(item.line, item.problem) for item in bad] == [(2, f"not JSON: {says}")]
    for text in (f"[{row}]", row):
        with pytest.raises(UserError, match=re.escape(says)):
            collect(write(tmp_path / "r.json", text))


def test_a_line_without_an_end_is_set_aside_or_refused(tmp_path: Path) -> None:
    row, endless = '{"prompt": "p", "response": "r"}', "x" * (17 << 20)
    read, bad = collect(write(tmp_path / "r.jsonl", f"{row}\n{endless}\n{row}\n"))
    assert [item.id for item in read] == ["1", "3"]
    assert [(item.line, item.problem[:17]) for item in bad] == [(2, "longer than 16 MB")]
    with pytest.raises(UserError, match="longer than 16 MB"):
        collect(write(tmp_path / "r.csv", f"prompt,response\n{endless}\n"))


BAD_ROWS: list[tuple[str, bytes, list[str], str]] = [
    ("r.jsonl", b'\n{"prompt": "p", "response": "r"}\n{"prompt": "\xff"}\n', ["2"], "3: not UTF-8 text"),
    ("r.csv", b'prompt,response\na,b\nc,"d\ne,f\ng,h\n', ["2"], "3: not CSV: .*unclosed quote"),
    ("r.csv", b"prompt,response\na,b,c,d\ne,f\n", ["3"], "2: row: has 2 cells more than the header"),
    ("r.csv", b"id,prompt,response\n7,p,r\n8,q,\n", ["7"], "3: response: missing"),
]


@pytest.mark.parametrize(("name", "content", "ids", "problem"), BAD_ROWS)
def test_a_bad_row_is_reported_with_its_line(
    tmp_path: Path, name: str, content: bytes, ids: list[str], problem: str
) -> None:
    (tmp_path / name).write_bytes(content)
    read, bad = collect(tmp_path / name)
    assert [(item.id, item.model) for item in read] == [(identity, "unnamed") for identity in ids]
    assert len(bad) == 1 and re.match(f"{name}:{problem}", str(bad[0]))


def test_parquet_has_nulls_numbers_for_ids_dates_and_bytes(tmp_path: Path) -> None:
    about = {"day": [date(2026, 11, 15)] * 2, "at": [datetime(2026, 11, 15, 8)] * 2, "raw": [b"\x00"] * 2}
    table = arrow.table({"id": [7, 8], "prompt": ["p", "q"], "response": ["r", None]} | about)
    parquet.write_table(table, tmp_path / "r.parquet")
    read, bad = collect(tmp_path / "r.parquet")
    assert [item.id for item in read] == ["7"] and "response: missing" in bad[0].problem
    assert json.loads(to_json(to_row(read[0])))["day"] == "2026-11-15"


def test_a_rating_is_a_label_or_a_finite_number(tmp_path: Path) -> None:
    rows = "id,rater,rating\n1,7,good\n1,8,Bad\n2,7,2\n3,7,nan\n4,7,Infinity\n5,7,1e999\n"
    found, bad = collect(write(tmp_path / "r.csv", rows), read_ratings)
    assert [(item.rater, item.rating) for item in found] == [("7", 3), ("8", 1), ("7", 2)]
    assert [item.line for item in bad] == [5, 6, 7]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(text=st.text(st.characters(exclude_categories=()), min_size=1).filter(str.strip))
def test_any_text_survives_jsonl(tmp_path: Path, text: str) -> None:
    """Control characters, line separators and lone surrogates are texts like any other."""
    exchange = Exchange(id="1", prompt=text, response=text, model="m")
    write_rows(tmp_path / "t.jsonl", [exchange])
    assert list(read_exchanges(tmp_path / "t.jsonl")) == [exchange]
    assert len(exchange.content_digest) == 16
