"""Results files in miniature with every defect they have, then the real ones where at hand."""

import csv
from pathlib import Path
from typing import Any

import pytest
from repository import dataset

from empathy_judge.emotionbench.importer import import_results
from empathy_judge.emotionbench.questionnaires import read_questionnaire

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
    ("name", "sheets", "default"),
    [
        ("PANAS Test/gpt-4-PANAS-testing.csv", 1800, 50),
        ("PANAS Test/gpt-3.5-turbo-PANAS-testing.csv", 1800, 50),
        ("PANAS Test/crowd.xlsx", 2532, 1266),
        ("Challenging Bench/gpt-3.5-turbo-BDI-testing.csv", 310, 10),
    ],
)
def test_the_real_files_are_whole(name: str, sheets: int, default: int) -> None:
    counts = import_results(dataset(f"emotionbench/results/{name}")).counts
    assert (counts["sheets"], counts["complete"], counts["default"]) == (sheets, sheets, default)
