"""Situations that evoke emotions, by the 36 factors of the benchmark: included, or of your copy of it."""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Final

from empathy_judge.data.errors import UserError
from empathy_judge.data.readers.file_formats import read_whole
from empathy_judge.data.readers.table_rows import read_rows
from empathy_judge.emotionbench.questionnaires import plain_name

OURS: Final = Path(__file__).parent / "situations.jsonl"  # 108, three for each factor
POSITIVE: Final = Path(__file__).parent / "situations-positive.jsonl"  # 36, one of each that goes well
HUMAN_NORMS: Final = Path(__file__).parent / "human-norms.csv"  # of all people, each emotion and each factor
# The 36 factors in the benchmark's order: {"Anger-0": "Facing Self-Opinioned People", ...}.
FACTOR_NAMES: Final[Mapping[str, str]] = {
    row["name"].partition(" ")[0]: row["name"].partition(" ")[2]
    for _, row in read_rows(HUMAN_NORMS)
    if row["level"] == "factor"
}
OTHER_NAMES: Final = {"angry": "Anger", "jealous": "Jealousy"}  # what the human table calls them


@dataclass(frozen=True, slots=True, kw_only=True)
class EvokingSituation:
    """A text that evokes an emotion; `factor` is the emotion and a number, such as `Anger-0`."""

    id: str
    factor: str
    text: str

    @property
    def emotion(self) -> str:
        return emotion_of(self.factor)


def emotion_of(factor: str) -> str:
    """Return the emotion of a factor, such as Anger of Anger-0."""
    return factor.rpartition("-")[0]


def find_emotion(name: str) -> str:
    """Return the emotion of a name in a file; unknown names stay as they are.

    >>> find_emotion("angry"), find_emotion("GUILT"), find_emotion("Joy")
    ('Anger', 'Guilt', 'Joy')
    """
    emotions = {emotion.casefold(): emotion for emotion in map(emotion_of, FACTOR_NAMES)} | OTHER_NAMES
    return emotions.get(name.strip().casefold(), name.strip())


def find_factor(emotion: str, name: str) -> str | None:
    """Find a factor by its emotion and its name, number or both; None if there is none such.

    >>> find_factor("jealous", "material possession"), find_factor("Anger", "4"), find_factor("Anger", "Joy")
    ('Jealousy-2', 'Anger-4', None)
    """
    emotion = find_emotion(emotion)
    key = _read_key(name)
    if name.strip().isdecimal() and len(name) < 9:
        key = f"{emotion}-{int(name)}"
    if key:
        return key if key in FACTOR_NAMES else None
    factors = {(emotion_of(key), plain_name(own)): key for key, own in FACTOR_NAMES.items()}
    return factors.get((emotion, plain_name(name)))


def _read_key(text: str) -> str | None:
    match = re.fullmatch(r"\s*([^\W\d_][\w ]*?)\s*-\s*([0-9]{1,3})\s*", text)
    return f"{find_emotion(match[1])}-{int(match[2])}" if match else None


def read_situations(path: Path = OURS) -> tuple[EvokingSituation, ...]:
    """Read the included situations, or those of a benchmark's situations.csv, .json or .jsonl."""
    readers = {".csv": _read_csv, ".json": _read_json, ".jsonl": _read_jsonl}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"{path}: unknown file type; situations are read from {', '.join(readers)}")
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    situations = tuple(reader(path))
    if not situations:
        raise UserError(f"{path}: no situations")
    return situations


def choose_situations(
    situations: tuple[EvokingSituation, ...], *, emotions: tuple[str, ...] = (), per_factor: int | None = None
) -> tuple[EvokingSituation, ...]:
    """Return the first situations of each factor, of these emotions or of all."""
    wanted = {find_emotion(name) for name in emotions}
    unknown = wanted - {situation.emotion for situation in situations}
    if unknown:
        emotions_there = ", ".join(dict.fromkeys(situation.emotion for situation in situations))
        raise UserError(f"no situations for {min(unknown)!r}; there are some for {emotions_there}")
    counts: Counter[str] = Counter()
    chosen = []
    for situation in situations:
        counts[situation.factor] += 1
        is_wanted = not wanted or situation.emotion in wanted
        if is_wanted and (per_factor is None or counts[situation.factor] <= per_factor):
            chosen.append(situation)
    return tuple(chosen)


def _read_csv(path: Path) -> Iterator[EvokingSituation]:
    """Read a column for each factor: its key, its name, then the texts, as many as there are."""
    rows = read_cells(path)
    for column, name in enumerate(rows[0] if rows else ()):
        key = _read_key(name)
        if key is None:
            raise UserError(
                f"{path.name}:1: {name[:40]!r}: expected an emotion and a number, such as 'Anger-0'"
            )
        texts = [row[column].strip() for row in rows[2:] if column < len(row)]
        yield from _number(key, texts)


def read_cells(path: Path) -> list[list[str]]:
    """Read the cells of a CSV file of any shape, row by row."""
    try:
        return list(csv.reader(StringIO(read_whole(path), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: not CSV in UTF-8: {error}") from error


def _read_json(path: Path) -> Iterator[EvokingSituation]:
    try:
        content = json.loads(read_whole(path))
        for emotion in content["emotions"]:
            for number, factor in enumerate(emotion["factors"]):
                key = find_factor(emotion["name"], factor["name"])
                key = key or f"{find_emotion(emotion['name'])}-{number}"
                yield from _number(key, [str(text).strip() for text in factor["scenarios"]])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not the situations of the benchmark: {error!r}") from error


def _read_jsonl(path: Path) -> Iterator[EvokingSituation]:
    seen: set[str] = set()
    for line, row in read_rows(path):
        identity = str(row.get("id") or row.get("situation_id") or "")
        text = row.get("text")
        name = str(row.get("factor") or "")
        factor = _read_key(identity.partition("/")[0]) or _read_key(name)
        factor = factor or find_factor(str(row.get("emotion") or ""), name)
        if not factor or not isinstance(text, str) or not text.strip():
            raise UserError(
                f"{path.name}:{line}: a situation has an id such as 'Anger-0/1' or a factor, and a text"
            )
        identity = f"{factor}/{identity.partition('/')[2] or line}"
        if identity in seen:
            raise UserError(f"{path.name}:{line}: id: {identity!r} is a duplicate")
        seen.add(identity)
        yield EvokingSituation(id=identity, factor=factor, text=text.strip())


def _number(factor: str, texts: list[str]) -> Iterator[EvokingSituation]:
    for number, text in enumerate(texts):
        if text and text.casefold() != "nan":
            yield EvokingSituation(id=f"{factor}/scenario-{number}", factor=factor, text=text)
