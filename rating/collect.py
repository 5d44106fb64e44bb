"""The ratings of a plan, the consistency of each rater, and the progress of all."""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from empathy_judge.calibration.comparison.stop_rule import CrossedRatings
from empathy_judge.data.errors import UserError
from empathy_judge.data.files import disk_errors, replacing
from empathy_judge.data.input_limits import LONGEST_REASON
from empathy_judge.data.judgments import position_on
from empathy_judge.data.rating_files.scales import as_label
from empathy_judge.data.readers.table_rows import read_rows
from empathy_judge.data.records import LABELS, to_plain
from empathy_judge.data.storage import SUFFIXES
from empathy_judge.data.tables import write_rows
from empathy_judge.rating.handouts import ANSWERS, read_handed_back, sheet_row
from empathy_judge.rating.journal import Entry, read_entry, read_journal
from empathy_judge.rating.plan import RatingPlan, Texts, read_plan, read_texts

RATINGS_FILE: Final = "ratings.jsonl"
CONSISTENCY_FILE: Final = "consistency.json"
LEAST_MARKED: Final = 10  # answers of a rater before they can be marked
FASTEST_READING: Final = 600  # words a minute; three times what people read


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterConsistency:
    """One rater's labels of repeated replies and of anchors, by their ids.

    `indexes` are those of the rater's order that have a rating, and `marks` are reasons why these ratings may
    carry no information.
    """

    indexes: Sequence[int]
    planned: int
    repeats: Mapping[str, tuple[str, str]]
    anchors: Mapping[str, str]
    marks: Sequence[str]

    @property
    def rated(self) -> int:
        """The number of ratings, with those of repeated replies."""
        return len(self.indexes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """All ratings of a plan; `problems` are files and rows set aside, `again` counts duplicates."""

    rows: Sequence[Mapping[str, Any]]
    consistency: Mapping[str, RaterConsistency]
    problems: Sequence[str]
    again: int
    changed: Sequence[str]

    @property
    def marked(self) -> dict[str, Sequence[str]]:
        """Return why the answers of some raters may carry no information."""
        return {name: rater.marks for name, rater in self.consistency.items() if rater.marks}

    @property
    def repeats(self) -> tuple[int, int]:
        """The number of repeated replies with the same label both times, and the number of all."""
        pairs = [pair for rater in self.consistency.values() for pair in rater.repeats.values()]
        return sum(first == again for first, again in pairs), len(pairs)


@dataclass
class _Returned:
    """The latest ratings by rater and index."""

    plan: RatingPlan
    found: dict[str, dict[int, Entry]] = field(default_factory=lambda: defaultdict(dict))
    problems: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    again: int = 0

    def add(self, token: str, entry: Entry, where: str) -> None:
        before = self.found[token].get(entry.index)
        if before is None:
            self.found[token][entry.index] = entry
        elif before.label == entry.label:
            self.again += 1
        else:
            # A sheet has no times: of two files the later one counts.
            kept = before if before.at and entry.at and entry.at < before.at else entry
            self.found[token][entry.index] = kept
            who, number = self.plan.raters[token].name, entry.index + 1
            labels = f"{before.label} and {entry.label}; the later one, {kept.label}, counts"
            self.changed.append(f"{where}: {who} rated number {number} {labels}")


def collect(folder: Path, files: Sequence[Path] = ()) -> Collected:
    """Join the journal of a plan and the returned files, in any order and with duplicates."""
    plan = read_plan(folder)
    texts = read_texts(folder, plan)
    returned = _Returned(plan)
    for token, entry in read_journal(folder, plan):
        if entry.label is None:
            returned.found[token].pop(entry.index, None)
        else:
            returned.found[token][entry.index] = entry
    for path in files:
        _read_file(path, texts, returned)
    rows = [
        rating_row(plan, token, entry)
        for token in plan.raters
        for index, entry in sorted(returned.found.get(token, {}).items())
        if not plan.is_check(token, index)
    ]
    consistency = {
        rater.name: _consistency(plan, texts, token, returned.found.get(token, {}))
        for token, rater in plan.raters.items()
    }
    return Collected(
        rows=rows,
        consistency=consistency,
        problems=returned.problems,
        again=returned.again,
        changed=returned.changed,
    )


def rating_row(plan: RatingPlan, token: str, entry: Entry) -> dict[str, Any]:
    """Return a rating as a row of ratings.jsonl."""
    rater = plan.raters[token]
    item = plan.items[rater.order[entry.index]]
    row: dict[str, Any] = {"id": item.id, "rater": rater.name, "rating": entry.label, "model": item.model}
    row |= {"prompt_key": item.prompt_key, "chance": item.chance, "index": entry.index}
    row |= {"content_digest": item.content_digest} if item.content_digest else {}
    return row | ({"reason": entry.reason} if entry.reason else {})


def _consistency(plan: RatingPlan, texts: Texts, token: str, found: Mapping[int, Entry]) -> RaterConsistency:
    order = plan.raters[token].order
    labels = {index: entry.label or "" for index, entry in found.items()}
    repeats = {
        plan.items[key].id: (labels[first], labels[index])
        for index, key in enumerate(order)
        if (first := order.index(key)) != index and index in labels and first in labels
    }
    anchors = {
        plan.items[order[index]].id: label
        for index, label in sorted(labels.items())
        if order[index] in plan.anchors
    }
    return RaterConsistency(
        indexes=sorted(found),
        planned=len(order),
        repeats=repeats,
        anchors=anchors,
        marks=_find_marks([texts[key]["response"] for key in order], found),
    )


def _find_marks(replies: Sequence[str], found: Mapping[int, Entry]) -> list[str]:
    """Return why a rater's answers may carry no information: one label for all, or no time to read."""
    marks, labels = [], {entry.label for entry in found.values()}
    if len(found) >= LEAST_MARKED and len(labels) == 1:
        marks.append(f"all {len(found)} labels are {labels.pop()}")
    times = sorted((entry.at, entry.index) for entry in found.values() if entry.at)
    is_fast = [
        (after - before).total_seconds() < 60 * len(replies[index].split()) / FASTEST_READING
        for (before, _), (after, index) in pairwise(times)
    ]
    if len(is_fast) >= LEAST_MARKED and sum(is_fast) > len(is_fast) / 2:
        marks.append(f"{sum(is_fast)} of {len(is_fast)} replies were rated faster than they can be read")
    return marks


def _read_file(path: Path, texts: Texts, returned: _Returned) -> None:
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if path.suffix.lower() in SUFFIXES and path.suffix.lower() != ".json":  # as a page saves ratings
        return _read_sheet(path, texts, returned)
    handed = read_handed_back(path)
    if handed is None:
        return returned.problems.append(f"{path}: neither a file of the rating page nor a sheet")
    plan, token, rows = returned.plan, handed["token"], handed["ratings"]
    if token not in plan.raters:
        return returned.problems.append(f"{path}: from another plan: no rater of this plan has its token")
    rater, entries, latest = plan.raters[token], [], datetime.now(UTC) + timedelta(days=1)
    if len(rows) > len(rater.order):
        problem = f"{len(rows):,} ratings, but the plan has {len(rater.order)} replies for {rater.name}"
        return returned.problems.append(f"{path}: {problem}")
    for number, row in enumerate(rows, start=1):
        try:
            entries.append(read_entry(row, rater.order))
            if (entries[-1].at or latest) > latest:
                raise ValueError("at: is in the future; the rater's clock may be wrong")
        except ValueError as error:
            why = f"rating {number}: {error}; ask {rater.name} to save the file again"
            return returned.problems.append(f"{path}: {why}")
    for entry in entries:
        returned.add(token, entry, str(path))


def _read_sheet(path: Path, texts: Texts, returned: _Returned) -> None:
    plan, has_any = returned.plan, False
    for line, row in read_rows(path, on_bad=lambda bad: returned.problems.append(str(bad))):
        here = f"{path.name}:{line}"
        has_any |= "task" in row
        token, _, rest = str(row.get("task", "")).strip().partition("-")
        number, _, key = rest.partition("-")
        order = plan.raters[token].order if token in plan.raters else ()
        index = int(number) if re.fullmatch("[0-9]{1,6}", number) else len(order)
        if index >= len(order):
            returned.problems.append(f"{here}: task: not one of this plan")
            continue
        if order[index] != key:
            returned.problems.append(f"{here}: task: edited: the plan has another reply at this position")
            continue
        sent = sheet_row(plan, texts, token, index)
        edited = [
            name for name in ("prompt", "response") if name in row and not _is_same(row[name], sent[name])
        ]
        if edited:
            returned.problems.append(f"{here}: {edited[0]}: edited: not the text of the plan")
            continue
        rating = row.get(ANSWERS[0])
        if rating is None or not str(rating).strip():
            continue  # not rated yet
        position = position_on(as_label(rating), LABELS)
        if position is None or position != int(position):
            returned.problems.append(
                f"{here}: rating: {str(rating)[:40]!r} is not one of {', '.join(LABELS)} or 1 to 3"
            )
            continue
        reason = str(row.get(ANSWERS[1]) or "").strip()
        if len(reason) > LONGEST_REASON:
            returned.problems.append(f"{here}: reason: longer than {LONGEST_REASON:,} characters")
            continue
        returned.add(token, Entry(index=index, label=LABELS[int(position) - 1], reason=reason), here)
    if not has_any:
        returned.problems.append(
            f"{path}: no column `task`; return the sheet of `rate export` with all columns"
        )


def _is_same(one: Any, other: str) -> bool:
    """Return whether two cells have the same words: spreadsheets change white space."""
    return str(one).lstrip("'").split() == other.lstrip("'").split()


def read_collected(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of an earlier collection."""
    path = folder / RATINGS_FILE
    rows = list(read_rows(path)) if path.exists() else []
    for line, row in rows:
        if not all(
            isinstance(row.get(name), str) for name in ("id", "rater", "rating", "model", "prompt_key")
        ):
            raise UserError(f"{path}:{line}: not a row of `rate collect`; remove the row, or delete the file")
    return [row for _, row in rows]


def find_missing(collected: Collected, folder: Path) -> list[str]:
    """Return raters of an earlier collection that are not in this one, whose ratings would be lost."""
    present = {row["rater"] for row in collected.rows}
    before = dict.fromkeys(row["rater"] for row in read_collected(folder))
    return [name for name in before if name not in present]


def write_collected(collected: Collected, folder: Path) -> tuple[Path, Path]:
    """Write ratings and consistency into the plan's folder."""
    ratings, consistency = folder / RATINGS_FILE, folder / CONSISTENCY_FILE
    write_rows(ratings, collected.rows)
    same, pairs = collected.repeats
    told = {"repeated": pairs, "same": same, "raters": to_plain(collected.consistency)}
    with disk_errors(consistency), replacing(consistency) as partial:
        partial.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return ratings, consistency


def read_all_ratings(folder: Path, plan: RatingPlan, files: Sequence[Path] = ()) -> CrossedRatings:
    """Return the ratings of the journal, of files, and of an earlier collection.

    Their chances are those that the plan has now.
    """
    rows = {(row["rater"], row["id"]): row for row in read_collected(folder)}
    rows |= {(row["rater"], row["id"]): row for row in collect(folder, files).rows}
    chance = {item.id: item.chance for item in plan.items.values()}
    taken = [row for row in rows.values() if row["id"] in chance]
    return CrossedRatings(
        rater=np.array([row["rater"] for row in taken]),
        prompt=np.array([row["prompt_key"] for row in taken]),
        model=np.array([row["model"] for row in taken]),
        value=np.array([float(row["rating"] == LABELS[-1]) for row in taken]),
        chance=np.array([chance[row["id"]] for row in taken]),
    )


def count_rated(folder: Path, plan: RatingPlan) -> dict[str, int]:
    """Return the number of ratings by rater's token: given on the page, or collected from files."""
    path = folder / CONSISTENCY_FILE
    try:
        collected = json.loads(path.read_text(encoding="utf-8"))["raters"] if path.exists() else {}
        indexes = {
            token: set(collected.get(rater.name, {}).get("indexes", ()))
            for token, rater in plan.raters.items()
        }
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: edited or damaged; run `rate collect` again") from error
    for token, entry in read_journal(folder, plan):
        (indexes[token].discard if entry.label is None else indexes[token].add)(entry.index)
    return {token: len(rated) for token, rated in indexes.items()}
