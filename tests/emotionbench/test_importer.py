"""Results files in miniature with every defect they have, then the real ones where at hand."""

import csv
from pathlib import Path
from typing import Any

import pytest
from repository import dataset

from empathy_judge.data.errors import UserError
from empathy_judge.emotionbench.alignment import read_norms
from empathy_judge.emotionbench.importer import import_results
from empathy_judge.emotionbench.questionnaires import read_questionnaire
from empathy_judge.emotionbench.situations import FACTOR_NAMES

PANAS = read_questionnaire("PANAS")
Column = tuple[str, list[str]]


def column(name: str, marks: Any = 3) -> Column:
    given = [str(marks)] * 20 if isinstance(marks, int) else list(map(str, marks))
    return name, ["a situation", *given]


def write_results(path: Path, *columns: Column) -> Path:
    items = ("question-0", ["prompt", *(f"{n}. x" for n in range(1, 21))])
    order = ("order-0", ["prompt", *(str(n) for n in range(1, 21))])
    held = [items, order, *columns]
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow([name for name, _ in held])
        writer.writerows(zip(*(cells for _, cells in held), strict=True))
    return path


def test_default_and_evoked_columns_become_sheets(tmp_path: Path) -> None:
    path = write_results(
        tmp_path / "my-model-7b-PANAS-testing.csv",
        column("General_test-0_order-0", 1),
        column("Jealousy-2_scenario-1_test-0_order-0", range(1, 21)),
        column("Jealousy-2_scenario-0_test-0_order-0", ["4.0", *["5"] * 19]),
    )
    default, first, second = import_results(path).sheets
    assert (default.model, default.scale, default.factor) == ("my-model-7b", "PANAS", None)
    assert dict(default.marks) == dict.fromkeys(range(1, 21), 1)
    assert (first.factor, first.situation, first.marks[1]) == ("Jealousy-2", "Jealousy-2/scenario-0", 4)
    assert dict(second.marks) == {n: n for n in range(1, 6)}, "what is off the scale is missing, not cut"
    assert second.missing == "15 of 20 marks missing"


def test_more_than_ten_orders_do_not_collide(tmp_path: Path) -> None:
    turned = ("order-10", ["prompt", *(str(n) for n in range(20, 0, -1))])
    path = write_results(
        tmp_path / "m-PANAS-testing.csv",
        column("General_test-0_order-0", [1] * 19 + [5]),
        turned,
        column("General_test-0_order-10", [1] * 19 + [5]),
    )
    first, second = import_results(path).sheets
    assert (first.marks[20], first.marks[1]) == (5, 1)
    assert (second.marks[20], second.marks[1]) == (1, 5), "answers are put back by their own order"
    assert (first.pair, second.pair) == ("order-0", "order-10")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("results.csv", "General_test-0_order-0\n", "the file name must have"),
        ("m-PANAS-testing.csv", "a,b\n1,2\n", "no columns such as"),
        ("m-PANAS-testing.csv", "", "no columns such as"),
        ("crowd.xlsx", "no workbook", "not an Excel file"),
        ("a.txt", "", "unknown file type"),
    ],
)
def test_what_is_no_results_file_is_refused(tmp_path: Path, name: str, content: str, said: str) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=said):
        import_results(path)
    with pytest.raises(UserError, match="no such file"):
        import_results(tmp_path / "none.csv")


def test_norms_are_whole() -> None:
    norms = read_norms()
    assert set(FACTOR_NAMES) < set(norms)
    assert len(norms) == 1 + 8 + 36
    assert norms["Overall"].people == 1266
    factors = [row for row in norms.values() if row.level == "factor"]
    assert sum(row.people for row in factors) == 1266
    assert norms["Anger"].norms["positive"].change == -5.26


def test_the_real_files_are_whole() -> None:
    for name, count in (("gpt-4", 1800), ("gpt-3.5-turbo", 1800)):
        counts = import_results(dataset(f"emotionbench/results/PANAS Test/{name}-PANAS-testing.csv")).counts
        assert (counts["sheets"], counts["complete"], counts["default"]) == (count, count, 50)
    counts = import_results(dataset("emotionbench/results/PANAS Test/crowd.xlsx")).counts
    assert (counts["sheets"], counts["complete"], counts["default"]) == (2532, 2532, 1266)
    assert (
        import_results(
            dataset("emotionbench/results/Challenging Bench/gpt-3.5-turbo-BDI-testing.csv")
        ).counts["complete"]
        == 310
    )
