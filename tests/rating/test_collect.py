"""What comes back: joined once, whatever the order, and what is foreign or edited is named."""

import csv
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import run_checked as run
from rating_plans import NAMES, made_replies, make_plan

from empathy_judge.data.records import LABELS
from empathy_judge.data.tables import read_ratings, write_rows
from empathy_judge.rating.collect import count_rated
from empathy_judge.rating.journal import Entry, Journal
from empathy_judge.rating.plan import RatingPlan, read_plan


def label_at(token: str, index: int) -> str:
    return LABELS[(int(token[:6], 16) + index) % 3]


def handed_back(plan: RatingPlan, token: str, indexes: list[int]) -> dict[str, Any]:
    """What the page of a file saves."""
    order = plan.raters[token].order
    rows = [
        {"index": at, "key": order[at], "label": label_at(token, at), "at": f"2026-01-01T00:00:{at:02}Z"}
        for at in indexes
    ]
    return {"format": 2, "token": token, "ratings": rows}


def test_a_journal_and_files_join_in_any_order_and_count_once(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    plan = make_plan(folder, people=3, each=12)
    first, second, _ = plan.raters
    journal = Journal(folder, plan)
    for index in range(12):
        entry = Entry(index=index, label=label_at(first, index), reason="Why not?" if index == 3 else "")
        journal.record(first, plan.raters[first].order[index], 1, entry)
    journal.close()
    indexes = random.Random(0).sample(range(12), 12)
    files = {
        "half.json": handed_back(plan, second, indexes[:6]),
        "whole.json": handed_back(plan, second, indexes),
        "same.json": handed_back(plan, first, indexes),
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    done = run("rate", "collect", folder, *(tmp_path / name for name in files))
    assert "by 2 raters; finished: 2" in done.stdout and "18 duplicate ratings count once" in done.stdout
    assert "compare" in done.stderr.splitlines()[-1]
    rows = [json.loads(line) for line in (folder / "ratings.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * (12 - 3) == len({(row["rater"], row["id"]) for row in rows})
    assert {row["rater"] for row in rows} == {"rater-1", "rater-2"}
    for row in rows:
        token = first if row["rater"] == "rater-1" else second
        item = plan.items[plan.raters[token].order[row["index"]]]
        assert (row["id"], row["model"], row["chance"]) == (item.id, item.model, item.chance)
        assert row["rating"] == label_at(token, row["index"])
        assert row.get("reason") == ("Why not?" if (token, row["index"]) == (first, 3) else None)
    assert len(list(read_ratings(folder / "ratings.jsonl"))) == len(rows)
    told = json.loads((folder / "consistency.json").read_text())
    assert told["repeated"] == 2 and set(told["raters"]) == {"rater-1", "rater-2", "rater-3"}
    mine, order = told["raters"]["rater-1"], plan.raters[first].order
    (again,) = [index for index in range(12) if order[index] in order[:index]]
    pair = [label_at(first, order.index(order[again])), label_at(first, again)]
    assert mine["repeats"] == {plan.items[order[again]].id: pair}
    assert len(mine["anchors"]) == 2 and told["raters"]["rater-3"]["repeats"] == {}
    backwards = run("rate", "collect", folder, *(tmp_path / name for name in reversed(files)), "--json")
    assert json.loads(backwards.stdout)["ratings"] == len(rows)
    assert [json.loads(line) for line in (folder / "ratings.jsonl").read_text().splitlines()] == rows
    # One person's file alone would throw away what came of the others.
    less = run("rate", "collect", folder, tmp_path / "same.json", code=2)
    assert "by rater-2, and the files given now have none. Pass all returned files" in less.stderr
    assert [json.loads(line) for line in (folder / "ratings.jsonl").read_text().splitlines()] == rows


def test_of_two_labels_the_later_one_counts(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    plan = make_plan(folder, people=2, each=12)
    token = next(iter(plan.raters))
    changed = handed_back(plan, token, [0])
    label = LABELS[LABELS.index(label_at(token, 0)) - 1]
    changed["ratings"][0] |= {"label": label, "at": "2026-02-01T00:00:00Z"}
    files = [tmp_path / name for name in ("changed.json", "good.json", "none.json")]
    for path, content in zip(files, (changed, handed_back(plan, token, [0, 1]), [1]), strict=True):
        path.write_text(json.dumps(content))
    refused = run("rate", "collect", folder, *files, code=2).stderr
    assert "none.json: neither a file of the rating page nor a sheet" in refused
    assert not (folder / "ratings.jsonl").exists()
    taken = run("rate", "collect", folder, *files, "--skip-invalid").stderr
    assert f"rated number 1 {label} and {label_at(token, 0)}; the later one, {label}, counts" in taken


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("token", value) for value in ([], {"a": 1}, "0123")),
        *(("format", value) for value in (1, "2")),
        *(("ratings", value) for value in ({"0": {}}, [[]], [{}], "many", [{}] * 13)),
        *(("index", value) for value in (True, 0.0, -1, 40, 10**300)),
        *(("key", value) for value in (["a"], "another")),
        *(("label", value) for value in (None, ["Good"], "good")),
        *(("reason", value) for value in (7, {"a": []}, "a" * 2001)),
        *(("at", value) for value in (7, None, "yesterday", "2026-01-01T00:00:00", "9998-01-01T00:00:00Z")),
        ("at", "2026-01-01T00:00:00Z" + " " * 500),
        ("twice", '{"ratings": [], '),
    ],
)
def test_every_field_of_a_returned_file_is_checked(tmp_path: Path, field: str, value: object) -> None:
    folder, file = tmp_path / "plan", tmp_path / "back.json"
    plan = make_plan(folder, people=1, each=12)
    content = handed_back(plan, next(iter(plan.raters)), [0, 1])
    if field != "twice":
        (content if field in content else content["ratings"][0])[field] = value
    text = json.dumps(content)
    file.write_text(text.replace("{", str(value), 1) if field == "twice" else text)
    refused = run("rate", "collect", folder, file, code=2).stderr
    assert "back.json" in refused and not (folder / "ratings.jsonl").exists()
    assert field in (*content, "twice") or f"rating 1: {field}: " in refused


def test_every_cell_of_a_returned_sheet_is_checked(tmp_path: Path) -> None:
    folder, sheet = tmp_path / "plan", tmp_path / "sheet.jsonl"
    ((token, rater),) = make_plan(folder, people=1, each=12).raters.items()
    row = {"task": f"{token}-2-{rater.order[2]}", "rating": "Good", "reason": ""}
    tasks = (f"{token}-\u00b2-{rater.order[2]}", f"{token}-{'9' * 5000}")
    write_rows(sheet, [row | {"reason": "a" * 2001}, *(row | {"task": task} for task in tasks)])
    refused = run("rate", "collect", folder, sheet, code=2).stderr
    for line, column in enumerate(("reason", "task", "task"), start=1):
        assert f"sheet.jsonl:{line}: {column}: " in refused


def test_raters_whose_answers_carry_no_information_are_marked_and_still_count(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    plan = make_plan(folder, people=4, each=12)
    steady, same, hasty, brief = plan.raters
    files = {
        token: handed_back(plan, token, list(range(3 if token == brief else 12))) for token in plan.raters
    }
    for token, file in files.items():
        for row in file["ratings"]:
            row["at"] = f"2026-01-01T00:{row['index']:02}:00Z"
            if token in (same, brief):
                row["label"] = "Good"
            if token == hasty:
                row["at"] = f"2026-01-01T00:00:{row['index'] // 4:02}.{row['index'] % 4}Z"
        (tmp_path / f"{plan.raters[token].name}.json").write_text(json.dumps(file))
    paths = sorted(tmp_path.glob("rater-*.json"))
    done = run("rate", "collect", folder, *paths, "--json")
    marked = json.loads(done.stdout)["marked"]
    assert set(marked) == {plan.raters[same].name, plan.raters[hasty].name}
    told = json.loads((folder / "consistency.json").read_text())["raters"]
    assert {name: rater["marks"] for name, rater in told.items() if rater["marks"]} == marked
    said = run("rate", "collect", folder, *paths).stderr
    assert all(name in said for name in marked) and plan.raters[steady].name not in said
    rated = {row.rater for row in read_ratings(folder / "ratings.jsonl")}
    assert rated == {rater.name for rater in plan.raters.values()}


def test_a_sheet_comes_back_through_a_spreadsheet(tmp_path: Path) -> None:
    replies = made_replies()
    replies[0] = replace(replies[0], response='=HYPERLINK("x")', situation=None, dialogue=())
    write_rows(tmp_path / "replies.jsonl", replies)
    folder, sheet = tmp_path / "plan", tmp_path / "sheet.csv"
    run("rate", "plan", tmp_path / "replies.jsonl", "--people", 8, "--each", 50, "--out", folder)
    run("rate", "export", folder, "--csv", sheet)
    plan = read_plan(folder)
    text = sheet.read_text(encoding="utf-8")
    assert text.startswith("\ufeff") and "\n=" not in text and ",=" not in text
    assert not any(name in text for name in NAMES)
    with sheet.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 400
    for number, row in enumerate(rows):
        row["rating"] = ("Good", "OK", "1", " BAD ", "3 - Good", "")[number % 6]
        row["prompt"] = row["prompt"].replace(" ", "  ")
    random.Random(1).shuffle(rows)
    rows.sort(key=lambda row: "\n" in row["earlier"])  # so that the first stand on a line each

    def save(name: str) -> Path:
        with (tmp_path / name).open("w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, list(rows[0]), delimiter=";")
            writer.writeheader()
            writer.writerows(rows)
        return tmp_path / name

    run("rate", "collect", folder, save("back.csv"), tmp_path / "back.csv")
    rated = list(read_ratings(folder / "ratings.jsonl"))
    assert 270 < len(rated) < 333 and {item.rating for item in rated} == {1, 2, 3}
    assert len({(item.rater, item.id) for item in rated}) == len(rated)
    rows[0]["response"], rows[1]["rating"], rows[2]["task"] = "Another reply.", "excellent", "zzz-1-2"
    rows[3]["task"] = rows[3]["task"][:-1] + "x"
    refused = run("rate", "collect", folder, save("bad.csv"), code=2).stderr
    for said in (
        "bad.csv:2: response: edited",
        "bad.csv:3: rating: 'excellent' is not one of Bad, Okay, Good",
        "bad.csv:4: task: not one of this plan",
        "bad.csv:5: task: edited",
    ):
        assert said in refused
    run("rate", "export", folder, "--csv", tmp_path / "sheets", "--html", tmp_path / "pages")
    assert len(list((tmp_path / "sheets").glob("rater-*.csv"))) == 8
    pages = sorted((tmp_path / "pages").iterdir())
    assert len(pages) == 8 and plan.people == 8
    for page in pages:
        html = page.read_text(encoding="utf-8")
        assert not any(name in html for name in NAMES) and "http" not in html.split("</style>")[1]
        assert html.count("</script>") == 2


def test_the_page_counts_what_was_collected_from_sheets(tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    plan = make_plan(folder, people=3, each=12)
    first, second, third = plan.raters
    for token, indexes in ((first, range(12)), (second, range(5))):
        (tmp_path / f"{token}.json").write_text(json.dumps(handed_back(plan, token, list(indexes))))
    run("rate", "collect", folder, *(tmp_path / f"{token}.json" for token in (first, second)))
    journal = Journal(folder, plan)
    for token, index in ((second, 4), (second, 5), (third, 0)):  # one of them is in the collected file too
        journal.record(token, plan.raters[token].order[index], 1, Entry(index=index, label="Good"))
    journal.record(third, plan.raters[third].order[0], 2, Entry(index=0, label=None))
    journal.close()
    assert count_rated(folder, plan) == {first: 12, second: 6, third: 0}
