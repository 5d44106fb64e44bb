"""The ratings of a plan, the consistency of each rater, and the progress of all."""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import compress, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from empathy_judge.calibration.comparison.stop_rule import CrossedRatings
from empathy_judge.data.errors import UserError
from empathy_judge.data.files import LONGEST_REASON, parse_json, write_texts
from empathy_judge.data.judgments import position_on
from empathy_judge.data.rating_files.scales import as_label
from empathy_judge.data.readers.file_formats import read_whole
from empathy_judge.data.readers.table_rows import read_rows
from empathy_judge.data.records import LABELS, to_plain
from empathy_judge.data.storage import SUFFIXES
from empathy_judge.data.tables import write_rows
from empathy_judge.rating.handouts import ANSWERS, sheet_row
from empathy_judge.rating.journal import JOURNAL_FILE, Entry, read_entry, read_journal
from empathy_judge.rating.people import PEOPLE_FILE, read_people, read_seated
from empathy_judge.rating.plan import FORMAT, RatingPlan, Texts, read_texts

RATINGS_FILE: Final = "ratings.jsonl"
CONSISTENCY_FILE: Final = "consistency.json"
LEAST_MARKED: Final = 10  # answers of a rater before they can be marked
FASTEST_READING: Final = 600  # words a minute; three times what people read


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterConsistency:
    """One rater's labels of repeated replies and of anchors, by their ids."""

    indexes: Sequence[int]  # of the rater's order, that have a rating
    planned: int
    repeats: Mapping[str, tuple[str, str]]
    anchors: Mapping[str, str]
    marks: Sequence[str]  # reasons why these ratings may carry no information


@dataclass
class Collected:
    """The latest ratings of a plan by token and index."""

    plan: RatingPlan
    texts: Texts
    found: dict[str, dict[int, Entry]] = field(default_factory=lambda: defaultdict(dict))
    problems: list[str] = field(default_factory=list)  # files and rows set aside
    changed: list[str] = field(default_factory=list)  # ratings with two labels
    left: set[str] = field(default_factory=set)  # names of people whose places others have now
    again: int = 0  # duplicates

    def add(self, token: str, entry: Entry, where: str) -> None:
        """Add a rating; of two labels the later one counts."""
        before = self.found[token].setdefault(entry.index, entry)
        if before is entry:
            return
        if before.label == entry.label:
            self.again += 1
            return
        # A sheet has no times: of two files the later one counts.
        kept = before if before.at and entry.at and entry.at < before.at else entry
        self.found[token][entry.index] = kept
        rated = (
            f"{self.plan.raters[token].name} rated number {entry.index + 1} {before.label} and {entry.label}"
        )
        self.changed.append(f"{where}: {rated}; the later one, {kept.label}, counts")

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of ratings.jsonl."""
        return [
            rating_row(self.plan, token, entry)
            for token in self.plan.raters
            for index, entry in sorted(self.found[token].items())
            if not self.plan.is_check(token, index)
        ]

    @cached_property
    def consistency(self) -> dict[str, RaterConsistency]:
        """The consistency of each rater, by name."""
        return {rater.name: self._consistency(token) for token, rater in self.plan.raters.items()}

    @property
    def marked(self) -> dict[str, Sequence[str]]:
        """The reasons why the answers of some raters may carry no information."""
        return {name: rater.marks for name, rater in self.consistency.items() if rater.marks}

    @property
    def repeats(self) -> tuple[int, int]:
        """The number of repeated replies with the same label both times, and the number of all."""
        return _count_repeats(to_plain(self.consistency))

    def _consistency(self, token: str) -> RaterConsistency:
        order, items, found = self.plan.raters[token].order, self.plan.items, self.found[token]
        labels = {index: entry.label or "" for index, entry in sorted(found.items())}
        repeats = {
            items[order[index]].id: (labels[first], label)
            for index, label in labels.items()
            if (first := order.index(order[index])) != index and first in labels
        }
        return RaterConsistency(
            indexes=list(labels),
            planned=len(order),
            repeats=repeats,
            anchors={
                items[key].id: labels[at]
                for key in self.plan.anchors
                if key in order and (at := order.index(key)) in labels
            },
            marks=_find_marks([self.texts[key]["response"] for key in order], found),
        )


def collect(folder: Path, files: Sequence[Path] = ()) -> Collected:
    """Join the journal of a plan and the returned files, in any order and with duplicates."""
    plan = read_seated(folder)
    collected = Collected(plan, read_texts(folder, plan))
    collected.left = {person.name for person in read_people(folder) if person.token not in plan.raters}
    for token, entry in read_journal(folder, plan):
        if entry.label is None:
            collected.found[token].pop(entry.index, None)
        else:
            collected.found[token][entry.index] = entry
    for path in files:
        if not path.is_file():
            raise UserError(f"{path}: no such file")
        if path.suffix.lower() in SUFFIXES and path.suffix.lower() != ".json":  # as a page saves ratings
            _read_sheet(path, collected)
            continue
        try:
            token, entries = _read_returned(path, plan)
        except ValueError as error:
            collected.problems.append(f"{path}: {error}")
            continue
        for entry in entries:
            collected.add(token, entry, str(path))
    return collected


def rating_row(plan: RatingPlan, token: str, entry: Entry) -> dict[str, Any]:
    """Return a rating as a row of ratings.jsonl."""
    rater = plan.raters[token]
    item = plan.items[rater.order[entry.index]]
    row: dict[str, Any] = {"id": item.id, "rater": rater.name, "rating": entry.label, "model": item.model}
    row |= {"prompt_key": item.prompt_key, "chance": item.chance, "index": entry.index}
    row |= {"content_digest": item.content_digest} if item.content_digest else {}
    return row | ({"reason": entry.reason} if entry.reason else {})


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


def _read_returned(path: Path, plan: RatingPlan) -> tuple[str, list[Entry]]:
    """Return the token and the ratings of a file that a page saved; `ValueError` if it is not one."""
    try:
        handed = parse_json(read_whole(path))
    except (OSError, ValueError, RecursionError):
        handed = None
    kinds = {"format": int, "token": str, "ratings": list}
    is_whole = isinstance(handed, dict) and all(
        type(handed.get(name)) is kind for name, kind in kinds.items()
    )
    if not is_whole or handed["format"] != FORMAT:
        raise ValueError("neither a file of the rating page nor a sheet")
    token, rows, latest = handed["token"], handed["ratings"], datetime.now(UTC) + timedelta(days=1)
    if token not in plan.raters:
        raise ValueError("from another plan: no rater of this plan has its token")
    rater, entries = plan.raters[token], list[Entry]()
    if len(rows) > len(rater.order):
        raise ValueError(f"{len(rows):,} ratings of the {len(rater.order)} replies for {rater.name}")
    for number, row in enumerate(rows, start=1):
        try:
            entries.append(read_entry(row, rater.order))
            if (entries[-1].at or latest) > latest:
                raise ValueError("at: is in the future; the rater's clock may be wrong")
        except ValueError as error:
            why = f"rating {number}: {error}; ask {rater.name} to save the file again"
            raise ValueError(why) from error
    return token, entries


def _read_sheet(path: Path, collected: Collected) -> None:
    has_any = False
    for line, row in read_rows(path, on_bad=lambda bad: collected.problems.append(str(bad))):
        has_any |= "task" in row
        try:
            if found := _read_line(row, collected):
                collected.add(*found, f"{path.name}:{line}")
        except ValueError as error:
            collected.problems.append(f"{path.name}:{line}: {error}")
    if not has_any:
        problem = "no column `task`; return the sheet of `rate export` with all columns"
        collected.problems.append(f"{path}: {problem}")


def _read_line(row: Mapping[str, Any], collected: Collected) -> tuple[str, Entry] | None:
    """Return the token and the rating of a line, None if it is not rated yet."""
    plan = collected.plan
    token, _, rest = str(row.get("task", "")).strip().partition("-")
    number, _, key = rest.partition("-")
    order = plan.raters[token].order if token in plan.raters else ()
    index = int(number) if re.fullmatch("[0-9]{1,6}", number) else len(order)
    if index >= len(order):
        raise ValueError("task: not one of this plan")
    if order[index] != key:
        raise ValueError("task: edited: the plan has another reply at this position")
    sent = sheet_row(plan, collected.texts, token, index)
    for name in ("prompt", "response"):
        if name in row and not _is_same(row[name], sent[name]):
            raise ValueError(f"{name}: edited: not the text of the plan")
    rating = row.get(ANSWERS[0])
    if rating is None or not str(rating).strip():
        return None
    position = position_on(as_label(rating), LABELS)
    if position is None or position != int(position):
        raise ValueError(f"rating: {str(rating)[:40]!r} is not one of {', '.join(LABELS)} or 1 to 3")
    reason = str(row.get(ANSWERS[1]) or "").strip()
    if len(reason) > LONGEST_REASON:
        raise ValueError(f"reason: longer than {LONGEST_REASON:,} characters")
    return token, Entry(index=index, label=LABELS[int(position) - 1], reason=reason)


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
    present = {row["rater"] for row in collected.rows} | collected.left
    before = dict.fromkeys(row["rater"] for row in read_collected(folder))
    return [name for name in before if name not in present]


def write_collected(collected: Collected, folder: Path) -> tuple[Path, Path]:
    """Write ratings and consistency into the plan's folder."""
    ratings, consistency = folder / RATINGS_FILE, folder / CONSISTENCY_FILE
    write_rows(ratings, collected.rows)
    _write_consistency(folder, to_plain(collected.consistency))
    return ratings, consistency


def _write_consistency(folder: Path, raters: Mapping[str, Any]) -> None:
    same, pairs = _count_repeats(raters)
    told = {"repeated": pairs, "same": same, "raters": raters}
    write_texts({CONSISTENCY_FILE: json.dumps(told, indent=1, ensure_ascii=False) + "\n"}, folder)


def _count_repeats(raters: Mapping[str, Any]) -> tuple[int, int]:
    pairs = [pair for rater in raters.values() for pair in rater["repeats"].values()]
    return sum(first == again for first, again in pairs), len(pairs)


def read_all_ratings(folder: Path, plan: RatingPlan, files: Sequence[Path]) -> CrossedRatings:
    """Return the ratings of journal, files and an earlier collection, with the chances of the plan."""
    now = collect(folder, files)
    rows = {(row["rater"], row["id"]): row for row in read_collected(folder) if row["rater"] not in now.left}
    rows |= {(row["rater"], row["id"]): row for row in now.rows}
    chance = {item.id: item.chance for item in plan.items.values()}
    taken = [row for row in rows.values() if row["id"] in chance]
    return CrossedRatings(
        rater=np.array([row["rater"] for row in taken]),
        prompt=np.array([row["prompt_key"] for row in taken]),
        model=np.array([row["model"] for row in taken]),
        value=np.array([float(row["rating"] == LABELS[-1]) for row in taken]),
        chance=np.array([chance[row["id"]] for row in taken]),
    )


def review_people(folder: Path) -> dict[str, tuple[str, str]]:
    """Return for each id of a public study a verdict (approve, refuse or unfinished) and its reason."""
    found, verdicts = collect(folder), dict[str, tuple[str, str]]()
    for person in read_people(folder):
        rated, rater = len(found.found[person.token]), found.plan.raters.get(person.token)
        if rater is None:
            verdicts[person.id] = "refuse", "left for an hour; another person has the place"
        elif rated < len(rater.order):
            verdicts[person.id] = "unfinished", f"{rated} of {len(rater.order)} rated"
        else:
            verdicts[person.id] = "approve", ""
    return verdicts


def forget_person(folder: Path, identity: str) -> int:
    """Delete a person's answers and id from the files of a plan; return the number of lines of answers."""
    gone = [person for person in read_people(folder) if person.id == identity]
    if not gone:
        raise UserError(f"{folder}: nobody has the id {identity!r}; `rate people` lists all")
    tokens, names = {person.token for person in gone}, {person.name for person in gone}
    if (folder / CONSISTENCY_FILE).exists():
        told = json.loads((folder / CONSISTENCY_FILE).read_text(encoding="utf-8"))
        raters = {name: rater for name, rater in told["raters"].items() if name not in names}
        _write_consistency(folder, raters)
    # The id comes last, so that a command that was killed can be run again.
    deleted = 0
    for path in (folder / name for name in (RATINGS_FILE, JOURNAL_FILE, PEOPLE_FILE)):
        *lines, _ = path.read_text(encoding="utf-8").split("\n") if path.exists() else [""]
        rows = [json.loads(line) for line in lines]
        kept = [row.get("token") not in tokens and row.get("rater") not in names for row in rows]
        write_texts({path.name: "".join(f"{line}\n" for line in compress(lines, kept))}, folder)
        deleted += kept.count(False) if path.name == JOURNAL_FILE else 0
    return deleted


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
