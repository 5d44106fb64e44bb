"""Files that would fill the memory or take hours: refused with the limit, with little of both."""

import json
import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rating_plans import make_plan
from repository import ROOT

CPU_SECONDS = 20
MEMORY = 700 << 20  # bytes
SHEET = "xl/worksheets/sheet1.xml"
ROW = {"prompt": "I lost my keys.", "response": "Oh no!"}


def run_bounded(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command of the CLI in a process with little time and memory."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    return subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), *map(str, words)],
        preexec_fn=limit,
        env={"PATH": "", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def parquet_bomb(make: Callable[[Any], Any], largest: int) -> Callable[[Path], None]:
    """Return what writes a small Parquet file of a table that `make` makes."""

    def write(path: Path) -> None:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(make(arrow), path, compression="zstd", write_statistics=False)
        assert path.stat().st_size < largest

    return write


def one_long_text(arrow: Any) -> Any:
    """Refer 1,000 times to one text of 8 MB."""
    texts = arrow.DictionaryArray.from_arrays([0] * 1000, ["a" * 8_000_000])
    return arrow.table({"prompt": texts, "response": texts})


def many_rows(arrow: Any) -> Any:
    """Refer ten million times to one text of 800 bytes."""
    rows = arrow.Array.from_buffers(arrow.int32(), 10_000_000, [None, arrow.py_buffer(bytes(4 * 10_000_000))])
    texts = arrow.DictionaryArray.from_arrays(rows, ["a" * 800])
    return arrow.table({"prompt": texts, "response": texts})


def one_nested_row(arrow: Any) -> Any:
    """Refer in one row's list a million times to one text of 8 kB."""
    texts = arrow.DictionaryArray.from_arrays(arrow.array([0] * 1_000_000, arrow.int32()), ["a" * 8000])
    turns = arrow.ListArray.from_arrays([0, 1_000_000], texts)
    return arrow.table({"prompt": ["a"], "response": ["b"], "dialogue": turns})


def workbook(rows: str, *, dimension: str = "") -> Callable[[Path], None]:
    def write(path: Path) -> None:
        openpyxl = pytest.importorskip("openpyxl")
        plain = path.with_suffix(".plain")
        openpyxl.Workbook().save(plain)
        header = "".join(f'<c t="inlineStr"><is><t>{name}</t></is></c>' for name in ROW)
        with zipfile.ZipFile(plain) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                if name != SHEET:
                    new.writestr(name, old.read(name))
            space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
            with new.open(SHEET, "w") as out:
                out.write(f'<worksheet xmlns="{space}">{dimension}<sheetData>'.encode())
                out.write(f'<row r="1">{header}</row>'.encode())
                out.write(rows.encode())
                out.write(b"</sheetData></worksheet>")

    return write


def archive(path: Path) -> None:
    """Write a workbook whose sheet is 150 MB of blanks."""
    workbook(" " * (150 << 20))(path)
    assert path.stat().st_size < 400_000


def sparse(start: bytes) -> Callable[[Path], None]:
    """Write a file of 3 GB that takes no place on the disk."""

    def write(path: Path) -> None:
        with path.open("wb") as out:
            out.write(start)
            out.truncate(3 << 30)

    return write


def many_columns(path: Path) -> None:
    names = ",".join(["prompt", "response", *(f"c{number}" for number in range(1_500_000))])
    path.write_text(f"{names}\na,b\n")


def many_keys(path: Path) -> None:
    line = json.dumps(ROW | {f"c{number}": 0 for number in range(200_000)})
    path.write_text(f"{line}\n" * 2)


def only_bad_lines(path: Path) -> None:
    """Write 750 MB of lines that are not JSON: 75 of them, which are sparse."""
    with path.open("wb") as out:
        for number in range(1, 76):
            out.seek(number * (10 << 20))
            out.write(b"\n")


FAR = '<row r="1000000000"><c t="inlineStr"><is><t>a</t></is></c></row>'
FARTHEST = '<dimension ref="A1:B1000000000"/>'
WIDE = '<row><c r="XFD2" t="n"><v>1</v></c></row>'
SCORE = ("score", "--judge", "length", "--calibration", "none", "--skip-invalid")
STUDY, ALIGN = ("import", "empathy-study"), ("align", "import")
BOMBS: dict[str, tuple[tuple[str, ...], str, Callable[[Path], None], str]] = {
    "one long text": (SCORE, "a.parquet", parquet_bomb(one_long_text, 4000), "64 MB"),
    "many rows": (SCORE, "a.parquet", parquet_bomb(many_rows, 500_000), "1,000 times"),
    "one nested row": (SCORE, "a.parquet", parquet_bomb(one_nested_row, 10_000), "64 MB"),
    "a row far away": (SCORE, "a.xlsx", workbook(FAR), "1,048,576"),
    "a row far away, announced": (SCORE, "a.xlsx", workbook(FAR, dimension=FARTHEST), "1,048,576"),
    "wide rows": (SCORE, "a.xlsx", workbook(WIDE * 100_000), "cells"),
    "an archive": (SCORE, "a.xlsx", archive, "128 MB"),
    "an object": (SCORE, "a.json", sparse(b'{"a": "'), "128 MB"),
    "no JSON": (SCORE, "a.json", sparse(b""), "128 MB"),
    "columns": (SCORE, "a.csv", many_columns, "16,384"),
    "keys": (SCORE, "a.jsonl", many_keys, "16,384"),
    "only bad lines": (SCORE, "a.jsonl", only_bad_lines, "a.jsonl:1"),
    "an imported array": (("import", "ieval"), "ieval_data.json", sparse(b"["), "128 MB"),
    "an imported line": (STUDY, "dataset.csv", sparse(b"dialog_id,"), "16 MB"),
    "imported columns": (STUDY, "dataset.csv", many_columns, "16,384"),
    "an aligned archive": (ALIGN, "crowd.xlsx", archive, "128 MB"),
    "an aligned table": (ALIGN, "m-PANAS-testing.csv", sparse(b"a,b\n"), "128 MB"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused_with_the_limit(bomb: str, tmp_path: Path) -> None:
    words, name, write, limit = BOMBS[bomb]
    write(tmp_path / name)
    result = run_bounded(*words, tmp_path / name, "--out", tmp_path / "out.jsonl")
    assert result.returncode == 2, result.stderr[-2000:]
    assert limit in result.stderr and "Traceback" not in result.stderr


def test_a_returned_file_that_is_a_bomb_is_refused(tmp_path: Path) -> None:
    make_plan(tmp_path / "plan")
    sparse(b"{")(tmp_path / "back.json")
    result = run_bounded("rate", "collect", tmp_path / "plan", tmp_path / "back.json")
    assert result.returncode == 2 and "128 MB" in result.stderr
