"""The journal of a plan: every rating and every undo as it came, on the disk before it is acknowledged."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Final

from data.errors import UserError
from data.files import disk_errors, locked, sync, without_links
from data.records import LABELS
from data.tables import to_json
from rating.plan import RatingPlan

JOURNAL_FILE: Final = "journal.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One act of a rater at a place of the order: a label, or None where the rating was taken back."""

    place: int
    label: str | None
    reason: str = ""
    at: str = field(default="", compare=False)


class Conflict(Exception):
    """Something else was recorded at this place, as from another tab."""


class Journal:
    """All acts of all raters; one process at a time may write.

    A rater's acts at one place are numbered from 1. A page that did not hear back sends an act again with its
    number, so that nothing is recorded twice and nothing late undoes what came after it.
    """

    def __init__(self, folder: Path, plan: RatingPlan) -> None:
        self.path, self.plan = folder / JOURNAL_FILE, plan
        self._lock = Lock()
        self._acts: dict[str, dict[int, list[Entry]]] = {token: {} for token in plan.raters}
        for token, entry in read_journal(folder, plan):
            self._acts[token].setdefault(entry.place, []).append(entry)
        with disk_errors(self.path):
            # Unbuffered: what a full disk refused must not come along with the next line.
            self._file = open(self.path, "ab", buffering=0, opener=without_links)  # noqa: SIM115 (kept open)
            # What a power cut left of a line was never acknowledged.
            self._file.truncate(_whole_length(self.path))
            sync(folder)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def record(self, token: str, key: str, number: int, entry: Entry) -> None:
        """Keep an act, the `number`-th at its place; known already, it is not written again."""
        with self._lock:
            acts = self._acts[token].setdefault(entry.place, [])
            if number <= len(acts):
                if acts[number - 1] != entry:
                    raise Conflict
                return
            if number > len(acts) + 1:
                raise Conflict
            at = datetime.now(UTC).isoformat(timespec="seconds")
            row: dict[str, Any] = {"token": token, "key": key, "place": entry.place, "label": entry.label}
            row |= {"reason": entry.reason} if entry.reason else {}
            row |= {"at": at} | ({"undo": True} if entry.label is None else {})
            with disk_errors(self.path):
                line, end = to_json(row).encode() + b"\n", self.path.stat().st_size
                try:
                    if self._file.write(line) != len(line):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(self._file.fileno())
                except OSError:
                    os.truncate(self.path, end)
                    raise
            acts.append(replace(entry, at=at))

    def acts_of(self, token: str) -> dict[int, tuple[int, Entry]]:
        """By place, how many acts there were and the last."""
        with self._lock:
            return {place: (len(acts), acts[-1]) for place, acts in self._acts[token].items() if acts}


def lock_plan(folder: Path) -> AbstractContextManager[None]:
    """Let nobody else serve this plan meanwhile."""
    return locked(folder, busy="process {process} serves this plan already; use its links, or end it")


def read_journal(folder: Path, plan: RatingPlan) -> Iterator[tuple[str, Entry]]:
    """Every act with its rater's token, in order; a line that was not finished is left out."""
    path = folder / JOURNAL_FILE
    if not path.exists():
        return
    *lines, _ = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            token, place, label = row["token"], row["place"], row["label"]
            is_ours = plan.raters[token].order[place] == row["key"] and place >= 0
        except (ValueError, KeyError, IndexError, TypeError):
            is_ours = False
        if not is_ours or (label not in LABELS and not row.get("undo")):
            raise UserError(f"{path}:{number}: not a rating of this plan; was the journal edited?")
        reason, at = (str(row.get(name, "")) for name in ("reason", "at"))
        yield token, Entry(place=place, label=label, reason=reason, at=at)


def _whole_length(path: Path) -> int:
    """The bytes of the lines that were finished."""
    return path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0
