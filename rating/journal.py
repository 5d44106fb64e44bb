"""The journal of a plan: every rating and every undo, on the disk before it is acknowledged."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.files import LONGEST_REASON, LONGEST_TIME, LineFile, locked
from empathy_judge.data.records import LABELS
from empathy_judge.data.tables import to_json
from empathy_judge.rating.people import read_people
from empathy_judge.rating.plan import RatingPlan

JOURNAL_FILE: Final = "journal.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One act of a rater at an index of the order: a label, or None for an undo."""

    index: int
    label: str | None
    reason: str = ""
    at: datetime | None = field(default=None, compare=False)


def now() -> datetime:
    """Return the time that the server writes."""
    return datetime.now(UTC)


class Conflict(Exception):
    """Another act was recorded at this index, such as from another tab."""


class Journal:
    """All acts of all raters; numbered at each index, so that an act sent again is recorded once."""

    def __init__(self, folder: Path, plan: RatingPlan) -> None:
        self._lock = Lock()
        self._acts: dict[str, dict[int, list[Entry]]] = defaultdict(dict)
        for token, entry in read_journal(folder, plan):
            self._acts[token].setdefault(entry.index, []).append(entry)
        self._file = LineFile(folder / JOURNAL_FILE)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def record(self, token: str, key: str, number: int, entry: Entry) -> None:
        """Store an act, the `number`-th at its index; a known one is not written again."""
        with self._lock:
            acts = self._acts[token].setdefault(entry.index, [])
            if acts[number - 1 : number] == [entry]:
                return
            if number != len(acts) + 1:
                raise Conflict
            at = now().replace(microsecond=0)
            row: dict[str, Any] = {"token": token, "key": key, "index": entry.index, "label": entry.label}
            row |= {"reason": entry.reason} if entry.reason else {}
            row |= {"at": at.isoformat()} | ({"undo": True} if entry.label is None else {})
            self._file.append(to_json(row))
            acts.append(replace(entry, at=at))

    def acts_of(self, token: str) -> dict[int, tuple[int, Entry]]:
        """Return the number of acts and the last act by index."""
        with self._lock:
            return {index: (len(acts), acts[-1]) for index, acts in self._acts[token].items() if acts}


def lock_plan(folder: Path) -> AbstractContextManager[None]:
    """Lock the plan, so that one process at a time serves or extends it."""
    return locked(folder, busy="process {process} serves this plan already; use its links, or stop it")


def read_journal(folder: Path, plan: RatingPlan) -> Iterator[tuple[str, Entry]]:
    """Yield every act with its rater's token, in order, without an unfinished line."""
    path = folder / JOURNAL_FILE
    if not path.exists():
        return
    left = {person.token for person in read_people(folder)} - plan.raters.keys()
    *lines, _ = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            token = row["token"]
            if token in left:
                continue  # somebody else has the place now
            entry = read_entry(row, plan.raters[token].order, (*LABELS, None) if row.get("undo") else LABELS)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            problem = "not a rating of this plan; the journal may have been edited"
            raise UserError(f"{path}:{number}: {problem}") from error
        yield token, entry


def read_entry(row: Any, order: Sequence[str], labels: Sequence[str | None] = LABELS) -> Entry:
    """Return an act of a journal or a returned file; `ValueError` starts with the field that is wrong."""
    given = row if isinstance(row, dict) else {}
    index, label, at = (given.get(name) for name in ("index", "label", "at"))
    reason = given.get("reason", "")
    if type(index) is not int or not 0 <= index < len(order):
        raise ValueError(f"index: not one of the {len(order)} replies of this rater")
    if given.get("key") != order[index]:
        raise ValueError("key: not the plan's reply at this position")
    if label not in labels:
        raise ValueError(f"label: not one of {', '.join(LABELS)}")
    if not isinstance(reason, str) or len(reason) > LONGEST_REASON:
        raise ValueError(f"reason: not a text of at most {LONGEST_REASON:,} characters")
    try:
        time = datetime.fromisoformat(at if isinstance(at, str) and len(at) <= LONGEST_TIME else "")
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ValueError("at: not a time in ISO 8601 with its zone")
    return Entry(index=index, label=label, reason=reason, at=time)
