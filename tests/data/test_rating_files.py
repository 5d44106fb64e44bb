"""Ratings however people write them: headers in any case, labels, thumbs, stars, other scales, and texts."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rows import write_csv

from empathy_judge.data.errors import UserError
from empathy_judge.data.judgments import parse_scale
from empathy_judge.data.rating_files.sheet import RatingSheet, Replies, SheetOptions, read_sheet
from empathy_judge.data.records import Exchange

NAMES = ("Bad", "Okay", "Good")
Row = dict[str, Any]
EXCHANGES = [
    Exchange(id=f"{n}-{model}", model=model, prompt=f"day {n}", response=f"so sorry, {model} {n}")
    for n in range(4)
    for model in ("ada", "bea")
]
RATED = [
    {"id": item.id, "prompt": item.prompt, "response": item.response}
    | {"rater": f"r{index % 3}", "rating": 1 + index % 3}
    for index, item in enumerate(EXCHANGES)
]


def read(path: Path, rows: Iterable[Mapping[str, Any]], **stated: Any) -> RatingSheet:
    rows = list(rows)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        write_csv(path, rows)
    return read_sheet(path, SheetOptions(**stated), replies=Replies(exchanges=EXCHANGES))


def label(row: Row) -> str:
    return NAMES[row["rating"] - 1]


# What each column of ours is called, what a rating is written as, and what is said about it.
ITEM = {"id": "Item ID", "rater": "WorkerId", "rating": "Label"}
TEXTS = {"prompt": "Question", "response": "Answer", "rater": "rater", "rating": "score"}
SPELLED: dict[str, tuple[dict[str, str], Callable[[Row], object], str]] = {
    "our own": ({"id": "id", "rater": "rater"}, lambda row: row["rating"], ""),
    "capitals": ({"id": "ID", "rater": "Rater"}, lambda row: label(row).upper().replace("OKAY", "OK"), ""),
    "numbered": ({"id": "id", "rater": "annotator"}, lambda row: f"{row['rating']} - {label(row)}", ""),
    "another tool's headers": (ITEM, label, "column 'Label'"),
    "texts": (TEXTS, lambda row: row["rating"], "8 ratings were matched to replies by text"),
}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize("case", SPELLED)
def test_however_a_sheet_is_headed_the_ratings_are_the_same(tmp_path: Path, case: str, suffix: str) -> None:
    headers, write, note = SPELLED[case]
    rows = [
        {name: row[key] for key, name in headers.items()} | {headers.get("rating", "rating"): write(row)}
        for row in RATED
    ]
    sheet = read(tmp_path / f"sheet{suffix}", rows)
    found = [(item.id, item.rater, item.rating) for item in sheet.ratings]
    assert found == [(row["id"], row["rater"], row["rating"]) for row in RATED]
    assert note in " ".join(sheet.notes) and bool(note) == bool(sheet.notes)


FIVE, POOR = ({"scale": parse_scale(scale)} for scale in ("1-5", "poor,fair,great"))
SCALES: dict[str, tuple[str, Mapping[int, object], Row, str]] = {
    "thumbs": ("rating", {1: "👎", 2: "👎🏽", 3: "👍"}, {}, "thumbs read as Bad down, Good up"),
    "true and false": ("rating", {1: False, 2: False, 3: True}, {}, "thumbs read as Bad down, Good up"),
    "0 and 1": ("rating", {1: 0, 2: 0, 3: 1}, {}, "thumbs read as Bad down, Good up"),
    "a stated cut": ("rating", {1: "down", 2: "Thumbs Up", 3: "up"}, {"cut": ("up", "up")}, "Good up (as"),
    "stars": ("Stars", {1: 1, 2: 3, 3: 5}, {}, "stars 1 to 5 read as Bad 1-2, Okay 3, Good 4-5 (thirds"),
    "drawn stars": ("rating", {1: "★☆☆☆☆", 2: "★★★", 3: "5 stars"}, {}, "Bad 1-2, Okay 3, Good 4-5"),
    "of ten": ("rating", {1: "2/10", 2: "5/10", 3: "9/10"}, {}, "Bad 1-3, Okay 4-7, Good 8-10"),
    "a stated scale": ("rating", {1: 1, 2: 4, 3: 5}, FIVE | {"cut": ("3", "5")}, "Okay 3-4, Good 5"),
    "named levels": ("rating", {1: "poor", 2: "fair", 3: "Great"}, POOR, "Bad poor, Okay fair, Good great"),
}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
@pytest.mark.parametrize("case", SCALES)
def test_other_scales_are_read_by_a_map_that_is_said(tmp_path: Path, case: str, suffix: str) -> None:
    column, words, stated, said = SCALES[case]
    rows = [{"id": row["id"], "rater": row["rater"], column: words[row["rating"]]} for row in RATED]
    sheet = read(tmp_path / f"sheet{suffix}", rows, **stated)
    assert said in " ".join(sheet.notes)
    levels = {1: 1, 2: 3 if case == "a stated cut" else 1, 3: 3} if "up" in said else {1: 1, 2: 2, 3: 3}
    assert [item.rating for item in sheet.ratings] == [levels[row["rating"]] for row in RATED]


@pytest.mark.parametrize("scale", ["0-2", "0-100", "1-7"])
def test_numbers_of_an_unstated_scale_are_never_guessed(tmp_path: Path, scale: str) -> None:
    levels = parse_scale(scale)
    rows = [{"id": "0-ada", "rater": f"r{level}", "rating": level} for level in levels]
    for skip in (False, True):
        with pytest.raises(UserError, match="set the scale, such as --scale"):
            read(tmp_path / "sheet.csv", rows, skip_invalid=skip)
    assert len(read(tmp_path / "sheet.csv", rows, scale=levels).ratings) == len(rows)


def test_replies_with_the_same_words_are_told_by_their_model(tmp_path: Path) -> None:
    twins = [Exchange(id=name, model=name, prompt="p", response="I see.") for name in ("ada", "bea")]
    row = {"prompt": "p", "response": "I see.", "rater": "r", "rating": 2}
    path = tmp_path / "sheet.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError, match="'ada', 'bea' have this prompt and response; add a column `id`"):
        read_sheet(path, replies=Replies(exchanges=twins))
    path.write_text(json.dumps({**row, "Model": "bea"}) + "\n")
    assert [item.id for item in read_sheet(path, replies=Replies(exchanges=twins)).ratings] == ["bea"]
